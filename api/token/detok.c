#include "api/token/detok.h"
#include "api/token/tok_impl.h"
#include "api/token/tok_unicode.h"
#include "base/check.h"
#include <string.h>

/* token -> steps before the fuse (token by token) -> steps behind it (one text) -> held -> stop strings -> out.
 *
 * The library decides over a whole run of byte tokens whether it is UTF-8, and if not, makes every byte of it a U+FFFD.
 * So a run is held until it ends, or until it cannot be UTF-8 any more. A run longer than RUN_MAX gives its complete
 * characters away before that: memory is bounded, and only a model that writes that many byte tokens and then breaks
 * off differs from the library. */
enum { RUN_MAX = 1024, HELD_MAX = 1 << 24 };
static const char replacement[] = "\xef\xbf\xbd";

/* ---- behind the fuse */

static void put_text(struct detok *d, const char *s, size_t n) { buf_put(&d->held, s, n); }

/* Strip of the whole text: leading ones while they last, trailing ones held back until something follows. */
static void put_stripped(struct detok *d, const struct tok_dec_step *x, const char *s, size_t n)
{
    size_t i = 0;
    while (d->strip && i < n) {
        size_t next = i;
        if (tok_next(s, &next) != x->cp) d->strip = 0;
        if (d->strip) {
            d->strip--;
            i = next;
        }
    }
    if (!x->stop) {
        put_text(d, s + i, n - i);
        return;
    }
    char   one[4];
    size_t n_one = tok_utf8_put(one, x->cp);
    while (i < n) {
        size_t at = i;
        if (tok_next(s, &i) != x->cp) {
            for (; d->n_end; d->n_end--) put_text(d, one, n_one);
            put_text(d, s + at, i - at);
        } else if (d->n_end < x->stop) {
            d->n_end++;
        } else {
            put_text(d, one, n_one);
        }
    }
}

static void put_fused(struct detok *d, const char *s, size_t n)
{
    const struct tok_decoder *dec = &d->tok->decoder;
    for (uint32_t i = dec->fuse; i < dec->n; i++)
        if (dec->step[i].kind == DEC_STRIP) {
            put_stripped(d, &dec->step[i], s, n);
            return;
        }
    put_text(d, s, n);
}

/* Bytes that need not be UTF-8: what is not becomes U+FFFD, one for each longest part that could have begun a
 * character. */
static void put_lossy(struct detok *d, const char *s, size_t n, bool last)
{
    char joined[16]; /* the unfinished character and what may finish it */
    while (d->n_tail && (n || last)) {
        size_t k = n < 4 ? n : 4, have = d->n_tail + k;
        memcpy(joined, d->tail, d->n_tail);
        memcpy(joined + d->n_tail, s, k);
        uint32_t cp, len = utf8_decode(joined, have, &cp), bad = len ? 0 : utf8_bad(joined, have);
        if (!len && bad == have && have < 4 && !last) { /* still unfinished */
            memcpy(d->tail, joined, have);
            d->n_tail = (uint32_t)have;
            return;
        }
        uint32_t used = len ? len : bad;
        put_fused(d, len ? joined : replacement, len ? len : 3);
        CHECK(used >= d->n_tail); /* it is the beginning of one character */
        s += used - d->n_tail;
        n -= used - d->n_tail;
        d->n_tail = 0;
    }
    size_t run = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp, len = utf8_decode(s + i, n - i, &cp);
        if (len) {
            i += len;
            continue;
        }
        put_fused(d, s + run, i - run);
        uint32_t bad = utf8_bad(s + i, n - i);
        /* all that is left, and a longer text could make it a character */
        bool more = i + bad == n && !last && (unsigned char)s[i] >= 0xc2 && (unsigned char)s[i] < 0xf5;
        if (more) {
            memcpy(d->tail, s + i, bad);
            d->n_tail = bad;
            return;
        }
        put_fused(d, replacement, 3);
        i += bad;
        run = i;
    }
    put_fused(d, s + run, n - run);
}

/* ---- before the fuse */

static void step_replace(const struct tok_dec_step *x, const char *s, size_t n, struct buf *to)
{
    for (const char *hit; n && (hit = memmem(s, n, x->from, x->n_from));) {
        buf_put(to, s, (size_t)(hit - s));
        buf_put(to, x->to, x->n_to);
        n -= (size_t)(hit - s) + x->n_from;
        s = hit + x->n_from;
    }
    buf_put(to, s, n);
}

