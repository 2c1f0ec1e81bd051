#include "server/config_sagemaker.h"
#include "base/file.h"
#include "server/config_alias.h"
#include "server/config_impl.h"
#include "server/config_translate.h"
#include "server/usage.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 128, PROPERTIES_BYTES = 64 << 10, VARIABLES_MAX = 512 };

/* Where a value comes from, and where errors go. */
struct layer {
    struct config *c;
    char          *err;
    size_t         n_err;
};

/* ---- one value ---- */

static const char *find(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=') return *env + n + 1;
    return NULL;
}

/* Reads words of a command line. An error begins with the variable's name. */
static int read_words(struct layer *l, const char *origin, const char *const *word, int n)
{
    char *argv[TRANSLATE_WORDS_MAX * 2 + 1] = { (char *)(uintptr_t) "" };
    char  text[400];
    for (int i = 0; i < n; i++) argv[i + 1] = (char *)(uintptr_t)word[i];
    int code = config_read_flags(l->c, n + 1, argv, false, text, sizeof text);
    return code ? usage_error(l->err, l->n_err, "%s: %s", origin, text) : 0;
}

static int set(struct layer *l, const char *option, const char *value, const char *origin)
{
    const struct opt *o = option_find(option, strlen(option));
    bool              fresh[OPTIONS_MAX] = { 0 };
    config_clear_list(l->c, o, fresh);
    return config_set(l->c, o, value, origin, l->err, l->n_err);
}

/* option: with its dashes. What it is in the end; NULL: nobody's, or another server's without effect. */
static const struct opt *option_of(const char *option, bool *known_out)
{
    const struct opt   *o = option_find(option + 2, strlen(option) - 2);
    const struct alias *al = o ? NULL : config_alias_find(option, strlen(option));
    if (al && al->kind == ALIAS_OF) o = option_find(al->text, strlen(al->text));
    if (!o && !al && !strncmp(option, "--no-", 5)) {
        o = option_find(option + 5, strlen(option) - 5);
        if (o && o->type != OPT_BOOL) o = NULL;
    }
    *known_out = o || al;
    return o;
}

static void tell_unknown(struct layer *l, const char *origin, const char *option)
{
    const char *near = option_nearest(option + 2);
    config_tell(l->c, "%s has no effect: there is no option %s%s%s", origin, option, near ? "; did you mean --" : "",
                near ? near : "; spillway --help lists them");
}

/* ---- SM_VLLM_* and its like ---- */

/* A list takes its values one by one, also those of one JSON array. -1: they are too many. */
static int spread(struct layer *l, const char *const *word, int n, const char *out[2 * TRANSLATE_WORDS_MAX])
{
    const char *more[TRANSLATE_WORDS_MAX];
    int         n_out = 0;
    if (n == 2 && *word[1] == '[') {
        n = config_translate(&l->c->arena, "", 0, word[1], more);
        word = more;
        if (n < 0) return -1;
    }
    for (int i = 1; i < n; i++) {
        out[n_out++] = NULL;
        out[n_out++] = word[i];
    }
    return n_out;
}

