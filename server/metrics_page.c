/* metrics_page: samples the engine, the tiers and the process when /metrics is requested, and prints the page. */
#include "api/adapters.h"
#include "api/responses/store.h"
#include "api/schema/grammars.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/conn.h"
#include "server/metrics_impl.h"
#include "server/tls.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ".", ".." and the folder itself are among the entries. */
static double open_fds(void)
{
    uint64_t n = 0;
    DIR     *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n > 3 ? (double)(n - 3) : 0;
}

void metrics_process(struct metrics *m)
{
    char          text[200] = "";
    size_t        n = 0;
    struct rlimit files;
    double        page = (double)sysconf(_SC_PAGESIZE);
    if (!file_read_first("/proc/self/statm", text, sizeof text - 1, &n)) {
        text[n] = 0;
        char *end;
        metric_set(one(m, F_VIRTUAL), (double)strtoull(text, &end, 10) * page);
        metric_set(one(m, F_RSS), (double)strtoull(end, NULL, 10) * page);
    }
    metric_set(one(m, F_FDS), open_fds());
    metric_set(one(m, F_FDS_MAX), getrlimit(RLIMIT_NOFILE, &files) ? 0 : (double)files.rlim_cur);
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
    metric_set(&m->fam[F_ARENA].metric[ARENA_KV_HOST], (double)t.tier[KV_TIER_HOST].reserved_bytes);
    metric_set(&m->fam[F_ARENA_USED].metric[ARENA_KV_HOST], (double)t.tier[KV_TIER_HOST].used_bytes);
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
    for (uint32_t i = 0; i < KV_CLAIM_ENDS; i++) count_to(m, F_PD_PULLS, i, t.claim[i]);
    const uint64_t parcels[] = { t.parcels.n_made, t.parcels.n_taken, t.parcels.n_lapsed, t.parcels.n_refused };
    for (uint32_t i = 0; i < sizeof parcels / sizeof *parcels; i++) count_to(m, F_PD_PARCELS, i, parcels[i]);
    metric_set(one(m, F_PD_KEPT), t.parcels.n_block);
    metric_set(one(m, F_PLACE), t.n_guest);
    count_to(m, F_PLACED, 0, t.n_in_place);
    count_to(m, F_PLACE_MOVED, 0, t.n_moved);
    count_to(m, F_AUDITS, 0, t.n_audit);
    count_to(m, F_WINDOW_LOADED, 0, t.n_window_loaded);
    count_to(m, F_AUDIT_WRONG, 0, t.n_audit_mismatch);
    metric_set(one(m, F_TIER_REGRET), t.regret_us / 1e6);
}

static void sample_events(struct metrics *m, const struct server *s)
{
    struct kv_events_stats t;
    if (!s->eng.events || !s->eng.events(s->eng.ctx, &t)) return;
    count_to(m, F_KV_EVENTS, 0, t.n_stored);
    count_to(m, F_KV_EVENTS, 1, t.n_removed);
    count_to(m, F_KV_EVENTS, 2, t.n_cleared);
    count_to(m, F_KV_EVENT_BATCHES, 0, t.n_batch);
    count_to(m, F_KV_EVENT_DROPS, 0, t.n_dropped);
    count_to(m, F_KV_EVENT_DROPS, 1, t.n_slow);
    count_to(m, F_KV_EVENT_REPLAYS, 0, t.n_replay);
}

