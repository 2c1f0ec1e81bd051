/* config_value: the text of one value, and what its option stores. */
#include "server/config_impl.h"
#include "server/config_alias.h"
#include "server/usage.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool parse_bool(const char *v, bool *out)
{
    static const char *const yes[] = { "true", "1", "yes", "on" }, *const no[] = { "false", "0", "no", "off" };
    for (int i = 0; i < 4; i++) {
        if (!strcasecmp(v, yes[i])) {
            *out = true;
            return true;
        }
        if (!strcasecmp(v, no[i])) {
            *out = false;
            return true;
        }
    }
    return false;
}

/* Digits with an optional fraction; no sign, no exponent: locale-free. */
static bool parse_num(const char *v, double *out, const char **end)
{
    double x = 0, scale = 1;
    if (!isdigit((unsigned char)*v)) return false;
    for (; isdigit((unsigned char)*v); v++) x = x * 10 + (*v - '0');
    if (*v == '.')
        for (v++; isdigit((unsigned char)*v); v++) x += (*v - '0') * (scale /= 10);
    *out = x;
    *end = v;
    return true;
}

static bool parse_bytes(const char *v, double *out)
{
    static const struct {
        const char *unit;
        double      n;
    } unit[] = {
        { "", 1 },
        { "B", 1 },
        { "K", 1024 },
        { "KiB", 1024 },
        { "kB", 1e3 },
        { "KB", 1e3 },
        { "M", 1048576 },
        { "MiB", 1048576 },
        { "MB", 1e6 },
        { "G", 1073741824 },
        { "GiB", 1073741824 },
        { "GB", 1e9 },
        { "T", 1099511627776 },
        { "TiB", 1099511627776 },
        { "TB", 1e12 },
    };
    const char *end;
    if (!parse_num(v, out, &end)) return false;
    while (*end == ' ') end++;
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
        if (strcmp(end, unit[i].unit)) continue;
        *out *= unit[i].n;
        return true;
    }
    return false;
}

static bool parse_word(const struct opt *o, const char *v, unsigned *out)
{
    for (uint32_t i = 0; i < o->n_word; i++) {
        if (strcmp(o->word[i].word, v)) continue;
        *out = o->word[i].value;
        return true;
    }
    return false;
}

/* A number as the option's unit has it, or with a unit of its own: GiB and MiB sizes, thousands of tokens (32k is
 * 32000, 32K is 32768). */
static bool parse_in_unit(const struct opt *o, const char *v, double *out)
{
    const char *end = "", *unit = o->meta ? o->meta : "";
    if (!parse_num(v, out, &end)) return false;
    if (!*end) return true;
    if (!strcmp(unit, "TOKENS") && !end[1] && strchr("kmKM", *end)) {
        double step = *end == 'k' || *end == 'm' ? 1000 : 1024;
        *out *= *end == 'k' || *end == 'K' ? step : step * step;
        return true;
    }
    double one = 0;
    if (!strcmp(unit, "GIB")) one = 1073741824.0;
    if (!strcmp(unit, "MIB")) one = 1048576.0;
    if (one == 0 || !parse_bytes(v, out)) return false;
    *out /= one;
    return true;
}

static const char *number_kind(const struct opt *o)
{
    if (o->type == OPT_BYTES) return "a size";
    if (o->meta && !strcmp(o->meta, "GIB")) return "a number of GiB, or a size as 512MiB,";
    if (o->meta && !strcmp(o->meta, "MIB")) return "a whole number of MiB, or a size as 64MiB,";
    if (o->meta && !strcmp(o->meta, "TOKENS")) return "a whole number, or thousands as 32k,";
    return o->type == OPT_NUM ? "a number" : "a whole number";
}

