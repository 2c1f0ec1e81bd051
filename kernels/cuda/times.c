/* times: how long steps keep the device busy, and how long it stands idle between them, by events in the stream. For
 * measuring: nothing of it runs until dev_step_times has been asked once.
 * A step's begin is reached when the work before it is done and the step has been enqueued, whichever is later: from
 * the end of the step before to there, the device had nothing to do. Events of TIMED steps are kept: with two steps in
 * flight, the events of the one before the oldest are still to be read. */
#include "kernels/cuda/cuda.h"
#include <stdlib.h>

enum { TIMED = DEV_STEPS_MAX + 2 };
struct cuda_times {
    cudaEvent_t      begin[TIMED], end[TIMED];
    uint64_t         n_begin, n_wait;
    struct dev_times sum;
};

void cuda_times_begin(struct cuda_dev *d)
{
    struct cuda_times *t = d->times;
    if (t) (void)cudaEventRecord(t->begin[t->n_begin % TIMED], d->stream);
}

void cuda_times_end(struct cuda_dev *d)
{
    struct cuda_times *t = d->times;
    if (t) (void)cudaEventRecord(t->end[t->n_begin++ % TIMED], d->stream);
}

void cuda_times_wait(struct cuda_dev *d)
{
    struct cuda_times *t = d->times;
    float              busy = 0, idle = 0;
    if (!t || t->n_wait == t->n_begin) return; /* steps that were begun before anybody asked */
    uint64_t i = t->n_wait++;
    if (cudaEventSynchronize(t->end[i % TIMED]) != cudaSuccess) return;
    if (cudaEventElapsedTime(&busy, t->begin[i % TIMED], t->end[i % TIMED]) != cudaSuccess) return;
    if (i && cudaEventElapsedTime(&idle, t->end[(i - 1) % TIMED], t->begin[i % TIMED]) != cudaSuccess) return;
    t->sum.busy_us += (double)busy * 1e3;
    t->sum.idle_us += (double)idle * 1e3;
    t->sum.n_step++;
}

void cuda_times_free(struct cuda_dev *d)
{
    if (!d->times) return;
    for (int i = 0; i < TIMED; i++) {
        if (d->times->begin[i]) (void)cudaEventDestroy(d->times->begin[i]);
        if (d->times->end[i]) (void)cudaEventDestroy(d->times->end[i]);
    }
    free(d->times);
    d->times = NULL;
}

bool cuda_step_times(struct device *dev, struct dev_times *out)
{
    struct cuda_dev *d = cuda_of(dev);
    cuda_bind(d);
    if (!d->times) {
        struct cuda_times *t = calloc(1, sizeof *t);
        bool               ok = t != NULL;
        for (int i = 0; i < TIMED && ok; i++)
            ok = cudaEventCreate(&t->begin[i]) == cudaSuccess && cudaEventCreate(&t->end[i]) == cudaSuccess;
        d->times = t;
        if (!ok) {
            cuda_times_free(d);
            return false;
        }
    }
    *out = d->times->sum;
    d->times->sum = (struct dev_times){ .n_step = 0 };
    return true;
}
