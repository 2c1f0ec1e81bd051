/* The CUDA device itself: who is refused and with which words, the arena, copies, errors. */
#include "cuda/cuda_test.h"
#include "test.h"
#include "base/log.h"
#include "kernels/cuda/cuda.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* ---- the log, read back */

static int  log_fd = -1;
static char log_text[1 << 16];

static void log_begin(void)
{
    log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(log_fd >= 0);
    log_init(LOG_LEVEL_INFO, log_fd, false);
}
static const char *log_end(void)
{
    ssize_t n = pread(log_fd, log_text, sizeof log_text - 1, 0);
    log_text[n > 0 ? n : 0] = 0;
    log_init(LOG_LEVEL_ERROR, 2, false);
    close(log_fd);
    return log_text;
}
static inline uint32_t lines(const char *text, const char *with)
{
    uint32_t n = 0;
    for (const char *p = text; *p;) {
        size_t      len = strcspn(p, "\n");
        const char *hit = strstr(p, with);
        n += hit && hit < p + len;
        p += len + (p[len] == '\n');
    }
    return n;
}

static enum status open_with(struct dev_cfg cfg, struct device **d_out)
{
    cfg.kind = DEV_CUDA;
    cfg.n_rank = 1;
    return dev_open(&cfg, d_out);
}

/* ---- memory */

static void the_arena_is_bounded_aligned_and_zero(void **state)
{
    (void)state;
    struct device *d = ct_open(DT_BF16, 0);
    size_t         left = d->ops->free_bytes(d);
    char          *p, *q;
    unsigned char  back[1000];
    assert_int_equal(d->ops->alloc(d, 1000, (void **)&p), ST_OK);
    assert_int_equal(d->ops->alloc(d, 1, (void **)&q), ST_OK);
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_int_equal((uintptr_t)q % 256, 0);
    assert_true(q >= p + 1000);
    assert_int_equal(d->ops->free_bytes(d), left - 1024 - 256);
    d->ops->to_host(d, back, p, sizeof back);
    for (size_t i = 0; i < sizeof back; i++) assert_int_equal(back[i], 0);
    log_begin();
    void *none = &none;
    assert_int_equal(d->ops->alloc(d, left, &none), ST_NOMEM);
    assert_ptr_equal(none, &none);
    assert_non_null(strstr(log_end(), "bytes needed"));
    assert_int_equal(d->ops->alloc(d, d->ops->free_bytes(d), &none), ST_OK);
    assert_int_equal(d->ops->free_bytes(d), 0);
    assert_int_equal(d->ops->sync(d), ST_OK);
    dev_close(d);
}

static void copied_bytes_come_back_unchanged(void **state)
{
    (void)state;
    struct device *d = ct_open(DT_BF16, 0);
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        uint8_t *a = malloc(n), *b = calloc(1, n);
        void    *p;
        for (size_t i = 0; i < n; i++) a[i] = (uint8_t)(i * 7 + n);
        assert_int_equal(d->ops->alloc(d, n, &p), ST_OK);
        d->ops->to_device(d, p, a, n);
        d->ops->to_host(d, b, p, n);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
    dev_close(d);
}

static void a_plan_takes_nothing_and_counts_alike(void **state)
{
    (void)state;
    struct device *plan, *d;
#ifdef CUDA_EMU
    size_t held = emu_bytes_held();
#endif
    assert_int_equal(open_with((struct dev_cfg){ .arena_bytes = 100 * MIB + 77, .plan_only = true }, &plan), ST_OK);
#ifdef CUDA_EMU
    assert_int_equal(emu_bytes_held(), held);
#endif
    assert_int_equal(open_with((struct dev_cfg){ .arena_bytes = 100 * MIB + 77 }, &d), ST_OK);
    assert_int_equal(plan->ops->free_bytes(plan), d->ops->free_bytes(d));
    assert_int_equal(dev_weight_bytes(plan, DT_BF16, 100, 64), dev_weight_bytes(d, DT_BF16, 100, 64));
    void *p;
    assert_int_equal(plan->ops->alloc(plan, 1000, &p), ST_OK);
    dev_close(plan);
    dev_close(d);
#ifdef CUDA_EMU
    assert_int_equal(emu_bytes_held(), held);
#endif
}

