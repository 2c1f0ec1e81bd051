/* ident: which model this is. One answer for the KV tiers, for a server that takes over, for nodes and for packed weights.
 *
 * An identity covers
 *   - every byte of every tensor that is loaded, with its name, type and shape, wherever the checkpoint keeps it: files may be named and
 *     cut in any way, and tensors that nobody loads do not count;
 *   - config.json without the keys that change no number (ident.c lists them), and the frequencies of the rotary embedding;
 *   - the types that weights have on the device, and who computes with them (dev_arith; the C library's sine and cosine).
 *
 * The digest of weights is a tree. A leaf is a run of a tensor's last dimension (a row of a matrix, a whole vector): XXH3-128, seeded with the
 * leaf's place. A tensor is the sum of its leaves modulo 2^128, so neither the order nor the number of reading threads matters. The root is
 * SHA-256 over the tensors in order of their names. XXH3 is no cryptographic hash: two checkpoints that differ by training, by damage or by a
 * single bit never agree (2^-128), but whoever makes both can make two that do. That is weighed: SHA-256 of all bytes costs more than
 * reading them (1.4 GB/s a core; XXH3 40), and whoever may choose the weights that a server loads chooses its text anyway.
 *
 * Leaves are taken from the buffers of loading while they are in the processor's cache. Of a tensor that ranks share, each rank takes the
 * leaves that it reads, so all that any rank loads is covered.
 * Private to engine/model/, but for ident_quick.   Thread: one, but for ident_take. */
#pragma once
#include "base/json.h"
#include "engine/model/bind.h"

enum { IDENT_BYTES = 32 };

struct ident; /* the leaves of what one rank reads */

/* For the tensors of a set, which must outlive it. ST_NOMEM. */
enum status ident_open(const struct st_set *set, struct ident **id_out);
void        ident_close(struct ident *id);
/* Bytes [at, at + bytes) of a tensor of the set are loaded: whole leaves. A leaf counts once, however often it comes.
 * Any thread, several at a time. */
void ident_take(struct ident *id, const struct st_tensor *t, uint64_t at, const void *data, uint64_t bytes);
/* The whole of a tensor is loaded, or a part that is no row of leaves (of a vector): reads it from its file, if it is
 * not taken yet. Any thread. ST_NOMEM, ST_IO. */
enum status ident_take_whole(struct ident *id, const struct st_tensor *t);
/* Have leaves of this tensor been taken? */
bool ident_has(const struct ident *id, const struct st_tensor *t);
/* All is taken: the digest of the weights. */
void ident_root(const struct ident *id, unsigned char out[IDENT_BYTES]);
/* In its place for weights that are made up (dummy.c). */
void ident_root_dummy(unsigned char out[IDENT_BYTES]);
/* In its place when the checkpoint changed while it was read: agrees with nothing. */
void ident_root_random(unsigned char out[IDENT_BYTES]);

/* The digest of config.json without the keys that change no number. root: the file, an object; it stays as it is. */
void ident_config(const json_t *root, unsigned char out[IDENT_BYTES]);

/* What a rank's weights are once they are loaded. */
struct ident_loaded {
    const struct model_spec *spec;
    const unsigned char     *root; /* [IDENT_BYTES] */
    const float             *inv_freq;
    float                    rope_scale;
    const char              *arith; /* dev_arith */
    enum dtype               weights;
    struct dev_quant         quant; /* code F32: none */
    bool                     quant_head;
};
/* The identity of a rank's share. */
void ident_model(const struct ident_loaded *l, unsigned char out[IDENT_BYTES]);
/* The identity of a team of ranks, in their order. */
void ident_ranks(const unsigned char (*rank)[IDENT_BYTES], uint32_t n_rank, unsigned char out[IDENT_BYTES]);

/* Before anything is loaded, for nodes that compare what they were given: config.json as above, the names, types and
 * shapes of all tensors and 4 KiB from the middle of each. Two checkpoints that agree in it may differ in single
 * weights. set: NULL for weights that are made up. ST_IO. */
enum status ident_quick(const struct model_spec *spec, const struct st_set *set, unsigned char out[IDENT_BYTES]);
