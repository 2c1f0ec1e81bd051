#include "server/metrics_impl.h"
#include "base/clock.h"
#include "server/conn.h"
#include "server/tls.h"
#include <assert.h>
#include <stdlib.h>

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
static const double b_highr[] = { .01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                  2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60 };
static const double b_phase[] = { 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .05, .25 };
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
BUCKETS(b_highr);
BUCKETS(b_phase);
static_assert(sizeof b_iter / sizeof *b_iter == PACE_SIZES - 1, "the engine counts steps in these buckets");
static_assert(sizeof b_phase / sizeof *b_phase == PHASE_TIMES - 1, "the parts of a step in these");
static_assert(sizeof b_load / sizeof *b_load == PACE_TIMES - 1, "and their times in these");
static_assert(sizeof b_load / sizeof *b_load == KV_LATENCY_BUCKETS - 1, "and the tiers their loads in these");

static const char *const l_reason[] = { "reason=\"capacity\"", "reason=\"deferred\"", NULL };
static const char *const l_sleep[] = { "sleep_state=\"awake\"", "sleep_state=\"weights_offloaded\"",
                                       "sleep_state=\"discard_all\"", NULL };
static const char *const l_source[] = { "source=\"local_compute\"", "source=\"local_cache_hit\"",
                                        "source=\"external_kv_transfer\"", NULL };
static const char *const l_finish[] = { "finished_reason=\"stop\"",
                                        "finished_reason=\"length\"",
                                        "finished_reason=\"abort\"",
                                        "finished_reason=\"error\"",
                                        "finished_reason=\"repetition\"",
                                        "finished_reason=\"cache_threshold\"",
                                        NULL };
static const char *const l_pos[] = { "position=\"0\"", NULL };
#ifdef __clang__
#define COMPILER "clang"
#else
#define COMPILER "gcc"
#endif
#ifdef __aarch64__
#define ARCH "aarch64"
#else
#define ARCH "x86_64"
#endif
#ifdef WITH_CUDA
#define CUDA "true"
#else
#define CUDA "false"
#endif
static const char *const l_version[] = { "version=\"" SPILLWAY_VERSION "\",compiler=\"" COMPILER "\",arch=\"" ARCH
                                         "\",cuda=\"" CUDA "\"",
                                         NULL };
static const char *const l_cached[] = { "source=\"device\"",
                                        "source=\"host\"",
                                        "source=\"disk\"",
                                        "source=\"p2p\"",
                                        "source=\"object\"",
                                        "source=\"external_unspecified\"",
                                        NULL };
static_assert(sizeof l_cached / sizeof *l_cached - 2 == ENG_SOURCES, "in the order of enum eng_source");
#define L_PHASE(id, name) "phase=\"" name "\"",
static const char *const l_phase[] = { PHASE_LIST(L_PHASE) NULL };
static const char *const l_arena[] = { "arena=\"weights\"",
                                       "arena=\"workspace\"",
                                       "arena=\"kv\"",
                                       "arena=\"kv_host\"",
                                       "arena=\"bodies\"",
                                       "arena=\"responses\"",
                                       NULL };
/* As eng_class_of counts them. */
static const char *const l_queue[] = { "tenant=\"anonymous\",priority=\"high\"",
                                       "tenant=\"anonymous\",priority=\"normal\"",
                                       "tenant=\"anonymous\",priority=\"low\"",
                                       "tenant=\"key\",priority=\"high\"",
                                       "tenant=\"key\",priority=\"normal\"",
                                       "tenant=\"key\",priority=\"low\"",
                                       NULL };
static_assert(sizeof l_queue / sizeof *l_queue - 1 == ENG_CLASSES, "a label for each class");
static const char *const l_ended[] = { "how=\"finished\"", "how=\"drained\"", "how=\"cut\"",
                                       "how=\"canceled\"", "how=\"expired\"", "how=\"refused\"",
                                       "how=\"invalid\"",  "how=\"failed\"",  NULL };
