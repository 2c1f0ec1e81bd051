/* bench_engine: what a step costs, through the real engine: scheduler, batch, device, results; no sockets and no text.
 *   bench_engine --shape NAME (--help lists them) | --model DIR (its config.json alone is read)
 *     [--load-format dummy|auto] [--device cuda|cpu|ref] [--batch LIST] [--ctx LIST] [--prefill LIST] [--steps N]
 *       [--runs N]
 *     [--batch-tokens N] [--depth 1|2] [--threads N] [--ranks N] [--quantization NAME] [--cpu-isa NAME]
 *     [--deterministic] [--eager] [--pdl] [--wgmma] [--fp8-prefill] [--gemm-file FILE] [--json FILE] [--collectives auto|own|nccl]
 *       [--nccl-symmetric auto|on|off]
 * Decode: B sequences of ctx tokens each; the median step while all of them decode. Prefill: one prompt, from submit to
 * its first token. Host: what the engine's thread does per step besides waiting for the device, in all and over the
 * running requests. Idle: what lies between the end of a step on the device and the begin of the next, where the device
 * can tell.
 * must and good: tools/bench/bench_goals.h; on a GPU the goals' own table comes last. Medians; random weights and ids,
 * greedy sampling. Over 500 lines: one program: decode and prefill share the engine, its runner and the results. */
#include "bench_goals.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/rank.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_MAX = 16, STEPS_MAX = 4096, RUNS_MAX = 64, WARM = 8, ROWS_DEFAULT = 4096 };

struct list_u32 {
    uint32_t v[LIST_MAX], n;
};
struct opts {
    const char        *shape, *model, *gemm_file, *json, *isa;
    struct dev_quant   quant;
    bool               quant_head;
    bool               dummy, deterministic, eager, pdl, wgmma, fp8_prefill, kv8;
    enum dev_comm      comm;
    enum dev_symmetric symmetric;
    enum dev_kind      device;
    struct list_u32    batch, ctx, prefill;
    uint32_t           steps, runs, batch_tokens, depth, threads, ranks;
};

struct bench {
    struct opts       o;
    struct source     src;
    struct model_spec spec;
    struct rank_team *team;
    struct eng_runner inner;
    uint32_t          n_block, seqs_max;
    double            submit_s, wait_s; /* within the runner, of the steps that are measured */
    struct goal_how   how;
    double            scale;          /* goals_scale */
    double            reached[GOALS]; /* NAN: not measured */
    FILE             *json;
    bool              json_more;
};

