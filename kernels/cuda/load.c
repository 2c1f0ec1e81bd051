/* cuda: weights. Row-major [n][k] in the type of the activations, as cuBLASLt likes them: loading is a copy. Codes and
 * their scales lie as codes.h says, and travel the same way.
 *
 * weight_set is called by several threads, each with rows that it has just read. A thread takes a pinned buffer, writes
 * its rows there in the device's type, enqueues the copy on the loading stream and goes on with the next buffer: while
 * one buffer travels, other threads fill others. The buffers are one extent, taken at open and given back at the first
 * step. Where the system lets us pin nothing (ulimit -l, cgroup) the way goes through ordinary memory, one copy at a
 * time. */
#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda/cuda.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFERS = 16,       /* one for each thread that reads, and it must not wait for the copy of its last */
    WEIGHT_ALIGN = 256, /* as the arena aligns: the plan adds these sizes up */
};

struct cuda_load {
    pthread_mutex_t lock;
    pthread_cond_t  given_back;
    cudaStream_t    stream;
    char           *pinned; /* [BUFFERS][CUDA_LOAD_BYTES] */
    cudaEvent_t     sent[BUFFERS];
    bool            busy[BUFFERS]; /* a thread writes to it */
    uint32_t        next;
};

/* ---------------------------------------------------------------- memory of a matrix */

