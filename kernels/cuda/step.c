/* cuda: steps. What the host wrote goes to the device in one copy, what the device found comes back in one; decode
 * steps are graphs.
 *
 * In: all arrays of a step are packed into one slab, fixed part first. Where an array lies follows from the step's
 * shape alone (for a decode step: from its bucket), so that a graph, in which addresses are baked, finds it again.
 * Behind it lies the pool: page tables and the lists of sampling, as long as they happen to be; they are found by the
 * starts in the fixed part, which count from the pool's begin. The device has one slab: work runs in order, so a step's
 * copy begins when the step before has read its own. The host has one per step in flight. Out: the same, most wanted
 * first, so that the copy back ends where nobody wants more.
 *
 * Graphs. A step in which every sequence has one row, which is sampled, is padded to the next bucket; so its bits do
 * not depend on whether it is replayed. The first one of a bucket runs as it is (modules are loaded lazily, which
 * capturing does not like), the second is recorded, the others are replayed. A bucket has a second graph for steps with
 * adapters, so that steps without launch nothing for them. The engine runs two of each before its first request. If one
 * cannot be captured, none is tried again.
 *
 * A launch that is refused while the context lives (open, skip, again). Nothing behind it is launched, so what did run
 * has read and written only what a second run reads and writes the same. Except ids: those drawn by the step before lie
 * where this step's own draws go, so patches that have run are not run a second time. A step that fails twice leaves
 * ids of 0 behind: the step after it may name them. */
#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/step.h"
#include <stdlib.h>
#include <string.h>

static const uint32_t buckets[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512 };
enum { BUCKETS = sizeof buckets / sizeof buckets[0], ALIGN = 256 };
_Static_assert((int)BUCKETS <= (int)DEV_GRAPHS_MAX, "dev_graphs has room for every bucket");

struct graph {
    bool            warm; /* has run once without */
    cudaGraphExec_t exec; /* NULL: not yet recorded */
};
struct slot { /* of a step in flight: pinned */
    char            *in, *out;
    cudaEvent_t      done;
    struct cuda_back back;
    bool             failed; /* ST_STEP */
};
struct cuda_step {
    struct slot            slot[DEV_STEPS_MAX];
    bool                   pinned, first;
    uint64_t               begun, waited;
    size_t                 in_bytes, out_bytes;
    char                  *in, *out;                      /* on the device */
    uint32_t              *len;                           /* [cuda_attn_runs_max] scratch of the plan */
    uint32_t               cap;                           /* most rows of a decode step that is padded */
    struct graph           graph[BUCKETS][2], *recording; /* of steps without adapters, and with */
    bool                   broken;                        /* what is being recorded cannot be used */
    bool                   open;                          /* between begin and end of a step that may be run again */
    bool                   again;                         /* it is being run again                                  */
    bool                   patched;                       /* its first run has patched the ids                      */
    bool                   no_graphs;
    uint64_t               graph_bytes; /* that the device had less after graphs were made */
    struct cuda_attn_split split;
};

/* ---------------------------------------------------------------- what is reserved */