#ifdef CUDA_EMU
static void an_arena_without_a_size_is_the_share_that_is_left(void **state)
{
    (void)state;
    struct device    *d, *other;
    struct emu_device gpu = { (size_t)1 << 30, 90, 8 };
    emu_set_device(0, &gpu);
    assert_int_equal(open_with((struct dev_cfg){ .utilization = 0.5, .plan_only = true }, &d), ST_OK);
    size_t half = d->ops->free_bytes(d) + (size_t)cuda_blas_bytes();
    assert_in_range(half, 512 * MIB - 40 * MIB, 512 * MIB - 24 * MIB); /* less 1/32 of it all for code and graphs */
    dev_close(d);
    assert_int_equal(open_with((struct dev_cfg){ .arena_bytes = 300 * MIB }, &other), ST_OK);
    assert_int_equal(open_with((struct dev_cfg){ .utilization = 0.5, .plan_only = true }, &d), ST_OK);
    assert_in_range(d->ops->free_bytes(d) + (size_t)cuda_blas_bytes(), half - 310 * MIB, half - 300 * MIB);
    dev_close(d);
    log_begin();
    assert_int_equal(open_with((struct dev_cfg){ .utilization = 0.2, .plan_only = true }, &d), ST_NOMEM);
    assert_non_null(strstr(log_end(), "nothing is left of 0.20 of its memory"));
    dev_close(other);
    emu_reset();
}

static void launches_depend_where_asked_for_and_possible(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool              asked = i & 1, can = i & 2;
        struct emu_device gpu = { (size_t)1 << 30, can ? 90 : 89, 8 };
        struct device    *d;
        emu_set_device(0, &gpu);
        log_begin();
        assert_int_equal(open_with((struct dev_cfg){ .arena_bytes = 64 * MIB, .pdl = asked }, &d), ST_OK);
        assert_int_equal(lines(log_end(), "dependent launches"), asked && can);
        assert_int_equal(cuda_of(d)->pdl, asked && can);
        dev_close(d);
        emu_reset();
    }
}

/* ---- refusals */

static void refused(struct dev_cfg cfg, enum status want, const char *words)
{
    struct device *d = NULL;
    log_begin();
    enum status st = open_with(cfg, &d);
    const char *text = log_end();
    if (st != want || !strstr(text, words) || lines(text, "error") != 1)
        fail_msg("status %d, wanted %d and '%s': %s", st, want, words, text);
    assert_null(d);
    assert_int_equal(emu_bytes_held(), 0);
    emu_reset();
}

static void a_gpu_that_cannot_serve_is_refused_in_one_line(void **state)
{
    (void)state;
    struct dev_cfg cfg = { .arena_bytes = 64 * MIB };
    emu_set_driver(0);
    refused(cfg, ST_CONFIG, "no NVIDIA driver found, needed is one for CUDA 13.0 or newer");
    emu_set_driver(12020);
    emu_fail_next("cudaGetDeviceCount", cudaErrorInsufficientDriver);
    refused(cfg, ST_CONFIG, "the NVIDIA driver is for CUDA 12.2, needed is one for 13.0 or newer");
    emu_set_devices(0);
    refused(cfg, ST_CONFIG, "shows no GPU");
    emu_fail_next("cudaGetDeviceCount", cudaErrorSystemDriverMismatch);
    refused(cfg, ST_CONFIG, "needs a reboot");
    struct emu_device turing = { (size_t)1 << 30, 75, 8 }, small = { 32 * MIB, 90, 8 };
    emu_set_device(0, &turing);
    refused(cfg, ST_CONFIG, "it is sm_75, needed is sm_80 or newer");
    cfg.ordinal = 3;
    refused(cfg, ST_CONFIG, "no gpu 3, there is 1 (0 to 0)");
    cfg.ordinal = 0;
    emu_set_device(0, &small);
    refused(cfg, ST_NOMEM, "67108864 bytes of GPU memory needed, 33554432 of 33554432 are free");
    emu_fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    refused(cfg, ST_NOMEM, "bytes of GPU memory needed");
    emu_fail_next("cudaMemGetInfo", cudaErrorDevicesUnavailable);
    refused(cfg, ST_CONFIG, "held by another process");
    emu_fail_next("launch", cudaErrorNoKernelImageForDevice);
    refused(cfg, ST_CONFIG, "this build has no code for this GPU");
    cfg.arena_bytes = 1 * MIB;
    refused(cfg, ST_NOMEM, "left in the arena");
}

