/* store_models: the sub-folders of a store's folder, one for each fingerprint, under one budget.   Private to kvcache/folder/ and tools.
 *
 *   DIR/LOCK                        one server at a time, whatever its model: so the budget is one server's to keep
 *   DIR/model-<fingerprint>/        segments of one fingerprint, 64 hexadecimal digits
 *   DIR/model-<fingerprint>/USED    a decimal number; the server that was started last has the highest
 *   DIR/seg-<seq>.kv                of versions that had no sub-folders: as if of a model that was used before all others
 *
 * The number in USED is made of the numbers that are there, not of a clock: a clock that is set back would make the newest the oldest.
 * It is written before anything else of a start, so a server that is killed between any two writes leaves at worst an empty sub-folder,
 * or one without a number, which counts as never used. Only the server that holds LOCK removes anything. */
#pragma once
#include "kvcache/ident.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODELS_NAME = 80 };

void models_name(char *out, size_t bytes, const struct kv_key *fingerprint); /* "model-<64 digits>" */
bool models_is_name(const char *name); /* of a sub-folder; no such name leads out of the folder */
/* The number of a sub-folder; 0: it has none that can be read. */
uint64_t models_used(int sub);

/* Makes and opens root/own, and gives it the highest number. Returns 0 or errno. own: as models_name makes it. */
int models_open(int root, const char *own, int *dir_out);
/* Removes what is empty: at the end of a server that kept nothing, and sub-folders that others have left so. */
void models_tidy(int root);

/* Bytes of the segments in one sub-folder. Returns 0 or errno. */
int models_bytes(int sub, uint64_t *bytes_out);
/* Bytes of segments that are not in root/own: *bytes_out. Files that others have put there are not counted. Returns 0
 * or errno; then nothing is known. */
int models_others(int root, const char *own, uint64_t *bytes_out);
/* Removes segments of other models, those of the one that was used longest ago first and of these the oldest, until at
 * most bytes_max are left. *bytes_out: how many are left, which may be more where a file could not be read or removed.
 * n_removed_out: files. Only what was read and found a segment of a store is removed. Returns 0 or errno. */
int models_shrink(int root, const char *own, uint64_t bytes_max, uint64_t *bytes_out, uint32_t *n_removed_out);
