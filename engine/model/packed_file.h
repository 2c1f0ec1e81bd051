/* packed_file: a span of memory in a file, with an identity and digests; and the folder of such files.
 * Private to engine/model/; packed.h has the purpose.   Thread: one, which starts helpers for the chunks. */
#pragma once
#include "kernels/device.h"

struct packed_span {
    char    *base;
    uint64_t bytes;
    uint32_t n_thread; /* threads that read or write; 0: auto. Eight check a mapped file */
    void (*progress)(void *ctx, uint64_t done,
                     uint64_t total); /* may be NULL; one call at a time, with rising numbers */
    void *progress_ctx;
};
enum { PACKED_WHY = 256 };

/* PACKED_HIT: the file's span is at s->base, mapped or read, and every byte was checked. PACKED_NONE: there is no such
 * file. PACKED_DOUBT: it is not used; why has one line. PACKED_LOST: as in dev_unmap. The span must be zeros before the
 * call; unless PACKED_HIT, it is zeros afterwards. */
enum packed_read { PACKED_HIT, PACKED_NONE, PACKED_DOUBT, PACKED_LOST };
enum packed_read packed_file_read(const char *path, const char *ident, size_t ident_bytes, const struct packed_span *s,
                                  struct device *d, bool *mapped_out, char why[PACKED_WHY]);
/* Writes the file and renames it when it is complete. False: the previous state remains; one line in why. */
bool packed_file_write(const char *path, const char *ident, size_t ident_bytes, const struct packed_span *s,
                       char why[PACKED_WHY]);
/* Size of the file of such a span. */
uint64_t packed_file_bytes(size_t ident_bytes, uint64_t bytes);
/* Removes the least recently used packed files of dir, except `path`, until the rest and `need` fit into max.
 * Unfinished files of processes that died are removed too. False: need alone exceeds max. */
bool packed_dir_room(const char *dir, const char *path, uint64_t need, uint64_t max);
