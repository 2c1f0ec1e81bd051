/* Over 500 lines: one table of functions, the device's face, and how each of its parts is made and given back. */
/* cuda: the device itself: which GPU and why not, its one reserved extent of memory, what an error means, the table of
 * ops. The CUDA runtime is linked statically and looks for the driver (libcuda.so.1) at run time, so the same program
 * starts on a machine without a GPU and says in one line what is missing.
 *
 * Errors. Every failing call comes to cuda_ok. A failure gives the device up: one line, d->lost, and every wait from
 * there on says ST_DEVICE (ST_BROKEN where the GPU or a link of it is at fault, so that the process can say so to
 * whoever places it); the engine fails its requests, /health goes down and the process ends. Two exceptions, both in
 * step.c. Capturing a graph fails without harm, and steps go on without graphs. And a launch of a step that was
 * refused, without the context being lost: the rest of the step is not launched, no step is enqueued behind it yet, so
 * it is run again; refused a second time, its requests alone fail (ST_STEP). Where ranks compute together their
 * exchanges are counted, and one that ran twice on one rank alone would shift all that follow: there the launch itself
 * is made again at once (common.cuh), and refused a second time it is a failure like any other.
 *
 * A device that hangs reports nothing, so waiting polls, and sleeps in between. The engine's own watch (eng_alive, from
 * another thread) knows how long the step should take and takes /health down first; WAIT_LIMIT_US only sees to it that
 * no caller waits for ever. */
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/window.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    ARCH_MIN = 80,
    GPUS_MAX = 64,
    SPIN_US = 20,      /* short waits cost no sleep: waking up takes longer than this */
    SLEEP_US_MAX = 50, /* what a late wake-up may cost; with a step enqueued behind, nothing */
    WAIT_LIMIT_US = 120 * 1000000,
    ABORT_US = 2000000, /* for kernels that waited for a rank that is gone to find that out */
    RESERVE_SHARE = 32, /* of the memory, kept out of an arena that is as large as can be: kernels' code, graphs */
    RESERVE_MAX = 512 << 20,
    RESERVE_RANKS = 512 << 20, /* and for what ranks exchange */
};

/* ---------------------------------------------------------------- errors */

static const struct {
    cudaError_t e;
    const char *means;
} meanings[] = {
    { cudaErrorIllegalAddress, "a kernel touched memory that is not its own" },
    { cudaErrorMisalignedAddress, "a kernel read at an address that is not aligned" },
    { cudaErrorIllegalInstruction, "a kernel met an instruction that this GPU does not have" },
    { cudaErrorInvalidAddressSpace, "a kernel used an address of another memory" },
    { cudaErrorInvalidPc, "a kernel jumped out of its code" },
    { cudaErrorHardwareStackError, "a kernel's stack is broken" },
    { cudaErrorLaunchFailure, "a kernel ended abnormally" },
    { cudaErrorLaunchTimeout, "a kernel ran longer than the driver allows" },
    { cudaErrorAssert, "a kernel's assertion failed" },
    { cudaErrorECCUncorrectable, "GPU memory has an error that ECC cannot correct: the GPU needs a reset" },
    { cudaErrorNvlinkUncorrectable, "NVLink has an error that it cannot correct: the machine needs attention" },
    { cudaErrorMemoryAllocation, "GPU memory is exhausted: another process may have taken it" },
    { cudaErrorInvalidValue, "the driver refuses an argument: a bug" },
    { cudaErrorInvalidConfiguration, "the driver refuses the shape of a launch: a bug" },
    { cudaErrorNoKernelImageForDevice, "this build has no code for this GPU" },
    { cudaErrorLaunchOutOfResources, "a kernel needs more registers or shared memory than this GPU has" },
    { cudaErrorDevicesUnavailable, "the GPU is held by another process or in a compute mode that forbids this one" },
    { cudaErrorMpsConnectionFailed, "the MPS server does not answer" },
    { cudaErrorMpsServerNotReady, "the MPS server is not ready" },
    { cudaErrorMpsMaxClientsReached, "the MPS server takes no more clients" },
    { cudaErrorSystemNotReady, "the NVSwitch fabric is not up: is the fabric manager running?" },
    { cudaErrorSystemDriverMismatch,
      "the driver in the kernel and its library are of different versions: the machine needs a reboot" },
    { cudaErrorCompatNotSupportedOnDevice, "the forward compatibility library does not support this GPU" },
    { cudaErrorStubLibrary, "the libcuda that was found is the toolkit's stub, not a driver's" },
    { cudaErrorUnknown, "the driver does not know either: see its log (XID)" },
};