static FILE *table; /* for people; stdout unless the JSON goes there */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* CPU time of the whole process: what a busy machine does not stretch. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int double_order(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

static const struct goal *decode_goal(const struct bench *b, uint32_t batch, uint32_t ctx)
{
    for (int i = 0; i < GOAL_DECODES; i++) {
        const struct goal *g = &bench_goals[i];
        if (g->batch == batch && g->ctx == ctx && goal_measures(g, &b->how)) return g;
    }
    return NULL;
}
static const struct goal *prefill_goal(const struct bench *b, uint32_t prompt)
{
    for (int i = GOAL_PREFILL; i <= GOAL_PREFILL_FP8; i++)
        if (bench_goals[i].ctx == prompt && goal_measures(&bench_goals[i], &b->how)) return &bench_goals[i];
    return NULL;
}
/* Notes what was measured of a goal, once, where this run is one for it. */
static void reached(struct bench *b, int goal, double v)
{
    if (goal_measures(&bench_goals[goal], &b->how) && isnan(b->reached[goal])) b->reached[goal] = v;
}
static void goal_text(const struct bench *b, const struct goal *g, char *text, size_t bytes)
{
    if (b->scale > 0 && g)
        snprintf(text, bytes, "%8.2f %8.2f", goal_of(g, g->must, b->scale), goal_of(g, g->good, b->scale));
    else
        snprintf(text, bytes, "%8s %8s", "-", "-");
}

/* ---------------------------------------------------------------- the runner, with a watch */

static void watch_submit(void *ctx, struct batch *batch)
{
    struct bench *b = ctx;
    double        t = now_s();
    b->inner.submit(b->inner.ctx, batch);
    b->submit_s += now_s() - t;
}

static enum status watch_wait(void *ctx, struct batch *batch)
{
    struct bench *b = ctx;
    double        t = now_s();
    enum status   st = b->inner.wait(b->inner.ctx, batch);
    b->wait_s += now_s() - t;
    return st;
}

/* ---------------------------------------------------------------- one case: n requests on an engine of its own */

struct job {
    struct engine      *e;
    struct ring         outbox;
    uint32_t            n, n_prompt, n_max, *prompt, *id;
    struct eng_request *r;
    struct eng_choice  *c;
};

static struct eng_cfg engine_cfg(const struct bench *b, uint32_t n, uint32_t context)
{
    return (struct eng_cfg){ .seqs_max = n,
                             .batch_tokens_max = b->o.batch_tokens,
                             .queue_requests_max = n,
                             .context_max = context,
                             .vocab = b->spec.vocab,
                             .n_block = b->n_block,
                             .block_tokens = 16,
                             .prefix_cache = false,
                             .eos_id = b->spec.eos_id,
                             .n_eos = b->spec.n_eos };
}

static void job_close(struct job *j)
{
    if (j->e) {
        bool worked;
        for (uint32_t i = 0; i < j->n; i++) eng_cancel(j->e, &j->r[i]);
        for (int i = 0; i < 1000 && !eng_idle(j->e); i++) {
            eng_step(j->e, clock_us(), &worked);
            while (ring_pop(&j->outbox)) {}
        }
        eng_free(j->e);
        ring_free(&j->outbox);
    }
    free(j->prompt);
    free(j->id);
    free(j->r);
    free(j->c);
}

static bool job_open(struct bench *b, struct job *j, uint32_t n, uint32_t n_prompt, uint32_t n_max)
{
    struct eng_cfg    cfg = engine_cfg(b, n, n_prompt + n_max);
    struct eng_runner run = { .ctx = b, .submit = watch_submit, .wait = watch_wait, .depth = b->inner.depth };
    *j = (struct job){ .n = n, .n_prompt = n_prompt, .n_max = n_max };
    j->prompt = malloc((size_t)n * n_prompt * sizeof *j->prompt);
    j->id = malloc((size_t)n * n_max * sizeof *j->id);
    j->r = calloc(n, sizeof *j->r);
    j->c = calloc(n, sizeof *j->c);
    if (!j->prompt || !j->id || !j->r || !j->c || ring_init(&j->outbox, 2 * n + 2)) return false;
    if (eng_create(&cfg, &run, &j->e)) {
        ring_free(&j->outbox);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t p = 0; p < n_prompt; p++)
            j->prompt[(size_t)i * n_prompt + p] = rng_philox(3, i, p).x[0] % b->spec.vocab;
        j->c[i].id = j->id + (size_t)i * n_max;
        j->r[i] = (struct eng_request){
            .id = i,
            .prompt = j->prompt + (size_t)i * n_prompt,
            .n_prompt = n_prompt,
            .s = { .top_p = 1, .repetition = 1, .max_tokens = n_max, .ignore_eos = true, .seed = 1 },
            .n_choice = 1,
            .choice = &j->c[i],
            .outbox = &j->outbox
        };
        enum status st = eng_submit(j->e, &j->r[i]);
        if (st) {
            fprintf(stderr, "bench_engine: a request of %u + %u tokens is refused: %s\n", n_prompt, n_max,
                    status_name(st));
            return false;
        }
    }
    return true;
}

/* One step, and what clients would have read of it. False: nothing was done, or the engine is lost. */
static bool job_step(struct job *j)
{
    bool worked;
    if (eng_step(j->e, clock_us(), &worked)) return false;
    for (void *m; (m = ring_pop(&j->outbox));) atomic_store(&eng_msg_request(m)->notified, false);
    return worked;
}

