#include "server/config.h"
#include "base/file.h"
#include "server/config_impl.h"
#include "server/config_sagemaker.h"
#include "server/usage.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int set_defaults(struct config *c, char *err, size_t n_err)
{
    uint32_t          n;
    const struct opt *o = options_table(&n);
    for (const struct opt *end = o + n; o < end; o++) {
        if (o->type == OPT_LIST) continue;
        int code = config_set(c, o, o->def, o->name, err, n_err);
        if (code) return code;
    }
    return 0;
}

/* What --config names, read once: it may be a pipe, and options may be read twice. */
struct file_text {
    char  *p; /* NULL: not read yet; malloc'd */
    size_t n;
};

static int load_file(struct file_text *t, const char *path, char *err, size_t n_err)
{
    enum { FILE_BYTES_MAX = 1 << 20 };
    if (t->p) return 0;
    t->p = malloc(FILE_BYTES_MAX);
    int error = t->p ? file_read_first(path, t->p, FILE_BYTES_MAX, &t->n) : ENOMEM;
    if (!error && t->n == FILE_BYTES_MAX) error = EFBIG;
    return error ? usage_error(err, n_err, "--config: cannot open %s: %s", path, strerror(error)) : 0;
}

static int read_file(struct config *c, struct file_text *text, const char *path, char *err, size_t n_err)
{
    bool fresh[OPTIONS_MAX] = { 0 };
    char line[4096], origin[200];
    int  n_line = 0, code = load_file(text, path, err, n_err);
    if (code || !text->n) return code;
    FILE *f = fmemopen(text->p, text->n, "r");
    if (!f) return usage_error(err, n_err, "--config: cannot read %s: %s", path, strerror(errno));
    while (!code && fgets(line, sizeof line, f)) {
        n_line++;
        if (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n') {
            code = usage_error(err, n_err, "%s line %d: longer than %zu bytes", path, n_line, sizeof line - 2);
            break;
        }
        char *p = line + strlen(line);
        while (p > line && isspace((unsigned char)p[-1])) *--p = 0;
        for (p = line; isspace((unsigned char)*p); p++) {}
        if (!*p || *p == '#') continue;
        char *eq = strchr(p, '=');
        if (!eq) {
            code =
                usage_error(err, n_err, "%s line %d: found no '=', allowed are lines of 'name = value'", path, n_line);
            break;
        }
        char *end = eq, *v = eq + 1;
        while (end > p && isspace((unsigned char)end[-1])) end--;
        *end = 0;
        while (isspace((unsigned char)*v)) v++;
        for (char *u = p; *u; u++)
            if (*u == '_') *u = '-';
        const struct opt *o = option_find(p, strlen(p));
        if (!o || o->at == offsetof(struct config, config_file) || o->at == offsetof(struct config, help)) {
            const char *near = option_nearest(p);
            code = usage_error(err, n_err, "%s line %d: unknown option '%.40s'%s%s%s", path, n_line, p,
                               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
            break;
        }
        snprintf(origin, sizeof origin, "%s line %d: %s", path, n_line, o->name);
        config_clear_list(c, o, fresh);
        code = config_set(c, o, v, origin, err, n_err);
    }
    fclose(f);
    return code;
}

static void env_name(const struct opt *o, char *out, size_t n)
{
    int at = snprintf(out, n, "SPILLWAY_");
    for (const char *p = o->name; *p && (size_t)at + 1 < n; p++)
        out[at++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    out[at] = 0;
}

static const struct opt *find_env(const char *name, size_t n)
{
    char              own[80];
    uint32_t          n_row;
    const struct opt *row = options_table(&n_row);
    for (uint32_t i = 0; i < n_row; i++) {
        env_name(&row[i], own, sizeof own);
        if (strlen(own) == n && !memcmp(own, name, n)) return &row[i];
    }
    return NULL;
}

/* Kubernetes puts SPILLWAY_SERVICE_HOST, SPILLWAY_PORT=tcp://..., SPILLWAY_PORT_8080_TCP_ADDR and the like into every
 * pod when a Service is named "spillway": not ours. */
static bool env_of_kubernetes(const char *name, size_t n, const char *v)
{
    static const char service[] = "SPILLWAY_SERVICE_", port[] = "SPILLWAY_PORT_";
    if (n >= sizeof service - 1 && !memcmp(name, service, sizeof service - 1)) return true;
    if (n > sizeof port - 1 && !memcmp(name, port, sizeof port - 1) && isdigit((unsigned char)name[sizeof port - 1]))
        return true;
    return n == 13 && !memcmp(name, "SPILLWAY_PORT", 13) && (!strncmp(v, "tcp://", 6) || !strncmp(v, "udp://", 6));
}

static int read_environ(struct config *c, char *const *env, bool only_config, char *err, size_t n_err)
{
    bool fresh[OPTIONS_MAX] = { 0 };
    for (; env && *env; env++) {
        if (strncmp(*env, "SPILLWAY_", 9)) continue;
        const char *eq = strchr(*env, '=');
        if (!eq) continue;
        size_t n = (size_t)(eq - *env);
        if (env_of_kubernetes(*env, n, eq + 1)) {
            if (n == 13) c->port_from_env_ignored = true;
            continue;
        }
        const struct opt *o = find_env(*env, n);
        if (!o) {
            char   name[64];
            size_t k = 0;
            for (; k + 1 < sizeof name && 9 + k < n; k++)
                name[k] = (*env)[9 + k] == '_' ? '-' : (char)tolower((unsigned char)(*env)[9 + k]);
            name[k] = 0;
            const char *near = option_nearest(name);
            char        own[80] = "";
            if (near) env_name(option_find(near, strlen(near)), own, sizeof own);
            return usage_error(err, n_err, "unknown environment variable %.*s%s%s%s", (int)(n < 60 ? n : 60), *env,
                               near ? "; did you mean " : "", own, near ? "?" : "");
        }
        if ((o->at == offsetof(struct config, config_file)) != only_config) continue;
        char origin[80];
        snprintf(origin, sizeof origin, "%.*s", (int)(n < 70 ? n : 70), *env);
        config_clear_list(c, o, fresh);
        if (o->type != OPT_LIST) {
            const char *v = o->type == OPT_BOOL && !eq[1] ? "true" : eq + 1; /* as a flag without a value */
            int         code = config_set(c, o, v, origin, err, n_err);
            if (code) return code;
            continue;
        }
        for (const char *p = eq + 1; *p;) { /* a list: commas between the values */
            size_t len = strcspn(p, ",");
            char  *one = arena_strndup(&c->arena, p, len);
            int    code = 0;
            if (!one)
                code = usage_error(err, n_err, "%s: too long", origin);
            else if (len)
                code = config_set(c, o, one, origin, err, n_err);
            if (code) return code;
            p += len + (p[len] == ',');
        }
    }
    return 0;
}

/* sagemaker: with what SageMaker's sources say, which lose against all others; NULL: without them, else the folder. */
static int read_all(struct config *c, int argc, char *const *argv, char *const *env, const char *sagemaker,
                    struct file_text *text, char *err, size_t n_err)
{
    memset(c, 0, sizeof *c);
    arena_init(&c->arena, 4u << 20);
    int code = set_defaults(c, err, n_err);
    if (!code && sagemaker) code = config_sagemaker_read(c, sagemaker, env, err, n_err);
    /* --config first, from wherever it is given: its lines lose against everything else of our own */
    if (!code) code = read_environ(c, env, true, err, n_err);
    if (!code) code = config_read_flags(c, argc, argv, true, err, n_err);
    if (!code && *c->config_file) code = read_file(c, text, c->config_file, err, n_err);
    if (!code) code = read_environ(c, env, false, err, n_err);
    if (!code) code = config_read_flags(c, argc, argv, false, err, n_err);
    return code;
}

int config_parse(struct config *c, int argc, char *const *argv, char *const *env, char *err, size_t n_err)
{
    struct file_text text = { 0 };
    int              code = read_all(c, argc, argv, env, NULL, &text, err, n_err);
    if (!code && config_sagemaker_is_meant(c, argc, argv, env)) {
        char *folder = strdup(c->sagemaker_folder);
        config_free(c);
        code = folder ? read_all(c, argc, argv, env, folder, &text, err, n_err)
                      : usage_error(err, n_err, "out of memory for options");
        if (!code) config_sagemaker_finish(c);
        free(folder);
    }
    if (text.p) explicit_bzero(text.p, text.n); /* keys may have stood there */
    free(text.p);
    return code;
}

static void wipe(char *s)
{
    if (s) memset(s, '*', strlen(s));
}

/* SPILLWAY_API_KEY, SM_SPILLWAY_API_KEY, SM_VLLM_API_KEY: whoever said it. end: of the name. */
static bool is_key_variable(const char *name, const char *end, const char *with)
{
    size_t n = strlen(with);
    bool   ours = !strncmp(name, "SPILLWAY_", 9) || !strncmp(name, "SM_", 3);
    return ours && (size_t)(end - name) > n && !memcmp(end - n, with, n);
}

void config_wipe_keys(int argc, char **argv, char **env)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--api-key") && i + 1 < argc)
            wipe(argv[i + 1]);
        else if (!strncmp(argv[i], "--api-key=", 10))
            wipe(argv[i] + 10);
        else if (!strcmp(argv[i], "--cluster-key") && i + 1 < argc)
            wipe(argv[i + 1]);
        else if (!strncmp(argv[i], "--cluster-key=", 14))
            wipe(argv[i] + 14);
    }
    for (; env && *env; env++) {
        const char *eq = strchr(*env, '=');
        if (eq && (is_key_variable(*env, eq, "_API_KEY") || is_key_variable(*env, eq, "_CLUSTER_KEY")))
            wipe(*env + (eq - *env) + 1);
    }
}

void config_free(struct config *c)
{
    for (uint32_t i = 0; i < c->api_key.n; i++)
        explicit_bzero((void *)(uintptr_t)c->api_key.s[i], strlen(c->api_key.s[i]));
    c->api_key = (struct str_list){ 0 };
    arena_free(&c->arena);
}
