#include "api/jinja/tmpl_ast.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "api/jinja/tmpl_text.h"
#include <stdio.h>
#include <string.h>

/* The rules are those of Jinja 3.1 with trim_blocks and lstrip_blocks: a newline right after a block or comment tag
 * goes, blanks in front of a tag that begins its line go, "-" takes all whitespace on its side, "+" keeps what would
 * go. */
struct lex {
    struct arena     *a;
    const char       *s;
    size_t            n, i;
    uint32_t          line;
    struct tmpl_toks *out;
    char             *err;
    size_t            err_bytes;
};
enum { LEX_NEST_MAX = TMPL_NEST_MAX };

static bool lex_fail(struct lex *x, const char *what)
{
    if (!x->err[0]) snprintf(x->err, x->err_bytes, "line %u: %s", x->line, what);
    return false;
}

static bool lex_emit(struct lex *x, enum tmpl_tok_type type, uint8_t op, const char *s, size_t n)
{
    struct tmpl_toks *o = x->out;
    if (o->n == o->cap) {
        uint32_t         cap = o->cap ? o->cap * 2 : 256;
        struct tmpl_tok *v = arena_alloc(x->a, cap * sizeof *v);
        if (!v) return lex_fail(x, "template is too large");
        if (o->n) memcpy(v, o->v, o->n * sizeof *v);
        o->v = v;
        o->cap = cap;
    }
    o->v[o->n++] = (struct tmpl_tok){ .type = (uint8_t)type, .op = op, .line = x->line, .n = (uint32_t)n, .s = s };
    return true;
}

static void lex_skip(struct lex *x, size_t n)
{
    for (size_t end = x->i + n; x->i < end; x->i++) x->line += x->s[x->i] == '\n';
}

static bool lex_at(const struct lex *x, size_t i, const char *what)
{
    size_t n = strlen(what);
    return i <= x->n && n <= x->n - i && !memcmp(x->s + i, what, n);
}

static void lex_skip_space(struct lex *x) { lex_skip(x, x->n - x->i - text_lstrip_len(x->s + x->i, x->n - x->i)); }

/* Text in front of a tag: emitted without what the tag's sign or lstrip_blocks takes. */
static bool lex_text(struct lex *x, size_t end, char sign, bool lstrip)
{
    size_t from = x->i, n = end - from;
    if (sign == '-') {
        n = text_rstrip_len(x->s + from, n);
    } else if (sign != '+' && lstrip) {
        size_t l = n;
        while (l && x->s[from + l - 1] != '\n') l--;
        bool starts = l > 0 || from == 0 || x->s[from - 1] == '\n';
        if (starts && text_lstrip_len(x->s + from + l, n - l) == 0) n = l;
    }
    bool ok = !n || lex_emit(x, T_DATA, 0, x->s + from, n);
    lex_skip(x, end - from);
    return ok;
}

/* After "%}" or "#}" whose sign was given. */
static void lex_after(struct lex *x, char sign)
{
    if (sign == '-')
        lex_skip_space(x);
    else if (sign != '+' && x->i < x->n && x->s[x->i] == '\n')
        lex_skip(x, 1);
}

static bool lex_comment(struct lex *x)
{
    size_t from = x->i;
    for (size_t i = from; i + 1 < x->n; i++) {
        if (x->s[i] != '#' || x->s[i + 1] != '}') continue;
        char sign = i > from ? x->s[i - 1] : 0;
        lex_skip(x, i + 2 - from);
        lex_after(x, sign);
        return true;
    }
    return lex_fail(x, "missing end of comment tag");
}

/* Is there "{%[sign] word [-]%}" at i? Then its end and the signs. */
static bool lex_is_tag(const struct lex *x, size_t i, const char *word, bool plus_too, size_t *end, char *sign_l,
                       char *sign_r)
{
    if (!lex_at(x, i, "{%")) return false;
    i += 2;
    *sign_l = 0;
    *sign_r = 0;
    if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) *sign_l = x->s[i++];
    i = x->n - text_lstrip_len(x->s + i, x->n - i);
    if (!lex_at(x, i, word)) return false;
    i += strlen(word);
    i = x->n - text_lstrip_len(x->s + i, x->n - i);
    if (i < x->n && (x->s[i] == '-' || (plus_too && x->s[i] == '+'))) *sign_r = x->s[i++];
    if (!lex_at(x, i, "%}")) return false;
    *end = i + 2;
    return true;
}

static bool lex_raw(struct lex *x)
{
    size_t end;
    char   l, r;
    for (size_t i = x->i; i + 1 < x->n; i++) {
        if (x->s[i] != '{' || !lex_is_tag(x, i, "endraw", true, &end, &l, &r)) continue;
        if (!lex_text(x, i, l, true)) return false;
        lex_skip(x, end - i);
        lex_after(x, r);
        return true;
    }
    return lex_fail(x, "missing end of raw block");
}