static uint32_t job_out(const struct job *j, uint32_t i)
{
    return atomic_load_explicit(&j->c[i].n_out, memory_order_acquire);
}

static bool all_decode(const struct job *j)
{
    for (uint32_t i = 0; i < j->n; i++)
        if (!job_out(j, i)) return false;
    return true;
}

/* ---------------------------------------------------------------- decode */

struct decode {
    double step_ms, cpu_ms, host_us, submit_us, idle_us, busy_us; /* idle, busy: NAN where the device cannot tell */
};

/* 0: measured; 1: does not fit the KV pool; 2: failed */
static int decode_run(struct bench *b, uint32_t n, uint32_t ctx, struct decode *out)
{
    uint32_t steps = b->o.steps, prompt = ctx > steps / 2 + 1 ? ctx - steps / 2 : 1;
    /* the first sequences decode while the last ones' prompts are still being computed */
    uint64_t prefill = ((uint64_t)n * prompt + b->o.batch_tokens - 1) / b->o.batch_tokens + n / 8 + 8;
    uint32_t n_max = (uint32_t)prefill + WARM + steps + 16;
    uint64_t blocks = (uint64_t)n * ((prompt + n_max + 15) / 16 + 1);
    if (blocks > b->n_block || prompt + n_max > b->spec.context) return 1;
    struct job       j;
    struct dev_times times;
    double           t[STEPS_MAX];
    int              result = 2;
    struct device   *d = rank_team_device(b->team);
    if (!job_open(b, &j, n, prompt, n_max)) goto out;
    for (uint64_t i = 0; !all_decode(&j); i++)
        if (!job_step(&j) || i > 100 * prefill + 1000) goto out;
    for (int i = 0; i < WARM; i++)
        if (!job_step(&j)) goto out;
    bool timed = dev_step_times(d, &times);
    b->submit_s = b->wait_s = 0;
    double begin = now_s(), cpu = cpu_s();
    for (uint32_t i = 0; i < steps; i++) {
        double t0 = now_s();
        if (!job_step(&j)) goto out;
        t[i] = now_s() - t0;
    }
    double all = now_s() - begin;
    cpu = cpu_s() - cpu;
    timed = timed && dev_step_times(d, &times) && times.n_step;
    qsort(t, steps, sizeof *t, double_order);
    /* a device that does not work by itself computes within submit: that is no host work */
    *out = (struct decode){ .step_ms = t[steps / 2] * 1e3,
                            .cpu_ms = cpu * 1e3 / steps,
                            .host_us = (all - b->wait_s - (d->async ? 0 : b->submit_s)) * 1e6 / steps,
                            .submit_us = b->submit_s * 1e6 / steps,
                            .idle_us = timed ? times.idle_us / (double)times.n_step : (double)NAN,
                            .busy_us = timed ? times.busy_us / (double)times.n_step : (double)NAN };
    result = 0;
out:
    job_close(&j);
    return result;
}

static void json_number(struct bench *b, const char *name, double v)
{
    if (isnan(v))
        fprintf(b->json, ", \"%s\": null", name);
    else
        fprintf(b->json, ", \"%s\": %.6g", name, v);
}

static void number(char *text, size_t bytes, double v)
{
    isnan(v) ? snprintf(text, bytes, "-") : snprintf(text, bytes, "%.1f", v);
}