/* Every matrix has the activations' 16 bits an element, whatever type the checkpoint has. */
uint64_t cuda_weight_bytes(enum dtype t, uint32_t n, uint32_t k)
{
    (void)t;
    return ((uint64_t)n * k * 2 + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
}

enum status cuda_weight_alloc(struct device *dev, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct dev_weight w = { .dtype = dev->act, .n = n, .k = k, .bytes = cuda_weight_bytes(t, n, k) };
    enum status       st = cuda_take(d, (size_t)w.bytes, &w.data);
    if (st) return st;
    cuda_bind(d);
    if (d->arena) cuda_blas_seen(d, &w);
    *w_out = w;
    return d->lost ? ST_DEVICE : ST_OK;
}

/* No algorithm is looked for: op lora has its own. */
enum status cuda_lora_alloc(struct device *dev, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    struct dev_weight w = { .dtype = dev->act, .n = n, .k = k, .bytes = cuda_weight_bytes(t, n, k) };
    enum status       st = cuda_alloc(dev, (size_t)w.bytes, &w.data);
    if (st == ST_OK) *w_out = w;
    return st;
}

/* ---------------------------------------------------------------- conversion */

static float load_f32(const char *src, enum dtype t, size_t i)
{
    uint16_t h;
    float    f;
    if (t == DT_F32) {
        memcpy(&f, src + 4 * i, 4);
        return f;
    }
    memcpy(&h, src + 2 * i, 2);
    return t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

/* src may lie at any address. */
static void convert(uint16_t *dst, enum dtype to, const char *src, enum dtype from, size_t n)
{
    if (from == to) {
        memcpy(dst, src, n * sizeof *dst);
    } else if (to == DT_BF16 && from == DT_F32) { /* the one that large checkpoints meet: without a call per element */
        for (size_t i = 0; i < n; i++) {
            float f;
            memcpy(&f, src + 4 * i, 4);
            dst[i] = f32_to_bf16(f);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            float f = load_f32(src, from, i);
            dst[i] = to == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
        }
    }
}

/* ---------------------------------------------------------------- buffers */

static uint32_t load_take(struct cuda_dev *d, struct cuda_load *l)
{
    pthread_mutex_lock(&l->lock);
    uint32_t i;
    for (;;) { /* the one given away longest ago: its copy is the likeliest to be over */
        for (i = 0; i < BUFFERS && l->busy[(l->next + i) % BUFFERS]; i++) {}
        if (i < BUFFERS) break;
        pthread_cond_wait(&l->given_back, &l->lock);
    }
    i = (l->next + i) % BUFFERS;
    l->next = (i + 1) % BUFFERS;
    l->busy[i] = true;
    pthread_mutex_unlock(&l->lock);
    cuda_wait(d, l->sent[i], "loading weights");
    return i;
}

static void load_give(struct cuda_load *l, uint32_t i)
{
    pthread_mutex_lock(&l->lock);
    l->busy[i] = false;
    pthread_cond_signal(&l->given_back);
    pthread_mutex_unlock(&l->lock);
}

/* Elements [c0, c0 + n_col) of rows [r0, r0 + n_row) of what weight_set was given: to dst, one contiguous run. */
struct load_piece {
    const char *src;
    size_t      stride;
    enum dtype  from, to;
    uint32_t    r0, n_row, c0, n_col;
};

static void piece_pack(void *out, const void *piece)
{
    const struct load_piece *p = piece;
    for (uint32_t r = 0; r < p->n_row; r++)
        convert((uint16_t *)out + (size_t)r * p->n_col, p->to,
                p->src + (size_t)(p->r0 + r) * p->stride + p->c0 * dtype_bytes(p->from), p->from, p->n_col);
}

/* Through ordinary memory. */
static void send_slowly(struct cuda_dev *d, void *dst, size_t bytes, void (*fill)(void *out, const void *from),
                        const void *from)
{
    void *slow = malloc(bytes);
    if (slow) {
        fill(slow, from);
        cuda_to_device(&d->impl.dev, dst, slow, bytes);
    } else {
        cuda_ok(d, cudaErrorMemoryAllocation, "loading weights");
    }
    free(slow);
}

void cuda_load_send(struct cuda_dev *d, void *dst, size_t bytes, void (*fill)(void *out, const void *from),
                    const void *from)
{
    struct cuda_load *l = d->load;
    CHECK(bytes <= CUDA_LOAD_BYTES);
    if (d->lost || !bytes) return;
    cuda_bind(d);
    if (!l) {
        send_slowly(d, dst, bytes, fill, from);
        return;
    }
    uint32_t i = load_take(d, l);
    char    *buf = l->pinned + (size_t)i * CUDA_LOAD_BYTES;
    fill(buf, from);
    if (cuda_ok(d, cudaMemcpyAsync(dst, buf, bytes, cudaMemcpyHostToDevice, l->stream), "loading weights"))
        cuda_ok(d, cudaEventRecord(l->sent[i], l->stream), "loading weights");
    load_give(l, i);
}

void cuda_weight_set(struct device *dev, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                     size_t src_stride, enum dtype src_t)
{
    enum { FITS = CUDA_LOAD_BYTES / 2 }; /* elements */
    struct cuda_dev *d = cuda_of(dev);
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    CHECK(src_t == DT_F32 || src_t == DT_BF16 || src_t == DT_F16);
    if (!w->k || !n_row || d->lost) return;
    if (dev_weight_is_quant(w)) {
        cuda_quantise(dev, w, row0, n_row, src, src_stride, src_t);
        return;
    }
    uint32_t cols = w->k < FITS ? w->k : FITS, rows = FITS / cols; /* a row longer than a buffer goes in parts */
    for (uint32_t r = 0; r < n_row; r += rows) {
        uint32_t n = rows < n_row - r ? rows : n_row - r;
        for (uint32_t c = 0; c < w->k; c += cols) {
            uint32_t          m = cols < w->k - c ? cols : w->k - c;
            struct load_piece p = { src, src_stride, src_t, w->dtype, r, n, c, m };
            cuda_load_send(d, (char *)w->data + ((size_t)(row0 + r) * w->k + c) * sizeof(uint16_t),
                           (size_t)n * m * sizeof(uint16_t), piece_pack, &p);
        }
    }
}

/* ---------------------------------------------------------------- life */

enum status cuda_load_init(struct cuda_dev *d)
{
    struct cuda_load *l = calloc(1, sizeof *l);
    if (!l) {
        LOG_ERROR("dev: no memory to load weights with");
        return ST_NOMEM;
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->given_back, NULL);
    d->load = l;
    void       *p = NULL;
    cudaError_t e = cudaHostAlloc(&p, (size_t)BUFFERS * CUDA_LOAD_BYTES, cudaHostAllocDefault);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        LOG_WARN(
            "dev: gpu %d: no %d MiB of memory can be pinned (%s; ulimit -l?), weights are loaded through ordinary memory, slowly",
            d->ordinal, BUFFERS * CUDA_LOAD_BYTES >> 20, cudaGetErrorName(e));
        cuda_load_free(d);
        return ST_OK;
    }
    l->pinned = p;
    bool ok = cuda_ok(d, cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "a stream");
    for (uint32_t i = 0; i < BUFFERS && ok; i++)
        ok = cuda_ok(d, cudaEventCreateWithFlags(&l->sent[i], cudaEventDisableTiming), "an event");
    return ok ? ST_OK : ST_DEVICE;
}

bool cuda_load_sync(struct cuda_dev *d)
{
    struct cuda_load *l = d->load;
    for (uint32_t i = 0; l && i < BUFFERS; i++)
        if (!cuda_wait(d, l->sent[i], "loading weights"))
            return false; /* an event that was never recorded is reached */
    return true;
}

void cuda_load_free(struct cuda_dev *d)
{
    struct cuda_load *l = d->load;
    if (!l) return;
    d->load = NULL;
    if (l->stream) (void)cudaStreamSynchronize(l->stream);
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (l->sent[i]) (void)cudaEventDestroy(l->sent[i]);
    if (l->stream) (void)cudaStreamDestroy(l->stream);
    if (l->pinned) (void)cudaFreeHost(l->pinned);
    pthread_cond_destroy(&l->given_back);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
