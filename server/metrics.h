/* metrics: everything /metrics shows: vLLM's names, ours under spillway:, and the process.   Thread: writers: any; no
 * locks. Label values are fixed sets: no string of a client ever becomes one. */
#pragma once
#include "base/metric.h"
#include "engine/request.h"
#include "server/config.h"
#include <stdint.h>

struct metrics;
struct request;
struct routes;
struct server;

/* routes: what http_* series there are; stays the caller's, and outlives the metrics. old: which names of earlier vLLMs
 * are there too. */
enum status metrics_create(const struct routes *routes, enum old_metrics old, struct metrics **m_out);
void        metrics_free(struct metrics *m);
/* Before the server is ready: the labels and the context that bounds the token histograms. */
void metrics_model(struct metrics *m, const char *name, uint32_t context);
/* What the loader knows; before ready too. cache_info: text between the braces of vllm:cache_config_info. */
struct metrics_load {
    double      load_seconds;
    uint64_t    weight_bytes, work_bytes, kv_bytes; /* over the ranks of this process */
    const char *cache_info;
};
void metrics_loaded(struct metrics *m, const struct metrics_load *l);

/* How a request to generate ended, as the server sees it. DRAINED: it finished while the server drained; CUT: the drain
 * limit ended it; REFUSED: there was no room for it; INVALID: its fault. */
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
    uint64_t        e2e_us, ttft_us, queue_us, prefill_us, decode_us; /* ttft 0: no token came */
};
void metrics_first_token(struct metrics *m, uint64_t us);
void metrics_next_token(struct metrics *m, uint64_t us);
void metrics_gen_end(struct metrics *m, const struct metrics_gen *g);
/* answer_bytes: with its head. */
void metrics_http(struct metrics *m, const struct request *r, int status, uint64_t answer_bytes);
void metrics_text(struct metrics *m, uint64_t us); /* a request was read: JSON, template, tokens */
void metrics_unread_dropped(struct metrics *m);
enum metrics_key { KEY_MISSING, KEY_WRONG, KEY_SLOWED };
void metrics_key_refused(struct metrics *m, enum metrics_key why);
void metrics_paused(struct metrics *m);
void metrics_unknown_fields(struct metrics *m, uint64_t n);

/* What /proc says of the process; not when it is asked for, because it takes longer than printing. Any one thread. */
void metrics_process(struct metrics *m);

void metrics_print(struct server *s, struct buf *out);
