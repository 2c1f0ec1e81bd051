#include "api/lang/reader.h"
#include "base/utf8.h"
#include <string.h>

enum { REPEAT_MAX = 65536 };

bool reader_is(const struct ebnf *e, const char *word)
{
    size_t n = strlen(word);
    return !e->failed && e->n_text - e->at >= n && memcmp(e->text + e->at, word, n) == 0;
}

bool reader_take(struct ebnf *e, const char *word)
{
    if (!reader_is(e, word)) return false;
    e->at += strlen(word);
    return true;
}

void reader_skip(struct ebnf *e, bool slashes)
{
    while (reader_more(e)) {
        int c = reader_peek(e, 0);
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            e->at++;
        } else if (c == '#' || (slashes && c == '/' && reader_peek(e, 1) == '/')) {
            while (reader_more(e) && reader_peek(e, 0) != '\n') e->at++;
        } else {
            return;
        }
    }
}

static bool is_name(int c, bool first, bool dash)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_') return true;
    return (c >= '0' && c <= '9' && !(first && !dash)) || (c == '-' && dash && !first);
}

size_t reader_name(const struct ebnf *e, size_t at, bool dash)
{
    size_t n = 0;
    while (!e->failed && at + n < e->n_text && is_name((unsigned char)e->text[at + n], n == 0, dash)) n++;
    return n;
}

bool reader_number(struct ebnf *e, uint32_t *v)
{
    size_t from = e->at;
    *v = 0;
    for (; reader_peek(e, 0) >= '0' && reader_peek(e, 0) <= '9'; e->at++)
        if (*v < 1u << 27) *v = *v * 10 + (uint32_t)(reader_peek(e, 0) - '0');
    return e->at > from;
}

/* ---------------------------------------------------------------- characters */

static uint32_t take_hex(struct ebnf *e, int digits)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++) {
        int c = reader_peek(e, 0), low = c | 0x20;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (uint32_t)(low - 'a' + 10);
        else
            return ebnf_fail(e, e->at, "%d hexadecimal digits are needed", digits);
        e->at++;
    }
    if (v > RX_CODE_POINT_MAX || (v >= 0xD800 && v <= 0xDFFF)) ebnf_fail(e, e->at, "no such character");
    return v;
}

static uint32_t take_char(struct ebnf *e)
{
    static const char controls[] = "n\nr\rt\tf\fv\vb\b\\\\\"\"''//[[]]--^^";
    uint32_t          cp = 0, len;
    if (!reader_more(e)) return ebnf_fail(e, e->at, "the text ends here");
    if (!reader_take(e, "\\")) {
        len = utf8_decode(e->text + e->at, e->n_text - e->at, &cp);
        if (!len) return ebnf_fail(e, e->at, "not UTF-8");
        e->at += len;
        return cp;
    }
    int c = reader_peek(e, 0);
    for (size_t i = 0; i + 1 < sizeof controls; i += 2) {
        if (controls[i] != c) continue;
        e->at++;
        return (unsigned char)controls[i + 1];
    }
    if (reader_take(e, "x")) return take_hex(e, 2);
    if (reader_take(e, "u")) return take_hex(e, 4);
    if (reader_take(e, "U")) return take_hex(e, 8);
    return ebnf_fail(e, e->at, "an unknown escape");
}

static void add_folded(struct chars *c, uint32_t from, uint32_t to, bool fold)
{
    chars_add(c, from, to);
    for (uint32_t l = 'a'; fold && l <= 'z'; l++) {
        uint32_t upper = l - 32;
        if (l >= from && l <= to) chars_add(c, upper, upper);
        if (upper >= from && upper <= to) chars_add(c, l, l);
    }
}

/* The first n of these, one behind the other, nested to the right so that their depth stays small. */
static uint32_t in_a_row(struct ebnf *e, const uint32_t *part, uint32_t n)
{
    uint32_t r = RX_EMPTY;
    while (n > 0) r = rx_cat(e->x, part[--n], r);
    return r;
}