static size_t up(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static struct cuda_attn_split split_of(const struct cuda_dev *d, const struct dev_limits *lim)
{
    return lim->n_kv_head ? cuda_attn_split(d, lim->n_head, lim->n_kv_head, lim->head_dim)
                          : (struct cuda_attn_split){ .n_unit = 0 };
}

struct sizes {
    size_t   in, out, work, partial, arrived;
    uint32_t n_part;
};
static struct sizes sizes_of(const struct cuda_dev *d, const struct dev_limits *lim)
{
    struct cuda_attn_split s = split_of(d, lim);
    uint32_t               runs = s.n_unit ? cuda_attn_runs_max(lim->rows_max, lim->seqs_max) : 0;
    uint32_t               parts = s.n_unit ? cuda_attn_parts(&s, lim->seqs_max) : 0;
    struct cuda_shape      all = { .n = cuda_step_most(lim),
                                   .tiles = cuda_attn_tiles_max(lim->rows_max, lim->seqs_max),
                                   .items = runs ? cuda_attn_items_max(&s, runs) : 0,
                                   .runs = runs,
                                   .trees = true };
    uint64_t moe = lim->n_expert ? cuda_moe_work_bytes(d, lim) : 0, sample = cuda_sample_work_bytes(d, lim);
    return (struct sizes){
        .in = up(cuda_step_place(&all).pool + cuda_pool_bytes(&all.n)),
        .out = up(cuda_back_place(&all.n).end),
        .work = up((size_t)(moe > sample ? moe : sample)), /* a step is done with the one before it needs the other */
        .partial = up((size_t)parts * lim->n_head * cuda_attn_part(lim->head_dim) * sizeof(float)),
        .arrived = up(((size_t)2 * runs * lim->n_head + 1) * sizeof(uint32_t)), /* the last one is moe's */
        .n_part = parts
    };
}

uint64_t cuda_step_bytes(const struct device *dev, const struct dev_limits *lim)
{
    struct sizes z = sizes_of((const struct cuda_dev *)dev, lim);
    return z.in + z.out + z.work + z.partial + z.arrived;
}

/* Pinned, or ordinary where the system does not let us pin: then copies are slower and the host waits for them. */
static char *host_slab(struct cuda_step *s, size_t bytes)
{
    void *p = NULL;
    if (s->pinned) {
        cudaError_t e = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
        return e == cudaSuccess ? p : ((void)cudaGetLastError(), NULL);
    }
    return malloc(bytes);
}

static void host_slab_free(const struct cuda_step *s, char *p)
{
    if (p && s->pinned) (void)cudaFreeHost(p);
    if (!s->pinned) free(p);
}

static bool host_slabs(struct cuda_step *s)
{
    bool ok = true;
    for (int i = 0; i < DEV_STEPS_MAX && ok; i++)
        ok = (s->slot[i].in = host_slab(s, s->in_bytes)) && (s->slot[i].out = host_slab(s, s->out_bytes));
    for (int i = 0; i < DEV_STEPS_MAX && !ok; i++) {
        host_slab_free(s, s->slot[i].in);
        host_slab_free(s, s->slot[i].out);
        s->slot[i].in = s->slot[i].out = NULL;
    }
    return ok;
}

void cuda_attn_prepare(struct cuda_dev *d, uint32_t head_dim)
{
    uint32_t n = cuda_attn_resident(d, head_dim), planned = cuda_attn_warps(d->arch, head_dim);
    d->attn_warps = n < planned ? n : 0;
    if (d->attn_warps)
        LOG_WARN(
            "dev: gpu %d: an SM runs %u blocks of decode attention at a time where %u were planned, attention is slower",
            d->ordinal, n, planned);
}

enum status cuda_step_init(struct device *dev, const struct dev_limits *lim)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(!d->step);
    cuda_bind(d);
    if (lim->n_kv_head) cuda_attn_prepare(d, lim->head_dim);
    struct cuda_step *s = calloc(1, sizeof *s);
    struct sizes      z = sizes_of(d, lim);
    void             *in, *out, *work, *partial, *arrived;
    uint32_t          runs = cuda_attn_runs_max(lim->rows_max, lim->seqs_max);
    if (!s || !(s->len = calloc((size_t)runs + 1, sizeof *s->len))) {
        free(s);
        LOG_ERROR("dev: no memory for steps");
        return ST_NOMEM;
    }
    cuda_bind(d);
    d->lim = *lim;
    s->split = split_of(d, lim);
    s->cap = lim->rows_max < lim->seqs_max ? lim->rows_max : lim->seqs_max;
    if (s->cap > lim->logit_rows_max) s->cap = lim->logit_rows_max;
    s->in_bytes = z.in;
    s->out_bytes = z.out;
    s->no_graphs = d->eager;
    s->first = s->pinned = true;
    enum status st;
    if ((st = cuda_alloc(dev, z.in, &in)) || (st = cuda_alloc(dev, z.out, &out)) ||
        (st = cuda_alloc(dev, z.work, &work)) || (st = cuda_alloc(dev, z.partial, &partial)) ||
        (st = cuda_alloc(dev, z.arrived, &arrived)))
        goto fail;
    s->in = in;
    s->out = out;
    d->work = work;
    d->work_bytes = z.work;
    d->attn = (struct cuda_attn_plan){ .partial = partial, .n_part = z.n_part, .arrived = arrived };
    d->moe_arrived = d->attn.arrived + z.arrived / sizeof(uint32_t) - 1;
    if (!host_slabs(s)) {
        LOG_WARN("dev: gpu %d: %zu MiB cannot be pinned for steps (ulimit -l?), each will wait for its copies",
                 d->ordinal, DEV_STEPS_MAX * (z.in + z.out) >> 20);
        s->pinned = false;
        if (!host_slabs(s)) {
            LOG_ERROR("dev: no memory for steps");
            st = ST_NOMEM;
            goto fail;
        }
    }
    for (int i = 0; i < DEV_STEPS_MAX; i++)
        if (!cuda_ok(d, cudaEventCreateWithFlags(&s->slot[i].done, cudaEventDisableTiming), "an event")) {
            st = ST_DEVICE;
            goto fail;
        }
    d->step = s;
    return ST_OK;
fail:
    d->step = s;
    cuda_step_free(d);
    return st;
}

