/* ident: the identity of a loaded model, for the KV tiers, for a server that takes over, for nodes and for packed
 * weights.
 *
 * An identity covers
 *   - every byte of every loaded tensor, with its name, type and shape. The names and sizes of the files do not
 *     count, nor do tensors that are not loaded;
 *   - config.json without the keys that change no number (ident.c lists them), and the frequencies of the rotary
 *     embedding;
 *   - the types of the weights on the device, and the arithmetic (dev_arith; the C library's sine and cosine).
 *
 * The digest of weights is a tree. A leaf is a run of a tensor's last dimension (a row of a matrix, a whole vector):
 * XXH3-128, seeded with the leaf's place. A tensor is the sum of its leaves modulo 2^128, so neither the order nor the
 * number of reading threads matters. The root is SHA-256 over the tensors in order of their names. XXH3 is no
 * cryptographic hash: two checkpoints that differ by training, by damage or by a single bit never agree (2^-128), but
 * someone who makes both can make two that do. This is accepted: SHA-256 of all bytes would cost more than reading them
 * (1.4 GB/s a core; XXH3 40), and someone who chooses the weights of a server chooses its text anyway.
 *
 * Leaves are digested in the loading buffers, while they are in the processor's cache. Each rank digests the leaves
 * that it reads, so everything that any rank loads is covered. Private to engine/model/, except ident_quick.   Thread:
 * one, except for ident_take and ident_take_whole. */
#pragma once
#include "base/json.h"
#include "engine/model/bind.h"

enum { IDENT_BYTES = 32 };

struct ident; /* the leaves that one rank reads */

/* For the tensors of a set, which must stay open longer. ST_NOMEM. */
enum status ident_open(const struct st_set *set, struct ident **id_out);
void        ident_close(struct ident *id);
/* Adds bytes [at, at + bytes) of a tensor of the set, which must be whole leaves. Adding a leaf again has no effect.
 * Any number of threads at a time. */
void ident_take(struct ident *id, const struct st_tensor *t, uint64_t at, const void *data, uint64_t bytes);
/* Adds a whole tensor, for loads of parts that are no whole leaves (of a vector): reads it from its file unless it was
 * added already. Any thread. ST_NOMEM, ST_IO. */
enum status ident_take_whole(struct ident *id, const struct st_tensor *t);
/* True if leaves of this tensor were added. */
bool ident_has(const struct ident *id, const struct st_tensor *t);
/* The digest of the weights, after all leaves were added. */
void ident_root(const struct ident *id, unsigned char out[IDENT_BYTES]);
/* The same for made-up weights (dummy.c). */
void ident_root_dummy(unsigned char out[IDENT_BYTES]);
/* The same for a checkpoint that changed while it was read: a random number, equal to no other. */
void ident_root_random(unsigned char out[IDENT_BYTES]);

/* The digest of config.json without the keys that change no number. root: the file, a JSON object, not modified. */
void ident_config(const json_t *root, unsigned char out[IDENT_BYTES]);

/* The facts about a rank's loaded weights that enter its identity. */
struct ident_loaded {
    const struct model_spec *spec;
    const unsigned char     *root; /* [IDENT_BYTES] */
    const float             *inv_freq;
    float                    rope_scale;
    const char              *arith; /* dev_arith */
    enum dtype               weights;
    struct dev_quant         quant; /* code F32: none */
    bool                     quant_head;
    bool whole_experts; /* ranks divide the experts among them: sums over ranks have other parts than those of slices */
};
/* The identity of a rank's share. */
void ident_model(const struct ident_loaded *l, unsigned char out[IDENT_BYTES]);
/* The identity of a team of ranks, in their order. */
void ident_ranks(const unsigned char (*rank)[IDENT_BYTES], uint32_t n_rank, unsigned char out[IDENT_BYTES]);

/* A quick digest before loading, with which nodes compare their checkpoints: config.json as above, the names, types and
 * shapes of all tensors and 4 KiB from the middle of each. Checkpoints with equal quick digests may differ in single
 * weights. set: NULL for made-up weights. ST_IO. */
enum status ident_quick(const struct model_spec *spec, const struct st_set *set, unsigned char out[IDENT_BYTES]);
