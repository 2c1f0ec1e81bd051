/* tags_text: texts of structural tags, as symbols where special tokens may stand in them and as expressions where they
 * are free. */
#include "api/lang/tags_impl.h"

enum { TOKEN_BYTES_MAX = 64 };

static bool is_number(const char *s, size_t n)
{
    for (size_t i = 1; i + 1 < n; i++)
        if (s[i] < '0' || s[i] > '9') return false;
    return n > 2 && s[0] == '[';
}

/* The longest special token that is spelled here; 0: none. */
static size_t token_at(const struct tags *t, const char *s, size_t n, uint32_t *id_out)
{
    for (size_t k = n < TOKEN_BYTES_MAX ? n : TOKEN_BYTES_MAX; k > 0; k--)
        if (t->tokens && !is_number(s, k) && t->tokens->find(t->tokens->self, s, k, id_out)) return k;
    return 0;
}

static uint32_t bytes_symbol(struct tags *t, const char *s, size_t n)
{
    return gr_terminal(t->r, rx_of_bytes(t->x, s, n));
}

uint32_t tags_pieces(struct tags *t, const char *s, size_t n, uint32_t *symbol, uint32_t *n_token_out)
{
    uint32_t count = 0, id;
    size_t   from = 0, at = 0;
    *n_token_out = 0;
    while (at < n && count + 2 < TAGS_PIECES_MAX) {
        size_t k = token_at(t, s + at, n - at, &id);
        if (!k) {
            at++;
            continue;
        }
        if (at > from) symbol[count++] = bytes_symbol(t, s + from, at - from);
        symbol[count++] = gr_token(t->r, id);
        ++*n_token_out;
        from = at += k;
    }
    if (n > from) symbol[count++] = bytes_symbol(t, s + from, n - from);
    return count;
}

uint32_t tags_literal(struct tags *t, const char *s, size_t n)
{
    uint32_t rule = gr_rule(t->r), symbol[TAGS_PIECES_MAX], n_token, count = tags_pieces(t, s, n, symbol, &n_token);
    gr_alt(t->r, rule, symbol, count);
    if (!n_token) return rule;
    symbol[0] = bytes_symbol(t, s, n);
    gr_alt(t->r, rule, symbol, 1);
    return rule;
}

static const json_t *stop_at(const struct tags_stops *s, size_t *i)
{
    for (size_t k = 0; k < 3; k++) {
        size_t n = json_is_string(s->list[k]) ? 1 : json_array_size(s->list[k]);
        if (*i < n) return json_is_string(s->list[k]) ? s->list[k] : json_array_get(s->list[k], *i);
        *i -= n;
    }
    return NULL;
}

/* Any text that ends with one of them; of the texts that hold one: those in which it is followed by more. */
static uint32_t texts_with(struct tags *t, const struct tags_stops *s, uint32_t before, uint32_t behind)
{
    uint32_t      any = RX_NONE;
    const json_t *one;
    for (size_t i = 0, at = 0; (one = stop_at(s, &at)); at = ++i) {
        if (!json_string_length(one)) continue;
        any = rx_or2(t->x, any, rx_of_bytes(t->x, json_string_value(one), json_string_length(one)));
    }
    return rx_cat(t->x, before, rx_cat(t->x, any, behind));
}

uint32_t tags_free_rx(struct tags *t, const struct tags_stops *s)
{
    return rx_not(t->x, texts_with(t, s, RX_ALL, RX_ALL));
}

uint32_t tags_until_rx(struct tags *t, const struct tags_stops *s, const char *text, size_t n)
{
    struct rx_class any = { { 0 } };
    rx_class_add(&any, 0, 255);
    uint32_t more = rx_cat(t->x, rx_of_class(t->x, &any), RX_ALL);
    uint32_t early = texts_with(t, s, RX_ALL, more);
    return rx_and2(t->x, rx_cat(t->x, RX_ALL, rx_of_bytes(t->x, text, n)), rx_not(t->x, early));
}
