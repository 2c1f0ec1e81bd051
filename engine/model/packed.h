/* packed: the weights of one rank as its device packed them, kept in a file, so that a later start neither converts nor
 * copies them. packed_begin -> place everything -> packed_take -> (on a miss: load, packed_keep) -> packed_end.
 * Private to engine/model/.   Thread: the one that loads.
 *
 * A file, <digest of the identity>.packed, consists of a head, the identity as text, digests, and at a multiple of 2
 * MiB the weights' span of the arena, byte for byte (packed_file.h). The identity covers everything that those bytes
 * depend on: the digest of the weights (ident.h), the layout of the span, and the device's form (dev_weight_form). A
 * change of the loading code that none of these covers must raise PACKED_VERSION. A small file beside it (ident_file.h)
 * has the digest of a checkpoint that is not read; without that file the checkpoint is read. A file is made under a
 * temporary name, renamed when it is complete, and never written again. Removing it does not disturb processes that
 * have it mapped. Any doubt is a miss: it is logged, and the file is made anew. A failure to keep a file is logged, and
 * the start continues. */
#pragma once
#include "base/buf.h"
#include "engine/model/ident_file.h"
#include "engine/model/place.h"

enum { PACKED_VERSION = 3 };
struct packed {
    const struct model_load_cfg *cfg;
    struct place                *p;
    const struct source         *src;
    /* dev_weight_form of plain weights, of the codes asked for, of 8-bit codes beside them, and of experts that stay MXFP4 */
    uint64_t                 form[4];
    char                    *base; /* the span; base and bytes are multiples of DEV_MAP_ALIGN */
    uint64_t                 bytes;
    const float             *inv_freq; /* of packed_take */
    const struct ident_file *files;    /* of packed_take */
    uint64_t                 layout;   /* digest of all jobs: sources and destinations */
    unsigned char            root[IDENT_BYTES];
    bool                     known; /* root was found through `files` */
    struct buf               ident;
    char                     path[1024];
    bool                     on;
};

/* True if this load uses packed files. The span of the weights then begins and ends at multiples of DEV_MAP_ALIGN. */
bool packed_wanted(const struct model_load_cfg *cfg, const struct source *src);
/* p: nothing is placed yet. p, cfg and src must stay valid and, apart from p's jobs, unchanged until packed_end. */
void packed_begin(struct packed *k, struct place *p, const struct model_load_cfg *cfg, const struct source *src);
/* Call after everything is placed and before anything is written. inv_freq: numbers of the span that belong to no job.
 * *hit_out true: the weights are in the span, which is read only, and root_out is their digest. false: the span is
 * zeros and writable, as before. inv_freq and files must stay valid until packed_end. ST_NOMEM: the span is lost. */
enum status packed_take(struct packed *k, const float *inv_freq, void *base, uint64_t bytes,
                        const struct ident_file *files, unsigned char root_out[IDENT_BYTES], bool *hit_out);
/* Keeps the complete span, made of weights of this digest. The checkpoint must still agree with `files`. */
void packed_keep(struct packed *k, const unsigned char root[IDENT_BYTES]);
void packed_end(struct packed *k);