static bool decode_case(struct bench *b, uint32_t n, uint32_t ctx)
{
    struct decode      r;
    char               goal[40], idle[16], busy[16];
    const struct goal *g = decode_goal(b, n, ctx);
    int                how = decode_run(b, n, ctx, &r);
    if (how) {
        fprintf(table, "%6u %7u   %s\n", n, ctx, how == 1 ? "does not fit the KV pool or the context" : "FAILED");
        return how == 1;
    }
    if (g) b->reached[g - bench_goals] = r.step_ms;
    if (n == bench_goals[GOAL_IDLE].batch) reached(b, GOAL_IDLE, r.idle_us); /* the shortest context */
    if (n == bench_goals[GOAL_HOST].batch) reached(b, GOAL_HOST, r.host_us / n);
    goal_text(b, g, goal, sizeof goal);
    number(idle, sizeof idle, r.idle_us);
    number(busy, sizeof busy, r.busy_us * 1e-3);
    fprintf(table, "%6u %7u %9.3f %s %10.0f %9.1f %9.2f %9.1f %9s %9s\n", n, ctx, r.step_ms, goal, n / r.step_ms * 1e3,
            r.host_us, r.host_us / n, r.submit_us, idle, busy);
    fflush(table);
    if (b->json) {
        fprintf(b->json, "%s\n  {\"kind\": \"decode\", \"batch\": %u, \"ctx\": %u", b->json_more ? "," : "", n, ctx);
        json_number(b, "step_ms", r.step_ms);
        json_number(b, "tok_s", n / r.step_ms * 1e3);
        json_number(b, "cpu_ms", r.cpu_ms);
        json_number(b, "host_us", r.host_us);
        json_number(b, "submit_us", r.submit_us);
        json_number(b, "idle_us", r.idle_us);
        json_number(b, "device_ms", r.busy_us * 1e-3);
        json_number(b, "must_ms", g && b->scale > 0 ? goal_of(g, g->must, b->scale) : (double)NAN);
        json_number(b, "good_ms", g && b->scale > 0 ? goal_of(g, g->good, b->scale) : (double)NAN);
        fprintf(b->json, "}");
        b->json_more = true;
    }
    return true;
}

/* ---------------------------------------------------------------- prefill */

static bool prefill_case(struct bench *b, uint32_t prompt)
{
    double   t[RUNS_MAX], cpu = 0;
    uint32_t runs = b->o.runs;
    char     goal[40];
    if (prompt + 4 > b->spec.context || (prompt + 4 + 15) / 16 + 2 > b->n_block) {
        fprintf(table, "%14u   does not fit the KV pool or the context\n", prompt);
        return true;
    }
    for (uint32_t run = 0; run <= runs; run++) { /* the first is to warm up */
        struct job j;
        bool       ok = job_open(b, &j, 1, prompt, 2);
        double     begin = now_s(), cpu0 = cpu_s();
        while (ok && !all_decode(&j)) ok = job_step(&j);
        if (run) {
            t[run - 1] = now_s() - begin;
            cpu += cpu_s() - cpu0;
        }
        job_close(&j);
        if (!ok) {
            fprintf(table, "%14u   FAILED\n", prompt);
            return false;
        }
    }
    qsort(t, runs, sizeof *t, double_order);
    double             s = t[runs / 2];
    const struct goal *g = prefill_goal(b, prompt);
    if (g) b->reached[g - bench_goals] = prompt / s;
    goal_text(b, g, goal, sizeof goal);
    fprintf(table, "%14u %9.2f %10.0f %s\n", prompt, s * 1e3, prompt / s, goal);
    fflush(table);
    if (b->json) {
        fprintf(b->json, "%s\n  {\"kind\": \"prefill\", \"tokens\": %u", b->json_more ? "," : "", prompt);
        json_number(b, "ms", s * 1e3);
        json_number(b, "tok_s", prompt / s);
        json_number(b, "cpu_ms", cpu * 1e3 / runs);
        fprintf(b->json, "}");
        b->json_more = true;
    }
    return true;
}

/* ---------------------------------------------------------------- options, loading */

static bool list_parse(const char *s, struct list_u32 *out)
{
    *out = (struct list_u32){ .n = 0 };
    for (char *end; *s; s = *end ? end + 1 : end) {
        unsigned long v = strtoul(s, &end, 10);
        if (end == s || (*end && *end != ',') || !v || v > UINT32_MAX || out->n == LIST_MAX) return false;
        out->v[out->n++] = (uint32_t)v;
    }
    return true; /* "": none of it */
}