const char *cuda_meaning(cudaError_t e)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].e == e) return meanings[i].means;
    return cudaGetErrorString(e);
}

/* Not by what a kernel did: the driver's XID 48, 94, 95 (memory), 74 (NVLink), 79 (gone from the bus). */
static bool is_broken(cudaError_t e)
{
    return e == cudaErrorECCUncorrectable || e == cudaErrorNvlinkUncorrectable || e == cudaErrorUnknown ||
           e == cudaErrorNoDevice || e == cudaErrorDevicesUnavailable || e == cudaErrorSystemNotReady;
}

bool cuda_ok(struct cuda_dev *d, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return true;
    (void)cudaGetLastError(); /* one that does not stick is not found a second time */
    if (d->step && (cuda_step_excuse(d) || cuda_step_fault(d, e, what))) return false;
    cuda_give_up(d, e, what);
    return false;
}

bool cuda_lose(struct cuda_dev *d)
{
    return !__atomic_exchange_n(&d->lost, true, __ATOMIC_RELAXED) && (!d->group || group_blame(d->group));
}

void cuda_give_up(struct cuda_dev *d, cudaError_t e, const char *what)
{
    if (is_broken(e)) __atomic_store_n(&d->broken, true, __ATOMIC_RELAXED);
    if (cuda_lose(d))
        LOG_ERROR("dev: gpu %d: %s in %s: %s; the device is given up, all requests fail", d->ordinal,
                  cudaGetErrorName(e), what, cuda_meaning(e));
}

/* While opening nobody depends on the device yet: the caller gets a status. */
static enum status refuse(struct cuda_dev *d, cudaError_t e, const char *what)
{
    (void)cudaGetLastError();
    LOG_ERROR("dev: gpu %d: %s: %s (%s), cannot start", d->ordinal, what, cuda_meaning(e), cudaGetErrorName(e));
    return e == cudaErrorMemoryAllocation ? ST_NOMEM : ST_CONFIG;
}

void cuda_bind(struct cuda_dev *d) { cuda_ok(d, cudaSetDevice(d->ordinal), "cudaSetDevice"); }

/* ---------------------------------------------------------------- which GPU */

/* How many GPUs; 0 and one line in why when there is none, or no driver that this build can use. */
static int count_gpus(char *why, size_t why_bytes)
{
    int         n = 0, driver = 0, runtime = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    *why = 0;
    if (e == cudaSuccess && n > 0) return n < GPUS_MAX ? n : GPUS_MAX;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver); /* 0: there is no libcuda.so.1 */
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        snprintf(why, why_bytes, "no NVIDIA driver found, needed is one for CUDA %d.%d or newer", runtime / 1000,
                 runtime % 1000 / 10);
    else if (e == cudaErrorInsufficientDriver)
        snprintf(why, why_bytes, "the NVIDIA driver is for CUDA %d.%d, needed is one for %d.%d or newer", driver / 1000,
                 driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (e == cudaSuccess || e == cudaErrorNoDevice)
        snprintf(why, why_bytes,
                 "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES set, is the container given one?)");
    else
        snprintf(why, why_bytes, "the NVIDIA driver does not start: %s (%s)", cuda_meaning(e), cudaGetErrorName(e));
    return 0;
}

/* What needs no context on it. why: "" when it can serve. */
static bool gpu_properties(int ordinal, struct cudaDeviceProp *p, char *why, size_t why_bytes)
{
    cudaError_t e = cudaGetDeviceProperties(p, ordinal);
    *why = 0;
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(why, why_bytes, "its properties cannot be read: %s (%s)", cuda_meaning(e), cudaGetErrorName(e));
    } else if (p->major * 10 + p->minor < ARCH_MIN) {
        snprintf(why, why_bytes, "it is sm_%d%d, needed is sm_%d or newer", p->major, p->minor, ARCH_MIN);
    }
    return !*why;
}

