#include "server/boot.h"
#include "server/config_alias.h"
#include "server/options.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/model/folder.h"
#include "engine/model/ident.h"
#include "models/embed.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    JSON_FILE_MAX = 256 << 20,
    TEMPLATE_MAX = 4 << 20,
    KV_TOUCH_UNASKED = 256 << 20 /* of a pool whose size nobody gave: most servers never fill that one */
};

static int exit_of(enum status st)
{
    switch (st) {
    case ST_IO: return EXIT_IO;
    case ST_NOMEM:
    case ST_PEER_LOST:
    case ST_TIMEOUT:
    case ST_DEVICE: return EXIT_SOFTWARE;
    case ST_BROKEN: return EXIT_HARDWARE;
    default: return EXIT_CONFIG;
    }
}

/* ---- where the model is ---- */

/* What is no folder may be a name of a hub, or of the embedded model. */
static void no_such_model(struct boot *b, const char *dir, int why)
{
    const char *last = strrchr(dir, '/');
    if (why == ENOENT && config_is_hub_name(dir))
        snprintf(
            b->err, sizeof b->err,
            "--model: there is no folder %.150s, and nothing is downloaded; fetch it with 'hf download %.150s --local-dir %.100s', then give "
            "--model %.100s",
            dir, dir, last + 1, last + 1);
    else if (why == ENOENT && !last)
        snprintf(b->err, sizeof b->err,
                 "--model: there is no folder %.200s here; give the path of a model folder, or leave --model out for the embedded model",
                 dir);
    else if (why == ENOENT && dir[0] == '~')
        snprintf(b->err, sizeof b->err,
                 "--model: there is no folder %.200s; '~' is the shell's, which expands it only at the start of a word", dir);
    else
        snprintf(b->err, sizeof b->err, "--model: cannot open %.300s: %s", dir, strerror(why));
}

static int open_source(struct boot *b)
{
    const char *dir = b->cfg->model;
    if (!*dir) {
        if (!embed_pebble_n) {
            snprintf(b->err, sizeof b->err, "this build embeds no model; give --model DIR");
            return EXIT_CONFIG;
        }
        b->embed = calloc(embed_pebble_n, sizeof *b->embed);
        if (!b->embed) return EXIT_SOFTWARE;
        for (unsigned i = 0; i < embed_pebble_n; i++)
            b->embed[i] = (struct source_embed){ .name = embed_pebble[i].name, .data = embed_pebble[i].data, .n = embed_pebble[i].n };
        b->src = (struct source){ .embed = b->embed, .n_embed = embed_pebble_n };
        snprintf(b->own_name, sizeof b->own_name, "pebble");
        return 0;
    }
    struct stat st;
    if (stat(dir, &st) || (S_ISDIR(st.st_mode) && access(dir, R_OK | X_OK))) {
        int why = errno;
        no_such_model(b, dir, why);
        return why == EACCES || why == EPERM ? EXIT_PERM : EXIT_CONFIG;
    }
    if (!S_ISDIR(st.st_mode)) {
        char found[512];
        if (!folder_no_model(dir, found, sizeof found)) snprintf(found, sizeof found, "is not a folder");
        snprintf(b->err, sizeof b->err, "--model: %.400s %s", dir, found);
        return EXIT_CONFIG;
    }
    b->src = (struct source){ .dir = dir };
    snprintf(b->own_name, sizeof b->own_name, "%s", dir);
    for (size_t n = strlen(b->own_name); n > 1 && b->own_name[n - 1] == '/'; n--) b->own_name[n - 1] = 0;
    return 0;
}

/* ---- text: tokenizer and chat template ---- */