static void every_call_of_open_may_fail(void **state)
{
    (void)state;
    static const char *const call[] = { "cudaSetDevice",   "cudaStreamCreate", "cudaMemcpyAsync", "cudaMemsetAsync",
                                        "cudaEventCreate", "cudaStreamQuery",  "launch" };
    for (size_t i = 0; i < ARRAY_N(call); i++) {
        struct device *d = NULL;
        log_begin();
        emu_fail_next(call[i], cudaErrorUnknown);
        enum status st = open_with((struct dev_cfg){ .arena_bytes = 64 * MIB }, &d);
        const char *text = log_end();
        if (!st || !lines(text, "error")) fail_msg("%s fails, and open says %d: %s", call[i], st, text);
        assert_int_equal(emu_bytes_held(), 0);
        emu_reset();
    }
}

static void auto_is_the_cpu_where_no_gpu_serves(void **state)
{
    (void)state;
    struct device *d;
    assert_int_equal(dev_resolve(DEV_AUTO), DEV_CUDA);
    emu_set_driver(0);
    log_begin();
    for (int i = 0; i < 3; i++) {
        struct dev_cfg cfg = { .kind = DEV_AUTO, .arena_bytes = 16 * MIB, .n_thread = 1, .n_rank = 1 };
        assert_int_equal(dev_open(&cfg, &d), ST_OK);
        assert_non_null(strstr(d->ops->name, "cpu"));
        dev_close(d);
    }
    const char *text = log_end();
    assert_int_equal(lines(text, "no NVIDIA driver found"), 1);
    assert_int_equal(lines(text, "error"), 0);
    emu_reset();
}

static void the_list_of_devices_shows_which_ones_can_serve(void **state)
{
    (void)state;
    struct dev_info   info[4];
    char              why[200];
    struct emu_device turing = { (size_t)1 << 30, 75, 40 }, hopper = { (size_t)4 << 30, 90, 132 };
    emu_set_devices(2);
    emu_set_device(0, &turing);
    emu_set_device(1, &hopper);
    assert_int_equal(dev_list(info, 4, why, sizeof why), 2);
    assert_string_equal(info[0].refused, "it is sm_75, needed is sm_80 or newer");
    assert_string_equal(info[1].refused, "");
    assert_int_equal(info[1].arch, 90);
    assert_int_equal(info[1].n_sm, 132);
    assert_int_equal(info[1].total_bytes, (size_t)4 << 30);
    assert_true(info[1].free_bytes > 0 && info[1].free_bytes <= info[1].total_bytes);
    assert_int_equal(dev_list(info, 1, why, sizeof why), 1);
    emu_set_driver(0);
    assert_int_equal(dev_list(info, 4, why, sizeof why), 0);
    assert_non_null(strstr(why, "no NVIDIA driver"));
    emu_reset();
}

/* ---- errors */

