/* The emulated runtime: memory that is counted and poisoned, streams in order, graphs with frozen arguments, planned
 * faults. */
#include "cuda/cuda_test.h"
#include "cuda/emu_kernels.h"
#include "test.h"

static cudaStream_t new_stream(void)
{
    cudaStream_t s;
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    return s;
}
static int teardown(void **state)
{
    (void)state;
    emu_reset();
    cudaGetLastError();
    return emu_bytes_held() != 0; /* every test gives back what it took */
}

static void memory_is_counted_and_begins_as_nan(void **state)
{
    struct emu_device small = { .bytes = 64 << 20, .arch = 80, .n_sm = 3 };
    size_t            free_bytes, total;
    uint8_t          *a, *b;
    int               v;
    (void)state;
    emu_set_device(0, &small);
    assert_int_equal(cudaMalloc((void **)&a, 1000), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&b, 40 << 20), cudaSuccess);
    for (int i = 0; i < 1000; i++) assert_int_equal(a[i], 0xff);
    for (int i = 0; i < 40 << 20; i += 4093) assert_int_equal(b[i], 0xff);
    memset(b, 0, 40 << 20); /* private: another allocation begins as NaN again */
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    assert_int_equal(total, 64 << 20);
    assert_int_equal(free_bytes, total - 1000 - (40 << 20));
    void *c = a;
    assert_int_equal(cudaMalloc(&c, 30 << 20), cudaErrorMemoryAllocation);
    assert_null(c);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* not a lasting one */
    assert_int_equal(cudaFree(b), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&b, 30 << 20), cudaSuccess);
    assert_int_equal(b[0], 0xff);
    assert_int_equal(cudaFree(b + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(a), cudaSuccess);
    assert_int_equal(cudaFree(b), cudaSuccess);
    assert_int_equal(cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
    assert_int_equal(v, 3);
    assert_int_equal(cudaDeviceGetAttribute(&v, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
    assert_int_equal(v, 8);
}

static void a_copy_outside_an_allocation_is_refused(void **state)
{
    char  host[200] = { 0 };
    char *dev;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&dev, 100), cudaSuccess);
    assert_int_equal(cudaMemcpy(dev, host, 100, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpy(dev + 1, host, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, dev, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, host + 100, 100, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy2D(dev, 20, host, 40, 20, 5, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpy2D(dev, 21, host, 40, 20, 5, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(dev, 1, 101), cudaErrorInvalidValue);
    cudaFree(dev);
}

static void a_buffer_that_is_reused_too_early_shows(void **state)
{
    cudaStream_t s = new_stream();
    int         *pinned, *dev, pageable = 1, got;
    (void)state;
    assert_int_equal(cudaMallocHost((void **)&pinned, 4), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&dev, 8), cudaSuccess);
    emu_set_lazy(true);
    *pinned = 1;
    assert_int_equal(cudaMemcpyAsync(dev, pinned, 4, cudaMemcpyHostToDevice, s), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(dev + 1, &pageable, 4, cudaMemcpyHostToDevice, s), cudaSuccess);
    *pinned = pageable = 2; /* too early for the first; the second was read within the call */
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_int_equal(cudaStreamQuery(s), cudaSuccess);
    assert_int_equal(cudaMemcpy(&got, dev, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(got, 2);
    assert_int_equal(cudaMemcpy(&got, dev + 1, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(got, 1);
    cudaFree(dev);
    cudaFreeHost(pinned);
    cudaStreamDestroy(s);
}

/* The launch returns, the stream stands still, and what is asked says so; then it goes on where it stopped, in a graph
 * as well. */
static void a_kernel_that_stalls_is_not_ready_and_then_goes_on(void **state)
{
    cudaStream_t    s = new_stream(), other = new_stream();
    float          *dev, got = 0;
    cudaGraph_t     g;
    cudaGraphExec_t x;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&dev, 4), cudaSuccess);
    assert_int_equal(cudaMemset(dev, 0, 4), cudaSuccess);
    emu_fail_after("kernel", 1, (cudaError_t)(EMU_STALL + 500));
    for (int i = 0; i < 3; i++) emu_add(s, dev, 1);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(other), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_int_equal(cudaMemcpy(&got, dev, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_true(got == 3);
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (int i = 0; i < 4; i++) emu_add(s, dev, 1);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&x, g, 0), cudaSuccess);
    emu_fail_after("kernel", 2, (cudaError_t)(EMU_STALL + 500));
    assert_int_equal(cudaGraphLaunch(x, s), cudaSuccess);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    while (cudaStreamQuery(s) == cudaErrorNotReady) usleep(1000);
    assert_int_equal(cudaMemcpy(&got, dev, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_true(got == 7); /* each of the four once */
    emu_fail_next("kernel", (cudaError_t)EMU_STALL);
    emu_add(s, dev, 1); /* for ever */
    usleep(20000);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    (void)cudaGetLastError();
    cudaGraphExecDestroy(x);
    cudaGraphDestroy(g);
    cudaStreamDestroy(s);
    cudaStreamDestroy(other);
    cudaFree(dev);
}

static void memory_of_other_processes_is_not_reported_as_free(void **state)
{
    (void)state;
    size_t before, left, total;
    void  *p;
    char   path[] = "/tmp/emu-others-XXXXXX";
    int    fd = mkstemp(path);
    assert_int_equal(cudaMemGetInfo(&before, &total), cudaSuccess);
    dprintf(fd, "%zu", before - 4096);
    setenv("EMU_OTHERS", path, 1);
    assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
    assert_int_equal(left, 4096);
    assert_int_equal(cudaMalloc(&p, 4097), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, 4096), cudaSuccess);
    cudaFree(p);
    unsetenv("EMU_OTHERS");
    close(fd);
    unlink(path);
    assert_int_equal(cudaMalloc(&p, 4097), cudaSuccess);
    cudaFree(p);
}

static void add_one(void *x) { ++*(int *)x; }
static void events_order_streams(void **state)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t  e, f;
    int          n = 0;
    float        ms;
    (void)state;
    assert_int_equal(cudaEventCreate(&e), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&f, cudaEventDisableTiming), cudaSuccess);
    emu_set_lazy(true);
    assert_int_equal(cudaEventQuery(e), cudaSuccess); /* never recorded */
    cudaLaunchHostFunc(a, add_one, &n);
    cudaLaunchHostFunc(a, add_one, &n);
    cudaEventRecord(e, a);
    cudaLaunchHostFunc(a, add_one, &n);
    cudaStreamWaitEvent(b, e, 0);
    cudaEventRecord(f, b);
    assert_int_equal(n, 0);
    assert_int_equal(cudaEventQuery(f), cudaErrorNotReady); /* one piece of b: the wait, which runs a up to e */
    assert_int_equal(n, 2);
    assert_int_equal(cudaEventQuery(f), cudaSuccess);
    assert_int_equal(cudaEventSynchronize(e), cudaSuccess);
    assert_int_equal(n, 2);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(n, 3);
    assert_int_equal(cudaEventElapsedTime(&ms, e, e), cudaSuccess);
    assert_int_equal(cudaEventElapsedTime(&ms, e, f), cudaErrorInvalidResourceHandle);
    cudaEventDestroy(e);
    cudaEventDestroy(f);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}

static void a_graph_replays_with_frozen_arguments(void **state)
{
    cudaStream_t    s = new_stream(), side = new_stream();
    cudaGraph_t     g;
    cudaGraphExec_t x;
    cudaEvent_t     fork, join;
    float          *out, by = 2.0f, *host;
    size_t          nodes;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&out, 8), cudaSuccess);
    assert_int_equal(cudaMallocHost((void **)&host, 4), cudaSuccess);
    cudaEventCreate(&fork);
    cudaEventCreate(&join);
    out[0] = 0.0f;
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    emu_add(s, out, by);
    by = 5.0f;
    void *p;
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaEventRecord(fork, s), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(side, fork, 0), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(out + 1, host, 4, cudaMemcpyHostToDevice, side), cudaSuccess);
    assert_int_equal(cudaEventRecord(join, side), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(s, join, 0), cudaSuccess);
    assert_int_equal(cudaEventQuery(join), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaSuccess);
    cudaGetLastError();
    assert_true(out[0] == 0.0f); /* nothing ran yet */
    assert_int_equal(cudaGraphGetNodes(g, NULL, &nodes), cudaSuccess);
    assert_int_equal(nodes, 2);
    assert_int_equal(cudaGraphInstantiate(&x, g, 0), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(g), cudaSuccess);
    for (int i = 1; i <= 3; i++) {
        *host = (float)i; /* contents are read at the replay, addresses are frozen */
        assert_int_equal(cudaGraphLaunch(x, s), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
        assert_true(out[0] == 2.0f * (float)i);
        assert_true(out[1] == (float)i);
    }
    cudaGraphExecDestroy(x);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaFree(out);
    cudaFreeHost(host);
    cudaStreamDestroy(s);
    cudaStreamDestroy(side);
}
static void a_failed_graph_capture_is_reported(void **state)
{
    cudaStream_t s = new_stream(), side = new_stream();
    cudaGraph_t  g;
    cudaEvent_t  e;
    int          x = 0;
    (void)state;
    cudaEventCreate(&e);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaLaunchHostFunc(s, add_one, &x), cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    assert_null(g);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(e, s);
    cudaStreamWaitEvent(side, e, 0);
    cudaLaunchHostFunc(side, add_one, &x);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureUnjoined);
    assert_int_equal(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(x, 0);
    cudaEventDestroy(e);
    cudaStreamDestroy(s);
    cudaStreamDestroy(side);
}

static void a_planned_fault_comes_once_and_a_lasting_one_stays(void **state)
{
    cudaStream_t s = new_stream();
    void        *p;
    float       *out;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&out, 4), cudaSuccess);
    emu_fail_after("cudaMalloc", 1, cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, 4), cudaSuccess);
    cudaFree(p);
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, 4), cudaSuccess);
    cudaFree(p);
    cudaGetLastError();
    emu_fail_next("launch", cudaErrorLaunchOutOfResources);
    emu_add(s, out, 1.0f);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorLaunchOutOfResources);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchOutOfResources);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    /* a kernel that faults: the launch is fine, whoever waits hears of it, and so does every call from then on, of this
     * device */
    emu_set_devices(2);
    emu_fail_next("kernel", cudaErrorIllegalAddress);
    emu_set_lazy(true);
    emu_add(s, out, 1.0f);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaMalloc(&p, 4), cudaSuccess);
    assert_int_equal(cudaFree(p), cudaSuccess);
    emu_reset();
    assert_int_equal(cudaFree(out), cudaSuccess);
    cudaStreamDestroy(s);
}