static void step_strip(const struct tok_dec_step *x, const char *s, size_t n, struct buf *to)
{
    size_t i = 0, end = n;
    for (uint32_t k = 0; k < x->start && i < end; k++) {
        size_t next = i;
        if (tok_next(s, &next) != x->cp) break;
        i = next;
    }
    for (uint32_t k = 0; k < x->stop && end > i; k++) {
        size_t prev = end;
        if (tok_prev(s, &prev) != x->cp) break;
        end = prev;
    }
    buf_put(to, s + i, end - i);
}

static void step_metaspace(const struct tok_dec_step *x, bool first, const char *s, size_t n, struct buf *to)
{
    for (size_t i = 0; i < n;) {
        size_t at = i;
        if (tok_next(s, &i) != x->cp)
            buf_put(to, s + at, i - at);
        else if (!(first && x->prepend))
            buf_putc(to, ' ');
    }
}

/* Tidies English inside one token, as the library does: every text becomes a shorter one, in this order. */
static void clean_up(struct buf *b)
{
    static const struct {
        const char *from, *to;
    } rule[] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };
    for (size_t r = 0; r < sizeof rule / sizeof *rule; r++) {
        size_t n_from = strlen(rule[r].from), n_to = strlen(rule[r].to), k = 0;
        for (size_t i = 0; i < b->n;) {
            if (b->n - i >= n_from && !memcmp(b->data + i, rule[r].from, n_from)) {
                memcpy(b->data + k, rule[r].to, n_to);
                k += n_to;
                i += n_from;
            } else {
                b->data[k++] = b->data[i++];
            }
        }
        b->n = k;
    }
}

static void step_wordpiece(const struct tok_dec_step *x, bool first, const char *s, size_t n, struct buf *to)
{
    bool inner = n >= x->n_from && !memcmp(s, x->from, x->n_from);
    if (!first && !inner) buf_putc(to, ' ');
    if (!first && inner) {
        s += x->n_from;
        n -= x->n_from;
    }
    buf_put(to, s, n);
    if (x->cleanup) clean_up(to);
}

static int byte_of_token(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return -1;
    int v = 0;
    for (int i = 3; i < 5; i++) {
        int c = (unsigned char)s[i], lower = c | 0x20;
        if (c == '+' && i == 3) continue; /* Rust reads a sign there */
        if (c >= '0' && c <= '9')
            v = v * 16 + c - '0';
        else if (lower >= 'a' && lower <= 'f')
            v = v * 16 + lower - 'a' + 10;
        else
            return -1;
    }
    return v;
}

/* A token with a character outside the table of bytes is its own UTF-8. */
static void put_byte_level(struct detok *d, const char *s, size_t n)
{
    char   raw[64];
    size_t k = 0;
    for (size_t i = 0; i < n;)
        if (tok_char_byte(tok_next(s, &i)) < 0) {
            put_lossy(d, s, n, false);
            return;
        }
    for (size_t i = 0; i < n;) {
        raw[k++] = (char)tok_char_byte(tok_next(s, &i));
        if (k < sizeof raw && i < n) continue;
        put_lossy(d, raw, k, false);
        k = 0;
    }
}

static void put_token(struct detok *d, uint32_t i, const char *s, size_t n, bool first);

/* The run of byte tokens is over: what it says, as one token, or a U+FFFD per byte. */
static void end_run(struct detok *d, uint32_t i)
{
    if (!d->run_bad && utf8_valid(d->run.data, d->run.n)) {
        struct buf whole = d->run; /* the steps behind do not touch it */
        if (whole.n) put_token(d, i + 1, whole.data, whole.n, false);
    } else {
        for (size_t k = 0; k < d->run.n; k++) put_token(d, i + 1, replacement, 3, false);
    }
    buf_clear(&d->run);
    d->run_bad = false;
}

static void put_run_byte(struct detok *d, uint32_t i, char byte)
{
    buf_putc(&d->run, byte);
    size_t valid = 0;
    for (uint32_t cp, len; valid < d->run.n && (len = utf8_decode(d->run.data + valid, d->run.n - valid, &cp));)
        valid += len;
    const char *rest = d->run.data + valid;
    size_t      n = d->run.n - valid;
    bool        begins = n && (unsigned char)*rest >= 0xc2 && (unsigned char)*rest < 0xf5 && utf8_bad(rest, n) == n;
    if (d->run_bad || (n && !begins)) { /* every byte of it is a U+FFFD, and what still comes too */
        for (size_t k = 0; k < d->run.n; k++) put_token(d, i + 1, replacement, 3, false);
        buf_clear(&d->run);
        d->run_bad = true;
    } else if (d->run.n > RUN_MAX) {
        put_token(d, i + 1, d->run.data, valid, false);
        memmove(d->run.data, rest, n);
        d->run.n = n;
    }
}

