/* dummy: weights that nobody trained, for measuring and for trying out: config.json alone says how large. Matrices get
 * nearly normal numbers of deviation 0.02, as initialisers give them, so that activations neither vanish nor grow;
 * norms are 1, biases small. Several threads make them. Each number depends on its place in the whole tensor alone:
 * ranks that share a tensor hold parts of the same one. */
#include "base/rng.h"
#include "base/thread.h"
#include "engine/model/read.h"
#include <pthread.h>

#define DUMMY_STD 0.02f

enum { PIECE_ROWS = 256, THREADS_MAX = 32 };

/* A slot's number in the seeds. It stays as it is when slots are added, so that the numbers of dummies do not
 * change. */
static uint64_t dummy_slot(enum slot s)
{
    enum { EXPERTS = 22, N_EXPERT_SLOT = 3, NORM_BIAS = 100 };
    if (s > SLOT_HEAD && s < SLOT_LAYER_FIRST) return NORM_BIAS + (uint64_t)(s - SLOT_NORM_BIAS);
    if (s >= SLOT_EXPERT_FIRST) return EXPERTS + (uint64_t)(s - SLOT_EXPERT_FIRST);
    uint64_t n = s < SLOT_LAYER_FIRST ? (uint64_t)s : (uint64_t)(s - SLOT_LAYER_FIRST) + SLOT_HEAD + 1;
    return s > SLOT_ROUTER ? n + N_EXPERT_SLOT : n;
}

static uint64_t dummy_seed(const struct place_job *j)
{
    return ((uint64_t)j->layer << 32 | (uint64_t)j->expert << 8 | dummy_slot(j->slot)) + 1;
}

/* k: numbers of a row of the tensor */
static void dummy_table(struct device *d, const struct place_job *j, uint64_t k)
{
    float tile[256];
    for (uint32_t r = 0; r < j->n_row; r++)
        for (uint32_t i = 0, n; i < j->n_col; i += n) {
            n = j->n_col - i < 256 ? j->n_col - i : 256;
            for (uint32_t c = 0; c < n; c++) {
                uint64_t at = (j->src_row + r) * k + j->src_col + (uint64_t)(i + c) * j->step;
                tile[c] = (rng_unit(rng_philox(dummy_seed(j), 0, at).x[0]) - 0.5f) * DUMMY_STD;
            }
            d->ops->to_device(d, j->vec + j->dst_row + (size_t)r * j->pitch + i, tile, n * sizeof *tile);
        }
}

static void dummy_vector(struct device *d, const struct place_job *j)
{
    float tile[256];
    for (uint32_t i = 0; i < j->n_row; i += 256) {
        uint32_t n = j->n_row - i < 256 ? j->n_row - i : 256;
        for (uint32_t c = 0; c < n; c++)
            tile[c] = names_is_norm(j->slot)
                          ? 1.0f
                          : (rng_unit(rng_philox(dummy_seed(j), 0, j->src_row + i + c).x[0]) - 0.5f) * DUMMY_STD;
        d->ops->to_device(d, j->vec + j->dst_row + i, tile, n * sizeof *tile);
    }
}

struct fillers {
    const struct place          *p;
    const struct model_load_cfg *cfg;
    pthread_mutex_t              lock; /* everything below */
    uint32_t                     next_job, next_row;
    uint64_t                     done, total; /* rows */
};

/* Rows of a matrix that the threads make: those that the device makes by itself are one call of one thread. */
static bool by_threads(const struct fillers *f, const struct place_job *j)
{
    return !j->n_col && j->w && !dev_fills(f->p->dev, j->w);
}

static void fillers_tell(struct fillers *f, uint64_t rows)
{
    f->done += rows;
    if (f->cfg->progress) f->cfg->progress(f->cfg->progress_ctx, f->done, f->total);
}

/* The next rows; 0: all are taken. */
static uint32_t fillers_take(struct fillers *f, const struct place_job **job_out, uint32_t *row_out)
{
    uint32_t n = 0;
    pthread_mutex_lock(&f->lock);
    while (f->next_job < f->p->n_job && !by_threads(f, &f->p->job[f->next_job])) f->next_job++;
    if (f->next_job < f->p->n_job) {
        const struct place_job *j = &f->p->job[f->next_job];
        *job_out = j;
        *row_out = f->next_row;
        n = j->n_row - f->next_row < PIECE_ROWS ? j->n_row - f->next_row : PIECE_ROWS;
        f->next_row += n;
        if (f->next_row == j->n_row) {
            f->next_job++;
            f->next_row = 0;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* Elements of a row of the tensor that the job's matrix is of. */
static uint64_t tensor_row(const struct fillers *f, const struct place_job *j)
{
    uint64_t    shape[2] = { 0, 0 };
    uint32_t    rank;
    const char *keys;
    bind_want(f->p->spec, j->slot, j->layer, shape, &rank, &keys);
    return shape[1];
}

static void *filler_main(void *arg)
{
    struct fillers         *f = arg;
    const struct place_job *j;
    for (uint32_t row, n; (n = fillers_take(f, &j, &row));) {
        dev_weight_fill(f->p->dev, j->w, j->dst_row + row, n, dummy_seed(j), j->src_row + row, j->src_col,
                        tensor_row(f, j), DUMMY_STD);
        pthread_mutex_lock(&f->lock);
        fillers_tell(f, n);
        pthread_mutex_unlock(&f->lock);
    }
    return NULL;
}

void model_dummy(struct place *p, const struct model_load_cfg *cfg)
{
    struct fillers f = { .p = p, .cfg = cfg };
    pthread_t      thread[THREADS_MAX];
    uint32_t       n_thread = 0, most = cfg->n_thread ? cfg->n_thread : thread_cpu_count();
    uint64_t       shared = 0; /* rows that the threads make */
    for (uint32_t i = 0; i < p->n_job; i++) {
        f.total += p->job[i].n_row;
        if (by_threads(&f, &p->job[i])) shared += p->job[i].n_row;
    }
    for (uint32_t i = 0; i < p->n_job; i++) {
        const struct place_job *j = &p->job[i];
        if (by_threads(&f, j)) continue;
        if (j->n_col)
            dummy_table(p->dev, j, tensor_row(&f, j));
        else if (j->w)
            dev_weight_fill(p->dev, j->w, j->dst_row, j->n_row, dummy_seed(j), j->src_row, j->src_col,
                            tensor_row(&f, j), DUMMY_STD);
        else
            dummy_vector(p->dev, j);
        fillers_tell(&f, j->n_row);
    }
    if (most > THREADS_MAX) most = THREADS_MAX;
    if (most > shared / PIECE_ROWS + 1) most = (uint32_t)(shared / PIECE_ROWS) + 1;
    pthread_mutex_init(&f.lock, NULL);
    while (n_thread + 1 < most && thread_start(&thread[n_thread], THREAD_ANY, "load", filler_main, &f) == ST_OK)
        n_thread++;
    filler_main(&f); /* this thread is one of them, whether or not others could be started */
    for (uint32_t i = 0; i < n_thread; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&f.lock);
}
