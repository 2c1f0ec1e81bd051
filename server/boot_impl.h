/* boot_impl: what the files of boot share: boot_text.c, boot_plan.c, boot.c.   Thread: the loader. */
#pragma once
#include "server/boot.h"

/* What is to be created, as planned before a weight is read. */
struct boot_plan {
    struct eng_cfg  eng; /* without n_block and tiers: those come with the ranks */
    struct rank_cfg rank;
    int             ordinal[CUDA_DEVICES_MAX]; /* [n_ordinal], of rank */
    uint32_t        n_ordinal;
};

/* The exit code of a start that fails so. */
int boot_exit_of(enum status st);
/* p points into itself and into b, and may not move. 0, or an exit code with b->err. */
int boot_plan(struct boot *b, struct boot_plan *p, boot_progress *progress, void *ctx);
/* The part of boot_plan that asks this machine for nothing: b->device, sizes, engine and ranks. */
void boot_plan_sizes(struct boot *b, enum dev_kind device, struct boot_plan *p);
/* Source, hparams and context, from config.json alone; the first part of boot_text. 0, or an exit code with b->err. */
int boot_spec(struct boot *b, const struct config *cfg);
/* Does a pool of n_block blocks hold one sequence of model.context tokens? Where the context was not asked for it is
 * made shorter. 0, or an exit code with b->err. */
int boot_fit_context(struct boot *b, uint64_t n_block);
