#include "api/openai/openai.h"
#include <string.h>

void openai_put_ids(const uint32_t *id, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) buf_putc(out, ',');
        json_put_int(out, id[i]);
    }
    buf_putc(out, ']');
}

/* An extension, shown only where tokens came from tiers below the device. Peers and objects are named only where some
 * came from there. */
static void put_tiers(const struct answer_usage *u, struct buf *out)
{
    static const char *const name[] = {
#define TIER_NAME(id, text) text,
        KV_TIER_LIST(TIER_NAME)
#undef TIER_NAME
    };
    uint64_t below = 0;
    for (uint32_t i = 0; i < KV_TIERS; i++) below += u->n_cached_from[i];
    if (!below) return;
    buf_puts(out, ",\"cached_tokens_by_tier\":{\"device\":");
    json_put_int(out, (int64_t)(u->n_cached - below));
    for (uint32_t i = 0; i < KV_TIERS; i++) {
        if (i > KV_TIER_STORE && !u->n_cached_from[i]) continue;
        buf_printf(out, ",\"%s\":", name[i]);
        json_put_int(out, (int64_t)u->n_cached_from[i]);
    }
    buf_putc(out, '}');
}

void openai_put_usage(const struct answer_usage *u, struct buf *out)
{
    buf_puts(out, "{\"prompt_tokens\":");
    json_put_int(out, (int64_t)u->n_prompt);
    buf_puts(out, ",\"total_tokens\":");
    json_put_int(out, (int64_t)(u->n_prompt + u->n_completion));
    buf_puts(out, ",\"completion_tokens\":");
    json_put_int(out, (int64_t)u->n_completion);
    buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_put_int(out, (int64_t)u->n_cached);
    put_tiers(u, out);
    if (u->pins) {
        buf_puts(out, ",\"pinned_tokens\":");
        json_put_int(out, (int64_t)u->n_pinned);
    }
    buf_puts(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":");
    json_put_int(out, (int64_t)u->n_reasoning);
    buf_puts(out, "}}");
}

/* A rate needs tokens behind the first ones: without them it is null. */
void openai_put_timings(const struct call *c, const struct answer_usage *u, struct buf *out)
{
    const struct call_timing *t = &c->timing;
    if (!c->return_timings) return;
    buf_puts(out, ",\"timings\":{\"cache_n\":");
    json_put_int(out, (int64_t)u->n_cached);
    buf_puts(out, ",\"prompt_n\":");
    json_put_int(out, (int64_t)(u->n_prompt - u->n_cached));
    buf_puts(out, ",\"predicted_n\":");
    json_put_int(out, (int64_t)u->n_completion);
    buf_printf(out, ",\"queue_ms\":%.3f,\"prompt_ms\":%.3f,\"predicted_ms\":%.3f,\"predicted_per_second\":",
               (double)t->queue_us / 1e3, (double)t->prompt_us / 1e3, (double)t->output_us / 1e3);
    if (t->n_timed && t->output_us)
        buf_printf(out, "%.3f}", (double)t->n_timed * 1e6 / (double)t->output_us);
    else
        buf_puts(out, "null}");
}

static const char *reason_of(enum eng_finish finish)
{
    switch (finish) {
    case ENG_STOP: return "stop";
    case ENG_LENGTH: return "length";
    case ENG_CANCELED: return "abort";
    case ENG_UNCACHED: return "cache_threshold";
    default: return "error";
    }
}

void openai_put_finish(const struct call *c, uint32_t i, struct buf *out)
{
    const struct answer_why why = answer_why(c, i);
    buf_puts(out, ",\"finish_reason\":\"");
    buf_puts(out, why.called ? "tool_calls" : reason_of(why.finish));
    buf_puts(out, "\",\"stop_reason\":");
    if (why.string)
        json_put_str(out, why.string->text, why.string->n);
    else if (why.by_token)
        json_put_int(out, why.id);
    else
        buf_puts(out, "null");
}

void openai_put_prompt_text(const struct call *c, struct buf *out)
{
    if (!c->return_prompt_text || !c->prompt[0].text) return;
    buf_puts(out, ",\"prompt_text\":");
    json_put_str(out, c->prompt[0].text, c->prompt[0].n_text);
}

void openai_body_open(const struct call *c, const char *object, struct buf *out)
{
    buf_puts(out, "{\"id\":");
    json_put_str(out, c->id, strlen(c->id));
    buf_puts(out, ",\"object\":\"");
    buf_puts(out, object);
    buf_puts(out, "\",\"created\":");
    json_put_int(out, c->created);
    buf_puts(out, ",\"model\":");
    json_put_str(out, c->served, strlen(c->served));
    buf_puts(out, ",\"choices\":[");
}

void openai_choice_finish(const struct call *c, uint32_t i, struct buf *out)
{
    const struct call_choice *ch = &c->choice[i];
    openai_put_finish(c, i, out);
    if (c->return_token_ids) {
        buf_puts(out, ",\"token_ids\":");
        openai_put_ids(ch->eng.id, ch->n_used, out);
    }
    if (ch->text.failed || ch->lp.failed) out->failed = true;
}

void openai_body_close(const struct call *c, struct buf *out)
{
    const struct answer_usage u = answer_usage(c);
    buf_puts(out, "],\"usage\":");
    openai_put_usage(&u, out);
    buf_puts(out, ",\"system_fingerprint\":");
    if (c->model->fingerprint)
        json_put_str(out, c->model->fingerprint, strlen(c->model->fingerprint));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"service_tier\":null");
    openai_put_timings(c, &u, out);
    transfer_put(c, out);
}