static void sample_engine(struct metrics *m, const struct server *s)
{
    sample_tiers(m, s);
    sample_events(m, s);
    struct eng_stats e = { 0 };
    s->eng.stats(s->eng.ctx, &e);
    double use = eng_kv_use(&e);
    metric_set(one(m, F_RUNNING), e.n_running);
    metric_set(one(m, F_WAITING), e.n_waiting);
    metric_set(one(m, F_WAITING_WHY), e.n_waiting);
    metric_set(one(m, F_KV_USE), use);
    metric_set(one(m, F_KV_USE_OLD), use);
    uint64_t cached = e.n_cached_tokens < e.n_prompt_tokens ? e.n_cached_tokens : e.n_prompt_tokens;
    uint64_t below = 0;
    for (uint32_t i = ENG_FROM_TIER; i < ENG_SOURCES; i++) below += e.n_cached_from[i];
    if (below > cached)
        below = cached; /* the counters are read one after the other, so `below` may be ahead of `cached` */
    count_to(m, F_PROMPT, 0, e.n_prompt_tokens);
    count_to(m, F_PROMPT_SRC, 0, e.n_prompt_tokens - cached);
    count_to(m, F_PROMPT_SRC, 1, cached - below);
    count_to(m, F_PROMPT_SRC, 2, below);
    count_to(m, F_PROMPT_CACHED, 0, cached);
    count_to(m, F_CACHED_SRC, 0, cached - below);
    for (uint32_t i = ENG_FROM_TIER; i < ENG_SOURCES; i++) count_to(m, F_CACHED_SRC, i, e.n_cached_from[i]);
    count_to(m, F_EXT_QUERIES, 0, e.n_below_query_tokens);
    count_to(m, F_EXT_HITS, 0, below);
    count_to(m, F_GENERATED, 0, e.n_generated);
    count_to(m, F_PREEMPTED, 0, e.n_preempted);
    count_to(m, F_QUERIES, 0, e.n_query_tokens);
    uint64_t hits = e.n_hit_tokens > below ? e.n_hit_tokens - below : 0; /* what tiers brought is found by then too */
    count_to(m, F_HITS, 0, hits);
    count_to(m, F_QUERIES_OLD, 0, e.n_query_tokens);
    count_to(m, F_HITS_OLD, 0, hits);
    metric_set(one(m, F_HIT_RATE_OLD), e.n_query_tokens ? (double)hits / (double)e.n_query_tokens : 0);
    count_to(m, F_STEPS, 0, e.n_step);
    set_histogram(one(m, F_ITERATION), e.step_rows, PACE_SIZES, (double)e.n_row);
    set_histogram(one(m, F_STEP_TIMES), e.step_times, PACE_TIMES, (double)e.step_us / 1e6);
    metric_set(one(m, F_STEP_SLOW), e.step_slow);
    for (uint32_t i = 0; i < PHASES; i++) metric_set(&m->fam[F_PHASES].metric[i], (double)e.phase_us[i] / 1e6);
    set_histogram(one(m, F_HOST_TIMES), e.host.time, PHASE_TIMES, (double)e.host.sum_us / 1e6);
    set_histogram(one(m, F_GAPS), e.gap.time, PHASE_TIMES, (double)e.gap.sum_us / 1e6);
    for (uint32_t i = 0; i < ENG_CLASSES; i++) metric_set(&m->fam[F_QUEUED].metric[i], e.queued[i]);
    count_to(m, F_NAN, 0, e.n_nan);
    count_to(m, F_LATE_MASKS, 0, e.n_undrawn);
    count_to(m, F_CORRUPTED, 0, e.n_nan);
    count_to(m, F_KV_BORROWED, 0, e.n_borrowed);
    count_to(m, F_KV_RESUMED, 0, e.n_resumed_tokens);
    count_to(m, F_PIN_REFUSED, 0, e.n_pin_refused);
    for (uint32_t i = 0; i < KV_EVICT_WHYS; i++) count_to(m, F_TIER_EVICTIONS, i, e.evicted[i]);
    double block_bytes = e.kv_blocks ? metric_get(one(m, F_KV_BYTES)) / e.kv_blocks : 0;
    double window_bytes = e.window_blocks ? metric_get(one(m, F_WINDOW_BYTES)) / e.window_blocks : 0;
    metric_set(&m->fam[F_ARENA_USED].metric[ARENA_KV], block_bytes * e.kv_used + window_bytes * e.window_used);
    metric_set(one(m, F_WINDOW_BLOCKS), e.window_blocks);
    metric_set(one(m, F_WINDOW_USED), e.window_used);
    count_to(m, F_WINDOW_PASSED, 0, e.n_window_passed);
    count_to(m, F_WINDOW_EVICTED, 0, e.n_window_evicted);
    metric_set(&m->fam[F_TIER_PINNED].metric[0], block_bytes * (double)e.kv_pinned);
    metric_set(one(m, F_STEP_TIME), (double)e.step_us_ewma / 1e6);
    metric_set(one(m, F_KV_BLOCKS), e.kv_blocks);
    metric_set(one(m, F_QUEUE_TOKENS), (double)e.waiting_tokens);
}

