/* schema_scalar: strings of a schema. */
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include "api/schema/schema_impl.h"
#include <string.h>

/* ---------------------------------------------------------------- strings */

#define HOUR "([01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOUR ":[0-5][0-9])"
#define YEAR "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define DATE                                                                                                     \
    "((" YEAR                                                                                                    \
    "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])))|" \
    "((([0-9]{2}(0[48]|[2468][048]|[13579][26]))|((0[48]|[2468][048]|[13579][26])00))-02-29))"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  OCTET "(\\." OCTET "){3}"
#define HEX   "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                                        \
    "((" HEX ":){7}" HEX "|(" HEX ":){1,7}:|(" HEX ":){1,6}:" HEX "|(" HEX ":){1,5}(:" HEX "){1,2}|(" HEX           \
    ":){1,4}(:" HEX "){1,3}|(" HEX ":){1,3}(:" HEX "){1,4}|(" HEX ":){1,2}(:" HEX "){1,5}|" HEX ":(:" HEX "){1,6}|" \
    ":((:" HEX "){1,7}|:)|((" HEX ":){6}|::(" HEX ":){0,5}|" HEX "::(" HEX ":){0,4}|(" HEX ":){2}:(" HEX            \
    ":){0,3}|(" HEX ":){3}:(" HEX ":){0,2}|(" HEX ":){4}:(" HEX ":)?|(" HEX ":){5}:)" IPV4 ")"

/* Labels of up to 63 characters in names of up to 253. A count of all characters beside that of a label would make each
 * place of a name a state of its own, so that there are four ways to stay below: few long labels, or more short ones. */
#define LABEL(n)     "[A-Za-z0-9]([A-Za-z0-9-]{0," #n "}[A-Za-z0-9])?"
#define LABELS(n, k) LABEL(n) "(\\." LABEL(n) "){0," #k "}"
#define HOST         "(" LABEL(61) "(\\." LABEL(28) "){0,6}|" LABELS(61, 2) "|" LABELS(10, 18) "|" LABELS(0, 83) ")"
/* The same of up to 64 characters before an e-mail's @. A character of a quoted string may be two. */
#define ATOM(n)     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1," #n "}"
#define ATOMS(n, k) ATOM(n) "(\\." ATOM(n) "){0," #k "}"
#define LOCAL       ATOM(64) "|" ATOMS(31, 1) "|" ATOMS(20, 2) "|" ATOMS(12, 4)
#define QUOTED      "\"([ !#-\\[\\]-~]|\\\\[ -~]){0,31}\""

#define URI_HEX       "%[0-9A-Fa-f]{2}"
#define URI_CHAR      "([A-Za-z0-9._~!$&'()*+,;=:@-]|" URI_HEX ")"
#define URI_USER      "([A-Za-z0-9._~!$&'()*+,;=:-]|" URI_HEX ")*@"
#define URI_HOST      "(\\[" IPV6 "\\]|([A-Za-z0-9._~!$&'()*+,;=-]|" URI_HEX ")+)"
#define URI_AUTHORITY "//(" URI_USER ")?" URI_HOST "(:[0-9]*)?"
#define URI_PATH \
    "(" URI_AUTHORITY "(/" URI_CHAR "*)*|(//)?/(" URI_CHAR "+(/" URI_CHAR "*)*)?|" URI_CHAR "+(/" URI_CHAR "*)*)"
#define URI_MORE "(" URI_CHAR "|[/?])*"

/* Formats that are enforced (RFC 3339, 4122, 2673, 4291, 1123, 3986, 5321); others are annotations. Of two spellings that
 * mean the same there is one (T and Z, IPv6: in an e-mail), and there are no leap seconds, which many readers refuse. */