int config_set(struct config *c, const struct opt *o, const char *v, const char *origin, char *err, size_t err_bytes)
{
    void  *to = (char *)c + o->at;
    double x = 0;
    char   shown[80], words[OPT_WORDS_MAX];
    if (o->at == offsetof(struct config, quantization))
        c->codes_named = config_alias_codes(v) ? arena_strdup(&c->arena, v) : NULL;
    v = config_alias_value(o->name, v);
    snprintf(shown, sizeof shown, "%.60s%s", v, strlen(v) > 60 ? "..." : "");
    switch (o->type) {
    case OPT_BOOL:
        if (!parse_bool(v, to))
            return usage_error(err, err_bytes, "%s: found '%s', allowed are true and false", origin, shown);
        break;
    case OPT_ENUM:
        if (!parse_word(o, v, to))
            return usage_error(err, err_bytes, "%s: found '%s', allowed are %s", origin, shown, option_words(o, words));
        break;
    case OPT_STR: {
        const char *copy = arena_strdup(&c->arena, v);
        if (!copy) return usage_error(err, err_bytes, "%s: too long", origin);
        *(const char **)to = copy;
        break;
    }
    case OPT_LIST: {
        struct str_list *l = to;
        const char     **grown = arena_alloc(&c->arena, (l->n + 1) * sizeof *grown);
        if (!*v) return usage_error(err, err_bytes, "%s: the value is empty", origin);
        const char *copy = grown ? arena_strdup(&c->arena, v) : NULL;
        if (!copy) return usage_error(err, err_bytes, "%s: too many values", origin);
        if (l->n) memcpy(grown, l->s, l->n * sizeof *grown);
        grown[l->n] = copy;
        l->s = grown;
        l->n++;
        break;
    }
    default: {
        if (!strcmp(o->def, "auto") && !strcmp(v, "auto")) {
            *(uint32_t *)to = 0;
            break;
        }
        bool ok = o->type == OPT_BYTES ? parse_bytes(v, &x) : parse_in_unit(o, v, &x);
        if (ok && o->type == OPT_U32 && x != floor(x)) ok = false;
        if (!ok || x < o->min || x > o->max)
            return usage_error(err, err_bytes, "%s: found '%s', allowed is %s%s from %.0f to %.0f", origin, shown,
                               !strcmp(o->def, "auto") ? "auto or " : "", number_kind(o), o->min, o->max);
        if (o->type == OPT_U32)
            *(uint32_t *)to = (uint32_t)x;
        else if (o->type == OPT_BYTES)
            *(uint64_t *)to = (uint64_t)x;
        else
            *(double *)to = x;
        if (o->at == offsetof(struct config, kv_bytes)) c->given_kv_bytes = x > 0;
        if (o->at == offsetof(struct config, kv_gib)) c->given_kv_gib = x > 0;
    }
    }
    return 0;
}

/* ---- folders with a share of their disk ---- */

bool config_shared(const char *text, char *dir_out, size_t dir_bytes, uint64_t *bytes_out)
{
    if (config_dir_gib(text, dir_out, dir_bytes, bytes_out)) return true;
    if (!*text || strlen(text) >= dir_bytes || text[strlen(text) - 1] == ':') return false;
    const char *colon = strrchr(text, ':');
    if (colon && strspn(colon + 1, "0123456789.-+eE") == strlen(colon + 1))
        return false; /* a share, and not an allowed one */
    memcpy(dir_out, text, strlen(text) + 1);
    *bytes_out = (uint64_t)64 << 30;
    return true;
}

bool config_dir_gib(const char *text, char *dir_out, size_t dir_bytes, uint64_t *bytes_out)
{
    const char *colon = strrchr(text, ':');
    const char *end;
    double      gib;
    if (!colon || colon == text || (size_t)(colon - text) >= dir_bytes) return false;
    if (!parse_num(colon + 1, &gib, &end)) return false;
    if (*end) { /* with a unit of its own: DIR:512MiB */
        if (!parse_bytes(colon + 1, &gib)) return false;
        gib /= 1073741824.0;
    }
    if (gib <= 0 || gib > 1e6) return false;
    memcpy(dir_out, text, (size_t)(colon - text));
    dir_out[colon - text] = 0;
    *bytes_out = (uint64_t)(gib * (double)(1 << 30));
    return true;
}