uint32_t cuda_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes)
{
    int n = count_gpus(why, why_bytes);
    if (n > (int)max) n = (int)max;
    for (int i = 0; i < n; i++) {
        struct dev_info      *o = &out[i];
        struct cudaDeviceProp p = { .major = 0 };
        size_t                total = 0, left = 0;
        *o = (struct dev_info){ .ordinal = i };
        gpu_properties(i, &p, o->refused, sizeof o->refused);
        snprintf(o->name, sizeof o->name, "%.95s", p.name);
        o->arch = p.major * 10 + p.minor;
        o->n_sm = (uint32_t)p.multiProcessorCount;
        o->total_bytes = p.totalGlobalMem;
        if (*o->refused) continue;
        cudaError_t e = cudaSetDevice(i);
        if (e == cudaSuccess) e = cudaMemGetInfo(&left, &total);
        if (e != cudaSuccess) {
            (void)cudaGetLastError();
            snprintf(o->refused, sizeof o->refused, "%s (%s)", cuda_meaning(e), cudaGetErrorName(e));
        }
        o->free_bytes = left;
    }
    return (uint32_t)n;
}

bool cuda_serves(char *why, size_t why_bytes)
{
    char first[160] = "";
    int  n = count_gpus(why, why_bytes);
    for (int i = 0; i < n; i++) {
        struct cudaDeviceProp p;
        char                  one[120];
        if (gpu_properties(i, &p, one, sizeof one)) return true;
        if (!*first) snprintf(first, sizeof first, "gpu %d: %s", i, one);
    }
    if (n) snprintf(why, why_bytes, "%s", first);
    return false;
}

/* ---------------------------------------------------------------- memory */

enum status cuda_take(struct cuda_dev *d, size_t bytes, void **out)
{
    if (bytes > d->size - d->used) {
        LOG_ERROR("dev: gpu %d: %zu bytes needed, %zu of %zu left in the arena", d->ordinal, bytes, d->size - d->used,
                  d->size);
        return ST_NOMEM;
    }
    *out = d->arena ? d->arena + d->used : NULL; /* plan_only counts alone */
    d->used = (d->used + bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    return ST_OK;
}

/* All zero: keys and values that were never written are multiplied with zero, which NaN would survive. */
enum status cuda_alloc(struct device *dev, size_t bytes, void **out)
{
    struct cuda_dev *d = cuda_of(dev);
    enum status      st = cuda_take(d, bytes, out);
    if (st || !d->arena || !bytes) return st;
    cuda_bind(d);
    return cuda_ok(d, cudaMemsetAsync(*out, 0, bytes, d->stream), "clearing memory") ? ST_OK : ST_DEVICE;
}

size_t cuda_free_bytes(const struct device *dev)
{
    const struct cuda_dev *d = (const struct cuda_dev *)dev;
    return d->size - d->used + (d->window ? d->window->size - d->window->used : 0);
}

void cuda_to_device(struct device *dev, void *dst, const void *host, size_t bytes)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!bytes || d->lost) return;
    cuda_bind(d);
    if (cuda_ok(d, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, d->stream), "a copy to the device"))
        cuda_wait(d, NULL, "a copy to the device"); /* the caller may reuse its memory */
}

void cuda_to_host(struct device *dev, void *host, const void *src, size_t bytes)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!bytes || d->lost) return;
    cuda_bind(d);
    if (cuda_ok(d, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, d->stream), "a copy to the host"))
        cuda_wait(d, NULL, "a copy to the host");
}

/* ---------------------------------------------------------------- waiting */