static size_t lex_string_end(const struct lex *x, size_t i)
{
    char q = x->s[i++];
    for (; i < x->n && x->s[i] != q; i++)
        if (x->s[i] == '\\') i++;
    return i < x->n ? i + 1 : 0;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) || (unsigned char)c >= 0x80;
}

/* Digits of a class with single underscores between them, from i; where they end. in_front: an underscore may come
 * first (0x_1). */
static size_t lex_digits(const struct lex *x, size_t i, bool (*is)(char), bool in_front)
{
    size_t from = i;
    while (i < x->n) {
        bool gap = x->s[i] == '_' && (i > from || in_front) && i + 1 < x->n && is(x->s[i + 1]);
        if (!gap && !is(x->s[i])) break;
        i += gap ? 2 : 1;
    }
    return i;
}
static bool is_bin(char c) { return c == '0' || c == '1'; }
static bool is_oct(char c) { return c >= '0' && c <= '7'; }
static bool is_hex(char c) { return hex_value(c) >= 0; }

/* The digits behind "0b", "0o" and "0x". */
static bool (*digits_of(char mark))(char)
{
    if (mark == 'b') return is_bin;
    return mark == 'o' ? is_oct : is_hex;
}

static char closing(char bracket)
{
    if (bracket == '(') return ')';
    return bracket == '[' ? ']' : '}';
}
static bool is_zero(char c) { return c == '0'; }

/* Where the fraction or exponent of a float that begins at from ends; from: there is neither. i: behind its whole
 * part. */
static size_t lex_fraction(const struct lex *x, size_t from, size_t i)
{
    size_t end = from;
    if (i < x->n && x->s[i] == '.' && i + 1 < x->n && is_digit(x->s[i + 1]))
        i = end = lex_digits(x, i + 1, is_digit, false);
    if (i >= x->n || (x->s[i] | 0x20) != 'e') return end;
    i++;
    if (i < x->n && (x->s[i] == '+' || x->s[i] == '-')) i++;
    return i < x->n && is_digit(x->s[i]) ? lex_digits(x, i, is_digit, false) : end;
}

/* A float before an integer; a whole number has no leading zeros, so 012 is two tokens, which no expression has. */
static bool lex_number(struct lex *x)
{
    size_t from = x->i, i = lex_digits(x, from, is_digit, false), end = from;
    bool   after_dot = from && x->s[from - 1] == '.';
    if (!after_dot) end = lex_fraction(x, from, i);
    bool real = end > from;
    if (!real) {
        char c = from + 1 < x->n && x->s[from] == '0' ? (char)(x->s[from + 1] | 0x20) : 0;
        end = i;
        if (x->s[from] == '0') end = lex_digits(x, from, is_zero, false);
        if (c == 'b' || c == 'o' || c == 'x') i = lex_digits(x, from + 2, digits_of(c), true);
        if ((c == 'b' || c == 'o' || c == 'x') && i > from + 2) end = i;
    }
    bool ok = lex_emit(x, real ? T_FLOAT : T_INT, 0, x->s + from, end - from);
    x->i = end;
    return ok;
}

static const struct {
    char    s[3];
    uint8_t op;
} lex_ops[] = {
    { "==", OP_EQ },    { "!=", OP_NE },    { "<=", OP_LE },      { ">=", OP_GE },      { "//", OP_FLOORDIV },
    { "**", OP_POW },   { "+", OP_ADD },    { "-", OP_SUB },      { "*", OP_MUL },      { "/", OP_DIV },
    { "%", OP_MOD },    { "~", OP_TILDE },  { "<", OP_LT },       { ">", OP_GT },       { "=", OP_ASSIGN },
    { ".", OP_DOT },    { ":", OP_COLON },  { "|", OP_PIPE },     { ",", OP_COMMA },    { ";", OP_SEMI },
    { "(", OP_LPAREN }, { ")", OP_RPAREN }, { "[", OP_LBRACKET }, { "]", OP_RBRACKET }, { "{", OP_LBRACE },
    { "}", OP_RBRACE },
};

