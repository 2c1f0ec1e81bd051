/* plan: what a model takes on a GPU or on this machine's CPU, how many sequences fit, and how fast it can be at best,
 * before anything is bought or loaded.   Thread: main. */
#pragma once
#include "server/boot_impl.h"

/* A GPU that can be planned for. Datasheet values: bytes/s of its memory, FLOP/s of bfloat16 without sparsity; memory
 * as the driver reports it. */
struct plan_gpu {
    const char *name;
    uint64_t    memory_bytes;
    double      bytes_s, flop_s;
};
const struct plan_gpu *plan_gpu_find(const char *name); /* NULL: there is none */
const char            *plan_gpu_names(void);

/* What came of it. Bytes are of one rank. */
struct plan_fit {
    struct model_plan m;
    uint64_t          usable_bytes, kv_bytes;            /* of the rank's memory; of it for KV */
    uint64_t          seq_blocks, n_block, needed_bytes; /* blocks of a sequence; that fit; all of it for the wanted */
    uint64_t          n_seq;                             /* sequences of the context that fit */
    uint32_t          context, wanted, n_rank;
    double one_s, all_s, prefill_s; /* tokens/s at best: one sequence, the wanted; prompts. 0: no roof is known */
    bool   fits, memory_bound;
};
/* gpu NULL: this machine's CPU, or one with memory_bytes (0: what this process may use). b: spec and src are there.
 * 0, or an exit code with one line in b->err. */
int plan_fit(struct boot *b, const struct plan_gpu *gpu, uint64_t memory_bytes, struct plan_fit *out);

/* argv[0] is "plan". 0: it fits; 78: it does not; 64: usage. */
int plan_main(int argc, char **argv);
