/* store_models: the sub-folders of a store's folder, one for each fingerprint, under one budget.   Private to
 * kvcache/folder/ and tools.
 *
 *   DIR/LOCK                        one server at a time, of any model, so that one server keeps the budget
 *   DIR/model-<fingerprint>/        segments of one fingerprint, 64 hexadecimal digits
 *   DIR/model-<fingerprint>/USED    a decimal number; the server that was started last has the highest
 *   DIR/seg-<seq>.kv                of versions without sub-folders; treated as the model used longest ago
 *
 * The number in USED follows from the numbers that are there, not from a clock: a clock that is set back would make the
 * newest sub-folder the oldest. USED is the first file that a start writes. A server that is killed between two writes
 * leaves at worst an empty sub-folder, or one without a number, which counts as never used. Only the server that holds
 * LOCK removes files. */
#pragma once
#include "kvcache/ident.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODELS_NAME = 80 };

void models_name(char *out, size_t bytes, const struct kv_key *fingerprint); /* "model-<64 digits>" */
bool models_is_name(
    const char *name); /* true for the name of a sub-folder; such a name never leads out of the folder */
/* The number in USED of a sub-folder; 0: none, or unreadable. */
uint64_t models_used(int sub);

/* Makes and opens root/own, and gives it the highest number. Returns 0 or errno. own: as models_name makes it. */
int models_open(int root, const char *own, int *dir_out);
/* Removes empty sub-folders: of a server that kept nothing, and those that others left. */
void models_tidy(int root);

/* Bytes of the segments in one sub-folder. Returns 0 or errno. */
int models_bytes(int sub, uint64_t *bytes_out);
/* *bytes_out: bytes of segments outside root/own. Files that are no segments are not counted. Returns 0, or errno with
 * *bytes_out unset. */
int models_others(int root, const char *own, uint64_t *bytes_out);
/* Removes segments of other models until at most bytes_max bytes of them are left: first of the model used longest ago,
 * and of that the oldest segment. *bytes_out: bytes left, possibly more than bytes_max if a file could not be read or
 * removed. *n_removed_out: removed files. Only files that were read and identified as segments are removed. Returns 0
 * or errno. */
int models_shrink(int root, const char *own, uint64_t bytes_max, uint64_t *bytes_out, uint32_t *n_removed_out);