static_assert(sizeof l_ended / sizeof *l_ended - 1 == GEN_HOWS, "a label for each end");
static const char *const l_trace[] = { "result=\"sent\"", "result=\"dropped\"", "result=\"failed\"", NULL };
static const char *const l_event[] = { "kind=\"stored\"", "kind=\"removed\"", "kind=\"cleared\"", NULL };
static const char *const l_event_drop[] = { "why=\"queue\"", "why=\"subscriber\"", NULL };
static const char *const l_ecc[] = { "kind=\"corrected\"", "kind=\"uncorrected\"", NULL };
static const char *const l_rows[] = { "state=\"remapped\"", "state=\"pending\"", "state=\"failed\"", NULL };
static const char *const l_throttle[] = { "reason=\"sw_power_cap\"",   "reason=\"hw_slowdown\"",
                                          "reason=\"sync_boost\"",     "reason=\"sw_thermal\"",
                                          "reason=\"hw_thermal\"",     "reason=\"power_brake\"",
                                          "reason=\"display_clocks\"", NULL };
static_assert(sizeof l_throttle / sizeof *l_throttle - 1 == NVML_THROTTLES, "in the order of throttle_bit");
static const char *const l_unread[] = { "route=\"open\"", "route=\"model\"", NULL };
static_assert(sizeof l_unread / sizeof *l_unread - 1 == UNREAD_CLASSES, "a label for each class");
static const char *const l_shake[] = { "result=\"done\"", "result=\"failed\"", "result=\"plain_http\"",
                                       "result=\"unfinished\"", NULL };
static_assert(sizeof l_shake / sizeof *l_shake - 1 == TLS_RESULTS, "in the order of enum tls_result");
static const char *const l_one[] = { NULL };
static const char *const l_http[] = { NULL };
#define L_TIER(id, name)       "tier=\"" name "\"",
#define L_TIER_EVICT(id, name) "tier=\"" name "\",reason=\"lru\"", "tier=\"" name "\",reason=\"ttl\"",
static const char *const l_tier[] = { KV_TIER_LIST(L_TIER) NULL };
static const char *const l_below[] = { KV_BELOW_LIST(L_TIER) NULL };
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
#define L_CLAIM(id, name) "result=\"" name "\"",
static const char *const l_claim[] = { KV_CLAIM_LIST(L_CLAIM) NULL };
static const char *const l_parcel[] = { "event=\"made\"", "event=\"taken\"", "event=\"lapsed\"", "event=\"refused\"",
                                        NULL };
static const char *const l_decision[] = { "decision=\"load\"", "decision=\"compute\"", NULL };

static const struct family_def {
    enum metric_type      type;
    enum family_kind      kind;
    const char *const    *labels;
    const struct buckets *buckets;
    const char           *name, *help;
} family_def[] = {
#define DEF(id, type, kind, labels, buckets, name, help) { METRIC_##type, kind, labels, buckets, name, help },
    FAMILIES(DEF)
#undef DEF
};