/* One token through the steps from i on. */
static void put_token(struct detok *d, uint32_t i, const char *s, size_t n, bool first)
{
    const struct tok_decoder *dec = &d->tok->decoder;
    for (; i < dec->fuse; i++) {
        const struct tok_dec_step *x = &dec->step[i];
        struct buf                *to = &d->work[i & 1];
        if (x->kind == DEC_BYTE_FALLBACK) {
            int byte = byte_of_token(s, n);
            if (byte >= 0) {
                put_run_byte(d, i, (char)byte);
                return;
            }
            if (d->run.n || d->run_bad) {
                struct buf mine = d->work[!(i & 1)]; /* s lies there; the run's token must not overwrite it */
                buf_init(&d->work[!(i & 1)], mine.bytes_max);
                end_run(d, i);
                buf_free(&d->work[!(i & 1)]);
                d->work[!(i & 1)] = mine;
            }
            continue;
        }
        buf_clear(to);
        if (x->kind == DEC_REPLACE) step_replace(x, s, n, to);
        if (x->kind == DEC_STRIP) step_strip(x, s, n, to);
        if (x->kind == DEC_METASPACE) step_metaspace(x, first, s, n, to);
        if (x->kind == DEC_WORDPIECE) step_wordpiece(x, first, s, n, to);
        s = to->data ? to->data : "";
        n = to->n;
    }
    if (dec->fuse < dec->n && dec->step[dec->fuse].kind == DEC_BYTE_LEVEL)
        put_byte_level(d, s, n);
    else
        put_fused(d, s, n);
}

static void put_suffixed(struct detok *d, const char *s, size_t n)
{
    if (d->begun) step_replace(&d->tok->decoder.step[0], d->run.data, d->run.n, &d->held);
    buf_clear(&d->run);
    buf_put(&d->run, s, n);
}

/* ---- stop strings */

/* The match that ends first in held[from..), of those the one that begins first. */
static bool find_stop(const struct detok *d, size_t from, uint32_t *which, size_t *end)
{
    const struct buf *h = &d->held;
    for (size_t e = from; e < h->n; e++) {
        size_t best = 0;
        for (uint32_t i = 0; i < d->cfg.n_stop; i++) {
            const struct detok_stop *s = &d->cfg.stop[i];
            if (s->n <= best || s->n > e + 1 || s->text[s->n - 1] != h->data[e]) continue;
            if (!memcmp(h->data + e + 1 - s->n, s->text, s->n)) {
                best = s->n;
                *which = i;
            }
        }
        if (!best) continue;
        *end = e + 1;
        return true;
    }
    return false;
}

/* Longest end of held that begins a stop string. */
static size_t stop_prefix(const struct detok *d)
{
    size_t            best = 0;
    const struct buf *h = &d->held;
    for (uint32_t i = 0; i < d->cfg.n_stop; i++) {
        const struct detok_stop *s = &d->cfg.stop[i];
        size_t                   max = s->n ? s->n - 1 : 0;
        for (size_t k = max < h->n ? max : h->n; k > best; k--)
            if (h->data[h->n - k] == s->text[0] && !memcmp(h->data + h->n - k, s->text, k)) best = k;
    }
    return best;
}

static void emit(struct detok *d, size_t n, struct buf *out)
{
    buf_put(out, d->held.data, n);
    if (n) memmove(d->held.data, d->held.data + n, d->held.n - n);
    d->held.n -= n;
}

/* held[from..) is new. */
static void release(struct detok *d, size_t from, bool last, struct buf *out)
{
    uint32_t which = 0;
    size_t   end = 0, keep = 0;
    if (d->check && d->cfg.n_stop) {
        if (find_stop(d, from, &which, &end)) {
            d->stopped = true;
            d->stop_index = (int32_t)which;
            buf_put(out, d->held.data, d->cfg.include_stop ? end : end - d->cfg.stop[which].n);
            buf_clear(&d->held);
            return;
        }
        if (!last) keep = stop_prefix(d);
    }
    emit(d, d->held.n - keep, out);
}

/* ---- the face */

void detok_init(struct detok *d, const struct tok *t, const struct detok_cfg *cfg)
{
    *d = (struct detok){ .tok = t, .check = true, .stop_index = -1 };
    if (cfg) d->cfg = *cfg;
    buf_init(&d->held, HELD_MAX);
    buf_init(&d->run, HELD_MAX);
    buf_init(&d->work[0], HELD_MAX);
    buf_init(&d->work[1], HELD_MAX);
    for (uint32_t i = t->decoder.fuse; i < t->decoder.n; i++)
        if (t->decoder.step[i].kind == DEC_STRIP) d->strip = t->decoder.step[i].start;
}