static void sample_grammars(struct metrics *m, struct grammars *g)
{
    struct form_cache_counts n;
    if (!g) return;
    grammars_count(g, &n);
    metric_set(one(m, F_GRAMMAR_HITS), (double)(n.n_hit + n.n_refused));
    metric_set(one(m, F_GRAMMAR_MADE), (double)n.n_made);
    metric_set(one(m, F_GRAMMAR_EVICTED), (double)n.n_evicted);
    metric_set(one(m, F_GRAMMARS), (double)n.n_entry);
    metric_set(one(m, F_GRAMMAR_BYTES), (double)n.bytes);
}

static void sample_tls(struct metrics *m, const struct tls *t)
{
    if (!t) return;
    for (int i = 0; i < TLS_RESULTS; i++) count_to(m, F_TLS_SHAKES, (uint32_t)i, tls_counted(t, (enum tls_result)i));
    metric_set(one(m, F_TLS_EXPIRES), (double)tls_expires(t));
}

static void sample_server(struct metrics *m, struct server *s)
{
    struct timespec cpu;
    uint64_t        unread[UNREAD_CLASSES] = { 0 };
    uint32_t        n_conn = 0;
    for (uint32_t i = 0; i < s->n_io; i++) {
        n_conn += atomic_load_explicit(&s->io[i].n_conn, memory_order_relaxed);
        for (int k = 0; k < UNREAD_CLASSES; k++)
            unread[k] += atomic_load_explicit(&s->io[i].unread[k].bytes, memory_order_relaxed);
    }
    for (int k = 0; k < UNREAD_CLASSES; k++) metric_set(&m->fam[F_UNREAD_BYTES].metric[k], (double)unread[k]);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    metric_set(one(m, F_CPU), (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    metric_set(one(m, F_CONNECTIONS), n_conn);
    metric_set(one(m, F_STREAMS), atomic_load(&s->n_gen));
    metric_set(one(m, F_TEXT_QUEUE), text_waiting(s->text));
    sample_grammars(m, s->model ? s->model->grammars : NULL);
    metric_set(&m->fam[F_ARENA].metric[ARENA_BODIES], (double)s->bodies.bytes_max);
    metric_set(&m->fam[F_ARENA_USED].metric[ARENA_BODIES],
               (double)atomic_load_explicit(&s->bodies.bytes, memory_order_relaxed));
    if (s->model && s->model->responses) {
        struct responses_store_stats stored;
        responses_store_count(s->model->responses, &stored);
        metric_set(&m->fam[F_ARENA].metric[ARENA_RESPONSES], (double)stored.bytes);
        metric_set(&m->fam[F_ARENA_USED].metric[ARENA_RESPONSES], (double)stored.bytes_used);
    }
    struct trace_counts traces = trace_counts(s->trace);
    count_to(m, F_TRACES, 0, traces.n_sent);
    count_to(m, F_TRACES, 1, traces.n_dropped);
    count_to(m, F_TRACES, 2, traces.n_failed);
    sample_tls(m, s->tls);
    count_to(m, F_ACCEPT, 0, atomic_load(&s->n_accept_paused));
    count_to(m, F_LOG_DROPPED, 0, log_dropped());
}

static void set_gpu(struct metrics *m, enum family_id id, uint32_t gpu, uint32_t k, double v)
{
    metric_set(&m->fam[id].metric[gpu * m->n_gpu[id] + k], v);
}

/* The number of GPUs that the driver reports. */
static uint32_t sample_gpus(struct metrics *m, const struct server *s)
{
    struct nvml_sample n;
    if (!nvml_get(s->nvml, &n)) return 0;
    uint64_t now = clock_us();
    for (uint32_t i = 0; i < n.n_gpu; i++) {
        const struct nvml_gpu *g = &n.gpu[i];
        set_gpu(m, F_GPU_USE, i, 0, g->utilization);
        set_gpu(m, F_GPU_MEM_USE, i, 0, g->memory_utilization);
        set_gpu(m, F_GPU_MEM, i, 0, (double)g->memory_total);
        set_gpu(m, F_GPU_MEM_USED, i, 0, (double)g->memory_used);
        set_gpu(m, F_GPU_POWER, i, 0, g->power_w);
        set_gpu(m, F_GPU_TEMP, i, 0, g->temperature_c);
        count_to(m, F_GPU_ECC, 2 * i, g->ecc_corrected);
        count_to(m, F_GPU_ECC, 2 * i + 1, g->ecc_uncorrected);
        set_gpu(m, F_GPU_ROWS, i, 0, g->rows_remapped);
        set_gpu(m, F_GPU_ROWS, i, 1, g->rows_pending);
        set_gpu(m, F_GPU_ROWS, i, 2, g->rows_failed);
        for (uint32_t k = 0; k < NVML_THROTTLES; k++) set_gpu(m, F_GPU_THROTTLE, i, k, g->throttle >> k & 1);
        count_to(m, F_GPU_XID, i, g->n_xid);
        set_gpu(m, F_GPU_XID_LAST, i, 0, (double)g->last_xid);
        set_gpu(m, F_GPU_LOST, i, 0, g->lost);
        count_to(m, F_GPU_ODD, i, g->n_odd);
        set_gpu(m, F_GPU_AGE, i, 0, now > n.at_us ? (double)(now - n.at_us) / 1e6 : 0);
    }
    return n.n_gpu;
}

/* An expiry of 0 would be an alarm where there is no certificate. */
static bool is_of_tls(int family) { return family == F_TLS_SHAKES || family == F_TLS_EXPIRES; }

enum { LORA_LIST = 6000, LORA_LABELS = 2 * LORA_LIST + 200 };
struct lora_names {
    char running[LORA_LIST], waiting[LORA_LIST];
};

static void name_add(char *list, const char *name)
{
    size_t n = strlen(list), k = strlen(name);
    if (n + k + 2 > LORA_LIST) return; /* a label has an end; the names before are there */
    if (n) list[n++] = ',';
    memcpy(list + n, name, k + 1);
}

static void lora_look(void *ctx, const struct adapter *a)
{
    struct lora_names *all = ctx;
    uint32_t           begun = atomic_load_explicit(&a->n_begun, memory_order_relaxed),
             live = atomic_load_explicit(&a->n_live, memory_order_relaxed);
    if (begun) name_add(all->running, a->name);
    if (live > begun) name_add(all->waiting, a->name);
}

/* As vLLM has it: who runs and who waits are labels, and the value is the time of which they are. */
static void print_lora(const struct metrics *m, const struct server *s, bool ready, struct buf *out)
{
    struct lora_names   *all = calloc(1, sizeof *all);
    char                *labels = malloc(LORA_LABELS);
    struct metric        now = { .labels = labels };
    struct metric_family f = m->fam[F_LORA];
    if (all && labels) {
        if (ready) adapters_each(s->model->adapters, lora_look, all);
        snprintf(labels, LORA_LABELS, "max_lora=\"%u\",running_lora_adapters=\"%s\",waiting_lora_adapters=\"%s\"",
                 s->cfg->lora ? s->cfg->lora_slots : 0, all->running, all->waiting);
        metric_set(&now, (double)clock_wall_s());
        f.metric = &now;
        f.n_metric = 1;
        metric_print(out, &f, m->common);
    }
    free(labels);
    free(all);
}

/* Prints a family that has series for each GPU: those of the GPUs of this machine. */
static void print_family(const struct metrics *m, int i, uint32_t n_gpu, struct buf *out)
{
    struct metric_family f = m->fam[i];
    if (m->n_gpu[i]) f.n_metric = m->n_gpu[i] * n_gpu;
    if (f.n_metric) metric_print(out, &f, m->common);
}

void metrics_print(struct server *s, struct buf *out)
{
    struct metrics *m = s->metrics;
    bool            ready = server_state(s) != SRV_LOADING && s->model;
    if (ready) sample_engine(m, s);
    sample_server(m, s);
    uint32_t n_gpu = sample_gpus(m, s);
    for (int i = 0; i < N_FAMILY; i++)
        if (i == F_LORA)
            print_lora(m, s, ready, out);
        else if (m->shown[i] && (s->tls || !is_of_tls(i)) && (ready || !(m->fam[i].common_labels || i == F_CACHE_INFO)))
            print_family(m, i, n_gpu, out);
}