static int read_text(struct boot *b, const char *name, size_t max, bool needed, char **text_out, size_t *n_out)
{
    *text_out = NULL, *n_out = 0;
    enum status st = source_text(&b->src, name, max, text_out, n_out);
    if (st == ST_OK || (st == ST_NOT_FOUND && !needed)) return 0;
    char path[4300];
    snprintf(path, sizeof path, "%s/%s", b->src.dir ? b->src.dir : "pebble", name);
    bool hidden = b->src.dir && access(path, R_OK) && errno == EACCES;
    if (!hidden && st == ST_NOT_FOUND && b->src.dir && !strcmp(name, "tokenizer.json")) {
        char found[512];
        folder_no_tokenizer(b->src.dir, found, sizeof found);
        snprintf(b->err, sizeof b->err, "%.400s: no such file; %s", path, found);
        return EXIT_CONFIG;
    }
    snprintf(b->err, sizeof b->err, "%.700s: %s", path,
             hidden               ? "permission denied"
             : st == ST_NOT_FOUND ? "no such file, and the model cannot be served without it"
             : st == ST_TOO_LARGE ? "larger than any such file should be"
                                  : "cannot be read");
    return hidden ? EXIT_PERM : st == ST_NOT_FOUND || st == ST_TOO_LARGE ? EXIT_CONFIG : exit_of(st);
}

/* tokenizer_config.json: "chat_template" is a string, or a list of {name, template} of which "default" counts. */
static char *template_of_config(const char *json, size_t n, size_t *n_out)
{
    struct json_error je;
    json_t           *root = json ? json_parse(json, n, 0, &je) : NULL, *t = json_object_get(root, "chat_template");
    char             *text = NULL;
    if (json_is_array(t)) {
        json_t *found = NULL, *row;
        size_t  i;
        json_array_foreach(t, i, row)
        {
            const char *name = json_string_value(json_object_get(row, "name"));
            if (!found || (name && !strcmp(name, "default"))) found = json_object_get(row, "template");
        }
        t = found;
    }
    if (json_is_string(t)) {
        *n_out = json_string_length(t);
        text = malloc(*n_out + 1);
        if (text) memcpy(text, json_string_value(t), *n_out), text[*n_out] = 0;
    }
    json_decref(root);
    return text;
}

static int read_template(struct boot *b, const char *path, char **text_out, size_t *n_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int why = errno;
        snprintf(b->err, sizeof b->err, "--chat-template: cannot open %s: %s", path, strerror(why));
        return why == EACCES ? EXIT_PERM : EXIT_CONFIG;
    }
    char  *text = malloc(TEMPLATE_MAX + 1);
    size_t n = 0;
    bool   bad = !text || file_read_fd(fd, text, TEMPLATE_MAX + 1, &n) || n > TEMPLATE_MAX;
    close(fd);
    if (bad) {
        free(text);
        snprintf(b->err, sizeof b->err, "--chat-template: cannot read %s, or it is larger than 4 MiB", path);
        return EXIT_IO;
    }
    *text_out = text, *n_out = n;
    return 0;
}

static int load_template(struct boot *b, const char *config, size_t n_config)
{
    const char *where = "chat_template.jinja";
    char       *text = NULL, why[400] = "";
    size_t      n = 0;
    int         code = 0;
    if (*b->cfg->chat_template)
        where = b->cfg->chat_template, code = read_template(b, where, &text, &n);
    else
        code = read_text(b, where, TEMPLATE_MAX, false, &text, &n);
    if (code) return code;
    if (!text) {
        where = "tokenizer_config.json: chat_template";
        text = template_of_config(config, n_config, &n);
    }
    if (!text) {
        LOG_WARN("boot: the model has no chat template, so /v1/chat/completions is refused; give --chat-template FILE");
        return 0;
    }
    enum status st = tmpl_parse(text, n, &b->tmpl, why, sizeof why);
    free(text);
    if (!st) return 0;
    snprintf(b->err, sizeof b->err, "%s: %s", where, why);
    return EXIT_CONFIG;
}

