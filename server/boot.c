#include "server/boot_impl.h"
#include "api/adapters.h"
#include "api/responses/store.h"
#include "api/schema/grammars.h"
#include "engine/model/source_object.h"
#include "server/options.h"
#include "engine/model/ident.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- several nodes ---- */

/* What all nodes must be told alike; numbers stand for words. */
static void fill_fields(const struct boot *b, uint64_t field[WIRE_FIELDS])
{
    const struct config *cfg = b->cfg;
    struct st_set       *set = NULL;
    unsigned char        ident[IDENT_BYTES];
    uint64_t             model = 0;
    char                 err[512];
    if ((b->src.dummy || st_open(&b->src, &set, err, sizeof err) == ST_OK) &&
        ident_quick(&b->spec, set, ident) == ST_OK)
        memcpy(&model, ident, sizeof model); /* else loading says what is wrong */
    st_close(set);
    field[WIRE_F_MODEL] = model;
    field[WIRE_F_NNODES] = b->cluster.n_node;
    field[WIRE_F_TP] = cfg->tensor_parallel;
    field[WIRE_F_DEVICE] = (uint64_t)b->device;
    field[WIRE_F_DTYPE] = (uint64_t)cfg->dtype;
    field[WIRE_F_KV_DTYPE] = (uint64_t)cfg->kv_dtype;
    field[WIRE_F_BLOCK] = cfg->block_size;
    field[WIRE_F_SEQS] = b->seqs;
    field[WIRE_F_ROWS] = b->rows;
    field[WIRE_F_CONTEXT] = b->model.context;
    field[WIRE_F_CHUNK] = cfg->prefill_chunk;
    field[WIRE_F_DETERMINISTIC] = cfg->deterministic;
    field[WIRE_F_PREFIX] = cfg->prefix_caching;
    field[WIRE_F_SYMMETRIC] = (uint64_t)cfg->nccl_symmetric;
    field[WIRE_F_EXPERTS] = cfg->expert_parallel;
}

/* The nodes meet between the memory plan and loading: rc->agree. */
static int create_nodes(struct boot *b, struct rank_cfg *rc)
{
    const struct cluster *k = &b->cluster;
    struct nodes         *n = NULL;
    if (k->n_node < 2) return 0;
    if (b->device != DEV_CUDA) {
        snprintf(b->err, sizeof b->err, "%u nodes (%s) need GPUs: the cpu device has no way to add over a network",
                 k->n_node, k->from);
        return EXIT_CONFIG;
    }
    struct nodes_cfg nc = { .n_node = k->n_node,
                            .node = k->node,
                            .n_local = rc->n_rank / k->n_node,
                            .master = k->master,
                            .port = k->port,
                            .key = k->key,
                            .version = SPILLWAY_VERSION,
                            .limits = { .b = rc->load.step,
                                        .block_tokens = b->cfg->block_size,
                                        .vocab = b->spec.vocab,
                                        .context = b->model.context },
                            .device = b->device };
    fill_fields(b, nc.field);
    enum status st = nodes_create(&nc, &n, b->err, sizeof b->err);
    if (st) return boot_exit_of(st);
    __atomic_store_n(&b->nodes, n, __ATOMIC_RELEASE);
    rc->n_local = nc.n_local;
    rc->first = k->node * nc.n_local;
    rc->vote = nodes_vote(n);
    rc->agree = nodes_agree;
    rc->agree_ctx = n;
    rc->group = nodes_group(n);
    return 0;
}

uint32_t boot_ranks_here(const struct boot *b)
{
    return b->cfg->tensor_parallel / (b->cluster.n_node ? b->cluster.n_node : 1);
}

bool             boot_helps(const struct boot *b) { return b->cluster.n_node > 1 && b->cluster.node > 0; }
enum nodes_state boot_nodes_state(const struct boot *b)
{
    const struct nodes *n = __atomic_load_n(&b->nodes, __ATOMIC_ACQUIRE);
    return n ? nodes_state(n) : NODES_OK;
}

/* ---- the engine ---- */

static enum status make_probe(struct boot *b)
{
    static const char plain[] = "The capital of France is";
    struct arena      a;
    struct tok_ids    ids = { 0 };
    arena_init(&a, 1 << 16);
    enum status st = tok_encode(b->tok, plain, sizeof plain - 1, TOK_ADD_SPECIAL, 64, &a, &ids);
    if (!st) st = ids.n ? probe_create(b->engine, ids.id, (uint32_t)ids.n, &b->probe) : ST_INVALID;
    arena_free(&a);
    return st;
}

/* What sequences need of the KV, and how many fit. */
static void say_kv(const struct boot *b)
{
    const struct boot_windows *w = &b->windows;
    uint32_t                   bt = b->cfg->block_size;
    const char                *type = dtype_name(rank_team_kv_dtype(b->team));
    uint64_t                   token = b->block_bytes / bt, seq = ((uint64_t)b->model.context + bt - 1) / bt;
    if (!w->n_block) {
        LOG_INFO("boot: KV of %" PRIu64 " bytes a token (%s), %" PRIu64 " MiB a sequence of %u tokens: %" PRIu64
                 " of them fit",
                 token, type, seq * b->block_bytes >> 20, b->model.context, b->n_block / seq);
        return;
    }
    uint64_t one = w->window / bt + 2;
    LOG_INFO("boot: KV of %" PRIu64 " bytes a token (%s), %" PRIu64 " MiB a sequence of %u tokens: %" PRIu64
             " of them fit; and %" PRIu64 " bytes a token of the last %u, %" PRIu64 " MiB a sequence: %" PRIu64
             " windows fit",
             token, type, seq * b->block_bytes >> 20, b->model.context, b->n_block / seq, w->block_bytes / bt,
             w->window, one * w->block_bytes >> 20, w->n_block / one);
}

