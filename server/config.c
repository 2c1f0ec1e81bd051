#include "server/config.h"
#include "server/config_alias.h"
#include "server/config_impl.h"
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

/* A list given by a later source replaces the earlier one. */
static void clear_list(struct config *c, const struct opt *o, bool fresh[OPTIONS_MAX])
{
    uint32_t i = option_index(o);
    if (o->type != OPT_LIST || fresh[i]) return;
    *(struct str_list *)((char *)c + o->at) = (struct str_list){ 0 };
    fresh[i] = true;
}

static int read_file(struct config *c, const char *path, char *err, size_t n_err)
{
    bool  fresh[OPTIONS_MAX] = { 0 };
    char  line[4096], origin[200];
    FILE *f = fopen(path, "re");
    int   code = 0, n_line = 0;
    if (!f) return usage_error(err, n_err, "--config: cannot open %s: %s", path, strerror(errno));
    while (!code && fgets(line, sizeof line, f)) {
        n_line++;
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
        clear_list(c, o, fresh);
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
        clear_list(c, o, fresh);
        if (o->type != OPT_LIST) {
            int code = config_set(c, o, eq + 1, origin, err, n_err);
            if (code) return code;
            continue;
        }
        for (const char *p = eq + 1; *p;) { /* a list: commas between the values */
            size_t len = strcspn(p, ",");
            char  *one = arena_strndup(&c->arena, p, len);
            int    code = !one  ? usage_error(err, n_err, "%s: too long", origin)
                          : len ? config_set(c, o, one, origin, err, n_err)
                                : 0;
            if (code) return code;
            p += len + (p[len] == ',');
        }
    }
    return 0;
}

/* An option that is another server's. *o_out: the option of ours that it names; NULL: it is dealt with, or refused.
 * more than eight: the state of read_flags, its one caller. */
static int read_alias(struct config *c, const struct alias *al, int *i, int argc, char *const *argv, const char *v,
                      bool only_config, const struct opt **o_out, char *err, size_t n_err)
{
    *o_out = NULL;
    if (al->kind == ALIAS_OF) {
        *o_out = option_find(al->text, strlen(al->text));
        return 0;
    }
    if (al->kind == ALIAS_REFUSED) return usage_error(err, n_err, "%s: %s", al->name, al->text);
    bool valued = al->kind != ALIAS_FLAG;
    if (valued && !v && ++*i >= argc) return usage_error(err, n_err, "%s: the value is missing", al->name);
    if (valued && !v) v = argv[*i];
    if (al->kind == ALIAS_ONLY_ONE && strcmp(v, "1") != 0)
        return usage_error(err, n_err, "%s: found '%.40s', allowed is 1: %s", al->name, v, al->text);
    if (only_config) return 0;
    char line[200];
    snprintf(line, sizeof line, "%s has no effect here: %s", al->name, al->text);
    const char **grown = arena_alloc(&c->arena, (c->told.n + 1) * sizeof *grown);
    if (!grown) return usage_error(err, n_err, "too many options");
    if (c->told.n) memcpy(grown, c->told.s, c->told.n * sizeof *grown);
    grown[c->told.n++] = arena_strdup(&c->arena, line);
    c->told.s = grown;
    return 0;
}

/* A word without dashes: the model, once, where it can be one. */
static int read_word(struct config *c, const char *a, bool served, bool *model, bool only_config, char *err,
                     size_t n_err)
{
    struct stat st;
    bool        path = strchr(a, '/') || !strcmp(a, ".") || !strcmp(a, "..") || (!stat(a, &st) && S_ISDIR(st.st_mode));
    if (!*model && (served || path)) {
        *model = true;
        if (!only_config) c->model = arena_strdup(&c->arena, a);
        return 0;
    }
    if (!strcmp(a, "serve"))
        return usage_error(err, n_err,
                           "'serve' comes before everything else: spillway serve [DIR] [--option value]...");
    if (!*model && option_distance(a, "serve") <= 2)
        return usage_error(err, n_err, "unexpected word '%.60s'; did you mean 'serve'?", a);
    return usage_error(err, n_err, "unexpected word '%.60s'; a model folder is given as --model DIR, see --help", a);
}

