/* trace: sends spans of generation requests to an OpenTelemetry collector (OTLP over HTTP, in JSON).
 * trace_open -> trace_context (a request begins), trace_end (the request has ended) -> trace_close.
 * Thread: trace_context and trace_end: any. A thread of its own sends the spans, so no request waits for the collector.
 * The queue is bounded; a span that finds it full is counted and dropped. */
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
    unsigned char id[16], parent[8]; /* parent all zero: the request begins the trace */
    bool          on;                /* its span is sent */
};
/* Parses the value of a traceparent header. False: it has another form; c may have changed. */
bool trace_parse(const char *p, size_t n, struct trace_context *c);
/* traceparent: the header's value, n bytes; n_header: number of such headers. Unless there is exactly one and it is
 * valid, the request begins a trace. */
struct trace_context trace_context(const struct trace *t, const char *traceparent, size_t n, uint32_t n_header);

/* A request that has ended; malloc'd. Times are of clock_us; 0: the request did not reach that point. */
struct trace_request {
    struct trace_context c;
    unsigned char        span[8];
    char                *state;              /* tracestate, malloc'd, or NULL */
    char                 op[TRACE_OP_BYTES]; /* "chat", "text_completion" */
    char                 id[129], model[128], finish[16];
    uint64_t             start_us, submit_us, load_us, sched_us, first_us, end_us;
    uint32_t             n_prompt, n_cached, n_output, n, max_tokens, top_k;
    float                temperature, top_p;
    uint64_t             seed;
    bool                 stream, has_seed;
    int                  status;
};

/* cfg: has the collector's endpoint and the share of traces. host, port: this server's, for its spans. ST_CONFIG: err
 * has one line. */
enum status trace_open(const struct config *cfg, const char *host, uint16_t port, struct trace **t_out, char *err,
                       size_t err_bytes);
/* Takes ownership of r. */
void trace_end(struct trace *t, struct trace_request *r);
void trace_request_free(struct trace_request *r);
/* Sends the remaining spans, for at most a second. NULL is allowed. */
void trace_close(struct trace *t);

/* For /metrics: numbers of requests whose span was sent, found the queue full, or could not be delivered. */
struct trace_counts {
    uint64_t n_sent, n_dropped, n_failed;
};
struct trace_counts trace_counts(const struct trace *t);

/* trace_json.c: the description of this server, and a batch as an ExportTraceServiceRequest. wall_less_mono_us: the
 * time since 1970 minus clock_us. */
struct trace_resource {
    const char *service, *attributes; /* OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES */
    const char *host;
    uint16_t    port;
};
void trace_json(struct buf *out, const struct trace_resource *r, struct trace_request *const *request, uint32_t n,
                int64_t wall_less_mono_us);