static size_t cuda_doing(const struct device *dev, uint64_t now_us, char *text, size_t text_bytes)
{
    const struct cuda_dev *d = (const struct cuda_dev *)dev;
    const char            *op = __atomic_load_n(&d->doing.op, __ATOMIC_RELAXED),
               *wait = __atomic_load_n(&d->doing.wait, __ATOMIC_RELAXED);
    uint64_t since = __atomic_load_n(&d->doing.wait_us, __ATOMIC_RELAXED);
    int      n = snprintf(text, text_bytes, "gpu %d, %" PRIu64 " ops enqueued, the last one %s", d->ordinal,
                          __atomic_load_n(&d->doing.n_op, __ATOMIC_RELAXED), op ? op : "none");
    if (wait && n > 0 && (size_t)n < text_bytes)
        n += snprintf(text + n, text_bytes - (size_t)n, "; %s has been waited for %.1f s", wait,
                      now_us > since ? (double)(now_us - since) / 1e6 : 0.0);
    return n > 0 && (size_t)n < text_bytes ? (size_t)n : 0;
}

static bool wait_for(struct cuda_dev *d, cudaEvent_t e, const char *what)
{
    uint64_t begin = clock_us(), now = begin, aborted_at = 0;
    long     sleep_us = 5;
    bool     exact = false;
    while (!d->lost) {
        cudaError_t st = e ? cudaEventQuery(e) : cudaStreamQuery(d->stream);
        (void)cudaGetLastError(); /* "not ready" is kept as an error too, and the next launch would find it */
        if (st == cudaSuccess && !aborted_at)
            return !__atomic_load_n(&d->lost, __ATOMIC_ACQUIRE); /* an abort ends kernels too */
        if (st != cudaErrorNotReady && st != cudaSuccess) return cuda_ok(d, st, what);
        now = clock_us();
        if (!aborted_at && d->group && group_aborted(d->group))
            aborted_at = now; /* its rank has logged; collectives here end soon */
        if (aborted_at && (st == cudaSuccess || now - aborted_at > ABORT_US)) {
            d->hung = st != cudaSuccess;
            __atomic_store_n(&d->lost, true, __ATOMIC_RELAXED);
            break;
        }
        if (now - begin > d->wait_limit_us) {
            d->hung = true;
            if (cuda_lose(d))
                LOG_ERROR("dev: gpu %d: %s did not end in %.0f s; the device is given up, all requests fail",
                          d->ordinal, what, (double)d->wait_limit_us / 1e6);
            break;
        }
        if (now - begin < SPIN_US) continue;
        if (!exact)
            exact = prctl(PR_SET_TIMERSLACK, 1000UL) == 0; /* else the kernel adds 50 us to each sleep of this thread */
        struct timespec t = { .tv_nsec = sleep_us * 1000 };
        nanosleep(&t, NULL);
        if (sleep_us < SLEEP_US_MAX) sleep_us += 5;
    }
    return false;
}

enum status cuda_sync(struct device *dev)
{
    struct cuda_dev *d = cuda_of(dev);
    if (d->lost) return cuda_loss(d);
    cuda_bind(d);
    return cuda_load_sync(d) && cuda_wait(d, NULL, "the work enqueued") ? ST_OK : cuda_loss(d);
}

bool cuda_wait(struct cuda_dev *d, cudaEvent_t e, const char *what)
{
    __atomic_store_n(&d->doing.wait_us, clock_us(), __ATOMIC_RELAXED);
    __atomic_store_n(&d->doing.wait, what, __ATOMIC_RELAXED);
    bool ok = wait_for(d, e, what);
    __atomic_store_n(&d->doing.wait, NULL, __ATOMIC_RELAXED);
    return ok;
}

/* ---------------------------------------------------------------- life */

static void cuda_close(struct device *dev)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!d->hung) { /* else every call below would wait as well; the process is about to end */
        (void)cudaSetDevice(d->ordinal);
        if (d->stream) (void)cudaStreamSynchronize(d->stream);
        cuda_copy_free(d);
        cuda_step_free(d);
        cuda_times_free(d);
        cuda_load_free(d);
        cuda_comm_free(d);
        cuda_window_close(d);
        cuda_blas_free(d);
        if (d->arena) (void)cudaFree(d->arena);
        if (d->stream) (void)cudaStreamDestroy(d->stream);
        (void)cudaGetLastError();
    }
    free(d);
}

