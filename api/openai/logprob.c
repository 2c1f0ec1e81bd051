#include "api/openai/logprob.h"
#include <math.h>
#include <string.h>

enum { LOGPROB_FLOOR = -9999 };

static void put_value(struct buf *out, float lp)
{
    json_put_num(out, lp >= (float)LOGPROB_FLOOR ? (double)lp : LOGPROB_FLOOR);
}

/* The token's text into c->token. */
static void load_token(struct call *c, uint32_t id)
{
    buf_clear(&c->token);
    if (c->tokens_as_ids) {
        buf_puts(&c->token, "token_id:");
        json_put_int(&c->token, id);
    } else {
        detok_one(c->model->tok, id, &c->token);
    }
}

/* ---------------------------------------------------------------- chat */

static void put_chat_token(struct call *c, uint32_t id, float lp, struct buf *out)
{
    load_token(c, id);
    buf_puts(out, "{\"token\":");
    json_put_str(out, text_of(&c->token), c->token.n);
    buf_puts(out, ",\"logprob\":");
    put_value(out, lp);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < c->token.n; i++) {
        if (i) buf_putc(out, ',');
        json_put_int(out, (unsigned char)c->token.data[i]);
    }
    buf_putc(out, ']');
}

void logprob_chat_entry(struct call *c, uint32_t i, uint32_t k, struct buf *out)
{
    const struct eng_choice *g = &c->choice[i].eng;
    const struct eng_top    *top = g->top + (size_t)k * c->s.n_top;
    put_chat_token(c, g->id[k], g->logprob[k], out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (uint32_t j = 0; j < c->s.n_top; j++) {
        if (j) buf_putc(out, ',');
        put_chat_token(c, top[j].id, top[j].logprob, out);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

void logprob_chat(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out)
{
    buf_puts(out, "{\"content\":[");
    for (uint32_t k = from; k < to; k++) {
        if (k > from) buf_putc(out, ',');
        logprob_chat_entry(c, i, k, out);
    }
    buf_puts(out, "],\"refusal\":null}");
}

/* ---------------------------------------------------------------- legacy */

/* {token: logprob, ...}: the best n, and the token itself when it is not among them. Of tokens with the same text the
 * first and larger value stays, as a JSON object holds one. */
static void put_map(struct call *c, uint32_t id, float lp, const struct eng_top *top, uint32_t n, struct buf *out)
{
    size_t at[ENG_TOP_MAX + 1], len[ENG_TOP_MAX + 1];
    bool   seen = false;
    buf_putc(out, '{');
    size_t start = out->n, k = 0;
    for (uint32_t j = 0; j <= n; j++) {
        if (j == n && seen) break;
        uint32_t token = j < n ? top[j].id : id;
        seen = seen || token == id;
        load_token(c, token);
        size_t before = out->n, comma = before > start, i = 0;
        if (comma) buf_putc(out, ',');
        json_put_str(out, text_of(&c->token), c->token.n);
        if (out->failed) return;
        size_t key = before + comma, n_key = out->n - key;
        while (i < k && (len[i] != n_key || memcmp(out->data + at[i], out->data + key, n_key))) i++;
        if (i < k) {
            out->n = before;
            continue;
        }
        at[k] = key;
        len[k++] = n_key;
        buf_putc(out, ':');
        put_value(out, j < n ? top[j].logprob : lp);
    }
    buf_putc(out, '}');
}

void logprob_legacy_top(struct call *c, uint32_t i, uint32_t k, struct buf *out)
{
    const struct eng_choice *g = &c->choice[i].eng;
    put_map(c, g->id[k], g->logprob[k], g->top + (size_t)k * c->s.n_top, c->s.n_top, out);
}

static uint32_t count_chars(const struct buf *b)
{
    uint32_t n = 0;
    for (size_t i = 0; i < b->n; i++) n += ((unsigned char)b->data[i] & 0xc0) != 0x80;
    return n;
}

void logprob_legacy(struct call *c, uint32_t i, bool prompt, uint32_t from, uint32_t to, const struct buf *tops,
                    struct buf *out)
{
    struct call_choice       *ch = &c->choice[i];
    const struct call_prompt *p = call_prompt_of(c, i);
    uint32_t                  n_prompt = prompt ? p->n_id : 0, n = n_prompt + (to - from);
    buf_puts(out, "{\"text_offset\":[");
    for (uint32_t k = 0; k < n; k++) {
        if (k) buf_putc(out, ',');
        json_put_int(out, ch->text_chars);
        load_token(c, k < n_prompt ? p->id[k] : ch->eng.id[from + k - n_prompt]);
        ch->text_chars += count_chars(&c->token);
    }
    buf_puts(out, "],\"token_logprobs\":[");
    for (uint32_t k = 0; k < n; k++) {
        if (k) buf_putc(out, ',');
        if (k == 0 && prompt)
            buf_puts(out, "null");
        else
            put_value(out, k < n_prompt ? p->lp[k] : ch->eng.logprob[from + k - n_prompt]);
    }
    buf_puts(out, "],\"tokens\":[");
    for (uint32_t k = 0; k < n; k++) {
        if (k) buf_putc(out, ',');
        load_token(c, k < n_prompt ? p->id[k] : ch->eng.id[from + k - n_prompt]);
        json_put_str(out, text_of(&c->token), c->token.n);
    }
    buf_puts(out, "],\"top_logprobs\":[");
    for (uint32_t k = 0; k < n_prompt; k++) {
        if (k) buf_putc(out, ',');
        if (k)
            put_map(c, p->id[k], p->lp[k], p->lp_top + (size_t)k * c->s.n_prompt_top,
                    c->s.n_top < c->s.n_prompt_top ? c->s.n_top : c->s.n_prompt_top, out);
        else
            buf_puts(out, "null");
    }
    if (n_prompt && to > from) buf_putc(out, ',');
    if (tops) buf_put(out, tops->data, tops->n);
    for (uint32_t k = from; k < to && !tops; k++) {
        if (k > from) buf_putc(out, ',');
        logprob_legacy_top(c, i, k, out);
    }
    buf_puts(out, "]}");
}

/* ---------------------------------------------------------------- prompt_logprobs */

static void put_ranked(struct call *c, uint32_t id, float lp, uint32_t rank, struct buf *out)
{
    buf_putc(out, '"');
    json_put_int(out, id);
    buf_puts(out, "\":{\"logprob\":");
    put_value(out, lp);
    buf_puts(out, ",\"rank\":");
    json_put_int(out, rank);
    buf_puts(out, ",\"decoded_token\":");
    buf_clear(&c->token);
    detok_one(c->model->tok, id, &c->token);
    json_put_str(out, text_of(&c->token), c->token.n);
    buf_putc(out, '}');
}

void logprob_prompt(struct call *c, const struct call_prompt *p, struct buf *out)
{
    uint32_t n = c->prompt_logprobs > 0 ? (uint32_t)c->prompt_logprobs : 0;
    buf_puts(out, "[null");
    for (uint32_t k = 1; k < p->n_id; k++) {
        const struct eng_top *top = p->lp_top + (size_t)k * c->s.n_prompt_top;
        buf_puts(out, ",{");
        put_ranked(c, p->id[k], p->lp[k], p->lp_rank[k], out);
        for (uint32_t j = 0; j < n; j++) {
            if (top[j].id == p->id[k]) continue;
            buf_putc(out, ',');
            put_ranked(c, top[j].id, top[j].logprob, j + 1, out);
        }
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}