static int read_flags(struct config *c, int argc, char *const *argv, bool only_config, char *err, size_t n_err)
{
    bool fresh[OPTIONS_MAX] = { 0 };
    bool served = false, model = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "-h")) a = "--help";
        if (a[0] != '-' && !served && i == 1 && !strcmp(a, "serve")) {
            served = true;
            continue;
        }
        if (a[0] != '-') {
            int code = read_word(c, a, served, &model, only_config, err, n_err);
            if (code) return code;
            continue;
        }
        bool        shorter = strncmp(a, "--", 2) != 0;
        const char *name = shorter ? a + 1 : a + 2, *eq = strchr(name, '='), *v = eq ? eq + 1 : NULL;
        size_t      n = eq ? (size_t)(eq - name) : strlen(name);
        bool        no = false;
        char        dashed[64];
        if (n >= sizeof dashed) return usage_error(err, n_err, "unknown option '%.60s'; see --help", a);
        for (size_t k = 0; k < n; k++) dashed[k] = name[k] == '_' ? '-' : name[k];
        dashed[n] = 0;
        const struct opt *o = shorter ? NULL : option_find(dashed, n);
        if (!o) {
            char whole[72];
            snprintf(whole, sizeof whole, "%s%s", shorter ? "-" : "--", dashed);
            const struct alias *al = config_alias_find(whole, strlen(whole));
            if (al) {
                int code = read_alias(c, al, &i, argc, argv, v, only_config, &o, err, n_err);
                if (code) return code;
                if (!o) continue;
            } else if (shorter) {
                return usage_error(err, n_err, "unknown option '%.60s'; see --help", a);
            }
        }
        if (!o && !v && !strncmp(dashed, "no-", 3)) {
            o = option_find(dashed + 3, n - 3);
            no = o && o->type == OPT_BOOL;
            if (!no) o = NULL;
        }
        if (!o) {
            const char *near = option_nearest(dashed);
            return usage_error(err, n_err, "unknown option '--%s'%s%s%s", dashed,
                               near ? "; did you mean '--" : "; see --help", near ? near : "", near ? "'?" : "");
        }
        if (o->type == OPT_BOOL && !v) v = no ? "false" : "true";
        if (!v && ++i >= argc) return usage_error(err, n_err, "--%s: the value is missing", o->name);
        if (!v) v = argv[i];
        bool names = o->at == offsetof(struct config, served_name); /* vLLM takes several behind one option */
        while (names && only_config && i + 1 < argc && argv[i + 1][0] != '-') i++;
        if ((o->at == offsetof(struct config, config_file)) != only_config) continue;
        char origin[80];
        snprintf(origin, sizeof origin, "--%s", o->name);
        clear_list(c, o, fresh);
        int code = config_set(c, o, v, origin, err, n_err);
        while (!code && names && i + 1 < argc && argv[i + 1][0] != '-')
            code = config_set(c, o, argv[++i], origin, err, n_err);
        if (code) return code;
    }
    return 0;
}

int config_parse(struct config *c, int argc, char *const *argv, char *const *env, char *err, size_t n_err)
{
    memset(c, 0, sizeof *c);
    arena_init(&c->arena, 4u << 20);
    int code = set_defaults(c, err, n_err);
    /* --config first, from wherever it is given: its lines lose against everything else */
    if (!code) code = read_environ(c, env, true, err, n_err);
    if (!code) code = read_flags(c, argc, argv, true, err, n_err);
    if (!code && *c->config_file) code = read_file(c, c->config_file, err, n_err);
    if (!code) code = read_environ(c, env, false, err, n_err);
    if (!code) code = read_flags(c, argc, argv, false, err, n_err);
    return code;
}

static void wipe(char *s)
{
    if (s) memset(s, '*', strlen(s));
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
        if (!strncmp(*env, "SPILLWAY_API_KEY=", 17)) wipe(*env + 17);
        if (!strncmp(*env, "SPILLWAY_CLUSTER_KEY=", 21)) wipe(*env + 21);
    }
}

void config_free(struct config *c)
{
    for (uint32_t i = 0; i < c->api_key.n; i++)
        explicit_bzero((void *)(uintptr_t)c->api_key.s[i], strlen(c->api_key.s[i]));
    arena_free(&c->arena);
}