static const struct dev_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .alloc = cuda_alloc,
    .alloc_reduced = cuda_alloc_reduced,
    .free_bytes = cuda_free_bytes,
    .weight_alloc = cuda_weight_alloc,
    .weight_set = cuda_weight_set,
    .quant_alloc = cuda_quant_alloc,
    .quant_set = cuda_quant_set,
    .to_device = cuda_to_device,
    .to_host = cuda_to_host,
    .sync = cuda_sync,
    .step_init = cuda_step_init,
    .step_begin = cuda_step_begin,
    .step_end = cuda_step_end,
    .step_wait = cuda_step_wait,
    .embed = cuda_embed,
    .rmsnorm = cuda_rmsnorm,
    .add_rmsnorm = cuda_add_rmsnorm,
    .layernorm = cuda_layernorm,
    .scale = cuda_scale,
    .cap = cuda_cap,
    .add_gated = cuda_add_gated,
    .linear = cuda_linear,
    .fused = cuda_fused,
    .logits = cuda_logits,
    .state = cuda_state,
    .squares = cuda_squares,
    .qkv = cuda_qkv,
    .attention = cuda_attention,
    .mutual = cuda_mutual,
    .glu = cuda_glu,
    .ungated = cuda_ungated,
    .act_mul = cuda_act_mul,
    .moe = cuda_moe,
    .routed = cuda_routed,
    .lora = cuda_lora,
    .lora_alloc = cuda_lora_alloc,
    .gather = cuda_gather,
    .columns = cuda_columns,
    .sample = cuda_sample,
    .logprob = cuda_logprob,
    .block_copy = cuda_block_copy,
    .allreduce = cuda_allreduce,
    .broadcast = cuda_broadcast,
    .allgather = cuda_allgather,
};

/* Which one, and whether it can serve. sharers_out: ranks of this process on it */
static enum status choose(struct cuda_dev *d, const struct dev_cfg *cfg, struct cudaDeviceProp *p,
                          uint32_t *sharers_out)
{
    char why[200];
    int  n = count_gpus(why, sizeof why);
    if (!n) {
        LOG_ERROR("dev: %s, cannot start", why);
        return ST_CONFIG;
    }
    *sharers_out = cfg->ordinal < 0 && cfg->group ? (group_n_rank(cfg->group) - 1) / (uint32_t)n + 1 : 1;
    d->ordinal = cfg->ordinal < 0 ? (int)((cfg->rank - cfg->first) % (uint32_t)n) : cfg->ordinal;
    if (d->ordinal >= n) {
        LOG_ERROR("dev: no gpu %d, there %s %d (0 to %d), cannot start", d->ordinal, n == 1 ? "is" : "are", n, n - 1);
        return ST_CONFIG;
    }
    if (!gpu_properties(d->ordinal, p, why, sizeof why)) {
        LOG_ERROR("dev: gpu %d%s%.80s cannot serve: %s, cannot start", d->ordinal, *p->name ? " " : "", p->name, why);
        return ST_CONFIG;
    }
    d->arch = p->major * 10 + p->minor;
    d->n_sm = p->multiProcessorCount;
    d->place = (struct dev_place){ (uint32_t)p->pciDomainID, (uint32_t)p->pciBusID, (uint32_t)p->pciDeviceID };
    d->pdl = cfg->pdl && d->arch >= PDL_ARCH_MIN;
    d->wgmma = cfg->wgmma && d->arch == WGMMA_ARCH && !d->deterministic && cuda_tensor_maps();
    d->wgmma_codes = WGMMA_CODES;
    d->wgmma_moe = WGMMA_MOE;
    d->fp8_prefill = cfg->fp8_prefill && d->arch == WGMMA_ARCH && !d->deterministic;
    d->fp8_rows = FP8_ROWS;
    d->codes_wide = d->wgmma ? UINT32_MAX : CODES_WIDE;
    d->codes_slab = GEMM_WORKSPACE;
    return ST_OK;
}

