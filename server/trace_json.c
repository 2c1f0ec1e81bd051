/* trace_json: writes requests as OTLP spans in protobuf's JSON: ids in hex, 64-bit numbers as strings. The attributes
 * have the names of OpenTelemetry's conventions for generative AI, and some have vLLM's names too. */
#include "base/hash.h"
#include "base/json.h"
#include "server/trace.h"
#include <inttypes.h>
#include <string.h>

enum { SPAN_INTERNAL = 1, SPAN_SERVER = 2, STATUS_ERROR = 2 };

static void put_hex(struct buf *b, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) buf_printf(b, "%02x", p[i]);
}

/* ---- attributes: each call adds one to the list that is open ---- */

static void key(struct buf *b, const char *name, const char *type)
{
    if (b->n && b->data[b->n - 1] == '}') buf_putc(b, ',');
    buf_puts(b, "{\"key\":");
    json_put_str(b, name, strlen(name));
    buf_printf(b, ",\"value\":{\"%s\":", type);
}
static void put_text_n(struct buf *b, const char *name, const char *v, size_t n)
{
    key(b, name, "stringValue");
    json_put_str(b, v, n);
    buf_puts(b, "}}");
}
static void put_text(struct buf *b, const char *name, const char *v) { put_text_n(b, name, v, strlen(v)); }
static void put_int(struct buf *b, const char *name, uint64_t v)
{
    key(b, name, "intValue");
    buf_printf(b, "\"%" PRId64 "\"}}", (int64_t)v);
}
static void put_num(struct buf *b, const char *name, double v)
{
    key(b, name, "doubleValue");
    json_put_num(b, v);
    buf_puts(b, "}}");
}
static void put_bool(struct buf *b, const char *name, bool v)
{
    key(b, name, "boolValue");
    buf_puts(b, v ? "true}}" : "false}}");
}

/* ---- spans ---- */

struct writer_of_spans {
    struct buf                 *b;
    int64_t                     wall_less_mono_us;
    const struct trace_request *r;
    bool                        any;
};

/* Begins one; its attributes follow, then close_span. */
static void open_span(struct writer_of_spans *w, const char *name, const unsigned char span[8],
                      const unsigned char *parent, int kind, uint64_t begin_us, uint64_t end_us)
{
    struct buf                 *b = w->b;
    const struct trace_request *r = w->r;
    if (end_us < begin_us) end_us = begin_us;
    buf_puts(b, w->any ? ",{\"traceId\":\"" : "{\"traceId\":\"");
    w->any = true;
    put_hex(b, r->c.id, sizeof r->c.id);
    buf_puts(b, "\",\"spanId\":\"");
    put_hex(b, span, 8);
    buf_putc(b, '"');
    if (parent) {
        buf_puts(b, ",\"parentSpanId\":\"");
        put_hex(b, parent, 8);
        buf_putc(b, '"');
    }
    if (r->state) {
        buf_puts(b, ",\"traceState\":");
        json_put_str(b, r->state, strlen(r->state));
    }
    buf_puts(b, ",\"name\":");
    json_put_str(b, name, strlen(name));
    buf_printf(
        b, ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRIu64 "\",\"endTimeUnixNano\":\"%" PRIu64 "\",\"attributes\":[",
        kind, (uint64_t)((int64_t)begin_us + w->wall_less_mono_us) * 1000u,
        (uint64_t)((int64_t)end_us + w->wall_less_mono_us) * 1000u);
}
static void close_span(struct writer_of_spans *w, bool error)
{
    buf_puts(w->b, "]");
    if (error) buf_printf(w->b, ",\"status\":{\"code\":%d}", STATUS_ERROR);
    buf_puts(w->b, "}");
}

/* A part of the request, from begin to the first of the ends that came. */
static void put_part(struct writer_of_spans *w, const char *name, uint64_t begin_us, uint64_t end_us,
                     uint64_t or_end_us)
{
    unsigned char id[8];
    uint64_t      random = hash_seed();
    if (!begin_us) return;
    memcpy(id, &random, sizeof id);
    open_span(w, name, id, w->r->span, SPAN_INTERNAL, begin_us, end_us ? end_us : or_end_us);
    close_span(w, false);
}

static double seconds(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) / 1e6 : 0;
}