static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}" },
    { "ipv4", IPV4 },
    { "ipv6", IPV6 },
    { "uri", "[A-Za-z][A-Za-z0-9+.-]*:" URI_PATH "(\\?" URI_MORE ")?(#" URI_MORE ")?" },
    { "hostname", HOST },
    { "email", "(" LOCAL "|" QUOTED ")@(" HOST "|\\[(" IPV4 "|IPv6:" IPV6 ")\\])" },
    { "duration", "P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)"
                  "(T(([0-9]{1,9}H)([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?|"
                  "T(([0-9]{1,9}H)([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))" },
};

const char *schema_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name)) return formats[i].regex;
    return NULL;
}

static uint32_t of_regex(struct schema *s, const char *key, const char *text, size_t n, bool search)
{
    char              why[REGEX_ERR];
    uint32_t          r = RX_NONE;
    struct regex_form form = { .search = search, .json = true };
    if (regex_rx(s->x, text, n, form, &r, why)) schema_fail(s, key, "%s", why);
    return r;
}

/* A pattern that no automaton can follow is left out where the form is lenient. */
static uint32_t of_pattern(struct schema *s, const json_t *pattern)
{
    char              why[REGEX_ERR];
    uint32_t          r = RX_NONE;
    struct regex_form form = { .search = true, .json = true };
    if (!regex_rx(s->x, json_string_value(pattern), json_string_length(pattern), form, &r, why)) return r;
    schema_beyond(s, "pattern", why);
    return RX_ALL;
}

/* The inner part of strings that one part allows. */
static uint32_t of_part(struct schema *s, const json_t *node, uint32_t any)
{
    const json_t *pattern = json_object_get(node, "pattern"), *format = json_object_get(node, "format");
    const json_t *not_pattern = json_object_get(node, SCHEMA_NOT_PATTERN), *was = s->node;
    uint32_t      min = 0, max = RX_MANY, r = RX_ALL;
    s->node = node;
    schema_count(s, node, "minLength", &min);
    schema_count(s, node, "maxLength", &max);
    if (max < min) schema_fail(s, "maxLength", "it is less than minLength");
    if (min || max != RX_MANY) r = rx_repeat(s->x, any, min, max);
    if (pattern && !json_is_string(pattern)) schema_fail(s, "pattern", "a string is needed");
    if (pattern) r = rx_and2(s->x, r, of_pattern(s, pattern));
    if (json_is_string(not_pattern)) {
        uint32_t no = of_regex(s, "pattern", json_string_value(not_pattern), json_string_length(not_pattern), true);
        r = rx_and2(s->x, rx_and2(s->x, r, rx_repeat(s->x, any, 0, RX_MANY)), rx_not(s->x, no));
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (json_str_is(format, formats[i].name))
            r = rx_and2(s->x, r, of_regex(s, "format", formats[i].regex, strlen(formats[i].regex), false));
    s->node = was;
    return r;
}

/* Strings that `not` names. */
static uint32_t excluded(struct schema *s, const struct schema_all *all)
{
    struct rx_texts t;
    rx_texts_init(&t, s->x);
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *no = all->part[i].done & DONE_NOT ? NULL : json_object_get(all->part[i].node, "not");
        const json_t *one = json_object_get(no, "const"), *list = json_object_get(no, "enum");
        if (json_is_string(one)) schema_put(s, &t, one);
        for (size_t k = 0; k < json_array_size(list); k++)
            if (json_is_string(json_array_get(list, k))) schema_put(s, &t, json_array_get(list, k));
    }
    uint32_t r = rx_texts_any(&t);
    rx_texts_free(&t);
    return r;
}

uint32_t schema_string(struct schema *s, const struct schema_all *all)
{
    uint32_t any = chars_any(s->x, true), r = RX_ALL, no = excluded(s, all);
    for (uint32_t i = 0; i < all->n && !s->failed; i++) r = rx_and2(s->x, r, of_part(s, all->part[i].node, any));
    if (r == RX_ALL) r = rx_repeat(s->x, any, 0, RX_MANY);
    r = schema_string_rx(s, r);
    return no == RX_NONE ? r : rx_and2(s->x, r, rx_not(s->x, no));
}