static const char usage[] =
    "bench_engine --shape NAME | --model DIR  [--load-format dummy|auto] [--device cuda|cpu|ref] [--batch LIST] [--ctx LIST]\n"
    "  [--prefill LIST] [--steps N] [--runs N] [--batch-tokens N] [--depth 1|2] [--threads N] [--ranks N] [--deterministic]\n"
    "  [--eager] [--pdl] [--wgmma] [--fp8-prefill] [--gemm-file FILE] [--json FILE] [--collectives auto|own|nccl] [--nccl-symmetric auto|on|off]\n"
    "  [--kv-cache-dtype bfloat16|fp8]\n";

static enum dev_comm comm_named(const char *name)
{
    if (!strcmp(name, "nccl")) return DEV_COMM_NCCL;
    return !strcmp(name, "own") ? DEV_COMM_OWN : DEV_COMM_AUTO;
}

static enum dev_symmetric symmetric_named(const char *name)
{
    if (!strcmp(name, "on")) return DEV_SYMMETRIC_ON;
    return !strcmp(name, "off") ? DEV_SYMMETRIC_OFF : DEV_SYMMETRIC_AUTO;
}

static bool opts_parse(struct opts *o, int argc, char **argv)
{
    *o = (struct opts){ .dummy = true, .device = DEV_AUTO, .steps = 64, .runs = 5, .ranks = 1 };
    list_parse("1,32,128,256", &o->batch);
    list_parse("1024,8192", &o->ctx);
    list_parse("512,2048,4096,8192", &o->prefill);
    bool lists = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        bool        ok = true, word = true;
        if (!strcmp(a, "--deterministic")) {
            o->deterministic = true;
            word = false;
        } else if (!strcmp(a, "--eager")) {
            o->eager = true;
            word = false;
        } else if (!strcmp(a, "--pdl")) {
            o->pdl = true;
            word = false;
        } else if (!strcmp(a, "--wgmma")) {
            o->wgmma = true;
            word = false;
        } else if (!strcmp(a, "--fp8-prefill")) {
            o->fp8_prefill = true;
            word = false;
        } else if (!strcmp(a, "--shape"))
            o->shape = v;
        else if (!strcmp(a, "--model"))
            o->model = v;
        else if (!strcmp(a, "--load-format"))
            o->dummy = strcmp(v, "auto") != 0;
        else if (!strcmp(a, "--device")) {
            if (!strcmp(v, "cuda"))
                o->device = DEV_CUDA;
            else if (!strcmp(v, "cpu"))
                o->device = DEV_CPU;
            else if (!strcmp(v, "ref"))
                o->device = DEV_REF;
            else
                ok = false;
        } else if (!strcmp(a, "--batch")) {
            ok = list_parse(v, &o->batch);
            lists = true;
        } else if (!strcmp(a, "--ctx")) {
            ok = list_parse(v, &o->ctx);
            lists = true;
        } else if (!strcmp(a, "--prefill")) {
            ok = list_parse(v, &o->prefill);
            lists = true;
        } else if (!strcmp(a, "--steps"))
            o->steps = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--runs"))
            o->runs = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--batch-tokens"))
            o->batch_tokens = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--depth"))
            o->depth = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--threads"))
            o->threads = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--collectives"))
            o->comm = comm_named(v);
        else if (!strcmp(a, "--nccl-symmetric"))
            o->symmetric = symmetric_named(v);
        else if (!strcmp(a, "--ranks"))
            o->ranks = (uint32_t)strtoul(v, NULL, 10);
        else if (!strcmp(a, "--quantization"))
            ok = model_quant_named(v, &o->quant, &o->quant_head);
        else if (!strcmp(a, "--kv-cache-dtype")) {
            o->kv8 = !strcmp(v, "fp8");
            ok = o->kv8 || !strcmp(v, "bfloat16");
        } else if (!strcmp(a, "--cpu-isa"))
            o->isa = v;
        else if (!strcmp(a, "--gemm-file"))
            o->gemm_file = v;
        else if (!strcmp(a, "--json"))
            o->json = v;
        else
            ok = false;
        if (!ok) return false;
        i += word;
    }
    if (o->shape && !strcmp(o->shape, "tiny") && !lists) {
        list_parse("1,3,8", &o->batch);
        list_parse("40,200", &o->ctx);
        list_parse("64,200", &o->prefill);
        if (o->steps > 8) o->steps = 8;
    }
    if (!o->batch_tokens) o->batch_tokens = o->shape && !strcmp(o->shape, "tiny") ? 64 : ROWS_DEFAULT;
    return (o->shape != NULL) != (o->model != NULL) && o->steps >= 1 && o->steps <= STEPS_MAX && o->runs >= 1 &&
           o->runs <= RUNS_MAX && o->depth <= ENG_DEPTH_MAX && o->ranks;
}

