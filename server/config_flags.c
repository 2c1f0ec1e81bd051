/* config_flags: the words of a command line: options, other servers' names for them, and the model. */
#include "server/config_impl.h"
#include "server/config_alias.h"
#include "server/usage.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void config_clear_list(struct config *c, const struct opt *o, bool fresh[OPTIONS_MAX])
{
    uint32_t i = option_index(o);
    if (o->type != OPT_LIST || fresh[i]) return;
    *(struct str_list *)((char *)c + o->at) = (struct str_list){ 0 };
    fresh[i] = true;
}

void config_tell(struct config *c, const char *fmt, ...)
{
    char    line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    const char **grown = arena_alloc(&c->arena, (c->told.n + 1) * sizeof *grown);
    char        *copy = arena_strdup(&c->arena, line);
    if (!grown || !copy) return; /* the arena has megabytes; a line that is too many is not missed */
    if (c->told.n) memcpy(grown, c->told.s, c->told.n * sizeof *grown);
    grown[c->told.n++] = copy;
    c->told.s = grown;
}

/* An option that is another server's. *o_out: the option of ours that it names; NULL: it is dealt with, or refused.
 * more than eight: the state of config_read_flags, its one caller. */
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
    config_tell(c, "%s has no effect here: %s", al->name, al->text);
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

int config_read_flags(struct config *c, int argc, char *const *argv, bool only_config, char *err, size_t n_err)
{
    bool fresh[OPTIONS_MAX] = { 0 };
    bool served = false, model = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "-h") || (i == 1 && !strcmp(a, "help"))) a = "--help";
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
        /* vLLM takes several behind one option */
        bool names = o->at == offsetof(struct config, served_name) || o->at == offsetof(struct config, lora_modules);
        while (names && only_config && i + 1 < argc && argv[i + 1][0] != '-') i++;
        if ((o->at == offsetof(struct config, config_file)) != only_config) continue;
        char origin[80];
        snprintf(origin, sizeof origin, "--%s", o->name);
        config_clear_list(c, o, fresh);
        int code = config_set(c, o, v, origin, err, n_err);
        while (!code && names && i + 1 < argc && argv[i + 1][0] != '-')
            code = config_set(c, o, argv[++i], origin, err, n_err);
        if (code) return code;
    }
    return 0;
}