static enum status http_series(struct metrics *m)
{
    uint32_t            n_route = m->routes->n;
    const struct route *rt = m->routes->row;
    m->handler_of = calloc(n_route, sizeof *m->handler_of);
    m->http_label = calloc((size_t)(n_route + 1) * N_HTTP_LABEL, sizeof *m->http_label);
    m->fam[F_HTTP].metric = calloc((size_t)(n_route + 1) * N_CLASS, sizeof(struct metric));
    m->fam[F_HTTP_TIME].metric = calloc(n_route + 1, sizeof(struct metric));
    m->fam[F_HTTP_IN].metric = calloc(n_route + 1, sizeof(struct metric));
    m->fam[F_HTTP_OUT].metric = calloc(n_route + 1, sizeof(struct metric));
    if (!m->handler_of || !m->http_label || !m->fam[F_HTTP].metric || !m->fam[F_HTTP_TIME].metric ||
        !m->fam[F_HTTP_IN].metric || !m->fam[F_HTTP_OUT].metric)
        return ST_NOMEM;
    static const char *const class_name[] = { "2xx", "4xx", "5xx" };
    for (uint32_t i = 0; i <= n_route; i++) {
        if (i && rt[i - 1].flags & ROUTE_QUIET) continue;
        uint32_t    h = m->n_handler++;
        const char *handler = i ? rt[i - 1].label : "none", *method = i ? route_method(&rt[i - 1]) : "";
        if (i) m->handler_of[i - 1] = h;
        char(*label)[120] = m->http_label + h * N_HTTP_LABEL;
        for (uint32_t k = 0; k < N_CLASS; k++) {
            snprintf(label[k], sizeof *label, "handler=\"%s\",method=\"%s\",status=\"%s\"", handler, method,
                     class_name[k]);
            m->fam[F_HTTP].metric[h * N_CLASS + k].labels = label[k];
        }
        snprintf(label[N_CLASS], sizeof *label, "handler=\"%s\",method=\"%s\"", handler, method);
        m->fam[F_HTTP_TIME].metric[h].labels = label[N_CLASS];
        snprintf(label[N_CLASS + 1], sizeof *label, "handler=\"%s\"", handler);
        m->fam[F_HTTP_IN].metric[h].labels = m->fam[F_HTTP_OUT].metric[h].labels = label[N_CLASS + 1];
    }
    m->fam[F_HTTP].n_metric = m->n_handler * N_CLASS;
    m->fam[F_HTTP_TIME].n_metric = m->fam[F_HTTP_IN].n_metric = m->fam[F_HTTP_OUT].n_metric = m->n_handler;
    return ST_OK;
}

/* gpu="3",reason="hw_thermal": for as many GPUs as may be; those that are there are printed. */
static enum status gpu_series(struct metrics *m)
{
    uint32_t n = 0, at = 0;
    for (int i = 0; i < N_FAMILY; i++) n += m->n_gpu[i] * NVML_GPUS_MAX;
    m->gpu_label = calloc(n, sizeof *m->gpu_label);
    if (!m->gpu_label) return ST_NOMEM;
    for (int i = 0; i < N_FAMILY; i++)
        for (uint32_t k = 0; k < m->n_gpu[i] * NVML_GPUS_MAX; k++, at++) {
            const char *more = family_def[i].labels[k % m->n_gpu[i]];
            snprintf(m->gpu_label[at], sizeof *m->gpu_label, "gpu=\"%u\"%s%s", k / m->n_gpu[i], more ? "," : "",
                     more ? more : "");
            m->fam[i].metric[k].labels = m->gpu_label[at];
        }
    return ST_OK;
}

enum status metrics_create(const struct routes *routes, enum old_metrics old, struct metrics **m_out)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (!m) return ST_NOMEM;
    m->routes = routes;
    enum status st = ST_OK;
    for (int i = 0; i < N_FAMILY; i++) {
        const struct family_def *d = &family_def[i];
        m->fam[i] = (struct metric_family){
            .name = d->name, .help = d->help, .type = d->type, .common_labels = d->kind != BARE && d->kind != GPU
        };
        m->shown[i] =
            d->kind <= COMMON || d->kind == GPU || (d->kind == OLD ? old != OLD_METRICS_NONE : old == OLD_METRICS_ALL);
        if (d->buckets) {
            m->fam[i].bound = d->buckets->bound;
            m->fam[i].n_bound = d->buckets->n;
        }
        if (d->labels == l_http || i == F_ITL_OLD) continue; /* the old name has the series of the new one */
        uint32_t n = 0;
        while (d->labels[n]) n++;
        m->fam[i].n_metric = n ? n : 1;
        if (d->kind == GPU) {
            m->n_gpu[i] = m->fam[i].n_metric;
            m->fam[i].n_metric *= NVML_GPUS_MAX;
        }
        m->fam[i].metric = calloc(m->fam[i].n_metric, sizeof(struct metric));
        if (!m->fam[i].metric) {
            st = ST_NOMEM;
            break;
        }
        for (uint32_t k = 0; d->kind != GPU && k < n; k++) m->fam[i].metric[k].labels = d->labels[k];
    }
    if (st == ST_OK) st = http_series(m);
    if (st == ST_OK) st = gpu_series(m);
    m->fam[F_ITL_OLD].metric = m->fam[F_ITL].metric;
    m->fam[F_ITL_OLD].n_metric = 1;
    if (st) {
        metrics_free(m);
        return st;
    }
    m->start_time = (double)clock_wall_s();
    metric_set(one(m, F_START), m->start_time);
    metrics_process(m);
    metric_set(one(m, F_BUILD), 1);
    metric_set(one(m, F_SLEEP), 1); /* awake */
    metric_set(one(m, F_CACHE_INFO), 1);
    *m_out = m;
    return ST_OK;
}