void cuda_step_free(struct cuda_dev *d)
{
    struct cuda_step *s = d->step;
    if (!s) return;
    d->step = NULL;
    for (int i = 0; i < BUCKETS; i++)
        for (int adapted = 0; adapted < 2; adapted++)
            if (s->graph[i][adapted].exec) (void)cudaGraphExecDestroy(s->graph[i][adapted].exec);
    for (int i = 0; i < DEV_STEPS_MAX; i++) {
        if (s->slot[i].done) (void)cudaEventDestroy(s->slot[i].done);
        host_slab_free(s, s->slot[i].in);
        host_slab_free(s, s->slot[i].out);
    }
    free(s->len);
    free(s);
}

/* ---------------------------------------------------------------- graphs */

/* The rows of a bucket: the last one ends where steps do. */
static uint32_t rows_of(const struct cuda_step *s, uint32_t bucket)
{
    return buckets[bucket] < s->cap ? buckets[bucket] : s->cap;
}

/* The bucket of a decode step; BUCKETS: it is none, or too large. */
static uint32_t bucket_of(const struct cuda_step *s, const struct dev_step *h)
{
    uint32_t n = h->b.n_row;
    if (s->no_graphs || n == 0 || n > s->cap || h->b.tree || h->b.n_seq != n || h->n_logit != n || h->n_sample != n ||
        h->n_lp)
        return BUCKETS;
    for (uint32_t i = 0; i < n; i++)
        if (h->b.row_start[i + 1] != i + 1 || h->logit_row[i] != i) return BUCKETS;
    uint32_t i = 0;
    while (i < BUCKETS && buckets[i] < n) i++;
    return i;
}

static bool has_adapters(const struct dev_step *h)
{
    bool any = false;
    for (uint32_t i = 0; i < h->b.n_row; i++) any = any || h->b.adapter[i];
    return any;
}

bool cuda_step_excuse(struct cuda_dev *d)
{
    if (!d->step->recording) return false;
    d->step->broken = true;
    return true;
}

bool cuda_step_fault(struct cuda_dev *d, cudaError_t e, const char *what)
{
    struct cuda_step *s = d->step;
    if (!s->open || d->lost) return false;
    cudaError_t now = cudaStreamQuery(d->stream); /* an error that sticks comes back from every call */
    (void)cudaGetLastError();
    if (now != cudaSuccess && now != cudaErrorNotReady) return false;
    if (!d->skip)
        LOG_WARN("dev: gpu %d: %s in %s: %s; %s", d->ordinal, cudaGetErrorName(e), what, cuda_meaning(e),
                 s->again ? "again, the requests of this step end with an error" : "the step is run once more");
    d->skip = true;
    return true;
}

bool cuda_relaunch(const struct cuda_dev *d)
{
    cudaError_t e = cudaGetLastError();
    if (d->lost || cudaGetLastError() != cudaSuccess) return false; /* it sticks */
    LOG_WARN("dev: gpu %d: %s in a launch: %s; it is launched once more", d->ordinal, cudaGetErrorName(e),
             cuda_meaning(e));
    return true;
}

static void give_graphs_up(struct cuda_dev *d, cudaError_t e, const char *what)
{
    struct cuda_step *s = d->step;
    (void)cudaGetLastError();
    s->recording = NULL;
    s->no_graphs = true;
    LOG_WARN(
        "dev: gpu %d: a step cannot be captured as a graph: %s (%s); steps run without graphs from now on, small ones slower",
        d->ordinal, what, cudaGetErrorName(e));
}

static size_t memory_left(void)
{
    size_t left = 0, total = 0;
    if (cudaMemGetInfo(&left, &total) != cudaSuccess) (void)cudaGetLastError();
    return left;
}

