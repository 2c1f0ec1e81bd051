/* raw_test: what tests of single kernels share: a stream, memory that is filled and read back, numbers. */
#pragma once
#include "cuda/cuda_test.h"

static cudaStream_t stream;

static inline void *up(const void *src, size_t bytes) /* src NULL: left as it is */
{
    void *p;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    if (src)
        assert_int_equal(cudaMemcpy(p, src, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    else
        assert_int_equal(cudaMemset(p, 0, bytes), cudaSuccess);
    return p;
}
static inline void down(void *dst, void *src, size_t bytes)
{
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    cudaFree(src);
}
static inline uint32_t number(uint64_t stream_no, uint64_t i) { return rng_philox(11, stream_no, i).x[0]; }

/* The tests on a stream of their own; 77 without a GPU of compute capability `major` (0: any). */
static inline int raw_main(const struct CMUnitTest *tests, size_t n_test, int major)
{
    int n = 0, have = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("no GPU\n");
        return 77;
    }
    if (cudaDeviceGetAttribute(&have, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
        (major && have != major)) {
        printf("no GPU of compute capability %d\n", major);
        return 77;
    }
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return 1;
    int rc = _cmocka_run_group_tests("tests", tests, n_test, NULL, NULL);
    cudaStreamDestroy(stream);
    return rc;
}