void metrics_free(struct metrics *m)
{
    if (!m) return;
    m->fam[F_ITL_OLD].metric = NULL;
    for (int i = 0; i < N_FAMILY; i++) free(m->fam[i].metric);
    free(m->handler_of);
    free(m->http_label);
    free(m->gpu_label);
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
    metric_set(one(m, F_WINDOW_BYTES), (double)l->window_bytes);
    metric_set(&m->fam[F_ARENA].metric[ARENA_WEIGHTS], (double)l->weight_bytes);
    metric_set(&m->fam[F_ARENA_USED].metric[ARENA_WEIGHTS], (double)l->weight_bytes);
    metric_set(&m->fam[F_ARENA].metric[ARENA_WORK], (double)l->work_bytes);
    metric_set(&m->fam[F_ARENA_USED].metric[ARENA_WORK], (double)l->work_bytes);
    metric_set(&m->fam[F_ARENA].metric[ARENA_KV], (double)(l->kv_bytes + l->window_bytes));
    snprintf(m->cache_info, sizeof m->cache_info, "%s", l->cache_info);
    one(m, F_CACHE_INFO)->labels = m->cache_info;
}

/* ---- writers ---- */

void metrics_first_token(struct metrics *m, uint64_t us) { observe(m, F_TTFT, (double)us / 1e6); }
void metrics_next_token(struct metrics *m, uint64_t us) { observe(m, F_ITL, (double)us / 1e6); }
void metrics_key_refused(struct metrics *m, enum metrics_key why) { metric_add(&m->fam[F_KEYS].metric[why], 1); }
void metrics_unread_dropped(struct metrics *m) { metric_add(one(m, F_UNREAD), 1); }
void metrics_paused(struct metrics *m) { metric_add(one(m, F_PAUSED), 1); }
void metrics_text(struct metrics *m, uint64_t us) { observe(m, F_TEXT_TIME, (double)us / 1e6); }
void metrics_unknown_fields(struct metrics *m, uint64_t n) { metric_add(one(m, F_UNKNOWN), n); }

/* Index into l_finish. */
static uint32_t finish_label(enum eng_finish finish)
{
    switch (finish) {
    case ENG_STOP: return 0;
    case ENG_LENGTH: return 1;
    case ENG_CANCELED: return 2;
    case ENG_UNCACHED: return 5;
    default: return 3;
    }
}

void metrics_gen_end(struct metrics *m, const struct metrics_gen *g)
{
    metric_add(&m->fam[F_SUCCESS].metric[finish_label(g->finish)], 1);
    metric_add(&m->fam[F_ENDED].metric[g->how], 1);
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

void metrics_http(struct metrics *m, const struct request *r, int status, uint64_t answer_bytes)
{
    if (r->route && r->route->flags & ROUTE_QUIET) return;
    uint32_t h = r->route ? m->handler_of[route_index(m->routes, r->route)] : 0;
    uint32_t k = status < 500 ? 1 : 2;
    if (status < 400) k = 0;
    metric_add(&m->fam[F_HTTP].metric[h * N_CLASS + k], 1);
    metric_observe(&m->fam[F_HTTP_IN], &m->fam[F_HTTP_IN].metric[h], (double)r->body_bytes);
    metric_observe(&m->fam[F_HTTP_OUT], &m->fam[F_HTTP_OUT].metric[h], (double)answer_bytes);
    if (!r->t_start_us) return;
    double s = (double)(clock_us() - r->t_start_us) / 1e6;
    metric_observe(&m->fam[F_HTTP_TIME], &m->fam[F_HTTP_TIME].metric[h], s);
    observe(m, F_HTTP_TIME_ALL, s);
}