static void progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rfilling %3" PRIu64 " %%%s", total ? done * 100 / total : 100, done == total ? "\n" : "");
}

static uint32_t list_max(const struct list_u32 *l)
{
    uint32_t m = 1;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] > m) m = l->v[i];
    return m;
}

/* Blocks that the largest case needs; a GPU gives what it has, host memory must be told. */
static uint64_t host_kv_blocks(const struct bench *b)
{
    uint64_t most = (list_max(&b->o.prefill) + 64) / 16 + 4;
    for (uint32_t i = 0; i < b->o.batch.n; i++)
        for (uint32_t c = 0; c < b->o.ctx.n; c++) {
            uint64_t n = b->o.batch.v[i], steps = n * b->o.ctx.v[c] / b->o.batch_tokens + n / 8 + b->o.steps + 64;
            uint64_t need = n * ((b->o.ctx.v[c] + steps) / 16 + 2);
            if (need > most) most = need;
        }
    return most;
}

static bool load(struct bench *b)
{
    char err[600];
    if (b->o.shape && !model_shape(b->o.shape, &b->src)) {
        fprintf(stderr, "bench_engine: no shape %s; there are %s\n", b->o.shape, model_shape_names());
        return false;
    }
    if (b->o.model) b->src = (struct source){ .dir = b->o.model, .dummy = b->o.dummy };
    if (model_spec_load(&b->src, &b->spec, err, sizeof err)) {
        fprintf(stderr, "bench_engine: %s\n", err);
        return false;
    }
    b->seqs_max = list_max(&b->o.batch);
    struct eng_cfg  ec = engine_cfg(b, b->seqs_max, b->spec.context);
    struct rank_cfg rc = { .n_rank = b->o.ranks,
                           .device = b->o.device,
                           .n_thread = b->o.threads,
                           .simd = b->o.isa,
                           .depth = b->o.depth,
                           .deterministic = b->o.deterministic,
                           .comm = b->o.comm,
                           .symmetric = b->o.symmetric,
                           .eager = b->o.eager,
                           .pdl = b->o.pdl,
                           .wgmma = b->o.wgmma,
                           .fp8_prefill = b->o.fp8_prefill,
                           .gemm_file = b->o.gemm_file,
                           .load = { .weight_dtype = DT_COUNT,
                                     .quant = b->o.quant,
                                     .quant_head = b->o.quant_head,
                                     .kv_dtype = b->o.kv8 ? DT_F8E4M3 : DT_BF16,
                                     .batch_rows_max = b->o.batch_tokens,
                                     .logit_rows_max = b->seqs_max,
                                     .block_tokens = 16,
                                     .n_thread = b->o.threads,
                                     .progress = progress } };
    /* page tables of every sequence as long as they get, not as the context allows */
    ec.context_max = list_max(&b->o.ctx) + b->o.steps + 4096 < ec.context_max ? list_max(&b->o.ctx) + b->o.steps + 4096
                                                                              : ec.context_max;
    rc.load.step = eng_batch_cfg(&ec);
    if (b->o.device != DEV_CUDA) rc.load.n_block = (uint32_t)host_kv_blocks(b);
    double begin = now_s();
    if (rank_team_create(&b->spec, &b->src, &rc, &b->n_block, &b->team, err, sizeof err)) {
        fprintf(stderr, "bench_engine: %s\n", err);
        return false;
    }
    b->inner = rank_team_runner(b->team);
    fprintf(table, "ready in %.1f s: weights %.2f GB, %u KV blocks of 16 tokens, %u step%s in flight\n",
            now_s() - begin, (double)rank_team_weight_bytes(b->team) * 1e-9, b->n_block,
            b->inner.depth ? b->inner.depth : 1, b->inner.depth > 1 ? "s" : "");
    return true;
}

