/* parcel: a prompt that one server has computed and another goes on with (prefill and decode apart). The server that
 * computed it keeps its blocks in their host slots as a parcel; the other one claims the parcel, pulls the blocks like
 * any other blocks of a peer, and says when it is done.   Thread: the engine's, except where a field says otherwise.
 *
 * A parcel holds no block by itself: blocks are found by their keys, which follow from model, salt and tokens. So
 * whoever names a parcel gets no block whose tokens and salt it does not know already, and a claim counts only with the
 * key of the parcel's first block, which another tenant cannot make. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* KV_PARCEL_US: a parcel that nobody claims ends after so long; a claim is repeated every KV_CLAIM_US. */
enum { KV_PARCEL_ID = 16, KV_PARCEL_US = 4000000, KV_CLAIM_US = 1000000 };

/* A prompt that is to be kept for another server. The submitter of a request owns it. */
enum kv_parcel_state { KV_PARCEL_NONE, KV_PARCEL_MAKING, KV_PARCEL_MADE };
struct kv_parcel {
    enum kv_parcel_state state; /* the engine's */
    unsigned char        id[KV_PARCEL_ID];
    uint32_t             n_block;     /* MADE: blocks kept, the first ones of the prompt; 0: none, and there is no id */
    uint32_t             n_block_max; /* the submitter's: length of slot */
    int32_t             *slot;        /* [n_block_max] the submitter's array: the host slots of the blocks */
};

/* How the pull of a parcel ended; the names are those of metrics. */
#define KV_CLAIM_LIST(X)                                                                                            \
    X(PULLED, "pulled")     /* its blocks were used */                                                              \
    X(HERE, "here")         /* nothing was pulled: the blocks were here, or the prompt fills no block */            \
    X(NO_PEER, "no_peer")   /* the engine is no connected peer: gone, another model, not one of --kv-peer */        \
    X(MISMATCH, "mismatch") /* the parcel has more blocks than the prompt */                                        \
    X(MISSING, "missing")   /* the peer does not have them: the lease is over, or it is another prompt or tenant */ \
    X(LOST, "lost")         /* they did not come: late, the peer lost, or in doubt */                               \
    X(UNUSED, "unused")     /* the request ended before it ran, or computes every row (prompt_logprobs) */
enum kv_claim_end {
#define KV_CLAIM_ID(id, name) KV_CLAIM_##id,
    KV_CLAIM_LIST(KV_CLAIM_ID)
#undef KV_CLAIM_ID
        KV_CLAIM_ENDS
};

/* A parcel of a peer, as a request names it. The submitter owns it. */
struct kv_claim {
    unsigned char engine[KV_PARCEL_ID], id[KV_PARCEL_ID];
    uint32_t      n_block;
    /* the engine's */
    uint32_t row; /* 1 + index of the claim; 0: none is open */
    bool     asked, unknown;
    uint32_t n_found; /* blocks that it could have had when it asked */
};

struct kv_parcel_stats {
    uint64_t n_made, n_taken, n_lapsed, n_refused; /* refused: no block of the prompt could be kept */
    uint32_t n_now, n_block;                       /* parcels, and the slots that they hold */
};
