/* trace: sends a span for each request to generate to an OpenTelemetry collector (OTLP over HTTP, in JSON).
 * trace_open -> trace_context (a request begins), trace_end (it has ended) -> trace_close.   Thread: trace_context and
 * trace_end: any; a thread of its own writes and sends the spans. No request waits for the collector: the queue is
 * bounded, and a request that finds it full is counted and dropped. */
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
    bool          on;                /* its span is to be sent */
};
/* Parses the value of a traceparent header. false: it is malformed; c may be changed all the same. */
bool trace_parse(const char *p, size_t n, struct trace_context *c);
/* traceparent: the header's value [n]; n_header: how many such headers the request has. Without exactly one
 * well-formed header the request begins a trace. */
struct trace_context trace_context(const struct trace *t, const char *traceparent, size_t n, uint32_t n_header);

/* A request that has ended, from malloc. Times are those of clock_us; 0: the request did not reach that point. */
struct trace_request {
    struct trace_context c;
    unsigned char        span[8];
    char                *state;                                         /* tracestate, from malloc, or NULL */
    char                 op[TRACE_OP_BYTES];                            /* "chat", "text_completion" */
    char                 id[129], model[128], adapter[256], finish[16]; /* adapter: "": the model alone */
    uint64_t             start_us, submit_us, load_us, sched_us, first_us, end_us;
    uint32_t             n_prompt, n_cached, n_output, n, max_tokens, top_k;
    float                temperature, top_p;
    uint64_t             seed;
    bool                 stream, has_seed;
    int                  status;
};

/* Starts the thread. cfg has the endpoint and the share of traces to send; host and port of this server go into its
 * spans.
 * The caller owns *t_out. Errors: err has one line. */
enum status trace_open(const struct config *cfg, const char *host, uint16_t port, struct trace **t_out, char *err,
                       size_t err_bytes);
/* Queues r for sending. Takes over r, also if the queue is full. */
void trace_end(struct trace *t, struct trace_request *r);
void trace_request_free(struct trace_request *r);
/* Sends the queued spans for at most a second, then ends the thread. NULL is allowed. */
void trace_close(struct trace *t);

/* For /metrics: requests whose spans were sent; requests that found the queue full; requests whose spans the collector
 * did not take. */
struct trace_counts {
    uint64_t n_sent, n_dropped, n_failed;
};
struct trace_counts trace_counts(const struct trace *t);

/* trace_json.c: the description of this server, and the writer of a batch as an ExportTraceServiceRequest.
 * wall_less_mono_us: Unix time minus clock_us, in microseconds. */
struct trace_resource {
    const char *service, *attributes; /* OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES */
    const char *host;
    uint16_t    port;
};
void trace_json(struct buf *out, const struct trace_resource *r, struct trace_request *const *request, uint32_t n,
                int64_t wall_less_mono_us);