static int load_text(struct boot *b)
{
    char  *tokenizer = NULL, *config = NULL, *map = NULL, *model = NULL, why[600] = "";
    size_t n_tokenizer = 0, n_config = 0, n_map = 0, n_model = 0;
    int    code = read_text(b, "tokenizer.json", JSON_FILE_MAX, true, &tokenizer, &n_tokenizer);
    if (!code) code = read_text(b, "tokenizer_config.json", JSON_FILE_MAX, false, &config, &n_config);
    if (!code) code = read_text(b, "special_tokens_map.json", JSON_FILE_MAX, false, &map, &n_map);
    if (!code) code = read_text(b, "config.json", JSON_FILE_MAX, false, &model, &n_model);
    if (!code) {
        struct tok_texts x = { .json = tokenizer, .config = config, .map = map, .model = model };
        x.n_json = n_tokenizer, x.n_config = n_config, x.n_map = n_map, x.n_model = n_model;
        enum status st = tok_load_texts(&x, &b->tok, why, sizeof why);
        if (st) {
            snprintf(b->err, sizeof b->err, "%s", why);
            code = exit_of(st);
        }
    }
    if (!code) code = load_template(b, config, n_config);
    free(tokenizer);
    free(config);
    free(map);
    free(model);
    return code;
}

/* ---- the served model ---- */

static int fill_model(struct boot *b)
{
    const struct config     *cfg = b->cfg;
    const struct model_spec *s = &b->spec;
    struct api_model        *m = &b->model;
    if (cfg->max_model_len > s->context) {
        snprintf(b->err, sizeof b->err, "--max-model-len: found %u, the model allows at most %u%s", cfg->max_model_len, s->context,
                 s->rope_scaling == ROPE_SCALE_DYNAMIC ? " (rope_type dynamic: beyond max_position_embeddings every length has rotary "
                                                         "frequencies of its own, and cached keys have those of another)"
                                                       : "");
        return EXIT_CONFIG;
    }
    if (tok_vocab_size(b->tok) > s->vocab) {
        snprintf(b->err, sizeof b->err, "tokenizer.json has ids up to %u, config.json: vocab_size is %u", tok_vocab_size(b->tok) - 1,
                 s->vocab);
        return EXIT_CONFIG;
    }
    b->name[0] = b->own_name;
    m->served_name = cfg->served_name.n ? cfg->served_name.s : b->name;
    m->n_name = cfg->served_name.n ? cfg->served_name.n : 1;
    m->tok = b->tok, m->tmpl = b->tmpl;
    m->context = cfg->max_model_len ? cfg->max_model_len : s->context;
    m->vocab = s->vocab;
    snprintf(b->fingerprint, sizeof b->fingerprint, "spillway-" SPILLWAY_VERSION);
    m->fingerprint = b->fingerprint;
    m->created = clock_wall_s();
    m->root = b->own_name;
    m->temperature = 1, m->top_p = 1, m->repetition = 1, m->max_new_tokens = -1;
    if (cfg->generation_config != SAMPLING_NEUTRAL) {
        if (!isnan(s->gen_temperature)) m->temperature = s->gen_temperature;
        if (!isnan(s->gen_top_p)) m->top_p = s->gen_top_p;
        if (!isnan(s->gen_min_p)) m->min_p = s->gen_min_p;
        if (!isnan(s->gen_repetition)) m->repetition = s->gen_repetition;
        if (s->gen_top_k > 0) m->top_k = s->gen_top_k < UINT32_MAX ? (uint32_t)s->gen_top_k : 0;
        m->max_new_tokens = s->gen_max_new_tokens;
    }
    m->n_max = 16, m->prompts_max = 128, m->messages_max = 10000, m->logprobs_max = 20;
    m->stop_max = 16, m->stop_bytes_max = 256, m->bias_max = 1024;
    m->clamp_max_tokens = cfg->clamp_max_tokens;
    m->priority = cfg->priority;
    return 0;
}