void cuda_graphs(const struct device *dev, struct dev_graphs *out)
{
    const struct cuda_step *s = ((const struct cuda_dev *)dev)->step;
    if (!s || s->no_graphs) return;
    out->bytes = s->graph_bytes;
    for (uint32_t i = 0; i < BUCKETS && (!i || buckets[i - 1] < s->cap); i++) {
        out->rows[out->n++] = rows_of(s, i);
        for (int adapted = 0; adapted < 2; adapted++) out->n_recorded += s->graph[i][adapted].exec != NULL;
    }
}

/* What was recorded becomes a graph and runs. */
static bool graph_run(struct cuda_dev *d)
{
    struct cuda_step *s = d->step;
    struct graph     *g = s->recording;
    cudaGraph_t       graph = NULL;
    cudaError_t       e = cudaStreamEndCapture(d->stream, &graph);
    const char       *what = "the capture does not end";
    if (e == cudaSuccess && s->broken) {
        e = cudaErrorStreamCaptureInvalidated;
        what = "an op failed";
    } else if (e == cudaSuccess) {
        size_t before = memory_left();
        what = "it cannot be instantiated";
        e = cudaGraphInstantiate(&g->exec, graph, 0);
        if (e != cudaSuccess) g->exec = NULL;
        if (e == cudaSuccess) (void)cudaGraphUpload(g->exec, d->stream); /* speed of the first replay alone */
        size_t after = memory_left();
        if (after < before) s->graph_bytes += before - after;
    }
    if (graph) (void)cudaGraphDestroy(graph);
    if (e != cudaSuccess) {
        give_graphs_up(d, e, what);
        return false;
    }
    s->recording = NULL;
    cuda_ok(d, cudaGraphLaunch(g->exec, d->stream), "a graph");
    return true;
}

/* ---------------------------------------------------------------- begin */

static void patch(struct cuda_dev *d, const struct cuda_place *at, const struct cuda_shape *sh)
{
    struct cuda_step *s = d->step;
    const uint32_t   *drawn = (const uint32_t *)(const void *)s->out; /* ids come first there, whatever the step */
    if (sh->n.n_patch_id)
        cuda_patch(d, (uint32_t *)(void *)(s->in + at->id),
                   (const struct dev_patch *)(const void *)(s->in + at->patch_id), drawn, sh->n.n_patch_id);
    if (sh->n.n_patch_hist)
        cuda_patch(d, (uint32_t *)(void *)(s->in + at->pool),
                   (const struct dev_patch *)(const void *)(s->in + at->patch_hist), drawn, sh->n.n_patch_hist);
}

/* The shape that the arrays of this step are laid out for. */
static struct cuda_shape shape_of(const struct cuda_step *s, const struct dev_step *h, uint32_t pad)
{
    uint32_t decodes = pad, runs = pad || !s->split.n_unit ? 0 : cuda_attn_runs(&s->split, &h->b);
    if (!pad)
        while (decodes < h->b.n_seq && h->b.row_start[decodes + 1] == decodes + 1) decodes++;
    if (runs) decodes = runs;
    return (struct cuda_shape){ .n = cuda_step_sizes(h, pad),
                                .tiles = pad ? 0 : cuda_attn_tiles_max(h->b.n_row, h->b.n_seq),
                                .items = s->split.n_unit && decodes ? cuda_attn_items_max(&s->split, decodes) : 0,
                                .runs = runs,
                                .padded = pad > 0,
                                .trees = h->b.tree != NULL };
}

static void check_limits(const struct dev_limits *lim, const struct dev_step *h)
{
    struct dev_sizes n = cuda_step_sizes(h, 0), most = cuda_step_most(lim);
#define FITS(name, ...) CHECK(n.name <= most.name);
    DEV_SIZES(FITS)
#undef FITS
    CHECK(h->n_logit == h->n_sample + h->n_lp);
}