/* How large the arena is: as told, else all that the share of the memory allows that is this process's to use. */
static enum status measure(struct cuda_dev *d, const struct dev_cfg *cfg, uint32_t sharers)
{
    size_t      left = 0, total = 0;
    cudaError_t e = cudaSetDevice(d->ordinal);
    if (e == cudaSuccess) e = cudaMemGetInfo(&left, &total); /* makes the context: what that takes is used already */
    if (e != cudaSuccess) return refuse(d, e, "the GPU cannot be used");
    double share = cfg->utilization > 0 ? cfg->utilization : DEV_UTILIZATION;
    size_t reserve = total / RESERVE_SHARE < RESERVE_MAX ? total / RESERVE_SHARE : RESERVE_MAX, used = total - left;
    if (cfg->n_rank > 1 || cfg->comm == DEV_COMM_NCCL)
        reserve += total / RESERVE_SHARE < RESERVE_RANKS ? total / RESERVE_SHARE : RESERVE_RANKS;
    size_t may = (size_t)((double)total * share),
           most = may > used + reserve ? (may - used - reserve) / sharers / CUDA_ALIGN * CUDA_ALIGN : 0;
    d->size = cfg->arena_bytes ? (cfg->arena_bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN : most;
    size_t window = (size_t)cuda_window_bytes(cfg); /* beside the arena, out of the same bytes */
    if (d->size && (d->size <= left || (cfg->plan_only && cfg->arena_bytes))) {
        if (d->size <= window) {
            LOG_ERROR(
                "dev: gpu %d: of %zu bytes of GPU memory nothing is left behind %zu of what ranks add up, cannot start",
                d->ordinal, d->size, window);
            return ST_NOMEM;
        }
        d->size -= window;
        return ST_OK;
    }
    if (cfg->arena_bytes)
        LOG_ERROR("dev: gpu %d: %zu bytes of GPU memory needed, %zu of %zu are free, cannot start", d->ordinal, d->size,
                  left, total);
    else
        LOG_ERROR(
            "dev: gpu %d: nothing is left of %.2f of its memory: %zu bytes, %zu are used, by other processes mostly, and %zu are "
            "kept free; cannot start",
            d->ordinal, share, total, used, reserve);
    return ST_NOMEM;
}

/* A launch for real: does this build have code for this GPU, does it run? */
static enum status try_out(struct cuda_dev *d)
{
    struct dev_patch skip = { UINT32_MAX, 0 }, *p = (struct dev_patch *)(void *)d->arena;
    uint32_t        *x = (uint32_t *)(void *)(d->arena + sizeof skip);
    cudaError_t      e = cudaMemcpyAsync(p, &skip, sizeof skip, cudaMemcpyHostToDevice, d->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(d->stream);
    if (e != cudaSuccess) return refuse(d, e, "it cannot be written to");
    cuda_patch(d, x, p, x, 1);
    if (d->lost || !cuda_wait(d, NULL, "the first kernel")) return ST_CONFIG; /* it has logged */
    return ST_OK;
}

static enum status reserve(struct cuda_dev *d)
{
    void       *p = NULL;
    cudaError_t e = cudaMalloc(&p, d->size);
    if (e != cudaSuccess) {
        size_t left = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&left, &total);
        LOG_ERROR("dev: gpu %d: %zu bytes of GPU memory needed, %zu of %zu are free: %s, cannot start", d->ordinal,
                  d->size, left, total, cudaGetErrorName(e));
        return ST_NOMEM;
    }
    d->arena = p;
    return try_out(d);
}

/* As dev_arith. Bits differ between kinds of GPU (which kernels there are), and with `deterministic`; without it they
 * hang on the sizes of batches too, as the option says. */
static void cuda_arith(const struct device *dev, enum dtype weights, const struct dev_quant *q, enum dtype kv,
                       char *text, size_t bytes)
{
    const struct cuda_dev *d = (const struct cuda_dev *)dev;
    (void)weights;
    (void)kv;
    snprintf(text, bytes, "cuda.4 sm %d %s%s%s%s", d->arch, d->deterministic ? "deterministic" : "fast.2",
             d->wgmma ? " wgmma.4" : "", d->fp8_prefill ? " fp8-prefill.1" : "",
             q && q->code != DT_F32 ? " codes.2" : "");
}

static bool cuda_place(const struct device *dev, struct dev_place *out)
{
    *out = ((const struct cuda_dev *)dev)->place;
    return true;
}

enum status cuda_open(const struct dev_cfg *cfg, struct device **d_out)
{
    struct cudaDeviceProp p = { .major = 0 };
    struct cuda_dev      *d = calloc(1, sizeof *d);
    if (!d) {
        LOG_ERROR("dev: no memory for a cuda device");
        return ST_NOMEM;
    }
    d->impl =
        (struct dev_impl){ .dev = { &cuda_ops, cfg->act == DT_F16 ? DT_F16 : DT_BF16, cfg->rank, cfg->n_rank, true },
                           .weight_bytes = cuda_weight_bytes,
                           .quant_bytes = cuda_quant_bytes,
                           .step_bytes = cuda_step_bytes,
                           .graphs = cuda_graphs,
                           .step_times = cuda_step_times,
                           .time = cuda_time,
                           .probe = cuda_probe,
                           .weight_fill = cuda_weight_fill,
                           .doing = cuda_doing,
                           .place = cuda_place,
                           .arith = cuda_arith,
                           .copy = &cuda_copy_ops };
    d->wait_limit_us = WAIT_LIMIT_US;
    d->gemm_file = cfg->gemm_file;
    d->cublaslt = cfg->cublaslt;
    d->rows_max = cfg->rows_max;
    d->deterministic = cfg->deterministic;
    d->eager = cfg->eager;
    d->group = cfg->group;
    uint32_t    sharers = 1;
    enum status st = choose(d, cfg, &p, &sharers);
    if (!st) st = measure(d, cfg, sharers);
    if (!st && !cfg->plan_only) {
        cudaError_t e = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
        if (e != cudaSuccess) st = refuse(d, e, "no stream");
        if (!st) st = reserve(d);
        if (!st) st = cuda_window_open(d, cfg);
        if (!st) st = cuda_blas_init(d);
        if (!st) st = cuda_comm_init(d, cfg);
        if (!st) st = cuda_load_init(d);
        if (!st && cuda_sync(&d->impl.dev)) st = ST_CONFIG;
    } else if (!st) {
        void *none;
        st = cuda_window_open(d, cfg);
        if (!st) st = cuda_take(d, (size_t)cuda_blas_bytes(), &none);
        if (!st) st = cuda_take(d, (size_t)cuda_comm_bytes(cfg), &none);
    }
    if (st) {
        cuda_close(&d->impl.dev);
        return st;
    }
    if (!cfg->plan_only)
        LOG_INFO("dev: gpu %d %s, sm_%d, %d SMs, arena %zu MiB of %zu MiB, %s, graphs %s%s%s%s%s", d->ordinal, p.name,
                 d->arch, d->n_sm, d->size >> 20, p.totalGlobalMem >> 20, dtype_name(d->impl.dev.act),
                 d->eager ? "off" : "on", d->pdl ? ", dependent launches" : "", d->wgmma ? ", prompts by wgmma" : "",
                 d->fp8_prefill ? ", activations of prompts in fp8" : "", d->deterministic ? ", deterministic" : "");
    if (!cfg->plan_only && cfg->wgmma && d->arch != WGMMA_ARCH)
        LOG_WARN("dev: gpu %d is sm_%d, --wgmma is for sm_%d and does nothing", d->ordinal, d->arch, WGMMA_ARCH);
    if (!cfg->plan_only && cfg->wgmma && d->arch == WGMMA_ARCH && !cuda_tensor_maps())
        LOG_WARN("dev: gpu %d: the driver makes no tensor maps (cuTensorMapEncodeTiled), --wgmma does nothing",
                 d->ordinal);
    if (!cfg->plan_only && cfg->fp8_prefill && d->arch != WGMMA_ARCH)
        LOG_WARN("dev: gpu %d is sm_%d, --fp8-prefill is for sm_%d, activations stay what they are", d->ordinal,
                 d->arch, WGMMA_ARCH);
    *d_out = &d->impl.dev;
    return ST_OK;
}
