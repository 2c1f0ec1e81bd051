/* fill_kernel: bytes that a kernel writes, ahead of the kernel that a test is about. */
#include "kernels/cuda/common.cuh"
#include "tests/cuda/fill_kernel.h"

enum { FILL_THREADS = 64 };

static __global__ void k_fill_ff(unsigned char *p, size_t bytes)
{
    size_t each = (bytes + FILL_THREADS - 1) / FILL_THREADS, from = each * threadIdx.x;
    if (from < bytes) memset(p + from, 0xff, bytes - from < each ? bytes - from : each);
}
/* They come as the kernel's argument. */
struct late_bytes {
    unsigned char b[CT_LATE_MAX];
};
static __global__ void k_put_late(unsigned char *p, uint32_t n, const struct late_bytes from)
{
    for (uint32_t i = threadIdx.x; i < n; i += FILL_THREADS) p[i] = from.b[i];
}

extern "C" void ct_fill_ff(struct device *d, void *p, size_t bytes)
{
    LAUNCH(k_fill_ff, 1, FILL_THREADS, 0, cuda_of(d)->stream, (unsigned char *)p, bytes);
}
extern "C" void ct_put_late(struct device *d, void *p, const void *host, uint32_t n)
{
    struct late_bytes from;
    memcpy(from.b, host, n);
    LAUNCH(k_put_late, 1, FILL_THREADS, 0, cuda_of(d)->stream, (unsigned char *)p, n, from);
}