uint32_t reader_string(struct ebnf *e, bool fold)
{
    uint32_t part[64], piece[64], n = 0, n_piece = 0;
    size_t   from = e->at++;
    while (reader_more(e) && !reader_is(e, "\"") && !reader_is(e, "\n")) {
        struct chars c = { .n = 0 };
        uint32_t     cp = take_char(e);
        add_folded(&c, cp, cp, fold);
        part[n++] = chars_rx(e->x, &c, e->json);
        if (n < 64) continue;
        if (n_piece == 63) return ebnf_fail(e, from, "a string of more than 4000 characters");
        piece[n_piece++] = in_a_row(e, part, n);
        n = 0;
    }
    if (!reader_take(e, "\"")) return ebnf_fail(e, from, "the string does not end on its line");
    piece[n_piece++] = in_a_row(e, part, n);
    return in_a_row(e, piece, n_piece);
}

uint32_t reader_one_char(struct ebnf *e)
{
    size_t   from = e->at++;
    uint32_t cp = take_char(e);
    if (!reader_take(e, "\"")) ebnf_fail(e, from, "a range goes from one character to another");
    return cp;
}

uint32_t reader_class(struct ebnf *e)
{
    struct chars c = { .n = 0 };
    size_t       from = e->at++;
    bool         inverted = reader_take(e, "^");
    while (reader_more(e) && reader_peek(e, 0) != ']') {
        uint32_t low = take_char(e), high = low;
        if (reader_peek(e, 0) == '-' && reader_peek(e, 1) != ']' && reader_take(e, "-")) high = take_char(e);
        if (high < low) return ebnf_fail(e, from, "a range runs backwards");
        chars_add(&c, low, high);
    }
    if (!reader_take(e, "]")) return ebnf_fail(e, from, "']' is missing");
    if (c.full) return ebnf_fail(e, from, "a class of more than %d ranges", CHARS_RANGES);
    if (inverted) chars_invert(&c);
    return chars_rx(e->x, &c, e->json);
}

void reader_counts(struct ebnf *e, uint32_t *min, uint32_t *max)
{
    size_t from = e->at;
    bool   has_min;
    reader_skip(e, false);
    has_min = reader_number(e, min);
    reader_skip(e, false);
    *max = *min;
    if (reader_take(e, ",")) {
        reader_skip(e, false);
        if (!reader_number(e, max)) *max = RX_MANY;
        reader_skip(e, false);
    } else if (!has_min) {
        ebnf_fail(e, from, "a count is needed");
    }
    if (!reader_take(e, "}")) ebnf_fail(e, e->at, "'}' is missing");
    if (*min > REPEAT_MAX || (*max != RX_MANY && *max > REPEAT_MAX))
        ebnf_fail(e, from, "a repetition of more than %d", REPEAT_MAX);
    if (*min > *max) ebnf_fail(e, from, "a repetition from more to less");
}

uint32_t reader_token(struct ebnf *e, const struct ebnf_tokens *tokens)
{
    size_t   from = e->at, n = 0;
    uint32_t id;
    while (e->at + n < e->n_text && e->text[e->at + n] != '>' && e->text[e->at + n] != '\n') n++;
    if (e->at + n >= e->n_text || e->text[e->at + n] != '>') return ebnf_fail(e, from, "'>' is missing");
    e->at += n + 1;
    const char *text = e->text + from;
    bool        number = n > 3 && text[1] == '[' && text[n - 1] == ']';
    bool        found = tokens && tokens->find(tokens->self, number ? text + 1 : text, number ? n - 1 : n + 1, &id);
    if (!found)
        return ebnf_fail(e, from, "%.*s is no special token that an answer of this model may contain",
                         (int)(n < 60 ? n + 1 : 60), text);
    return gr_token(e->r, id);
}