/* For vllm:cache_config_info. */
static void say_cache(struct boot *b)
{
    const struct config *cfg = b->cfg;
    snprintf(
        b->cache_info, sizeof b->cache_info,
        "block_size=\"%u\",cache_dtype=\"%s\",enable_prefix_caching=\"%s\",engine=\"0\",gpu_memory_utilization=\"%.2f\","
        "kv_offloading_backend=\"%s\",kv_offloading_size=\"%.2f\",num_cpu_blocks=\"%" PRIu64 "\",num_gpu_blocks=\"%u\","
        "prefix_caching_hash_algo=\"tokens\",sliding_window=\"%u\"",
        cfg->block_size, option_word("kv-cache-dtype", cfg->kv_dtype), cfg->prefix_caching ? "True" : "False",
        b->device == DEV_CUDA ? cfg->gpu_memory_utilization : 0.0, cfg->kv_host_gib > 0 ? "native" : "none",
        cfg->kv_host_gib,
        cfg->kv_host_gib > 0 ? (uint64_t)(cfg->kv_host_gib * 1073741824.0) / (b->block_bytes * cfg->tensor_parallel)
                             : 0,
        b->n_block, b->spec.window);
}

/* The first forward, before anybody is told that the server is ready: weights that give no numbers, a kernel that does
 * not start and a device that hangs are found here. */
static int self_test(struct boot *b)
{
    switch (probe_first(b->probe, (uint64_t)b->cfg->stuck_s * 1000000u)) {
    case ST_OK: return 0;
    case ST_INVALID:
        snprintf(
            b->err, sizeof b->err,
            "the self-test fails: a plain prompt gives NaN %d times in a row; the weights or the device are damaged",
            PROBE_BAD_MAX);
        break;
    case ST_TIMEOUT:
        snprintf(b->err, sizeof b->err, "the self-test fails: a plain prompt makes no progress for %u s",
                 b->cfg->stuck_s);
        break;
    default: snprintf(b->err, sizeof b->err, "the self-test fails: the engine could not run a plain prompt"); break;
    }
    return EXIT_SOFTWARE;
}

int boot_engine(struct boot *b, boot_progress *progress, void *ctx)
{
    struct boot_plan p;
    int              code = boot_plan(b, &p, progress, ctx);
    if (code) return code;
    if ((code = create_nodes(b, &p.rank)) || (code = boot_adapters(b))) return code;
    enum status st = rank_team_create(&b->spec, &b->src, &p.rank, &b->n_block, &b->team, b->err, sizeof b->err);
    if (st) return boot_exit_of(st);
    if (b->head && (st = model_head_load(b->head, &b->spec, &b->src, b->err, sizeof b->err))) return boot_exit_of(st);
    if (b->dense && (st = model_dense_load(b->dense, &b->src, b->err, sizeof b->err))) return boot_exit_of(st);
    if (b->src_object) source_object_loaded(b->src_object);
    p.eng.n_block = b->n_block;
    p.eng.n_window = b->windows.n_block = rank_team_windows(b->team);
    if ((code = boot_fit_context(b, b->n_block))) return code;
    say_kv(b);
    p.eng.context_max = boot_engine_context(b);
    if ((code = boot_tiers_open(b, &p.eng.tiers))) return code;
    p.eng.tiers_flush_us = (uint64_t)(b->cfg->flush_s ? b->cfg->flush_s : b->cfg->drain_s) * 1000000u;
    struct eng_runner run = rank_team_runner(b->team);
    if (b->nodes && (st = nodes_start(b->nodes, &run, b->err, sizeof b->err))) return boot_exit_of(st);
    if (boot_helps(b)) return 0;
    boot_events_start(b, &p.eng);
    st = eng_create(&p.eng, &run, &b->engine);
    if (st == ST_OK) st = make_probe(b);
    if (st == ST_OK) st = eng_start(b->engine);
    if (st) {
        snprintf(b->err, sizeof b->err, "the engine cannot start: %s", status_name(st));
        return boot_exit_of(st);
    }
    say_cache(b);
    return self_test(b);
}

void boot_free(struct boot *b)
{
    if (b->engine) eng_free(b->engine);
    probe_free(b->probe);
    boot_events_free(b);
    boot_tiers_free(b);
    if (b->nodes) nodes_stop(b->nodes);
    if (b->team) rank_team_free(b->team);
    if (b->nodes) nodes_free(b->nodes);
    responses_store_free(b->model.responses);
    grammars_free(b->model.grammars);
    adapters_free(b->model.adapters);
    if (b->tmpl) tmpl_free(b->tmpl);
    if (b->tok) tok_free(b->tok);
    model_head_free(b->head);
    model_dense_free(b->dense);
    model_prompts_free(&b->prompts);
    tmpl_free(b->pair_tmpl);
    json_decref(b->pair_module);
    if (b->spec_loaded) model_spec_free(&b->spec);
    source_object_close(b->src_object);
    free(b->embed);
}
