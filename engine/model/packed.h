/* packed: the weights of one rank as its device packed them, kept in a file, so that a later start neither converts nor
 * copies them. packed_begin -> place everything -> packed_take: the weights are there, or load them and packed_keep ->
 * packed_end.
 * Private to engine/model/.   Thread: the one that loads.
 *
 * A file, <digest of the identity>.packed, is a head, the identity as text, digests, and at a multiple of 2 MiB the
 * weights' span of the arena, byte for byte (packed_file.h). The identity names all that those bytes depend on: the
 * digest of the weights (ident.h), what goes where, and the device's form (dev_weight_form). Whoever changes what
 * loading makes of a checkpoint and is seen by neither, raises PACKED_VERSION. Which digest a checkpoint has that
 * nobody reads is told by a small file beside it (ident_file.h); without one the checkpoint is read.
 * Files are made under another name, renamed when they are whole, never written again, and removed only as names: who
 * has one mapped keeps it. Any doubt is a miss: one line, and the file is made anew. What cannot be kept is a line too,
 * and the start goes on. */
#pragma once
#include "base/buf.h"
#include "engine/model/ident_file.h"
#include "engine/model/place.h"

enum { PACKED_VERSION = 3 };
struct packed {
    const struct model_load_cfg *cfg;
    struct place                *p;
    const struct source         *src;
    uint64_t                     form[3]; /* of plain weights, of the codes asked for, of 8-bit ones beside them */
    char                        *base;    /* of the span; [bytes], both multiples of DEV_MAP_ALIGN */
    uint64_t                     bytes;
    const float                 *inv_freq; /* of packed_take */
    const struct ident_file     *files;    /* of packed_take */
    uint64_t                     layout;   /* what every job moves whereto */
    unsigned char                root[IDENT_BYTES];
    bool                         known; /* root: as files says */
    struct buf                   ident;
    char                         path[1024];
    bool                         on;
};

/* Should this load look for such a file, and keep one? Then the span of the weights begins and ends at multiples of
 * DEV_MAP_ALIGN. */
bool packed_wanted(const struct model_load_cfg *cfg, const struct source *src);
/* p, with nothing placed in it yet, cfg and src: as they are until packed_end, jobs apart. */
void packed_begin(struct packed *k, struct place *p, const struct model_load_cfg *cfg, const struct source *src);
/* All is placed, nothing written. inv_freq: the numbers of the span that are no job's. hit_out: the weights are there
 * and may not be written; root_out is their digest. Else the span is zeros to be written, as it was. inv_freq and files
 * stay until packed_end. ST_NOMEM: the span is lost. */
enum status packed_take(struct packed *k, const float *inv_freq, void *base, uint64_t bytes,
                        const struct ident_file *files, unsigned char root_out[IDENT_BYTES], bool *hit_out);
/* The span is complete, made of weights of this digest; the checkpoint's files are still what `files` says. */
void packed_keep(struct packed *k, const unsigned char root[IDENT_BYTES]);
void packed_end(struct packed *k);