static void put_usage(struct buf *b, const struct trace_request *r)
{
    put_int(b, "gen_ai.request.choice.count", r->n);
    put_int(b, "gen_ai.request.n", r->n);
    put_int(b, "gen_ai.request.max_tokens", r->max_tokens);
    put_num(b, "gen_ai.request.temperature", (double)r->temperature);
    put_num(b, "gen_ai.request.top_p", (double)r->top_p);
    if (r->top_k) put_int(b, "gen_ai.request.top_k", r->top_k);
    if (r->has_seed) put_int(b, "gen_ai.request.seed", r->seed);
    put_bool(b, "gen_ai.request.stream", r->stream);
    put_int(b, "gen_ai.usage.input_tokens", r->n_prompt);
    put_int(b, "gen_ai.usage.output_tokens", r->n_output);
    put_int(b, "gen_ai.usage.cache_read.input_tokens", r->n_cached);
    put_int(b, "gen_ai.usage.prompt_tokens", r->n_prompt);
    put_int(b, "gen_ai.usage.completion_tokens", r->n_output);
    put_num(b, "gen_ai.latency.e2e", seconds(r->start_us, r->end_us));
    if (!r->sched_us) return;
    put_num(b, "gen_ai.latency.time_in_queue", seconds(r->submit_us, r->sched_us));
    if (!r->first_us) return;
    put_num(b, "gen_ai.latency.time_to_first_token", seconds(r->start_us, r->first_us));
    put_num(b, "gen_ai.response.time_to_first_chunk", seconds(r->start_us, r->first_us));
    put_num(b, "gen_ai.latency.time_in_model_prefill", seconds(r->sched_us, r->first_us));
    put_num(b, "gen_ai.latency.time_in_model_decode", seconds(r->first_us, r->end_us));
    put_num(b, "gen_ai.latency.time_in_model_inference", seconds(r->sched_us, r->end_us));
}

static void put_request(struct writer_of_spans *w, const struct trace_resource *res)
{
    static const unsigned char  none[8];
    const struct trace_request *r = w->r;
    struct buf                 *b = w->b;
    const char                 *asked = *r->adapter ? r->adapter : r->model; /* by the name that clients use */
    char                        name[sizeof r->op + sizeof r->adapter + 2], code[12];
    snprintf(name, sizeof name, "%s %s", r->op, asked);
    open_span(w, name, r->span, memcmp(r->c.parent, none, sizeof none) ? r->c.parent : NULL, SPAN_SERVER, r->start_us,
              r->end_us);
    put_text(b, "gen_ai.operation.name", r->op);
    put_text(b, "gen_ai.provider.name", "spillway");
    put_text(b, "gen_ai.request.model", asked);
    put_text(b, "gen_ai.response.model", asked);
    if (*r->adapter) put_text(b, "spillway.base_model", r->model);
    put_text(b, "gen_ai.request.id", r->id);
    put_text(b, "gen_ai.response.id", r->id);
    put_text(b, "server.address", res->host);
    put_int(b, "server.port", res->port);
    put_int(b, "http.response.status_code", (uint64_t)r->status);
    key(b, "gen_ai.response.finish_reasons", "arrayValue");
    buf_puts(b, "{\"values\":[{\"stringValue\":");
    json_put_str(b, r->finish, strlen(r->finish));
    buf_puts(b, "}]}}}");
    if (r->status >= 400) {
        snprintf(code, sizeof code, "%d", r->status);
        put_text(b, "error.type", code);
    }
    if (r->n) put_usage(b, r);
    close_span(w, r->status >= 500);
    put_part(w, "queue", r->submit_us, r->load_us ? r->load_us : r->sched_us, r->end_us);
    put_part(w, "load", r->load_us, r->sched_us, r->end_us);
    put_part(w, "prefill", r->sched_us, r->first_us, r->end_us);
    put_part(w, "decode", r->first_us, r->end_us, r->end_us);
}

/* "key=value,key=value", as OTEL_RESOURCE_ATTRIBUTES has it; what is no pair is left out. */
static void put_environment(struct buf *b, const char *text)
{
    while (text && *text) {
        size_t n = strcspn(text, ","), k = strcspn(text, "=");
        char   name[128];
        if (k && k < n && k < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)k, text);
            put_text_n(b, name, text + k + 1, n - k - 1);
        }
        text += n + (text[n] == ',');
    }
}

void trace_json(struct buf *out, const struct trace_resource *r, struct trace_request *const *request, uint32_t n,
                int64_t wall_less_mono_us)
{
    struct writer_of_spans w = { .b = out, .wall_less_mono_us = wall_less_mono_us };
    buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_text(out, "service.name", r->service);
    put_text(out, "service.version", SPILLWAY_VERSION);
    put_text(out, "host.name", r->host);
    put_environment(out, r->attributes);
    buf_puts(out,
             "]},\"scopeSpans\":[{\"scope\":{\"name\":\"spillway\",\"version\":\"" SPILLWAY_VERSION "\"},\"spans\":[");
    for (uint32_t i = 0; i < n; i++) {
        w.r = request[i];
        put_request(&w, r);
    }
    buf_puts(out, "]}]}]}");
}
