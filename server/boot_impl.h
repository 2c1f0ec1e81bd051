/* boot_impl: shared by boot_text.c, boot_plan.c, boot.c and boot_gen.c.   Thread: the loader. */
#pragma once
#include "server/boot.h"

/* The configurations of engine and ranks, made before a weight is read. */
struct boot_plan {
    struct eng_cfg  eng; /* without n_block and tiers, which are known after the ranks */
    struct rank_cfg rank;
    int             ordinal[CUDA_DEVICES_MAX]; /* [n_ordinal], of rank */
    uint32_t        n_ordinal;
};

/* The exit code of the process if starting fails with this status. */
int boot_exit_of(enum status st);
/* p contains pointers into itself and into b, so it must not move. Returns 0, or an exit code with b->err. */
int boot_plan(struct boot *b, struct boot_plan *p, boot_progress *progress, void *ctx);
/* The type of the KV. EXIT_CONFIG and a line in b->err: the device has none of the type that is asked for. config_check
 * does not know which device auto is, and what weights the checkpoint has. */
int boot_kv_type(struct boot *b, enum dtype *kv_out);
/* The part of boot_plan that does not depend on this machine: b->device, sizes, engine and ranks. */
void boot_plan_sizes(struct boot *b, enum dev_kind device, struct boot_plan *p);
/* Source, hparams and context, from config.json alone; the first part of boot_text. 0, or an exit code with b->err. */
int boot_spec(struct boot *b, const struct config *cfg);
/* What the server does with prompts, from options and the folder; sets b->spec.pool and those members of b->model.
 * Errors with b->err. */
enum status boot_task(struct boot *b);
/* boot_pair.c: b->model.pair; tokenizer and template are there. Errors with b->err. */
enum status boot_pair(struct boot *b);
/* The ids of the words that b->head scores by; the tokenizer is there. Errors with b->err. */
enum status boot_task_words(struct boot *b);
/* Tokens of one sequence as the engine counts them: a token is drawn behind the prompt, or a vector in its place. */
uint32_t boot_engine_context(const struct boot *b);
/* Checks that a pool of n_block blocks holds one sequence of model.context tokens. If it does not, shortens the
 * context, unless --max-model-len is given. Returns 0, or an exit code with b->err. */
int boot_fit_context(struct boot *b, uint64_t n_block);
/* boot_adapters.c: the adapters of --lora-modules, checked against b->spec and known by their names in b->model. 0, or
 * an exit code with b->err. */
int boot_adapters(struct boot *b);
/* Adapters on the device at one time; 0: --enable-lora is not given. */
uint32_t boot_lora_slots(const struct config *cfg);
