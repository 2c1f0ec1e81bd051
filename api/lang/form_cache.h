/* form_cache: grammars that requests share. Equal keys get the same grammar, with the states and masks that earlier
 * texts have filled in. Of requests that come at once one makes it, and the others wait for that one. What cannot be
 * compiled is remembered with its reason. The least recently used ones go when the bytes of all are over the bound;
 * those in use by a request stay.   Thread: any. */
#pragma once
#include "api/lang/form.h"
#include "base/buf.h"

struct form_cache;

/* Makes the grammar of a key that is not there. ignored: [SCHEMA_IGNORED]; err: "" where the failure is not to be
 * remembered. */
typedef enum status form_make(void *arg, struct grammar **g_out, char *ignored, char err[FORM_ERR]);

struct form_cache_counts {
    uint64_t n_hit, n_made, n_refused, n_evicted; /* n_refused: answered by a failure that is remembered */
    uint64_t n_entry, bytes;                      /* now */
};

/* NULL: no memory. */
struct form_cache *form_cache_create(size_t bytes_max);
void               form_cache_free(struct form_cache *c);
/* The grammar of this key, with a reference of the caller's, and the names in `ignored` (may be NULL) that went with
 * it. ST_AGAIN: the grammars in use fill the bound. Other failures: make's. */
enum status form_cache_get(struct form_cache *c, const struct buf *key, form_make *make, void *arg,
                           struct grammar **g_out, char *ignored, char err[FORM_ERR]);
void        form_cache_count(struct form_cache *c, struct form_cache_counts *out);
/* Appends to a key what tells this form from others. false: no memory. */
bool form_key(const struct form *f, struct buf *key);
/* Appends a JSON value (NULL: none), with the order of its members. */
bool form_key_json(const json_t *v, struct buf *key);