static void an_error_is_told_once_and_stays(void **state)
{
    (void)state;
    static const cudaError_t errors[] = { cudaErrorIllegalAddress,       cudaErrorAssert,
                                          cudaErrorECCUncorrectable,     cudaErrorLaunchFailure,
                                          cudaErrorInvalidConfiguration, cudaErrorLaunchOutOfResources };
    for (size_t i = 0; i < ARRAY_N(errors); i++) {
        enum status    want = errors[i] == cudaErrorECCUncorrectable ? ST_BROKEN : ST_DEVICE;
        struct device *d = ct_open(DT_BF16, 0);
        void          *x = ct_act_new(d, 64);
        float         *w = ct_alloc(d, 64 * sizeof(float));
        log_begin();
        emu_fail_next("launch", errors[i]);
        for (int k = 0; k < 3; k++) d->ops->rmsnorm(d, x, x, w, 1, 64, 1e-5f);
        assert_int_equal(d->ops->sync(d), want);
        d->ops->to_host(d, (char[4]){ 0 }, x, 4);
        assert_int_equal(d->ops->sync(d), want);
        const char *text = log_end();
        if (lines(text, "error") != 1 || !strstr(text, cudaGetErrorName(errors[i])) || !strstr(text, "rmsnorm"))
            fail_msg("%s: %s", cudaGetErrorName(errors[i]), text);
        dev_close(d);
        emu_reset();
    }
}

static void a_device_that_hangs_is_given_up(void **state)
{
    (void)state;
    struct device *d = ct_open(DT_BF16, 0);
    void          *x = ct_act_new(d, 64);
    float         *w = ct_alloc(d, 64 * sizeof(float));
    assert_int_equal(d->ops->sync(d), ST_OK);
    emu_set_lazy(true); /* a query runs one piece of the work: it takes long to end */
    for (int k = 0; k < 20000; k++) d->ops->rmsnorm(d, x, x, w, 1, 64, 1e-5f);
    cuda_of(d)->wait_limit_us = 1000;
    log_begin();
    assert_int_equal(d->ops->sync(d), ST_DEVICE);
    const char *text = log_end();
    assert_int_equal(lines(text, "did not end in"), 1);
    assert_true(cuda_of(d)->hung);
    cuda_of(d)->hung = false; /* this one does end */
    dev_close(d);
    emu_reset();
}

static void memory_that_cannot_be_pinned_makes_loading_slow_not_wrong(void **state)
{
    (void)state;
    struct device *d;
    log_begin();
    emu_fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
    assert_int_equal(open_with((struct dev_cfg){ .arena_bytes = 64 * MIB }, &d), ST_OK);
    assert_int_equal(lines(log_end(), "can be pinned"), 1);
    struct dev_weight w;
    float            *src = op_random(30 * 64, 1, 1), *got = op_random(30 * 64, 2, 1);
    assert_int_equal(d->ops->weight_alloc(d, DT_BF16, 30, 64, &w), ST_OK);
    d->ops->weight_set(d, &w, 0, 30, src, 64 * sizeof *src, DT_F32);
    assert_int_equal(d->ops->sync(d), ST_OK);
    ct_get_as(d, got, w.data, DT_BF16, 30 * 64);
    ct_round(src, 30 * 64, DT_BF16);
    op_assert_same(got, src, 30 * 64, "weights");
    free(src);
    free(got);
    dev_close(d);
    emu_reset();
}
#endif

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_arena_is_bounded_aligned_and_zero),
        cmocka_unit_test(copied_bytes_come_back_unchanged),
        cmocka_unit_test(a_plan_takes_nothing_and_counts_alike),
#ifdef CUDA_EMU
        cmocka_unit_test(an_arena_without_a_size_is_the_share_that_is_left),
        cmocka_unit_test(launches_depend_where_asked_for_and_possible),
        cmocka_unit_test(a_gpu_that_cannot_serve_is_refused_in_one_line),
        cmocka_unit_test(every_call_of_open_may_fail),
        cmocka_unit_test(auto_is_the_cpu_where_no_gpu_serves),
        cmocka_unit_test(the_list_of_devices_shows_which_ones_can_serve),
        cmocka_unit_test(an_error_is_told_once_and_stays),
        cmocka_unit_test(a_device_that_hangs_is_given_up),
        cmocka_unit_test(memory_that_cannot_be_pinned_makes_loading_slow_not_wrong),
#endif
    };
    return ct_run(tests);
}