static void goals_for(struct bench *b)
{
    struct dev_info info;
    char            why[200];
    const char     *name = rank_team_device(b->team)->ops->name;
    if (!strncmp(name, "cuda", 4) && dev_list(&info, 1, why, sizeof why)) {
        fprintf(table, "%s on %s, sm_%d, %u SMs, %.0f GB\n", b->o.shape ? b->o.shape : b->o.model, info.name, info.arch,
                info.n_sm, (double)info.total_bytes * 1e-9);
        b->scale = goals_scale(info.name, b->o.shape);
        if (b->json) fprintf(b->json, "{\"device\": \"%s\", ", info.name);
    } else {
        fprintf(table, "%s on %s\n", b->o.shape ? b->o.shape : b->o.model, name);
        if (b->json) fprintf(b->json, "{\"device\": \"%s\", ", name);
    }
    if (b->json)
        fprintf(b->json, "\"shape\": \"%s\", \"steps\": %u, \"batch_tokens\": %u, \"rows\": [",
                b->o.shape ? b->o.shape : b->o.model, b->o.steps, b->o.batch_tokens);
}

int main(int argc, char **argv)
{
    static struct bench b;
    if (!opts_parse(&b.o, argc, argv)) {
        fprintf(stderr, "%sshapes: %s\n", usage, model_shape_names());
        return EXIT_USAGE;
    }
    log_init(LOG_LEVEL_WARN, STDERR_FILENO, false);
    if (b.o.json && !(b.json = strcmp(b.o.json, "-") ? fopen(b.o.json, "we") : stdout)) {
        fprintf(stderr, "bench_engine: cannot write %s\n", b.o.json);
        return EXIT_IO;
    }
    table = b.json == stdout ? stderr : stdout;
    for (int i = 0; i < GOALS; i++) b.reached[i] = (double)NAN;
    if (!load(&b)) return EXIT_CONFIG;
    b.how = (struct goal_how){
        .codes = b.o.quant.code, .kv8 = b.o.kv8, .same = b.o.deterministic, .experts = b.spec.n_expert > 0
    };
    goals_for(&b);
    bool ok = true;
    if (b.o.batch.n && b.o.ctx.n)
        fprintf(table, "\n%6s %7s %9s %8s %8s %10s %9s %9s %9s %9s %9s\n", "batch", "ctx", "step ms", "must", "good",
                "tok/s", "host us", "us/req", "submit us", "idle us", "device ms");
    for (uint32_t c = 0; c < b.o.ctx.n; c++)
        for (uint32_t i = 0; i < b.o.batch.n; i++) ok = decode_case(&b, b.o.batch.v[i], b.o.ctx.v[c]) && ok;
    if (b.o.prefill.n) fprintf(table, "\n%14s %9s %10s %8s %8s\n", "prefill tokens", "ms", "tok/s", "must", "good");
    for (uint32_t i = 0; i < b.o.prefill.n; i++) ok = prefill_case(&b, b.o.prefill.v[i]) && ok;
    if (!strncmp(rank_team_device(b.team)->ops->name, "cuda", 4)) {
        goals_title(table);
        for (int i = 0; i < GOAL_ATTENTION; i++) /* the others are bench_ops' */
            if (goal_measures(&bench_goals[i], &b.how)) goal_print(table, &bench_goals[i], b.reached[i], b.scale);
    }
    if (b.json) {
        fprintf(b.json, "\n]}\n");
        if (b.json != stdout) fclose(b.json);
    }
    rank_team_free(b.team);
    model_spec_free(&b.spec);
    return ok ? 0 : EXIT_SOFTWARE;
}