static int read_prefixed(struct layer *l, const char *var, size_t n_prefix)
{
    const char *word[TRANSLATE_WORDS_MAX], *each[2 * TRANSLATE_WORDS_MAX], *eq = strchr(var, '=');
    char        origin[NAME_BYTES];
    bool        known;
    size_t      n_name = (size_t)(eq - var) - n_prefix;
    snprintf(origin, sizeof origin, "%.*s", (int)(eq - var), var);
    int n = config_translate(&l->c->arena, var + n_prefix, n_name, eq + 1, word);
    if (n < 0) return usage_error(l->err, l->n_err, "%s: too many values", origin);
    if (!n) {
        if (eq[1] == '[') config_tell(l->c, "%s has no effect: the list is empty", origin);
        return 0;
    }
    const struct opt *o = option_of(word[0], &known);
    if (!known) {
        tell_unknown(l, origin, word[0]);
        return 0;
    }
    if (!o || o->type != OPT_LIST || n < 2) return read_words(l, origin, word, n);
    n = spread(l, word, n, each);
    if (n < 0) return usage_error(l->err, l->n_err, "%s: too many values", origin);
    for (int i = 0; i < n; i += 2) each[i] = word[0];
    return read_words(l, origin, each, n);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int read_prefix(struct layer *l, char *const *env, const char *prefix)
{
    const char *var[VARIABLES_MAX];
    size_t      n_prefix = strlen(prefix), n = 0;
    for (; env && *env && n < VARIABLES_MAX; env++)
        if (!strncmp(*env, prefix, n_prefix) && strchr(*env, '=') > *env + n_prefix) var[n++] = *env;
    qsort(var, n, sizeof *var, by_name);
    int code = 0;
    for (size_t i = 0; i < n && !code; i++) code = read_prefixed(l, var[i], n_prefix);
    return code;
}

/* ---- LMI's names ---- */

/* The GPUs that the server may use, at least one. */
static int read_degree(struct layer *l, const char *value, const char *origin)
{
    struct dev_info gpu[CUDA_DEVICES_MAX];
    char            why[200], number[16];
    if (strcasecmp(value, "max") != 0) return set(l, "tensor-parallel-size", value, origin);
    uint32_t n = dev_list(gpu, CUDA_DEVICES_MAX, why, sizeof why);
    snprintf(number, sizeof number, "%u", n ? n : 1);
    return set(l, "tensor-parallel-size", number, origin);
}

static int read_compat(struct layer *l, const char *value, const char *origin)
{
    return strcasecmp(value, "true") ? 0 : set(l, "lmi-format", "tgi", origin);
}

static int read_formatter(struct layer *l, const char *value, const char *origin)
{
    if (!strcasecmp(value, "jsonlines") || !strcasecmp(value, "sse")) return set(l, "lmi-format", value, origin);
    config_tell(l->c, "%s has no effect: found '%.40s', known are jsonlines and sse", origin, value);
    return 0;
}

/* Names that are no option's in small letters with dashes. */
static const struct lmi_name {
    const char *name;   /* behind OPTION_ */
    const char *option; /* the option that it is; NULL: read, or none */
    int (*read)(struct layer *l, const char *value, const char *origin);
    const char *told; /* why it has no effect; NULL: it needs no word */
} lmi_names[] = {
    { "MODEL_ID", "model", NULL, NULL },
    { "TENSOR_PARALLEL_DEGREE", NULL, read_degree, NULL },
    { "PIPELINE_PARALLEL_DEGREE", NULL, NULL, "layers are not spread over devices; see --tensor-parallel-size" },
    { "MAX_ROLLING_BATCH_SIZE", "max-num-seqs", NULL, NULL },
    { "MAX_ROLLING_BATCH_PREFILL_TOKENS", "max-num-batched-tokens", NULL, NULL },
    { "QUANTIZE", "quantization", NULL, NULL },
    { "TGI_COMPAT", NULL, read_compat, NULL },
    { "OUTPUT_FORMATTER", NULL, read_formatter, NULL },
    { "ROLLING_BATCH", NULL, NULL, "batching is always continuous" },
    { "MODEL_LOADING_TIMEOUT", NULL, NULL, "the platform's ContainerStartupHealthCheckTimeoutInSeconds is the limit" },
    { "PREDICT_TIMEOUT", NULL, NULL, "see --request-timeout" },
    { "ENTRYPOINT", NULL, NULL, "no code of a model folder is ever run" },
    { "ENGINE", NULL, NULL, NULL },
    { "ENABLE_STREAMING", NULL, NULL, NULL },
    { "ASYNC_MODE", NULL, NULL, NULL },
    { "MPI_MODE", NULL, NULL, NULL },
};

static int read_lmi(struct layer *l, const char *name, const char *value, const char *origin)
{
    char option[NAME_BYTES + 2];
    bool known;
    for (size_t i = 0; i < sizeof lmi_names / sizeof *lmi_names; i++) {
        const struct lmi_name *k = &lmi_names[i];
        if (strcmp(k->name, name) != 0) continue;
        if (k->option) return set(l, k->option, value, origin);
        if (k->read) return k->read(l, value, origin);
        if (k->told) config_tell(l->c, "%s has no effect: %s", origin, k->told);
        return 0;
    }
    size_t n = 0;
    for (; name[n] && n < NAME_BYTES - 1; n++)
        option[n + 2] = name[n] == '_' ? '-' : (char)tolower((unsigned char)name[n]);
    memcpy(option, "--", 2);
    option[n + 2] = 0;
    const struct opt *o = option_of(option, &known);
    if (!known) {
        tell_unknown(l, origin, option);
        return 0;
    }
    if (!o && !strcasecmp(value, "false")) return 0; /* another server's switch, and off */
    size_t n_word = strlen(option) + 1 + strlen(value) + 1;
    char  *word = arena_alloc(&l->c->arena, n_word);
    if (!word) return usage_error(l->err, l->n_err, "%s: too long", origin);
    snprintf(word, n_word, "%s=%s", option, value);
    const char *one = word;
    return read_words(l, origin, &one, 1);
}

/* Lines "option.name=value" of a file beside the model; others are the Java server's own. */
static int read_properties(struct layer *l, const char *folder)
{
    char  *path = NULL, *text = arena_alloc(&l->c->arena, PROPERTIES_BYTES + 2), *rest = NULL;
    size_t n = 0;
    int    code = 0;
    if (!text || asprintf(&path, "%s/model/serving.properties", folder) < 0) return 0;
    int error = file_read_first(path, text, PROPERTIES_BYTES + 1, &n);
    free(path);
    if (error) return 0;
    if (n > PROPERTIES_BYTES)
        return usage_error(l->err, l->n_err, "serving.properties: larger than %d KiB", PROPERTIES_BYTES >> 10);
    if (memchr(text, 0, n))
        return usage_error(l->err, l->n_err, "serving.properties: it has a byte 0, so it is no text");
    text[n] = 0;
    for (char *line = strtok_r(text, "\r\n", &rest); line && !code; line = strtok_r(NULL, "\r\n", &rest)) {
        char  name[NAME_BYTES], origin[NAME_BYTES + 40];
        char *eq = strchr(line, '=');
        while (isspace((unsigned char)*line)) line++;
        if (strncmp(line, "option.", 7) != 0 || !eq || (size_t)(eq - line) >= sizeof name) continue;
        size_t k = (size_t)(eq - line) - 7;
        for (size_t i = 0; i < k; i++) name[i] = (char)toupper((unsigned char)line[7 + i]);
        while (k && isspace((unsigned char)name[k - 1])) k--;
        name[k] = 0;
        for (eq++; isspace((unsigned char)*eq); eq++) {}
        snprintf(origin, sizeof origin, "serving.properties: option.%.*s", (int)k, line + 7);
        code = read_lmi(l, name, eq, origin);
    }
    return code;
}

static int read_lmi_variables(struct layer *l, char *const *env)
{
    static const struct {
        const char *var, *name;
    } bare[] = { { "TENSOR_PARALLEL_DEGREE", "TENSOR_PARALLEL_DEGREE" },
                 { "PIPELINE_PARALLEL_DEGREE", "PIPELINE_PARALLEL_DEGREE" } };
    const char *v;
    int         code = 0;
    for (size_t i = 0; i < sizeof bare / sizeof *bare && !code; i++)
        if ((v = find(env, bare[i].var))) code = read_lmi(l, bare[i].name, v, bare[i].var);
    for (char *const *e = env; e && *e && !code; e++) {
        char        name[NAME_BYTES];
        const char *eq = strchr(*e, '=');
        if (!eq || (size_t)(eq - *e) >= sizeof name) continue;
        snprintf(name, sizeof name, "%.*s", (int)(eq - *e), *e);
        if (!strncmp(name, "OPTION_", 7) && name[7])
            code = read_lmi(l, name + 7, eq + 1, name);
        else if (!strcmp(name, "SERVING_JOB_QUEUE_SIZE"))
            code = set(l, "max-queue-requests", eq + 1, name);
        else if (!strncmp(name, "SERVING_", 8))
            config_tell(l->c, "%s has no effect here: one model is served by one process", name);
    }
    return code;
}

/* ---- the platform's ---- */

static bool has_file(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return false;
    bool is = !access(path, F_OK);
    free(path);
    return is;
}

/* What a model was unpacked into: the folder itself or, of an archive that has one folder at its top, that one. False:
 * it is empty or not there. */
static bool model_folder(const char *folder, char *out, size_t n_out)
{
    char           only[512] = "";
    unsigned       n = 0;
    struct dirent *e;
    DIR           *d;
    snprintf(out, n_out, "%s/model", folder);
    if (!(d = opendir(out))) return false;
    while ((e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        n++;
        if (e->d_name[0] == '.') continue;
        char *path = NULL;
        if (asprintf(&path, "%s/%s", out, e->d_name) < 0) continue;
        if (has_file(path, "config.json")) snprintf(only, sizeof only, *only ? "?" : "%s", path);
        free(path);
    }
    closedir(d);
    if (n && *only && strcmp(only, "?") != 0 && !has_file(out, "config.json")) snprintf(out, n_out, "%s", only);
    return n > 0;
}

/* What else the platform has unpacked: for the log, and for a path in --model. */
static void tell_sources(struct layer *l, const char *folder)
{
    char          *path = NULL, list[300] = "";
    struct dirent *e;
    size_t         n = 0;
    if (asprintf(&path, "%s/additional-model-data-sources", folder) < 0) return;
    DIR *d = opendir(path);
    while (d && (e = readdir(d)) && n < sizeof list) {
        if (e->d_name[0] == '.') continue;
        n += (size_t)snprintf(list + n, sizeof list - n, " %.100s", e->d_name);
    }
    if (d) closedir(d);
    if (*list) config_tell(l->c, "%s has%s", path, list);
    free(path);
}

static int read_log_level(struct layer *l, const char *value)
{
    static const struct {
        const char *number, *word;
    } level[] = { { "10", "debug" }, { "20", "info" }, { "30", "warn" }, { "40", "error" }, { "50", "error" } };
    char word[16] = "";
    for (size_t i = 0; value[i] && i + 1 < sizeof word; i++) word[i] = (char)tolower((unsigned char)value[i]);
    const char *is = word;
    for (size_t i = 0; i < sizeof level / sizeof *level; i++)
        if (!strcmp(level[i].number, value)) is = level[i].word;
    if (!strcmp(is, "critical") || !strcmp(is, "fatal")) is = "error";
    return set(l, "log-level", is, "SAGEMAKER_CONTAINER_LOG_LEVEL");
}

static int read_platform(struct layer *l, char *const *env)
{
    const char *v;
    int         code = 0;
    if ((v = find(env, "SAGEMAKER_CONTAINER_LOG_LEVEL"))) code = read_log_level(l, v);
    if (!code && (v = find(env, "SAGEMAKER_ENABLE_STATEFUL_SESSIONS")))
        code = set(l, "stateful-sessions", v, "SAGEMAKER_ENABLE_STATEFUL_SESSIONS");
    if (!code && (v = find(env, "SAGEMAKER_SESSIONS_EXPIRATION")))
        code = set(l, "session-seconds", v, "SAGEMAKER_SESSIONS_EXPIRATION");
    if (find(env, "SAGEMAKER_SESSIONS_PATH"))
        config_tell(l->c, "SAGEMAKER_SESSIONS_PATH has no effect: sessions hold nothing that needs a folder");
    if (find(env, "SAGEMAKER_MULTI_MODEL") && !strcasecmp(find(env, "SAGEMAKER_MULTI_MODEL"), "true"))
        config_tell(l->c, "SAGEMAKER_MULTI_MODEL has no effect: a container serves one model");
    return code;
}

/* ---- all of it, from weak to strong ---- */

/* The platform stands in front: IAM decides who may invoke, and it reaches the container by names of its own. It kills
 * 30 s after SIGTERM: 20 for requests, 1 for their last events, 7 for what only the host has of the cache. */
static int read_defaults(struct layer *l)
{
    static const struct {
        const char *option, *value;
    } holds[] = { { "host", "0.0.0.0" },      { "port", "8080" },      { "allow-anonymous", "true" },
                  { "open-metrics", "true" }, { "allowed-host", "*" }, { "drain-seconds", "20" },
                  { "flush-seconds", "7" } };
    int code = 0;
    for (size_t i = 0; i < sizeof holds / sizeof *holds && !code; i++)
        code = set(l, holds[i].option, holds[i].value, holds[i].option);
    return code;
}

int config_sagemaker_read(struct config *c, const char *folder, char *const *env, char *err, size_t n_err)
{
    static const char *const prefix[] = { "SM_LLAMA_CPP_", "SM_SGLANG_", "SM_VLLM_", "SM_SPILLWAY_" };
    struct layer             l = { c, err, n_err };
    char                     model[1024];
    const char              *v;
    int                      code = read_defaults(&l);
    if (!code && (v = find(env, "HF_MODEL_ID")) && *v) code = set(&l, "model", v, "HF_MODEL_ID");
    if (!code) code = read_properties(&l, folder);
    if (!code) code = read_lmi_variables(&l, env);
    if (!code && model_folder(folder, model, sizeof model)) code = set(&l, "model", model, "model");
    if (!code) code = read_platform(&l, env);
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix && !code; i++) code = read_prefix(&l, env, prefix[i]);
    if (!code && (v = find(env, "SAGEMAKER_BIND_TO_PORT"))) code = set(&l, "port", v, "SAGEMAKER_BIND_TO_PORT");
    if (!code) tell_sources(&l, folder);
    c->on_sagemaker = !code;
    return code;
}

bool config_sagemaker_is_meant(const struct config *c, int argc, char *const *argv, char *const *env)
{
    struct stat st;
    if (c->sagemaker != SAGEMAKER_AUTO) return c->sagemaker == SAGEMAKER_ON;
    if (getpid() != 1 || argc < 2 || strcmp(argv[1], "serve") != 0) return false;
    if (!stat(c->sagemaker_folder, &st) && S_ISDIR(st.st_mode)) return true;
    for (; env && *env; env++)
        if (!strncmp(*env, "SAGEMAKER_", 10)) return true;
    return false;
}

void config_sagemaker_finish(struct config *c)
{
    if (c->protect_metrics) c->open_metrics = false;
    if (!*c->model) config_tell(c, "no model is given: the embedded one is served");
    if (c->api_key.n || *c->api_key_file)
        config_tell(c, "keys are needed, but SageMaker sends none: it will get 401 for every invocation");
}
