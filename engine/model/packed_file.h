/* packed_file: a span of memory in a file, with an identity and digests; and the folder of such files.
 * Private to engine/model/ (packed.h says what for).   Thread: one, which starts helpers for the chunks. */
#pragma once
#include "kernels/device.h"

struct packed_span {
    char    *base;
    uint64_t bytes;
    uint32_t n_thread; /* that read or write it; 0: auto. A mapped file is checked by eight */
    void (*progress)(void *ctx, uint64_t done,
                     uint64_t total); /* may be NULL; one caller at a time, numbers only rise */
    void *progress_ctx;
};
enum { PACKED_WHY = 256 };

/* The file's span is at s->base, mapped or read, and every byte of it was checked: PACKED_HIT. PACKED_NONE: there is no
 * such file. PACKED_DOUBT: why in one line. PACKED_LOST: as in dev_unmap. Not PACKED_HIT: the span, zeros when it comes
 * here, is zeros. */
enum packed_read { PACKED_HIT, PACKED_NONE, PACKED_DOUBT, PACKED_LOST };
enum packed_read packed_file_read(const char *path, const char *ident, size_t ident_bytes, const struct packed_span *s,
                                  struct device *d, bool *mapped_out, char why[PACKED_WHY]);
/* The file is whole and under its name, or as it was before. False: why in one line. */
bool packed_file_write(const char *path, const char *ident, size_t ident_bytes, const struct packed_span *s,
                       char why[PACKED_WHY]);
/* Bytes of the file of such a span. */
uint64_t packed_file_bytes(size_t ident_bytes, uint64_t bytes);
/* Removes the packed files of dir that were used longest ago, until those that stay and `need` are no more than max;
 * not that of `path`, whose place it is for. Files that somebody who died was writing go too. False: need alone is
 * more. */
bool packed_dir_room(const char *dir, const char *path, uint64_t need, uint64_t max);
