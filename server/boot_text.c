/* boot_text: where the model is, and its text side: config.json, tokenizer, chat template, the defaults of sampling. */
#include "server/boot_impl.h"
#include "server/config_alias.h"
#include "api/calls/calls_row.h"
#include "api/responses/store.h"
#include "api/schema/grammars.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/model/folder.h"
#include "engine/model/source_object.h"
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

enum { JSON_FILE_MAX = 256 << 20, TEMPLATE_MAX = 4 << 20, STORE_LIFE_S = 3600, STORE_KEYS_MAX = 4096 };

int boot_exit_of(enum status st)
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
        snprintf(
            b->err, sizeof b->err,
            "--model: there is no folder %.200s here; give the path of a model folder, or leave --model out for the embedded model",
            dir);
    else if (why == ENOENT && dir[0] == '~')
        snprintf(b->err, sizeof b->err,
                 "--model: there is no folder %.200s; '~' is the shell's, which expands it only at the start of a word",
                 dir);
    else
        snprintf(b->err, sizeof b->err, "--model: cannot open %.300s: %s", dir, strerror(why));
}

/* A model in an object store: its name is the last part of the prefix. */
static int open_objects(struct boot *b)
{
    const struct config *c = b->cfg;
    char                 why[400];
    struct object_cfg    oc = { .url = c->model, .endpoint = c->object_endpoint, .region = c->object_region };
    enum status          st = source_object_open(&oc, &b->src_object, why, sizeof why);
    if (st) {
        snprintf(b->err, sizeof b->err, "--model: %s", why);
        return st == ST_CONFIG || st == ST_NOT_FOUND ? EXIT_CONFIG : boot_exit_of(st);
    }
    b->src = (struct source){ .reader = source_object_reader(b->src_object) };
    snprintf(b->own_name, sizeof b->own_name, "%s", b->src.reader->shown);
    return 0;
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
            b->embed[i] = (struct source_embed){ .name = embed_pebble[i].name,
                                                 .data = embed_pebble[i].data,
                                                 .n = embed_pebble[i].n };
        b->src = (struct source){ .embed = b->embed, .n_embed = embed_pebble_n };
        snprintf(b->own_name, sizeof b->own_name, "pebble");
        return 0;
    }
    if (object_is_url(dir)) return open_objects(b);
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
    *text_out = NULL;
    *n_out = 0;
    enum status st = source_text(&b->src, name, max, text_out, n_out);
    if (st == ST_OK || (st == ST_NOT_FOUND && !needed)) return 0;
    char        path[4300];
    const char *from = b->src.dir ? b->src.dir : "pebble";
    if (b->src.reader) from = b->src.reader->shown;
    snprintf(path, sizeof path, "%s/%s", from, name);
    bool hidden = b->src.dir && access(path, R_OK) && errno == EACCES;
    if (!hidden && st == ST_NOT_FOUND && b->src.dir && !strcmp(name, "tokenizer.json")) {
        char found[512];
        folder_no_tokenizer(b->src.dir, found, sizeof found);
        snprintf(b->err, sizeof b->err, "%.400s: no such file; %s", path, found);
        return EXIT_CONFIG;
    }
    const char *why = "cannot be read";
    int         code = boot_exit_of(st);
    if (hidden) {
        why = "permission denied";
        code = EXIT_PERM;
    } else if (st == ST_NOT_FOUND) {
        why = "no such file, and the model cannot be served without it";
        code = EXIT_CONFIG;
    } else if (st == ST_TOO_LARGE) {
        why = "larger than any such file should be";
        code = EXIT_CONFIG;
    }
    snprintf(b->err, sizeof b->err, "%.700s: %s", path, why);
    return code;
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
        if (text) {
            memcpy(text, json_string_value(t), *n_out);
            text[*n_out] = 0;
        }
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
    *text_out = text;
    *n_out = n;
    return 0;
}

