/* plan: `spillway plan`: computes a model's memory on a GPU or on this machine's CPU, how many sequences fit, and the
 * highest possible speed, before a GPU is bought or the model is loaded.   Thread: main. */
#pragma once
#include "server/boot_impl.h"

/* A GPU that plan knows. bytes_s (memory) and flop_s (bfloat16 without sparsity) are from the datasheet; memory_bytes
 * is the driver's number. */
struct plan_gpu {
    const char *name;
    uint64_t    memory_bytes;
    double      bytes_s, flop_s;
};
const struct plan_gpu *plan_gpu_find(const char *name); /* NULL: the name is not known */
const char            *plan_gpu_names(void);            /* all names in one static string */

/* The result of a plan. Bytes are those of one rank. */
struct plan_fit {
    struct model_plan m;
    uint64_t          usable_bytes, kv_bytes;            /* usable memory; its part that is left for KV */
    uint64_t          seq_blocks, n_block, needed_bytes; /* blocks of a sequence; blocks that fit; bytes for `wanted` */
    uint64_t          seq_windows, n_window; /* the same of layers with a window; 0: they lie in the others */
    uint64_t          n_seq;                 /* sequences of full context that fit */
    uint32_t          context, wanted, n_rank;
    enum dtype        kv;
    double one_s, all_s, prefill_s; /* highest tokens/s: one sequence, `wanted` ones, prompts. 0: no bound is known */
    bool   fits, memory_bound;
};
/* gpu NULL: a CPU with memory_bytes (0: as much as this process may use). b has spec and src. Returns 0, or an exit
 * code with one line in b->err. */
int plan_fit(struct boot *b, const struct plan_gpu *gpu, uint64_t memory_bytes, struct plan_fit *out);

/* argv[0] is "plan". 0: it fits; 78: it does not; 64: usage. */
int plan_main(int argc, char **argv);