int boot_text(struct boot *b, const struct config *cfg)
{
    b->cfg = cfg;
    int code = open_source(b);
    if (code) return code;
    b->src.dummy = cfg->load_format == LOAD_DUMMY;
    enum status st = model_spec_load(&b->src, &b->spec, b->err, sizeof b->err);
    if (st) return st == ST_NOT_FOUND ? EXIT_CONFIG : exit_of(st);
    b->spec_loaded = true;
    code = load_text(b);
    return code ? code : fill_model(b);
}

/* ---- the engine ---- */

static uint64_t blocks_of_context(const struct boot *b)
{
    return ((uint64_t)b->model.context + b->cfg->block_size - 1) / b->cfg->block_size + 1;
}

/* A pool that does not hold one sequence: nobody is served, or, where the context was not asked for, a shorter one. */
static int fit_context(struct boot *b, uint64_t n_block)
{
    const struct config *cfg = b->cfg;
    uint64_t             needed = blocks_of_context(b), fits = n_block > 1 ? (n_block - 1) * cfg->block_size : 0;
    if (n_block >= needed) return 0;
    if (cfg->max_model_len || fits < cfg->block_size) {
        int n =
            snprintf(b->err, sizeof b->err, "--kv-cache-bytes: found %" PRIu64 ", one sequence of %u tokens needs %" PRIu64 "; give more",
                     b->kv_bytes, b->model.context, needed * b->block_bytes);
        if (fits >= cfg->block_size) snprintf(b->err + n, sizeof b->err - (size_t)n, ", or a --max-model-len of at most %" PRIu64, fits);
        return EXIT_CONFIG;
    }
    LOG_WARN("boot: the KV cache of %" PRIu64 " bytes holds %" PRIu64 " tokens, so the context is cut from %u to that",
             b->kv_bytes ? b->kv_bytes : n_block * b->block_bytes, fits, b->model.context);
    b->model.context = (uint32_t)fits;
    return 0;
}

/* The KV pool: as asked, else the smaller of 1 GiB and a quarter of memory, but never more than all sequences can fill. On a GPU else
 * 0: the ranks take what their GPUs have left. */
static int plan_kv(struct boot *b)
{
    const struct config     *cfg = b->cfg;
    const struct model_spec *s = &b->spec;
    enum dtype               weight = cfg->dtype, kv = cfg->kv_dtype;
    if (weight == DT_COUNT) weight = s->dtype;
    if (kv == DT_COUNT) kv = weight == DT_F32 && b->device != DEV_CUDA ? DT_F32 : DT_BF16;
    if (b->device == DEV_CUDA && kv != DT_BF16) { /* --device auto: config_check could not know */
        snprintf(b->err, sizeof b->err, "--kv-cache-dtype: found '%s', allowed on a GPU are auto and bfloat16",
                 option_word("kv-cache-dtype", cfg->kv_dtype));
        return EXIT_CONFIG;
    }
    b->block_bytes = model_kv_block_bytes(s, cfg->tensor_parallel, kv, cfg->block_size);
    uint64_t blocks_seq = blocks_of_context(b);
    if (cfg->given_kv_bytes || cfg->given_kv_gib) {
        b->kv_bytes = cfg->given_kv_bytes ? cfg->kv_bytes : (uint64_t)(cfg->kv_gib * 1073741824.0);
        uint64_t memory = memory_limit_bytes();
        if (b->device != DEV_CUDA && b->kv_bytes > memory / cfg->tensor_parallel) { /* the system would promise it and kill us later */
            snprintf(b->err, sizeof b->err,
                     "--kv-cache-%s: %" PRIu64 " bytes needed for each of %u ranks, available are %" PRIu64 " in all",
                     cfg->given_kv_bytes ? "bytes" : "gib", b->kv_bytes, cfg->tensor_parallel, memory);
            return EXIT_CONFIG;
        }
    } else if (b->device == DEV_CUDA) {
        b->kv_bytes = 0;
        return 0;
    } else {
        uint64_t quarter = memory_limit_bytes() / 4, all = blocks_seq * b->seqs * 2 * b->block_bytes;
        b->kv_bytes = quarter < (uint64_t)1 << 30 ? quarter : (uint64_t)1 << 30;
        if (b->kv_bytes > all) b->kv_bytes = all;
        if (b->kv_bytes < 2 * blocks_seq * b->block_bytes) b->kv_bytes = 2 * blocks_seq * b->block_bytes; /* "at least a few" */
    }
    return fit_context(b, b->kv_bytes / b->block_bytes);
}