/* Inside {% %} or {{ }}; x->i is behind the begin tag. */
static bool lex_tag(struct lex *x, bool block)
{
    char        open[LEX_NEST_MAX];
    uint32_t    depth = 0, line = x->line;
    const char *close = block ? "%}" : "}}";
    for (;;) {
        lex_skip_space(x);
        if (x->i >= x->n) {
            x->line = line;
            return lex_fail(x, block ? "missing end of a block tag" : "missing end of a print tag");
        }
        char c = x->s[x->i];
        if (!depth) {
            char sign = 0;
            if ((c == '-' || (c == '+' && block)) && lex_at(x, x->i + 1, close)) sign = c;
            if (sign || lex_at(x, x->i, close)) {
                if (!lex_emit(x, block ? T_BLOCK_END : T_OUT_END, 0, NULL, 0)) return false;
                x->i += sign ? 3 : 2;
                if (block)
                    lex_after(x, sign);
                else if (sign)
                    lex_skip_space(x);
                return true;
            }
        }
        if (c == '"' || c == '\'') {
            size_t end = lex_string_end(x, x->i);
            if (!end) return lex_fail(x, "a string that does not end");
            if (!lex_emit(x, T_STR, 0, x->s + x->i + 1, end - x->i - 2)) return false;
            lex_skip(x, end - x->i);
            continue;
        }
        if (is_digit(c)) {
            if (!lex_number(x)) return false;
            continue;
        }
        if (is_name_byte(c)) {
            size_t i = x->i;
            while (i < x->n && is_name_byte(x->s[i])) i++;
            if (!lex_emit(x, T_NAME, 0, x->s + x->i, i - x->i)) return false;
            x->i = i;
            continue;
        }
        size_t k = 0;
        while (k < sizeof lex_ops / sizeof *lex_ops && !lex_at(x, x->i, lex_ops[k].s)) k++;
        if (k == sizeof lex_ops / sizeof *lex_ops) return lex_fail(x, "unexpected character");
        if (c == '(' || c == '[' || c == '{') {
            if (depth == LEX_NEST_MAX) return lex_fail(x, "nested too deeply");
            open[depth++] = closing(c);
        } else if (c == ')' || c == ']' || c == '}') {
            if (!depth || open[depth - 1] != c) return lex_fail(x, "a closing bracket that fits no opening one");
            depth--;
        }
        if (!lex_emit(x, T_OP, lex_ops[k].op, x->s + x->i, strlen(lex_ops[k].s))) return false;
        x->i += strlen(lex_ops[k].s);
    }
}

bool tmpl_lex(struct arena *a, const char *text, size_t n, struct tmpl_toks *out, char *err, size_t err_bytes)
{
    struct lex x = { .a = a, .s = text, .n = n, .line = 1, .out = out, .err = err, .err_bytes = err_bytes };
    err[0] = 0;
    for (;;) {
        size_t i = x.i, end;
        char   l, r;
        while (i + 1 < n && !(text[i] == '{' && (text[i + 1] == '{' || text[i + 1] == '%' || text[i + 1] == '#'))) i++;
        if (i + 1 >= n) break;
        if (lex_is_tag(&x, i, "raw", false, &end, &l, &r)) {
            if (!lex_text(&x, i, l, true)) return false;
            lex_skip(&x, end - i);
            if (r == '-') lex_skip_space(&x);
            if (!lex_raw(&x)) return false;
            continue;
        }
        char sign = i + 2 < n && (text[i + 2] == '-' || text[i + 2] == '+') ? text[i + 2] : 0, what = text[i + 1];
        if (!lex_text(&x, i, sign, what != '{')) return false;
        if (what != '#' && !lex_emit(&x, what == '{' ? T_OUT_BEGIN : T_BLOCK_BEGIN, 0, NULL, 0)) return false;
        x.i += sign ? 3 : 2;
        if (what == '#' ? !lex_comment(&x) : !lex_tag(&x, what == '%')) return false;
    }
    if (x.i < n && !lex_emit(&x, T_DATA, 0, text + x.i, n - x.i)) return false;
    lex_skip(&x, n - x.i);
    return lex_emit(&x, T_EOF, 0, NULL, 0);
}

/* Python's "unicode-escape": an escape it does not know stays as it is. */
bool tmpl_unescape(struct arena *a, const char *s, size_t n, const char **s_out, uint32_t *n_out)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    if (!memchr(s, '\\', n)) {
        *s_out = s;
        *n_out = (uint32_t)n;
        return true;
    }
    char *d = arena_alloc(a, n + 1);
    if (!d) return false;
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\' || i + 1 >= n) {
            d[k++] = s[i++];
            continue;
        }
        char        c = s[i + 1];
        const char *p = strchr(from, c);
        if (p && c) {
            d[k++] = to[p - from];
            i += 2;
        } else if (c == '\n') {
            i += 2;
        } else if (c == 'x' || c == 'u' || c == 'U') {
            size_t   len = 8;
            uint32_t cp = 0;
            if (c == 'x') len = 2;
            if (c == 'u') len = 4;
            if (i + 2 + len > n) return false;
            for (size_t j = 0; j < len; j++) {
                int h = hex_value(s[i + 2 + j]);
                if (h < 0) return false;
                cp = cp << 4 | (uint32_t)h;
            }
            if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return false;
            k += text_put_cp(d + k, cp); /* never longer than its escape */
            i += 2 + len;
        } else if (c >= '0' && c <= '7') {
            uint32_t cp = 0;
            size_t   j = i + 1;
            while (j < n && j < i + 4 && s[j] >= '0' && s[j] <= '7') cp = cp * 8 + (uint32_t)(s[j++] - '0');
            k += text_put_cp(d + k, cp);
            i = j;
        } else {
            d[k++] = s[i++];
        }
    }
    *s_out = d;
    *n_out = (uint32_t)k;
    return true;
}