enum dev_graph cuda_step_begin(struct device *dev, const struct dev_step *h, struct dev_step *on)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_step *s = d->step;
    CHECK(s && s->begun - s->waited < DEV_STEPS_MAX);
    check_limits(&d->lim, h);
    *on = (struct dev_step){ .n_logit = 0 };
    if (d->lost) return DEV_EAGER; /* no rows: nothing is run */
    cuda_bind(d);
    if (s->first) { /* loading is over */
        s->first = false;
        if (!cuda_load_sync(d)) return DEV_EAGER;
        cuda_load_free(d);
        /* giving pinned memory back waits for the whole GPU: no rank's sum may wait for this one there meanwhile */
        if (d->group && !group_meet(d->group)) return DEV_EAGER;
    }
    s->open = !d->comm;
    struct slot *slot = &s->slot[s->begun % DEV_STEPS_MAX];
    uint32_t     bucket = bucket_of(s, h), pad = 0;
    if (bucket != BUCKETS) pad = rows_of(s, bucket);
    struct cuda_shape sh = shape_of(s, h, pad);
    struct cuda_place at = cuda_step_place(&sh);
    size_t bytes = cuda_step_pack(h, &sh, &at, s->split.n_unit ? &s->split : NULL, s->len, slot->in, &d->attn);
    CHECK(bytes <= s->in_bytes);
    slot->back = cuda_back_place(&sh.n);
    cuda_step_on(h, &sh, &at, &slot->back, s->in, s->out, on, &d->attn);
    d->row_seq = on->b.row_seq;
    slot->failed = false;
    if (s->again && s->patched) return DEV_EAGER; /* all of it is on the device */
    s->patched = false;
    if (!s->again) cuda_times_begin(d);
    if (!cuda_ok(d, cudaMemcpyAsync(s->in, slot->in, bytes, cudaMemcpyHostToDevice, d->stream),
                 "a step's copy to the device")) {
        *on = (struct dev_step){ .n_logit = 0 };
        return DEV_EAGER;
    }
    struct graph *g = pad && !s->again ? &s->graph[bucket][has_adapters(h)] : NULL;
    if (g && g->exec) {
        cuda_did(d, "a graph");
        cuda_ok(d, cudaGraphLaunch(g->exec, d->stream), "a graph");
        return DEV_REPLAY;
    }
    if (g && g->warm) {
        cudaError_t e = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
        if (e != cudaSuccess) give_graphs_up(d, e, "the capture does not begin");
        if (e == cudaSuccess) {
            s->recording = g;
            s->broken = false;
        }
    }
    if (g) g->warm = true;
    d->relaunch = d->comm && !s->recording;
    patch(d, &at, &sh);
    s->patched = !d->skip && !s->recording;
    return s->recording ? DEV_RECORD : DEV_EAGER;
}

/* ---------------------------------------------------------------- end, wait */

bool cuda_step_end(struct device *dev, const struct dev_step *h, const struct dev_step *on)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_step *s = d->step;
    (void)on;
    d->row_seq = NULL;
    d->relaunch = false;
    if (s->recording && !graph_run(d)) return false;
    bool refused = d->skip;
    d->skip = false;
    if (refused && !s->again && !d->lost) {
        s->again = true;
        return false;
    }
    s->open = s->again = s->patched = false;
    struct slot *slot = &s->slot[s->begun++ % DEV_STEPS_MAX];
    if (d->lost) return true;
    size_t bytes = dev->rank ? 0 : cuda_back_bytes(&slot->back, h); /* rank 0 alone has results */
    if (refused) {
        slot->failed = true;
        bytes = 0;
        if (h->n_sample)
            cuda_ok(d, cudaMemsetAsync(s->out, 0, h->n_sample * sizeof(uint32_t), d->stream), "clearing ids");
    }
    if (!bytes ||
        cuda_ok(d, cudaMemcpyAsync(slot->out, s->out, bytes, cudaMemcpyDeviceToHost, d->stream), "a step's copy back"))
        cuda_ok(d, cudaEventRecord(slot->done, d->stream), "a step's end");
    cuda_times_end(d);
    return true;
}

enum status cuda_step_wait(struct device *dev, const struct dev_step *h)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_step *s = d->step;
    CHECK(s && s->waited < s->begun);
    struct slot *slot = &s->slot[s->waited++ % DEV_STEPS_MAX];
    if (d->lost) return cuda_loss(d);
    cuda_bind(d);
    if (!cuda_wait(d, slot->done, "a step")) return cuda_loss(d);
    cuda_times_wait(d);
    if (slot->failed) return ST_STEP;
    if (!dev->rank) cuda_back_read(&slot->back, slot->out, h);
    return ST_OK;
}