static void a_launch_that_the_device_cannot_hold_is_refused(void **state)
{
    static const struct {
        unsigned    grid, block;
        size_t      smem;
        cudaError_t e;
    } t[] = { { 0, 32, 0, cudaErrorInvalidConfiguration },
              { 1, 0, 0, cudaErrorInvalidConfiguration },
              { 1, 1025, 0, cudaErrorInvalidConfiguration },
              { 1, 32, (48 << 10) + 1, cudaErrorInvalidValue },
              { 1, 32, 48 << 10, cudaSuccess } };
    float *out;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&out, 128), cudaSuccess);
    for (size_t i = 0; i < ARRAY_N(t); i++) {
        emu_size(t[i].grid, t[i].block, t[i].smem, out);
        assert_int_equal(cudaGetLastError(), t[i].e);
    }
    cudaFree(out);
}

static void without_a_driver_or_a_device_every_call_returns_its_error(void **state)
{
    int   n = 5;
    void *p;
    (void)state;
    emu_set_driver(0);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    assert_int_equal(n, 0);
    assert_int_equal(cudaDriverGetVersion(&n), cudaSuccess);
    assert_int_equal(n, 0);
    emu_set_driver(13000);
    emu_set_devices(0);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorNoDevice);
    assert_string_equal(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(memory_is_counted_and_begins_as_nan, teardown),
        cmocka_unit_test_teardown(a_copy_outside_an_allocation_is_refused, teardown),
        cmocka_unit_test_teardown(a_buffer_that_is_reused_too_early_shows, teardown),
        cmocka_unit_test_teardown(a_kernel_that_stalls_is_not_ready_and_then_goes_on, teardown),
        cmocka_unit_test_teardown(memory_of_other_processes_is_not_reported_as_free, teardown),
        cmocka_unit_test_teardown(events_order_streams, teardown),
        cmocka_unit_test_teardown(a_graph_replays_with_frozen_arguments, teardown),
        cmocka_unit_test_teardown(a_failed_graph_capture_is_reported, teardown),
        cmocka_unit_test_teardown(a_planned_fault_comes_once_and_a_lasting_one_stays, teardown),
        cmocka_unit_test_teardown(a_launch_that_the_device_cannot_hold_is_refused, teardown),
        cmocka_unit_test_teardown(without_a_driver_or_a_device_every_call_returns_its_error, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
