/* metrics: the content of /metrics: vLLM's names, our own under spillway:, and the process.   Thread: writers: any,
 * without locks. Label values come from fixed sets, never from a client. */
#pragma once
#include "base/metric.h"
#include "engine/request.h"
#include "server/config.h"
#include <stdint.h>

struct metrics;
struct request;
struct routes;
struct server;

/* routes: determines the http_* series; owned by the caller and valid until metrics_free. old: which names of earlier
 * vLLM versions are exported too. The caller frees *m_out with metrics_free. ST_NOMEM. */
enum status metrics_create(const struct routes *routes, enum old_metrics old, struct metrics **m_out);
void        metrics_free(struct metrics *m);
/* Sets the common labels, and bounds the token histograms by the context. Call before the server is ready. */
void metrics_model(struct metrics *m, const char *name, uint32_t context);
/* Facts from loading; set before the server is ready. cache_info: the labels of vllm:cache_config_info. */
struct metrics_load {
    double      load_seconds;
    uint64_t    weight_bytes, work_bytes, kv_bytes; /* over the ranks of this process */
    uint64_t    window_bytes;                       /* of the pool of layers with a window, beside kv_bytes */
    const char *cache_info;
};
/* The server's main thread, once. cache_info is copied. */
void metrics_loaded(struct metrics *m, const struct metrics_load *l);

/* The end of a generation as the server sees it. DRAINED: finished while the server drained; CUT: ended by the drain
 * limit; REFUSED: no room; INVALID: a fault of the request. */
enum gen_how {
    GEN_FINISHED,
    GEN_DRAINED,
    GEN_CUT,
    GEN_CANCELED,
    GEN_EXPIRED,
    GEN_REFUSED,
    GEN_INVALID,
    GEN_FAILED,
    GEN_HOWS
};
struct metrics_gen {
    enum eng_finish finish;
    enum gen_how    how;
    uint32_t        n_prompt, n_cached, n_output, n_output_max, n, max_tokens;
    uint64_t        e2e_us, ttft_us, queue_us, prefill_us, decode_us; /* ttft_us 0: no token */
};
/* A request's first token came us after its arrival; a later one came us after the one before. */
void metrics_first_token(struct metrics *m, uint64_t us);
void metrics_next_token(struct metrics *m, uint64_t us);
/* A request has ended, however that was; once for each. Times in microseconds, counts in tokens. */
void metrics_gen_end(struct metrics *m, const struct metrics_gen *g);
/* answer_bytes: head and body. */
void metrics_http(struct metrics *m, const struct request *r, int status, uint64_t answer_bytes);
void metrics_text(struct metrics *m, uint64_t us); /* time to read a request: JSON, template, tokenizer */
/* A connection was reset because nobody read its answers. */
void metrics_unread_dropped(struct metrics *m);
enum metrics_key { KEY_MISSING, KEY_WRONG, KEY_SLOWED };
/* A request was refused for its key. */
void metrics_key_refused(struct metrics *m, enum metrics_key why);
/* A stream was parked because its client reads slowly. */
void metrics_paused(struct metrics *m);
/* A request had n fields that no row of its dialect names. */
void metrics_unknown_fields(struct metrics *m, uint64_t n);

/* Updates the metrics from /proc. Not part of metrics_print, because it takes longer than printing. Any one thread. */
void metrics_process(struct metrics *m);

/* Samples the server and appends the text of /metrics to out. */
void metrics_print(struct server *s, struct buf *out);
