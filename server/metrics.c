#include "server/metrics.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/conn.h"
#include <assert.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- buckets, as vLLM's ---- */
static const double b_ttft[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560 };
static const double b_itl[] = { .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80 };
static const double b_e2e[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double b_125[] = { 1,   2,   5,   10,  20,  50,  100, 200, 500, 1000, 2000, 5000,
                                1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7,  2e7 };
static const double b_iter[] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
static const double b_n[] = { 1, 2, 5, 10, 20 };
static const double b_http[] = { .1, .5, 1 };
static const double b_load[] = { 1e-4, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10 };
struct buckets {
    const double *bound;
    uint32_t      n;
};
#define BUCKETS(x) static const struct buckets k##x = { x, sizeof x / sizeof *x }
BUCKETS(b_ttft);
BUCKETS(b_itl);
BUCKETS(b_e2e);
BUCKETS(b_125);
BUCKETS(b_iter);
BUCKETS(b_n);
BUCKETS(b_http);
BUCKETS(b_load);

static const char *const l_reason[] = { "reason=\"capacity\"", "reason=\"deferred\"", NULL };
static const char *const l_sleep[] = { "sleep_state=\"awake\"", "sleep_state=\"weights_offloaded\"",
                                       "sleep_state=\"discard_all\"", NULL };
static const char *const l_source[] = { "source=\"local_compute\"", "source=\"local_cache_hit\"",
                                        "source=\"external_kv_transfer\"", NULL };
static const char *const l_finish[] = { "finished_reason=\"stop\"",       "finished_reason=\"length\"",
                                        "finished_reason=\"abort\"",      "finished_reason=\"error\"",
                                        "finished_reason=\"repetition\"", NULL };
static const char *const l_lora[] = { "max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"", NULL };
static const char *const l_pos[] = { "position=\"0\"", NULL };
static const char *const l_version[] = { "version=\"" SPILLWAY_VERSION "\"", NULL };
static const char *const l_one[] = { NULL };
static const char *const l_http[] = { NULL };
#define L_TIER(id, name)       "tier=\"" name "\"",
#define L_TIER_EVICT(id, name) "tier=\"" name "\",reason=\"lru\"", "tier=\"" name "\",reason=\"ttl\"",
static const char *const l_tier[] = { KV_TIER_LIST(L_TIER) NULL };
static const char *const l_below[] = { KV_BELOW_LIST(L_TIER) NULL };
enum { WHYS_BELOW = 2 }; /* reasons for an eviction that a place below the host knows: the first of enum kv_evict_why */
static const char *const l_evict[] = { "tier=\"device\",reason=\"lru\"",      "tier=\"device\",reason=\"ttl\"",
                                       "tier=\"device\",reason=\"priority\"", "tier=\"device\",reason=\"pressure\"",
                                       "tier=\"host\",reason=\"lru\"",        "tier=\"host\",reason=\"ttl\"",
                                       "tier=\"host\",reason=\"priority\"",   "tier=\"host\",reason=\"pressure\"",
                                       KV_BELOW_LIST(L_TIER_EVICT) NULL };
static_assert(sizeof l_evict / sizeof *l_evict - 1 == 2 * KV_EVICT_WHYS + (KV_TIERS - 1) * WHYS_BELOW,
              "device and host know all reasons");
static const char *const l_pinned[] = { "tier=\"device\"", "tier=\"host\"", NULL };
static const char *const l_doubt[] = { "why=\"head\"",  "why=\"fingerprint\"", "why=\"key\"", "why=\"tokens\"",
                                       "why=\"stale\"", "why=\"payload\"",     NULL };
static const char *const l_key[] = { "reason=\"missing\"", "reason=\"wrong\"", "reason=\"slowed\"", NULL };
static const char *const l_folder[] = { "event=\"pause\"", "event=\"segment_removed\"", "event=\"segment_gave_way\"",
                                        "event=\"segment_claimed\"", NULL };
static const char *const l_segment[] = { "state=\"locked\"", "state=\"damaged\"", "state=\"unread\"",
                                         "state=\"foreign\"", NULL };
static const char *const l_decision[] = { "decision=\"load\"", "decision=\"compute\"", NULL };

/* clang-format off */
/*  id             type      common  labels   buckets      name, help */
#define FAMILIES(X)                                                                                                                         \
    X(RUNNING,       GAUGE,     1, l_one,    NULL,      "vllm:num_requests_running", "Sequences in the running batch.")                        \
    X(WAITING,       GAUGE,     1, l_one,    NULL,      "vllm:num_requests_waiting", "Sequences that wait to run.")                            \
    X(WAITING_WHY,   GAUGE,     1, l_reason, NULL,      "vllm:num_requests_waiting_by_reason", "Waiting sequences by reason.")                 \
    X(KV_USE,        GAUGE,     1, l_one,    NULL,      "vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.")                               \
    X(KV_USE_OLD,    GAUGE,     1, l_one,    NULL,      "vllm:gpu_cache_usage_perc", "KV blocks in use, 0 to 1 (old name).")                   \
    X(SLEEP,         GAUGE,     1, l_sleep,  NULL,      "vllm:engine_sleep_state", "Sleep state of the engine.")                               \
    X(LORA,          GAUGE,     0, l_lora,   NULL,      "vllm:lora_requests_info", "LoRA adapters in use.")                                    \
    X(CACHE_INFO,    GAUGE,     0, l_one,    NULL,      "vllm:cache_config_info", "Settings of the KV cache.")                                 \
    X(PROMPT,        COUNTER,   1, l_one,    NULL,      "vllm:prompt_tokens_total", "Prompt tokens, cached ones included.")                    \
    X(PROMPT_SRC,    COUNTER,   1, l_source, NULL,      "vllm:prompt_tokens_by_source_total", "Prompt tokens by where their KV came from.")    \
    X(PROMPT_CACHED, COUNTER,   1, l_one,    NULL,      "vllm:prompt_tokens_cached_total", "Prompt tokens that were not computed.")            \
    X(GENERATED,     COUNTER,   1, l_one,    NULL,      "vllm:generation_tokens_total", "Tokens generated.")                                   \
    X(SUCCESS,       COUNTER,   1, l_finish, NULL,      "vllm:request_success_total", "Requests that ended, by reason.")                       \
    X(PREEMPTED,     COUNTER,   1, l_one,    NULL,      "vllm:num_preemptions_total", "Sequences put back to waiting for want of KV blocks.")  \
    X(QUERIES,       COUNTER,   1, l_one,    NULL,      "vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.")            \
    X(HITS,          COUNTER,   1, l_one,    NULL,      "vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.")                   \
    X(QUERIES_OLD,   COUNTER,   1, l_one,    NULL,      "vllm:gpu_prefix_cache_queries_total", "Tokens looked up (old name).")                 \
    X(HITS_OLD,      COUNTER,   1, l_one,    NULL,      "vllm:gpu_prefix_cache_hits_total", "Tokens found (old name).")                        \
    X(EXT_QUERIES,   COUNTER,   1, l_one,    NULL,      "vllm:external_prefix_cache_queries_total", "Tokens looked up in external tiers.")     \
    X(EXT_HITS,      COUNTER,   1, l_one,    NULL,      "vllm:external_prefix_cache_hits_total", "Tokens found in external tiers.")            \
    X(MM_QUERIES,    COUNTER,   1, l_one,    NULL,      "vllm:mm_cache_queries_total", "Items looked up in the multimodal cache.")             \
    X(MM_HITS,       COUNTER,   1, l_one,    NULL,      "vllm:mm_cache_hits_total", "Items found in the multimodal cache.")                    \
    X(SPEC_DRAFTS,   COUNTER,   1, l_one,    NULL,      "vllm:spec_decode_num_drafts_total", "Drafts.")                                        \
    X(SPEC_TOKENS,   COUNTER,   1, l_one,    NULL,      "vllm:spec_decode_num_draft_tokens_total", "Drafted tokens.")                          \
    X(SPEC_ACCEPTED, COUNTER,   1, l_one,    NULL,      "vllm:spec_decode_num_accepted_tokens_total", "Accepted drafted tokens.")              \
    X(SPEC_POS,      COUNTER,   1, l_pos,    NULL,      "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted by position.")         \
    X(TTFT,          HISTOGRAM, 1, l_one,    &kb_ttft,  "vllm:time_to_first_token_seconds", "Arrival to first token.")                         \
    X(ITL,           HISTOGRAM, 1, l_one,    &kb_itl,   "vllm:inter_token_latency_seconds", "Between two outputs of a request.")               \
    X(TPOT,          HISTOGRAM, 1, l_one,    &kb_itl,   "vllm:request_time_per_output_token_seconds", "Decode time per token, per request.")   \
    X(E2E,           HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:e2e_request_latency_seconds", "Arrival to last token.")                          \
    X(QUEUE,         HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_queue_time_seconds", "Waiting to be scheduled.")                         \
    X(INFERENCE,     HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_inference_time_seconds", "Scheduled to last token.")                     \
    X(PREFILL,       HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_prefill_time_seconds", "Scheduled to first token.")                      \
    X(DECODE,        HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_decode_time_seconds", "First to last token.")                            \
    X(N_PROMPT,      HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_prompt_tokens", "Prompt tokens per request.")                            \
    X(N_OUTPUT,      HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_generation_tokens", "Generated tokens per request.")                     \
    X(N_OUTPUT_MAX,  HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_max_num_generation_tokens", "Longest choice per request, in tokens.")    \
    X(MAX_TOKENS,    HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_params_max_tokens", "max_tokens per request.")                           \
    X(KV_COMPUTED,   HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed per request.")      \
    X(ITERATION,     HISTOGRAM, 1, l_one,    &kb_iter,  "vllm:iteration_tokens_total", "Tokens per engine step.")                              \
    X(PARAM_N,       HISTOGRAM, 1, l_one,    &kb_n,     "vllm:request_params_n", "n per request.")                                             \
    X(HTTP,          COUNTER,   0, l_http,   NULL,      "http_requests_total", "HTTP requests by route, method and status class.")             \
    X(HTTP_TIME,     HISTOGRAM, 0, l_http,   &kb_http,  "http_request_duration_seconds", "HTTP requests by route and method.")                 \
    X(CPU,           COUNTER,   0, l_one,    NULL,      "process_cpu_seconds_total", "User and system CPU time.")                              \
    X(RSS,           GAUGE,     0, l_one,    NULL,      "process_resident_memory_bytes", "Resident memory.")                                   \
    X(FDS,           GAUGE,     0, l_one,    NULL,      "process_open_fds", "Open file descriptors.")                                          \
    X(FDS_MAX,       GAUGE,     0, l_one,    NULL,      "process_max_fds", "Most file descriptors.")                                           \
    X(START,         GAUGE,     0, l_one,    NULL,      "process_start_time_seconds", "Start of the process, Unix time.")                      \
    X(BUILD,         GAUGE,     0, l_version, NULL,     "spillway:build_info", "Version of this binary.")                                      \
    X(LOAD,          GAUGE,     0, l_one,    NULL,      "spillway:model_load_seconds", "How long loading the model took.")                     \
    X(WEIGHTS,       GAUGE,     0, l_one,    NULL,      "spillway:weights_bytes", "Bytes of weights.")                                         \
    X(KV_BYTES,      GAUGE,     0, l_one,    NULL,      "spillway:kv_cache_bytes", "Bytes of the KV cache.")                                   \
    X(KV_BLOCKS,     GAUGE,     0, l_one,    NULL,      "spillway:kv_blocks", "Blocks of the KV cache.")                                       \
    X(TIER_RESERVED, GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_reserved_bytes", "Most bytes of a KV tier.")                              \
    X(TIER_USED,     GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_used_bytes", "Bytes in use in a KV tier.")                                \
    X(TIER_BLOCKS,   GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_blocks", "Blocks in a KV tier.")                                          \
    X(TIER_DEGRADED, GAUGE,     0, l_below,  NULL,      "spillway:kv_tier_degraded", "Folders of a KV tier that cannot be used, or not be written to, just now.") \
    X(TIER_HITS,     COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_hit_blocks_total", "Blocks that came up from a KV tier.")                 \
    X(TIER_STORES,   COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_stored_blocks_total", "Blocks that went down to a KV tier.")              \
    X(TIER_EVICTED,  COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_evicted_blocks_total", "Blocks that left a KV tier for want of room.")    \
    X(TIER_EVICTIONS, COUNTER,  0, l_evict,  NULL,      "spillway:kv_evictions_total", "Blocks evicted, by tier and reason: least recently used, end of its time, lower priority, nothing lower was left.") \
    X(TIER_MISSES,   COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_miss_blocks_total", "Blocks that a prompt lacked on the device and a KV tier did not hold.") \
    X(TIER_PINNED,   GAUGE,     0, l_pinned, NULL,      "spillway:kv_pinned_bytes", "Bytes that kv_pin holds.")                                    \
    X(PIN_REFUSED,   COUNTER,   0, l_one,    NULL,      "spillway:kv_pins_refused_total", "Requests with kv_pin whose prompt was not pinned for want of room.") \
    X(KV_BORROWED,   COUNTER,   0, l_one,    NULL,      "spillway:kv_copied_blocks_total", "Blocks copied because a prompt shares a part of them.") \
    X(KV_RESUMED,    COUNTER,   0, l_one,    NULL,      "spillway:kv_resumed_tokens_total", "Tokens of preempted sequences that lower tiers gave back.") \
    X(TIER_IN,       COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_written_bytes_total", "Bytes written to a KV tier.")                      \
    X(TIER_OUT,      COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_read_bytes_total", "Bytes read from a KV tier.")                          \
    X(TIER_DOUBT,    COUNTER,   0, l_doubt,  NULL,      "spillway:kv_verify_failures_total", "Blocks that came back in doubt and were computed anew.") \
    X(TIER_VERIFY,   COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_verify_failures_total", "The same by tier.")                             \
    X(TIER_LATENCY,  HISTOGRAM, 0, l_tier,   &kb_load,  "spillway:kv_load_seconds", "Loads by the slowest tier they take from, asked for to usable.") \
    X(TIER_LATE,     COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_loads_abandoned_total", "Loads given up at their deadline, by tier.")    \
    X(TIER_REGRETS,  GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_load_regret_seconds", "What loads took longer than computing would have, by tier.") \
    X(TIER_DECISION, COUNTER,   0, l_decision, NULL,    "spillway:kv_load_decisions_total", "Prefixes found below the device: loaded, or computed because that was cheaper.") \
    X(TIER_ABANDON,  COUNTER,   0, l_one,    NULL,      "spillway:kv_loads_abandoned_total", "Loads that fell behind their deadline and were computed.") \
    X(TIER_DROPPED,  COUNTER,   0, l_one,    NULL,      "spillway:kv_stores_dropped_total", "Blocks not stored for want of room or time.")         \
    X(FOLDER_EVENTS, COUNTER,   0, l_folder, NULL,      "spillway:kv_folder_events_total", "Folders of KV: pauses of writing; segments removed, that gave way to another model's, taken over.") \
    X(FOLDER_SEGS,   GAUGE,     0, l_segment, NULL,     "spillway:kv_folder_segments", "Segments that lie in folders and are of another key, damaged, not readable so far, of another server.") \
    X(FOLDER_PAUSED, GAUGE,     0, l_one,    NULL,      "spillway:kv_folders_paused", "Folders that are not written to just now.")                  \
    X(FOLDER_FOUND,  COUNTER,   0, l_one,    NULL,      "spillway:kv_folder_recovered_blocks_total", "Blocks found in folders, of this model.")     \
    X(AUDITS,        COUNTER,   0, l_one,    NULL,      "spillway:kv_audits_total", "Blocks from below that were computed again and compared.")    \
    X(AUDIT_WRONG,   COUNTER,   0, l_one,    NULL,      "spillway:kv_audit_mismatch_total", "Of them with other bytes: all blocks were dropped then.") \
    X(TIER_ERRORS,   COUNTER,   0, l_one,    NULL,      "spillway:kv_transfer_errors_total", "Copies, reads and writes of blocks that failed.")     \
    X(TIER_REGRET,   GAUGE,     0, l_one,    NULL,      "spillway:kv_load_regret_seconds", "What loads took longer than computing would have.")     \
    X(STEPS,         COUNTER,   0, l_one,    NULL,      "spillway:engine_steps_total", "Engine steps.")                                        \
    X(STEP_TIME,     GAUGE,     0, l_one,    NULL,      "spillway:engine_step_seconds", "Length of a step, moving average.")                   \
    X(STEP_TIMES,    HISTOGRAM, 0, l_one,    &kb_load,  "spillway:step_seconds", "Length of a step.")                                               \
    X(STEP_SLOW,     GAUGE,     0, l_one,    NULL,      "spillway:step_slowdown_ratio", "The last steps against the usual time of steps of as many tokens.") \
    X(NAN,           COUNTER,   0, l_one,    NULL,      "spillway:nan_requests_total", "Requests that ended because their logits were NaN.")         \
    X(QUEUE_TOKENS,  GAUGE,     0, l_one,    NULL,      "spillway:queue_tokens", "Prompt tokens that wait.")                                   \
    X(CONNECTIONS,   GAUGE,     0, l_one,    NULL,      "spillway:connections", "Open client connections.")                                    \
    X(STREAMS,       GAUGE,     0, l_one,    NULL,      "spillway:generations", "Requests whose answer is not yet complete.")                  \
    X(PAUSED,        COUNTER,   0, l_one,    NULL,      "spillway:slow_reader_pauses_total", "Streams parked because their client reads slowly.") \
    X(KEYS,          COUNTER,   0, l_key,    NULL,      "spillway:auth_failures_total", "Requests refused for their API key: none, a wrong one, or from an address that sent too many.") \
    X(UNREAD,        COUNTER,   0, l_one,    NULL,      "spillway:unread_dropped_total", "Connections reset because answers that nobody read held too much memory.") \
    X(UNKNOWN,       COUNTER,   0, l_one,    NULL,      "spillway:unknown_fields_total", "Request fields that no one knows.")                  \
    X(ACCEPT,        COUNTER,   0, l_one,    NULL,      "spillway:accept_pauses_total", "Pauses of accept for want of descriptors.")           \
    X(LOG_DROPPED,   COUNTER,   0, l_one,    NULL,      "spillway:log_lines_dropped_total", "Log lines that found their pipe full.")
/* clang-format on */

enum family_id {
#define ID(id, ...) F_##id,
    FAMILIES(ID)
#undef ID
        N_FAMILY
};
static const struct family_def {
    enum metric_type      type;
    int                   common;
    const char *const    *labels;
    const struct buckets *buckets;
    const char           *name, *help;
} family_def[] = {
#define DEF(id, type, common, labels, buckets, name, help) { METRIC_##type, common, labels, buckets, name, help },
    FAMILIES(DEF)
#undef DEF
};

enum { N_CLASS = 3 }; /* 2xx, 4xx, 5xx */

struct metrics {
    struct metric_family fam[N_FAMILY];
    char                 common[400];
    char                 cache_info[600];
    char (*http_label)[120];
    const struct routes *routes;
    uint32_t             n_handler;  /* http series: handler h, class k at h * N_CLASS + k; handler 0: no route */
    uint32_t            *handler_of; /* [route] */
    double               start_time;
    _Atomic uint64_t     fds_at_us, fds;
};

static struct metric *one(struct metrics *m, enum family_id id) { return &m->fam[id].metric[0]; }
static void observe(struct metrics *m, enum family_id id, double v) { metric_observe(&m->fam[id], one(m, id), v); }
static void count_to(struct metrics *m, enum family_id id, uint32_t k, uint64_t v)
{
    atomic_store_explicit(&m->fam[id].metric[k].value, v, memory_order_relaxed);
}

static enum status http_series(struct metrics *m)
{
    uint32_t            n_route = m->routes->n;
    const struct route *rt = m->routes->row;
    m->handler_of = calloc(n_route, sizeof *m->handler_of);
    m->http_label = calloc((size_t)(n_route + 1) * (N_CLASS + 1), sizeof *m->http_label);
    m->fam[F_HTTP].metric = calloc((size_t)(n_route + 1) * N_CLASS, sizeof(struct metric));
    m->fam[F_HTTP_TIME].metric = calloc(n_route + 1, sizeof(struct metric));
    if (!m->handler_of || !m->http_label || !m->fam[F_HTTP].metric || !m->fam[F_HTTP_TIME].metric) return ST_NOMEM;
    static const char *const class_name[] = { "2xx", "4xx", "5xx" };
    for (uint32_t i = 0; i <= n_route; i++) {
        if (i && rt[i - 1].flags & ROUTE_QUIET) continue;
        uint32_t    h = m->n_handler++;
        const char *handler = i ? rt[i - 1].label : "none", *method = i ? route_method(&rt[i - 1]) : "";
        if (i) m->handler_of[i - 1] = h;
        char(*label)[120] = m->http_label + h * (N_CLASS + 1);
        for (uint32_t k = 0; k < N_CLASS; k++) {
            snprintf(label[k], sizeof *label, "handler=\"%s\",method=\"%s\",status=\"%s\"", handler, method,
                     class_name[k]);
            m->fam[F_HTTP].metric[h * N_CLASS + k].labels = label[k];
        }
        snprintf(label[N_CLASS], sizeof *label, "handler=\"%s\",method=\"%s\"", handler, method);
        m->fam[F_HTTP_TIME].metric[h].labels = label[N_CLASS];
    }
    m->fam[F_HTTP].n_metric = m->n_handler * N_CLASS;
    m->fam[F_HTTP_TIME].n_metric = m->n_handler;
    return ST_OK;
}

enum status metrics_create(const struct routes *routes, struct metrics **m_out)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (!m) return ST_NOMEM;
    m->routes = routes;
    enum status st = ST_OK;
    for (int i = 0; i < N_FAMILY; i++) {
        const struct family_def *d = &family_def[i];
        m->fam[i] =
            (struct metric_family){ .name = d->name, .help = d->help, .type = d->type, .common_labels = d->common };
        if (d->buckets) {
            m->fam[i].bound = d->buckets->bound;
            m->fam[i].n_bound = d->buckets->n;
        }
        if (d->labels == l_http) continue;
        uint32_t n = 0;
        while (d->labels[n]) n++;
        m->fam[i].n_metric = n ? n : 1;
        m->fam[i].metric = calloc(m->fam[i].n_metric, sizeof(struct metric));
        if (!m->fam[i].metric) {
            st = ST_NOMEM;
            break;
        }
        for (uint32_t k = 0; k < n; k++) m->fam[i].metric[k].labels = d->labels[k];
    }
    if (st == ST_OK) st = http_series(m);
    if (st) {
        metrics_free(m);
        return st;
    }
    m->start_time = (double)clock_wall_s();
    metric_set(one(m, F_BUILD), 1);
    metric_set(one(m, F_SLEEP), 1); /* awake */
    metric_set(one(m, F_LORA), m->start_time);
    metric_set(one(m, F_CACHE_INFO), 1);
    *m_out = m;
    return ST_OK;
}

void metrics_free(struct metrics *m)
{
    if (!m) return;
    for (int i = 0; i < N_FAMILY; i++) free(m->fam[i].metric);
    free(m->handler_of);
    free(m->http_label);
    free(m);
}

void metrics_model(struct metrics *m, const char *name, uint32_t context)
{
    char   safe[300];
    size_t n = 0;
    for (const char *p = name; *p && n + 3 < sizeof safe; p++) {
        if (*p == '"' || *p == '\\') safe[n++] = '\\';
        safe[n++] = *p == '\n' ? ' ' : *p;
    }
    safe[n] = 0;
    snprintf(m->common, sizeof m->common, "engine=\"0\",model_name=\"%s\"", safe);
    /* 1 2 5 10 ... up to the context */
    for (int i = 0; i < N_FAMILY; i++) {
        if (m->fam[i].bound != b_125) continue;
        while (m->fam[i].n_bound > 1 && b_125[m->fam[i].n_bound - 1] > context) m->fam[i].n_bound--;
    }
}

void metrics_loaded(struct metrics *m, const struct metrics_load *l)
{
    metric_set(one(m, F_LOAD), l->load_seconds);
    metric_set(one(m, F_WEIGHTS), (double)l->weight_bytes);
    metric_set(one(m, F_KV_BYTES), (double)l->kv_bytes);
    snprintf(m->cache_info, sizeof m->cache_info, "%s", l->cache_info);
    one(m, F_CACHE_INFO)->labels = m->cache_info;
}

/* ---- writers ---- */

void metrics_first_token(struct metrics *m, uint64_t us) { observe(m, F_TTFT, (double)us / 1e6); }
void metrics_next_token(struct metrics *m, uint64_t us) { observe(m, F_ITL, (double)us / 1e6); }
void metrics_key_refused(struct metrics *m, enum metrics_key why) { metric_add(&m->fam[F_KEYS].metric[why], 1); }
void metrics_unread_dropped(struct metrics *m) { metric_add(one(m, F_UNREAD), 1); }
void metrics_paused(struct metrics *m) { metric_add(one(m, F_PAUSED), 1); }
void metrics_unknown_fields(struct metrics *m, uint64_t n) { metric_add(one(m, F_UNKNOWN), n); }

void metrics_gen_end(struct metrics *m, const struct metrics_gen *g)
{
    uint32_t reason = g->finish == ENG_STOP ? 0 : g->finish == ENG_LENGTH ? 1 : g->finish == ENG_CANCELED ? 2 : 3;
    metric_add(&m->fam[F_SUCCESS].metric[reason], 1);
    observe(m, F_E2E, (double)g->e2e_us / 1e6);
    if (!g->n) return; /* refused before it was understood */
    observe(m, F_N_PROMPT, g->n_prompt);
    observe(m, F_N_OUTPUT, g->n_output);
    observe(m, F_N_OUTPUT_MAX, g->n_output_max);
    observe(m, F_MAX_TOKENS, g->max_tokens);
    observe(m, F_KV_COMPUTED, g->n_prompt - g->n_cached);
    observe(m, F_PARAM_N, g->n);
    if (!g->ttft_us) return;
    observe(m, F_QUEUE, (double)g->queue_us / 1e6);
    observe(m, F_PREFILL, (double)g->prefill_us / 1e6);
    observe(m, F_DECODE, (double)g->decode_us / 1e6);
    observe(m, F_INFERENCE, (double)(g->prefill_us + g->decode_us) / 1e6);
    observe(m, F_TPOT, g->n_output_max > 1 ? (double)g->decode_us / 1e6 / (g->n_output_max - 1) : 0);
}

void metrics_http(struct metrics *m, const struct request *r, int status)
{
    if (r->route && r->route->flags & ROUTE_QUIET) return;
    uint32_t h = r->route ? m->handler_of[route_index(m->routes, r->route)] : 0;
    uint32_t k = status < 400 ? 0 : status < 500 ? 1 : 2;
    metric_add(&m->fam[F_HTTP].metric[h * N_CLASS + k], 1);
    if (r->t_start_us)
        metric_observe(&m->fam[F_HTTP_TIME], &m->fam[F_HTTP_TIME].metric[h],
                       (double)(clock_us() - r->t_start_us) / 1e6);
}

/* ---- the page ---- */

/* Counting the descriptors reads a folder: once a second at most, whatever the scrape rate. */
static double open_fds(struct metrics *m)
{
    uint64_t now = clock_us(), at = atomic_load_explicit(&m->fds_at_us, memory_order_relaxed);
    if (now - at > 1000000 && atomic_compare_exchange_strong(&m->fds_at_us, &at, now)) {
        uint64_t n = 0;
        DIR     *d = opendir("/proc/self/fd");
        while (d && readdir(d)) n++;
        if (d) closedir(d);
        atomic_store_explicit(&m->fds, n > 3 ? n - 3 : 0, memory_order_relaxed); /* ".", ".." and the folder itself */
    }
    return (double)atomic_load_explicit(&m->fds, memory_order_relaxed);
}

static double resident_bytes(void)
{
    char   text[200];
    size_t n = 0;
    if (file_read_first("/proc/self/statm", text, sizeof text - 1, &n)) return 0;
    text[n] = 0;
    const char *p = strchr(text, ' ');
    return p ? (double)strtoull(p + 1, NULL, 10) * (double)sysconf(_SC_PAGESIZE) : 0;
}

/* Of counts that are kept elsewhere. */
static void set_histogram(struct metric *h, const uint64_t *bucket, uint32_t n, double sum)
{
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    atomic_store_explicit(&h->sum_bits, bits, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) atomic_store_explicit(&h->bucket[i], bucket[i], memory_order_relaxed);
}

static void sample_tier(struct metrics *m, uint32_t i, const struct kv_tier_stats *t)
{
    bool     host = i == KV_TIER_HOST;
    uint32_t n_why = host ? KV_EVICT_WHYS : WHYS_BELOW;
    uint32_t evictions = host ? KV_EVICT_WHYS : 2 * KV_EVICT_WHYS + (i - 1) * WHYS_BELOW; /* its first in l_evict */
    metric_set(&m->fam[F_TIER_RESERVED].metric[i], (double)t->reserved_bytes);
    metric_set(&m->fam[F_TIER_USED].metric[i], (double)t->used_bytes);
    metric_set(&m->fam[F_TIER_BLOCKS].metric[i], (double)t->n_block);
    count_to(m, F_TIER_HITS, i, t->hit_blocks);
    count_to(m, F_TIER_STORES, i, t->store_blocks);
    count_to(m, F_TIER_EVICTED, i, t->evicted);
    count_to(m, F_TIER_MISSES, i, t->miss_blocks);
    count_to(m, F_TIER_VERIFY, i, t->n_doubt);
    count_to(m, F_TIER_LATE, i, t->n_abandoned);
    metric_set(&m->fam[F_TIER_REGRETS].metric[i], t->regret_us / 1e6);
    set_histogram(&m->fam[F_TIER_LATENCY].metric[i], t->latency, KV_LATENCY_BUCKETS, t->latency_sum_us / 1e6);
    for (uint32_t k = 0; k < n_why; k++) count_to(m, F_TIER_EVICTIONS, evictions + k, t->evicted_why[k]);
    count_to(m, F_TIER_IN, i, t->bytes_in);
    count_to(m, F_TIER_OUT, i, t->bytes_out);
    if (!host) metric_set(&m->fam[F_TIER_DEGRADED].metric[i - 1], t->n_degraded);
}

static void sample_tiers(struct metrics *m, const struct server *s)
{
    struct kv_tiers_stats t = { 0 };
    if (!s->eng.tiers || !s->eng.tiers(s->eng.ctx, &t)) return;
    for (uint32_t i = 0; i < KV_TIERS; i++) sample_tier(m, i, &t.tier[i]);
    metric_set(&m->fam[F_TIER_PINNED].metric[1], (double)t.tier[KV_TIER_HOST].pinned_bytes);
    for (int i = 1; i < KV_DOUBTS; i++) count_to(m, F_TIER_DOUBT, (uint32_t)i - 1, t.doubt[i]);
    count_to(m, F_TIER_DECISION, 0, t.n_load);
    count_to(m, F_TIER_DECISION, 1, t.n_recompute);
    count_to(m, F_TIER_ABANDON, 0, t.n_abandoned);
    count_to(m, F_TIER_DROPPED, 0, t.n_dropped);
    count_to(m, F_TIER_ERRORS, 0, t.n_failed_io);
    const uint64_t event[] = { t.store.n_pauses, t.store.n_removed, t.store.n_gave_way, t.store.n_claimed };
    const uint64_t segments[] = { t.store.n_locked, t.store.n_damaged, t.store.n_unread, t.store.n_foreign };
    for (uint32_t i = 0; i < sizeof event / sizeof *event; i++) count_to(m, F_FOLDER_EVENTS, i, event[i]);
    for (uint32_t i = 0; i < sizeof segments / sizeof *segments; i++)
        metric_set(&m->fam[F_FOLDER_SEGS].metric[i], (double)segments[i]);
    metric_set(one(m, F_FOLDER_PAUSED), (double)t.store.n_paused);
    count_to(m, F_FOLDER_FOUND, 0, t.store.n_recovered);
    count_to(m, F_AUDITS, 0, t.n_audit);
    count_to(m, F_AUDIT_WRONG, 0, t.n_audit_mismatch);
    metric_set(one(m, F_TIER_REGRET), t.regret_us / 1e6);
}

static void sample_engine(struct metrics *m, const struct server *s)
{
    sample_tiers(m, s);
    struct eng_stats e = { 0 };
    s->eng.stats(s->eng.ctx, &e);
    double use = e.kv_blocks ? (double)e.kv_used / e.kv_blocks : 0;
    metric_set(one(m, F_RUNNING), e.n_running);
    metric_set(one(m, F_WAITING), e.n_waiting);
    metric_set(one(m, F_WAITING_WHY), e.n_waiting);
    metric_set(one(m, F_KV_USE), use);
    metric_set(one(m, F_KV_USE_OLD), use);
    uint64_t cached = e.n_cached_tokens < e.n_prompt_tokens ? e.n_cached_tokens : e.n_prompt_tokens;
    count_to(m, F_PROMPT, 0, e.n_prompt_tokens);
    count_to(m, F_PROMPT_SRC, 0, e.n_prompt_tokens - cached);
    count_to(m, F_PROMPT_SRC, 1, cached);
    count_to(m, F_PROMPT_CACHED, 0, cached);
    count_to(m, F_GENERATED, 0, e.n_generated);
    count_to(m, F_PREEMPTED, 0, e.n_preempted);
    count_to(m, F_QUERIES, 0, e.n_query_tokens);
    count_to(m, F_HITS, 0, e.n_hit_tokens);
    count_to(m, F_QUERIES_OLD, 0, e.n_query_tokens);
    count_to(m, F_HITS_OLD, 0, e.n_hit_tokens);
    count_to(m, F_STEPS, 0, e.n_step);
    static_assert(sizeof b_iter / sizeof *b_iter == PACE_SIZES - 1, "the engine counts steps in these buckets");
    static_assert(sizeof b_load / sizeof *b_load == PACE_TIMES - 1, "and their times in these");
    static_assert(sizeof b_load / sizeof *b_load == KV_LATENCY_BUCKETS - 1, "and the tiers their loads in these");
    set_histogram(one(m, F_ITERATION), e.step_rows, PACE_SIZES, (double)e.n_row);
    set_histogram(one(m, F_STEP_TIMES), e.step_times, PACE_TIMES, (double)e.step_us / 1e6);
    metric_set(one(m, F_STEP_SLOW), e.step_slow);
    count_to(m, F_NAN, 0, e.n_nan);
    count_to(m, F_KV_BORROWED, 0, e.n_borrowed);
    count_to(m, F_KV_RESUMED, 0, e.n_resumed_tokens);
    count_to(m, F_PIN_REFUSED, 0, e.n_pin_refused);
    for (uint32_t i = 0; i < KV_EVICT_WHYS; i++) count_to(m, F_TIER_EVICTIONS, i, e.evicted[i]);
    double block_bytes = e.kv_blocks ? metric_get(one(m, F_KV_BYTES)) / e.kv_blocks : 0;
    metric_set(&m->fam[F_TIER_PINNED].metric[0], block_bytes * (double)e.kv_pinned);
    metric_set(one(m, F_STEP_TIME), (double)e.step_us_ewma / 1e6);
    metric_set(one(m, F_KV_BLOCKS), e.kv_blocks);
    metric_set(one(m, F_QUEUE_TOKENS), (double)e.waiting_tokens);
}

void metrics_print(struct server *s, struct buf *out)
{
    struct metrics *m = s->metrics;
    bool            ready = server_state(s) != SRV_LOADING && s->model;
    if (ready) sample_engine(m, s);
    struct timespec cpu;
    struct rlimit   files;
    uint32_t        n_conn = 0;
    for (uint32_t i = 0; i < s->n_io; i++) n_conn += atomic_load_explicit(&s->io[i].n_conn, memory_order_relaxed);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    metric_set(one(m, F_RSS), resident_bytes());
    metric_set(one(m, F_FDS), open_fds(m));
    metric_set(one(m, F_FDS_MAX), getrlimit(RLIMIT_NOFILE, &files) ? 0 : (double)files.rlim_cur);
    metric_set(one(m, F_START), m->start_time);
    metric_set(one(m, F_CONNECTIONS), n_conn);
    metric_set(one(m, F_STREAMS), atomic_load(&s->n_gen));
    count_to(m, F_CPU, 0, (uint64_t)cpu.tv_sec);
    count_to(m, F_ACCEPT, 0, atomic_load(&s->n_accept_paused));
    count_to(m, F_LOG_DROPPED, 0, log_dropped());
    for (int i = 0; i < N_FAMILY; i++)
        if (ready || !(m->fam[i].common_labels || i == F_CACHE_INFO)) metric_print(out, &m->fam[i], m->common);
}
