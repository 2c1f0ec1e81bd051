/* trace: spans of requests to generate, sent to an OpenTelemetry collector (OTLP over HTTP, in JSON).
 * trace_open -> trace_context (a request begins), trace_end (it has ended) -> trace_close.   Thread: context and end: any; what
 * they hand over is written and sent by a thread of its own. Nothing here waits for the collector: the queue is bounded,
 * and what finds it full is counted and forgotten. */
#pragma once
#include "base/buf.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct config;
struct trace;

enum { TRACE_QUEUE = 1024, TRACE_BATCH = 64, TRACE_STATE_MAX = 512, TRACE_OP_BYTES = 24 };

/* Which trace a request belongs to (W3C Trace Context). */
struct trace_context {
    unsigned char id[16], parent[8]; /* parent all zero: it begins the trace */
    bool          on;                /* it is to be told of */
};
/* The value of a traceparent header; c may be changed where it is none. */
bool trace_parse(const char *p, size_t n, struct trace_context *c);
/* traceparent: of the header, n bytes; n_header: how many of them came. One that is none begins a trace. */
struct trace_context trace_context(const struct trace *t, const char *traceparent, size_t n, uint32_t n_header);

/* A request that has ended. From malloc; times as clock_us tells them, 0: it did not come so far. */
struct trace_request {
    struct trace_context c;
    unsigned char        span[8];
    char                *state;              /* tracestate, from malloc, or NULL */
    char                 op[TRACE_OP_BYTES]; /* "chat", "text_completion" */
    char                 id[129], model[128], finish[16];
    uint64_t             start_us, submit_us, load_us, sched_us, first_us, end_us;
    uint32_t             n_prompt, n_cached, n_output, n, max_tokens, top_k;
    float                temperature, top_p;
    uint64_t             seed;
    bool                 stream, has_seed;
    int                  status;
};

/* cfg: the endpoint and the share of traces; host and port of this server for its spans. ST_CONFIG: err has one line. */
enum status trace_open(const struct config *cfg, const char *host, uint16_t port, struct trace **t_out, char *err,
                       size_t err_bytes);
/* Takes r, which it frees. */
void trace_end(struct trace *t, struct trace_request *r);
void trace_request_free(struct trace_request *r);
/* Sends what is left for at most a second. NULL is allowed. */
void trace_close(struct trace *t);

/* For /metrics: requests whose spans were sent; that found the queue full; that the collector did not take. */
struct trace_counts {
    uint64_t n_sent, n_dropped, n_failed;
};
struct trace_counts trace_counts(const struct trace *t);

/* trace_json.c: what describes this server, and a batch as an ExportTraceServiceRequest. wall_less_mono_us: what
 * clock_us lacks to the time since 1970. */
struct trace_resource {
    const char *service, *attributes; /* OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES */
    const char *host;
    uint16_t    port;
};
void trace_json(struct buf *out, const struct trace_resource *r, struct trace_request *const *request, uint32_t n,
                int64_t wall_less_mono_us);