static uint32_t queue_tokens(const struct config *cfg, uint32_t context)
{
    if (cfg->queue_tokens) return cfg->queue_tokens;
    uint64_t n = (uint64_t)context * 256;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* ---- several nodes ---- */

/* What all nodes must be told alike; numbers stand for words. */
static void fill_fields(const struct boot *b, uint64_t field[WIRE_FIELDS])
{
    const struct config *cfg = b->cfg;
    struct st_set       *set = NULL;
    unsigned char        ident[IDENT_BYTES];
    uint64_t             model = 0;
    char                 err[512];
    if ((b->src.dummy || st_open(&b->src, &set, err, sizeof err) == ST_OK) && ident_quick(&b->spec, set, ident) == ST_OK)
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
}

/* The nodes meet between the memory plan and loading: rc->agree. */
static int create_nodes(struct boot *b, struct rank_cfg *rc)
{
    const struct cluster *k = &b->cluster;
    struct nodes         *n = NULL;
    if (k->n_node < 2) return 0;
    if (b->device != DEV_CUDA) {
        snprintf(b->err, sizeof b->err, "%u nodes (%s) need GPUs: the cpu device has no way to add over a network", k->n_node, k->from);
        return EXIT_CONFIG;
    }
    struct nodes_cfg nc = {
        .n_node = k->n_node,
        .node = k->node,
        .n_local = rc->n_rank / k->n_node,
        .master = k->master,
        .port = k->port,
        .key = k->key,
        .version = SPILLWAY_VERSION,
        .limits = { .b = rc->load.step, .block_tokens = b->cfg->block_size, .vocab = b->spec.vocab, .context = b->model.context },
        .device = b->device
    };
    fill_fields(b, nc.field);
    enum status st = nodes_create(&nc, &n, b->err, sizeof b->err);
    if (st) return exit_of(st);
    __atomic_store_n(&b->nodes, n, __ATOMIC_RELEASE);
    rc->n_local = nc.n_local, rc->first = k->node * nc.n_local;
    rc->vote = nodes_vote(n);
    rc->agree = nodes_agree, rc->agree_ctx = n, rc->group = nodes_group(n);
    return 0;
}

bool             boot_helps(const struct boot *b) { return b->cluster.n_node > 1 && b->cluster.node > 0; }
enum nodes_state boot_nodes_state(const struct boot *b)
{
    const struct nodes *n = __atomic_load_n(&b->nodes, __ATOMIC_ACQUIRE);
    return n ? nodes_state(n) : NODES_OK;
}

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

/* One line where the codes that were chosen have a cheaper way to be multiplied on this CPU. */
static void say_cheaper(const struct config *cfg, const struct dev_quant *q)
{
    double gain = dev_cpu_act8_gain(option_word("cpu-isa", cfg->cpu_isa), q->code);
    if (q->act8 || gain < 1.2) return;
    LOG_INFO(
        "boot: --quantization %s: with activations of 8 bits (%s) this CPU multiplies about %.1f times as fast in prompts and batches; "
        "docs/OPERATIONS.md says what it costs",
        option_word("quantization", cfg->quantization), q->code == DT_I8 ? "w8a8" : "w4a8", gain);
}

int boot_engine(struct boot *b, void (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx)
{
    const struct config *cfg = b->cfg;
    char                 why[200];
    b->device = cfg->device == DEV_AUTO ? dev_resolve(DEV_AUTO) : cfg->device;
    if (!dev_serves(b->device, why, sizeof why)) {
        snprintf(b->err, sizeof b->err, "--device %s: %s", option_word("device", cfg->device), why);
        return EXIT_CONFIG;
    }
    if (cfg->nccl_symmetric == DEV_SYMMETRIC_ON && b->device != DEV_CUDA) {
        snprintf(b->err, sizeof b->err, "--nccl-symmetric on: the device is %s, needed are GPUs", b->device == DEV_CPU ? "cpu" : "ref");
        return EXIT_CONFIG;
    }
    int ordinal[CUDA_DEVICES_MAX], n_ordinal = config_cuda_ordinals(cfg, ordinal, CUDA_DEVICES_MAX, b->err, sizeof b->err);
    if (n_ordinal < 0) return EXIT_CONFIG;
    config_sizes(cfg, b->device == DEV_CUDA, &b->seqs, &b->rows);
    int code = plan_kv(b);
    if (!code) code = boot_tiers_plan(b);
    if (code) return code;
    struct eng_cfg ec = {
        .seqs_max = b->seqs,
        .batch_tokens_max = b->rows,
        .prefill_chunk_max = cfg->prefill_chunk,
        .queue_requests_max = cfg->queue_requests,
        .queue_tokens_max = queue_tokens(cfg, b->model.context),
        .context_max = b->model.context,
        .vocab = b->spec.vocab,
        .block_tokens = cfg->block_size,
        .prefix_cache = cfg->prefix_caching,
        .kv_pin_percent = cfg->prefix_caching ? cfg->kv_pin_max : 0,
        .preempt_max = 3,
        .eos_id = b->spec.eos_id,
        .n_eos = b->spec.n_eos,
    };
    struct rank_cfg rc = {
        .n_rank = cfg->tensor_parallel,
        .device = b->device,
        .kv_bytes = b->kv_bytes,
        .blocks_min = cfg->max_model_len ? (uint32_t)blocks_of_context(b) : 2,
        .ordinal = ordinal,
        .n_ordinal = (uint32_t)n_ordinal,
        .utilization = cfg->gpu_memory_utilization,
        .deterministic = cfg->deterministic,
        .eager = cfg->enforce_eager,
        .pdl = cfg->pdl,
        .gemm_file = cfg->gemm_file,
        .cublaslt = cfg->cublaslt,
        .comm = cfg->collectives,
        .symmetric = cfg->nccl_symmetric,
        .n_thread = cfg->threads,
        .simd = option_word("cpu-isa", cfg->cpu_isa),
        .load = { .weight_dtype = cfg->dtype,
                  .kv_dtype = cfg->kv_dtype,
                  .batch_rows_max = b->rows,
                  .logit_rows_max = b->seqs,
                  .block_tokens = cfg->block_size,
                  .step = eng_batch_cfg(&ec),
                  .n_thread = cfg->threads,
                  .ident = cfg->kv_host_gib > 0,
                  .kv_touch = cfg->given_kv_bytes || cfg->given_kv_gib ? UINT64_MAX : KV_TOUCH_UNASKED,
                  .progress = progress,
                  .progress_ctx = ctx },
    };
    if (*cfg->packed_cache) {
        CHECK(config_shared(cfg->packed_cache, b->packed_dir, sizeof b->packed_dir, &rc.load.packed_bytes_max));
        if (b->device == DEV_CUDA)
            LOG_WARN("boot: --packed-cache is for the cpu device, nothing is kept");
        else
            rc.load.packed_dir = b->packed_dir;
    }
    (void)model_quant_named(option_word("quantization", cfg->quantization), &rc.load.quant,
                            &rc.load.quant_head); /* the option table knows the same names */
    if (b->device == DEV_CPU) say_cheaper(cfg, &rc.load.quant);
    if ((code = create_nodes(b, &rc))) return code;
    enum status st = rank_team_create(&b->spec, &b->src, &rc, &b->n_block, &b->team, b->err, sizeof b->err);
    if (st) return exit_of(st);
    ec.n_block = b->n_block;
    if ((code = fit_context(b, b->n_block))) return code;
    ec.context_max = b->model.context;
    if ((code = boot_tiers_open(b, &ec.tiers))) return code;
    ec.tiers_flush_us = (uint64_t)cfg->drain_s * 1000000u;
    struct eng_runner run = rank_team_runner(b->team);
    if (b->nodes && (st = nodes_start(b->nodes, &run, b->err, sizeof b->err))) return exit_of(st);
    if (boot_helps(b)) return 0;
    st = eng_create(&ec, &run, &b->engine);
    if (st == ST_OK) st = make_probe(b);
    if (st == ST_OK) st = eng_start(b->engine);
    if (st) {
        snprintf(b->err, sizeof b->err, "the engine cannot start: %s", status_name(st));
        return exit_of(st);
    }
    snprintf(b->cache_info, sizeof b->cache_info,
             "block_size=\"%u\",cache_dtype=\"%s\",enable_prefix_caching=\"%s\",engine=\"0\",gpu_memory_utilization=\"%.2f\","
             "kv_offloading_backend=\"none\",kv_offloading_size=\"0\",num_cpu_blocks=\"0\",num_gpu_blocks=\"%u\","
             "prefix_caching_hash_algo=\"tokens\",sliding_window=\"%u\"",
             cfg->block_size, option_word("kv-cache-dtype", cfg->kv_dtype), cfg->prefix_caching ? "True" : "False",
             b->device == DEV_CUDA ? cfg->gpu_memory_utilization : 0.0, b->n_block, b->spec.window);
    return 0;
}

static enum status submit(void *e, struct eng_request *r) { return eng_submit(e, r); }
static void        cancel(void *e, struct eng_request *r) { eng_cancel(e, r); }
static bool        alive(void *e, uint64_t now_us) { return eng_alive(e, now_us); }
static void        stats(void *e, struct eng_stats *out) { eng_stats(e, out); }
static bool        tiers(void *e, struct kv_tiers_stats *out) { return eng_tiers_stats(e, out); }

/* A node that helps has no requests of its own: its port is for probes. */
static enum status submit_nothing(void *n, struct eng_request *r) { return (void)n, (void)r, ST_DEVICE; }
static void        cancel_nothing(void *n, struct eng_request *r) { (void)n, (void)r; }
static bool        nodes_alive(void *n, uint64_t now_us) { return (void)now_us, nodes_state(n) == NODES_OK; }
static void        nodes_stats(void *n, struct eng_stats *out) { *out = (struct eng_stats){ .n_step = nodes_steps(n) }; }

struct gen_engine boot_gen_engine(struct boot *b)
{
    if (boot_helps(b))
        return (struct gen_engine){
            .ctx = b->nodes, .submit = submit_nothing, .cancel = cancel_nothing, .alive = nodes_alive, .stats = nodes_stats
        };
    return (struct gen_engine){ .ctx = b->engine, .submit = submit, .cancel = cancel, .alive = alive, .stats = stats, .tiers = tiers };
}

void boot_free(struct boot *b)
{
    if (b->engine) eng_free(b->engine);
    probe_free(b->probe);
    boot_tiers_free(b);
    if (b->nodes) nodes_stop(b->nodes);
    if (b->team) rank_team_free(b->team);
    if (b->nodes) nodes_free(b->nodes);
    if (b->tmpl) tmpl_free(b->tmpl);
    if (b->tok) tok_free(b->tok);
    if (b->spec_loaded) model_spec_free(&b->spec);
    free(b->embed);
}