/* The token's text for decoding: that of tokenizer.json, or what the normalizer made of an added token. NULL: it gives
 * none. */
static const char *text_of(const struct tok *t, uint32_t id, size_t *n_out)
{
    if (id < t->text.n_id && t->flags[id] & TOK_F_NORMED) {
        const struct tok_added_token *k = tok_added_of(&t->added, id);
        *n_out = k->n_normed;
        return k->normed;
    }
    return tok_strs_get(&t->text, id, n_out);
}

static void decode(struct detok *d, uint32_t id)
{
    const struct tok_decoder *dec = &d->tok->decoder;
    size_t                    n;
    const char               *s = text_of(d->tok, id, &n);
    if (!s || (d->cfg.skip_special && tok_is_special(d->tok, id))) return;
    if (dec->none && d->begun) put_text(d, " ", 1);
    if (dec->n && dec->step[0].kind == DEC_SUFFIX)
        put_suffixed(d, s, n);
    else
        put_token(d, 0, s, n, !d->begun);
    d->begun = true;
}

bool detok_push(struct detok *d, uint32_t id, bool check_stop, struct buf *out)
{
    if (d->stopped) return true;
    if (!check_stop && d->held.n) emit(d, d->held.n, out);
    size_t from = d->held.n;
    d->check = check_stop;
    decode(d, id);
    release(d, from, false, out);
    return d->stopped;
}

bool detok_put(struct detok *d, const char *s, size_t n, bool check_stop, struct buf *out)
{
    if (d->stopped) return true;
    if (!check_stop && d->held.n) emit(d, d->held.n, out);
    size_t from = d->held.n;
    d->check = check_stop;
    buf_put(&d->held, s, n);
    release(d, from, false, out);
    return d->stopped;
}

void detok_finish(struct detok *d, struct buf *out)
{
    const struct tok_decoder *dec = &d->tok->decoder;
    size_t                    from = d->held.n;
    if (d->stopped) return;
    for (uint32_t i = 0; i < dec->fuse; i++)
        if (dec->step[i].kind == DEC_BYTE_FALLBACK) end_run(d, i);
    if (dec->n && dec->step[0].kind == DEC_SUFFIX && d->begun) {
        struct tok_dec_step last = dec->step[0];
        last.n_to = 0;
        step_replace(&last, d->run.data ? d->run.data : "", d->run.n, &d->held);
    }
    if (d->n_tail) put_lossy(d, "", 0, true);
    release(d, from, true, out);
    buf_clear(&d->run);
    d->n_end = 0;
}

void detok_free(struct detok *d)
{
    buf_free(&d->held);
    buf_free(&d->run);
    buf_free(&d->work[0]);
    buf_free(&d->work[1]);
}

void detok_all(const struct tok *t, const uint32_t *id, size_t n, bool skip_special, struct buf *out)
{
    struct detok     d;
    struct detok_cfg cfg = { .skip_special = skip_special };
    detok_init(&d, t, &cfg);
    for (size_t i = 0; i < n; i++) detok_push(&d, id[i], false, out);
    detok_finish(&d, out);
    detok_free(&d);
}

void detok_one(const struct tok *t, uint32_t id, struct buf *bytes_out)
{
    const struct tok_decoder *dec = &t->decoder;
    size_t                    n;
    const char               *s = text_of(t, id, &n);
    bool level = dec->fuse < dec->n && dec->step[dec->fuse].kind == DEC_BYTE_LEVEL, fallback = false;
    if (!s) return;
    for (uint32_t i = 0; i < dec->fuse; i++) fallback |= dec->step[i].kind == DEC_BYTE_FALLBACK;
    int byte = fallback ? byte_of_token(s, n) : -1;
    if (level) {
        char   *to = buf_reserve(bytes_out, n);
        int64_t k = to ? tok_byte_level_decode(s, n, to) : -1;
        if (k >= 0)
            bytes_out->n += (size_t)k;
        else
            buf_put(bytes_out, s, n);
    } else if (byte >= 0) {
        buf_putc(bytes_out, (char)byte);
    } else {
        struct detok d;
        detok_init(&d, t, NULL);
        d.strip = 0;
        d.begun =
            !dec->none && !(dec->n && dec->step[0].kind == DEC_SUFFIX); /* its space is its own, not the text's first */
        detok_push(&d, id, false, bytes_out);
        detok_finish(&d, bytes_out);
        detok_free(&d);
    }
}
