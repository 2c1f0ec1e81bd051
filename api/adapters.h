/* adapters: the adapters that clients may name as their model, by name.   Thread: any; one lock, which no step takes.
 * adapters_create -> add, remove, find -> adapters_free. An adapter that was removed is gone for new requests at once;
 * its memory goes with the last request that uses it, and until then it counts against twice n_max. */
#pragma once
#include "base/buf.h"
#include "engine/model/adapter.h"

struct adapters;
/* n_max: names at one time, as adapters_max says later. NULL: no memory. adapters_free ends it; NULL: nothing. */
struct adapters *adapters_create(uint32_t n_max);
void             adapters_free(struct adapters *all);
uint32_t         adapters_max(const struct adapters *all);

/* Makes the adapter known by its name, in place of one with the same name if replace. all takes the caller's keep,
 * unless it fails. ST_INVALID: the name is taken; ST_AGAIN: no more fit, because n_max are known, or because requests
 * still use too many that were removed. */
enum status adapters_add(struct adapters *all, struct adapter *a, bool replace);
/* ST_NOT_FOUND; ST_AGAIN: requests still use too many that were removed before. */
enum status adapters_remove(struct adapters *all, const char *name);
/* The adapter of that name, kept for the caller; NULL: there is none, or all is NULL. */
struct adapter *adapters_find(struct adapters *all, const char *name, size_t n);
bool            adapters_has(struct adapters *all, const char *name, size_t n);
/* Calls fn for each adapter in the order in which they came, with the lock held. */
void adapters_each(struct adapters *all, void (*fn)(void *ctx, const struct adapter *a), void *ctx);
/* Could clients send this name, and logs and labels show it? Printable, without '"', '\\' and ',', below LORA_NAME_MAX
 * bytes. */
bool adapters_name_ok(const char *name, size_t n);