static int load_template(struct boot *b, const char *config, size_t n_config)
{
    const char *where = "chat_template.jinja";
    char       *text = NULL, why[400] = "";
    size_t      n = 0;
    int         code = 0;
    if (*b->cfg->chat_template) {
        where = b->cfg->chat_template;
        code = read_template(b, where, &text, &n);
    } else
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
        x.n_json = n_tokenizer;
        x.n_config = n_config;
        x.n_map = n_map;
        x.n_model = n_model;
        enum status st = tok_load_texts(&x, &b->tok, why, sizeof why);
        if (st) {
            snprintf(b->err, sizeof b->err, "%s", why);
            code = boot_exit_of(st);
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

static void log_family(const struct family *f)
{
    const char *reasoning = calls_thinks(&f->calls) ? "part of it" : "text";
    if (f->calls.think) reasoning = f->calls.think->name;
    LOG_INFO("boot: tool calls are read as %s, reasoning as %s%s", f->calls.row ? f->calls.row->name : "text",
             reasoning,
             f->calls.row && !f->tools ? "; the chat template shows no tools, so requests with tools are refused" : "");
}

/* Memory that is not there would end the process later, and not this start. */
static int open_store(struct boot *b)
{
    uint64_t share = (uint64_t)b->cfg->response_store_mib << 20, memory = memory_limit_bytes();
    uint32_t n_key = b->auth && auth_count(b->auth) ? auth_count(b->auth) : 1;
    bool     fits = n_key <= STORE_KEYS_MAX && share <= memory / 2 / n_key;
    if (!fits || responses_store_create(share, n_key, (uint64_t)STORE_LIFE_S * 1000000, &b->model.responses)) {
        snprintf(b->err, sizeof b->err,
                 "--response-store-mib: found %u MiB for each of %u keys; there may be up to %d keys, and half of the "
                 "memory of %" PRIu64 " MiB",
                 b->cfg->response_store_mib, n_key, STORE_KEYS_MAX, memory >> 20);
        return EXIT_CONFIG;
    }
    LOG_INFO("boot: responses are stored for %d s after their last use, %u MiB for each of %u keys", STORE_LIFE_S,
             b->cfg->response_store_mib, n_key);
    return 0;
}

static int fill_model(struct boot *b)
{
    int code = 0;

    const struct config     *cfg = b->cfg;
    const struct model_spec *s = &b->spec;
    struct api_model        *m = &b->model;
    if (tok_vocab_size(b->tok) > s->vocab) {
        snprintf(b->err, sizeof b->err, "tokenizer.json has ids up to %u, config.json: vocab_size is %u",
                 tok_vocab_size(b->tok) - 1, s->vocab);
        return EXIT_CONFIG;
    }
    b->name[0] = b->own_name;
    m->served_name = cfg->served_name.n ? cfg->served_name.s : b->name;
    m->n_name = cfg->served_name.n ? cfg->served_name.n : 1;
    m->tok = b->tok;
    m->tmpl = b->tmpl;
    family_init(&b->family, b->tmpl, b->tok, cfg->tool_parser, cfg->reasoning_parser);
    m->family = &b->family;
    log_family(&b->family);
    m->grammars = grammars_create(b->tok, &b->family.calls, s->eos_id, s->n_eos);
    if (!m->grammars) return EXIT_SOFTWARE;
    if (cfg->response_store_mib) code = open_store(b);
    if (code) return code;
    m->vocab = s->vocab;
    snprintf(b->fingerprint, sizeof b->fingerprint, "spillway-" SPILLWAY_VERSION);
    m->fingerprint = b->fingerprint;
    m->created = clock_wall_s();
    m->root = b->own_name;
    m->temperature = 1;
    m->top_p = 1;
    m->repetition = 1;
    m->max_new_tokens = -1;
    if (cfg->generation_config != SAMPLING_NEUTRAL) {
        if (!isnan(s->gen_temperature)) m->temperature = s->gen_temperature;
        if (!isnan(s->gen_top_p)) m->top_p = s->gen_top_p;
        if (!isnan(s->gen_min_p)) m->min_p = s->gen_min_p;
        if (!isnan(s->gen_repetition)) m->repetition = s->gen_repetition;
        if (s->gen_top_k > 0) m->top_k = s->gen_top_k < UINT32_MAX ? (uint32_t)s->gen_top_k : 0;
        m->max_new_tokens = s->gen_max_new_tokens;
    }
    m->n_max = 16;
    m->prompts_max = 128;
    m->messages_max = 10000;
    m->logprobs_max = 20;
    m->stop_max = 16;
    m->stop_bytes_max = 256;
    m->bias_max = 1024;
    m->clamp_max_tokens = cfg->clamp_max_tokens;
    m->open_schemas = cfg->open_schemas;
    m->priority = cfg->priority;
    return 0;
}

static int fit_context(struct boot *b)
{
    const struct config *cfg = b->cfg;
    struct model_spec   *s = &b->spec;
    if (cfg->max_model_len > s->context) {
        snprintf(b->err, sizeof b->err, "--max-model-len: found %u, the model allows at most %u%s", cfg->max_model_len,
                 s->context,
                 s->rope_scaling == ROPE_SCALE_DYNAMIC
                     ? " (rope_type dynamic: beyond max_position_embeddings every length has rotary "
                       "frequencies of its own, and cached keys have those of another)"
                     : "");
        return EXIT_CONFIG;
    }
    b->model.context = cfg->max_model_len ? cfg->max_model_len : s->context;
    model_spec_serve(s, b->model.context);
    if (s->rope_scaling == ROPE_SCALE_LONG)
        LOG_INFO(
            "boot: rope_type longrope: all sequences have the %s frequencies, because contexts up to %u tokens are "
            "served; up to %u have the short ones, more the long ones (--max-model-len)",
            s->rope_is_long ? "long" : "short", b->model.context, s->rope_orig_context);
    return 0;
}

int boot_spec(struct boot *b, const struct config *cfg)
{
    b->cfg = cfg;
    int code = open_source(b);
    if (code) return code;
    b->src.dummy = cfg->load_format == LOAD_DUMMY;
    enum status st = model_spec_load(&b->src, &b->spec, b->err, sizeof b->err);
    if (st) return st == ST_NOT_FOUND ? EXIT_CONFIG : boot_exit_of(st);
    b->spec_loaded = true;
    if (cfg->codes_named && b->spec.quant.method == QUANT_NONE) {
        snprintf(
            b->err, sizeof b->err,
            "--quantization %.40s: the checkpoint has no such codes; leave the option out, or say int8, int4 or fp8, to "
            "which matrices are rounded at start",
            cfg->codes_named);
        return EXIT_CONFIG;
    }
    st = boot_task(b);
    return st ? boot_exit_of(st) : fit_context(b);
}

int boot_text(struct boot *b, const struct config *cfg)
{
    int code = boot_spec(b, cfg);
    if (!code) code = load_text(b);
    if (!code && boot_task_words(b)) code = EXIT_CONFIG;
    enum status st = code ? ST_OK : boot_pair(b);
    if (st) code = boot_exit_of(st);
    return code ? code : fill_model(b);
}
