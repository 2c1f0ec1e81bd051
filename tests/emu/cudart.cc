/* cudart: devices, errors, memory and copies of the emulated runtime.   See include/emu.h.
 * Over 500 lines: one library of short functions, the emulated runtime, that share its devices. */
#include "rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace rt
{
std::mutex            lock;
int                   n_device = 1;
Device                device[DEVICES_MAX];
std::atomic<bool>     lazy{ false };
__thread int          current;
__thread unsigned     capturing;
std::atomic<unsigned> capturing_global{ 0 };

static int                        driver = 13000;
static bool                       coherent, native_atomics = true;
static __thread cudaError_t       last;
static std::map<uintptr_t, Alloc> allocs;
struct Fault {
    std::string call;
    uint32_t    skip;
    cudaError_t e;
};
static std::vector<Fault> faults;

static bool ends_context(cudaError_t e)
{
    switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}
void lose(int dev, cudaError_t e)
{
    std::lock_guard<std::mutex> g(lock);
    if (ends_context(e) && device[dev].sticky == cudaSuccess) device[dev].sticky = e;
}
cudaError_t lost(int dev)
{
    std::lock_guard<std::mutex> g(lock);
    return device[dev].sticky;
}
cudaError_t fail(cudaError_t e)
{
    if (e != cudaSuccess) {
        last = e;
        lose(current, e);
    }
    return e;
}
cudaError_t planned(const char *call)
{
    std::lock_guard<std::mutex> g(lock);
    for (size_t i = 0; i < faults.size(); i++) {
        if (faults[i].call != call) continue;
        if (faults[i].skip) {
            faults[i].skip--;
            return cudaSuccess;
        }
        cudaError_t e = faults[i].e;
        faults.erase(faults.begin() + (ptrdiff_t)i);
        return e;
    }
    return cudaSuccess;
}
double stall_end(cudaError_t e)
{
    unsigned code = (unsigned)e;
    if (code < EMU_STALL) return 0;
    return code == EMU_STALL ? 1e18 : now() + (code - EMU_STALL) / 1e3;
}
cudaError_t enter(const char *call)
{
    if (!driver) return cudaErrorInsufficientDriver;
    if (!n_device) return cudaErrorNoDevice;
    cudaError_t e = lost(current);
    if (e == cudaSuccess) e = planned(call);
    double end = stall_end(e);
    while (end > 0 && now() < end) usleep(1000);
    return end > 0 ? cudaSuccess : e;
}
bool unsafe_now() { return capturing || capturing_global; }

/* ---------------------------------------------------------------- memory */

static std::map<uintptr_t, Alloc>::iterator find(const void *p) /* lock is held */
{
    auto it = allocs.upper_bound((uintptr_t)p);
    if (it == allocs.begin()) return allocs.end();
    --it;
    return (uintptr_t)p - it->first < it->second.bytes ? it : allocs.end();
}
memory kind_of(const void *p, bool *known)
{
    std::lock_guard<std::mutex> g(lock);
    auto                        it = find(p);
    *known = it != allocs.end();
    return *known ? it->second.kind : REGISTERED;
}
/* Is [p, p + bytes) within one allocation of the device (device) or of no device (host)? */
static bool range_ok(const void *p, size_t bytes, bool on_device)
{
    std::lock_guard<std::mutex> g(lock);
    auto                        it = find(p);
    if (it == allocs.end()) return !on_device && p;
    if ((it->second.kind == DEVICE) != on_device) return false;
    return bytes <= it->second.bytes - ((uintptr_t)p - it->first);
}

/* 0xff bytes without touching them: one small file of such pages, mapped privately over and over. Small blocks come
 * from malloc, so that AddressSanitizer guards both ends; large ones end at a page that cannot be touched. */
static void *poisoned(size_t bytes, Alloc *a)
{
    enum : size_t { LARGE = 8 << 20, TILE = 4 << 20, PAGE = 4096 };
    a->map = NULL, a->map_bytes = 0;
    if (bytes < LARGE) {
        void *p = NULL;
        if (posix_memalign(&p, 256, bytes)) return NULL;
        return memset(p, 0xff, bytes);
    }
    static int fd = [] {
        int               f = memfd_create("emu", MFD_CLOEXEC);
        std::vector<char> tile((size_t)TILE, (char)0xff);
        if (f >= 0 && write(f, tile.data(), TILE) != (ssize_t)TILE) f = -1;
        return f;
    }();
    size_t body = (bytes + 255) / 256 * 256, whole = (body + PAGE - 1) / PAGE * PAGE;
    char  *base = (char *)mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || fd < 0) return NULL;
    for (size_t at = 0; at < whole; at += TILE) {
        size_t n = whole - at < TILE ? whole - at : (size_t)TILE;
        if (mmap(base + PAGE + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0) ==
            MAP_FAILED)
            return NULL;
    }
    a->map = base, a->map_bytes = whole + 2 * PAGE;
    return base + PAGE + (whole - body);
}
/* memset; of much memory by fresh pages of zeros, which cost nothing until they are written */
static void fill(void *p, int value, size_t bytes)
{
    enum : uintptr_t { LARGE = 1 << 20, PAGE = 4096 };
    uintptr_t at = (uintptr_t)p, from = (at + PAGE - 1) / PAGE * PAGE, to = (at + bytes) / PAGE * PAGE;
    if (value == 0 && bytes >= LARGE) {
        std::lock_guard<std::mutex> g(lock);
        auto                        it = find(p);
        if (it != allocs.end() && it->second.map &&
            mmap((void *)from, to - from, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
            memset(p, 0, from - at);
            memset((void *)to, 0, at + bytes - to);
            return;
        }
    }
    memset(p, value, bytes);
}
static void release(void *p, const Alloc &a)
{
    if (a.kind == REGISTERED) return;
    if (a.map)
        munmap(a.map, a.map_bytes);
    else
        free(p);
}
/* Bytes that other processes hold of the GPU at this moment. */
static size_t others()
{
    const char *path = getenv("EMU_OTHERS");
    FILE       *f = path ? fopen(path, "re") : NULL;
    size_t      n = 0;
    if (f && fscanf(f, "%zu", &n) != 1) n = 0;
    if (f) fclose(f);
    return n;
}
static size_t left_of(const Device &d)
{
    size_t n = others();
    return d.cfg.bytes > d.used + n ? d.cfg.bytes - d.used - n : 0;
}
static void told(const char *call, size_t bytes)
{
    static const bool want = getenv("EMU_TRACE_ALLOC") != NULL;
    if (want) fprintf(stderr, "emu: %s of %zu bytes\n", call, bytes);
}
static cudaError_t take(void **p, size_t bytes, memory kind)
{
    *p = NULL;
    told(kind == DEVICE ? "cudaMalloc" : "pinned memory", bytes);
    if (bytes == 0) return cudaSuccess;
    std::lock_guard<std::mutex> g(lock);
    Device                     &d = device[current];
    if (kind == DEVICE && bytes > left_of(d)) return cudaErrorMemoryAllocation;
    Alloc a = { bytes, current, kind, NULL, 0 };
    void *q = poisoned(bytes, &a);
    if (!q) return cudaErrorMemoryAllocation;
    if (kind == DEVICE) d.used += bytes;
    allocs[(uintptr_t)q] = a;
    *p = q;
    return cudaSuccess;
}
static cudaError_t give(void *p, memory kind)
{
    if (!p) return cudaSuccess;
    std::lock_guard<std::mutex> g(lock);
    auto                        it = allocs.find((uintptr_t)p);
    if (it == allocs.end() || it->second.kind != kind) {
        if (kind == REGISTERED) return cudaErrorHostMemoryNotRegistered;
        return cudaErrorInvalidValue;
    }
    if (kind == DEVICE) device[it->second.device].used -= it->second.bytes;
    release(p, it->second);
    allocs.erase(it);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- copies */

struct Rows {
    char       *dst;
    const char *src;
    size_t      dpitch, spitch, width, height;
};
static size_t span(size_t pitch, size_t width, size_t height)
{
    return height && width ? pitch * (height - 1) + width : 0;
}
static void copy(const Rows &r)
{
    for (size_t i = 0; i < r.height; i++) memmove(r.dst + i * r.dpitch, r.src + i * r.spitch, r.width);
}
static cudaError_t check(const Rows &r, cudaMemcpyKind kind, bool *dst_dev, bool *src_dev)
{
    bool known;
    if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (r.height > 1 && (r.dpitch < r.width || r.spitch < r.width)) return cudaErrorInvalidValue;
    *dst_dev = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    *src_dev = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) {
        *dst_dev = kind_of(r.dst, &known) == DEVICE;
        *src_dev = kind_of(r.src, &known) == DEVICE;
    }
    if (!range_ok(r.dst, span(r.dpitch, r.width, r.height), *dst_dev)) return cudaErrorInvalidValue;
    if (!range_ok(r.src, span(r.spitch, r.width, r.height), *src_dev)) return cudaErrorInvalidValue;
    return cudaSuccess;
}
static cudaError_t copy_sync(const char *call, const Rows &r, cudaMemcpyKind kind)
{
    bool        dst_dev, src_dev;
    cudaError_t e = enter(call);
    if (e == cudaSuccess && r.width && r.height) e = check(r, kind, &dst_dev, &src_dev);
    if (e == cudaSuccess && unsafe_now()) e = cudaErrorStreamCaptureImplicit;
    if (e != cudaSuccess || !r.width || !r.height) return fail(e);
    drain_device(current, true);
    copy(r);
    return fail(lost(current));
}
static cudaError_t copy_async(const char *call, const Rows &r, cudaMemcpyKind kind, cudaStream_t s)
{
    bool        dst_dev, src_dev, known;
    cudaError_t e = enter(call);
    if (e == cudaSuccess && r.width && r.height) e = check(r, kind, &dst_dev, &src_dev);
    if (e != cudaSuccess || !r.width || !r.height) return fail(e);
    std::shared_ptr<Stream>            st = stream_of(s);
    bool                               wait = false;
    Rows                               q = r;
    std::shared_ptr<std::vector<char>> staged;
    if (st && !st->cap) { /* pageable memory: CUDA reads it before the call returns, and has written it by then */
        if (!src_dev && (kind_of(r.src, &known), !known)) {
            staged = std::make_shared<std::vector<char>>(span(r.spitch, r.width, r.height));
            memcpy(staged->data(), r.src, staged->size());
            q.src = staged->data();
        }
        if (!dst_dev) kind_of(r.dst, &known), wait = !known;
    }
    e = enqueue(s, [q, staged] { copy(q); });
    if (e == cudaSuccess && wait) return cudaStreamSynchronize(s);
    return fail(e);
}
} // namespace rt
using namespace rt;

/* ---------------------------------------------------------------- what tests set */

void emu_set_devices(int n)
{
    std::lock_guard<std::mutex> g(lock);
    n_device = n < 0 ? 0 : n > DEVICES_MAX ? (int)DEVICES_MAX : n;
}
void emu_set_device(int ordinal, const struct emu_device *d)
{
    std::lock_guard<std::mutex> g(lock);
    device[ordinal].cfg = *d;
}
void emu_set_coherent(bool on) { coherent = on; }
void emu_set_peer(enum emu_peer writes, bool native)
{
    emu::peer_writes = writes;
    native_atomics = native;
}
void   emu_set_driver(int version) { driver = version; }
size_t emu_bytes_held(void)
{
    std::lock_guard<std::mutex> g(lock);
    size_t                      n = 0;
    for (auto &a : allocs) n += a.second.bytes;
    return n;
}
void emu_set_lazy(bool on)
{
    for (int i = 0; i < n_device; i++) drain_device(i, false);
    lazy = on;
}
void emu_fail_after(const char *call, uint32_t skip, cudaError_t e)
{
    std::lock_guard<std::mutex> g(lock);
    faults.push_back({ call, skip, e });
}
void emu_fail_next(const char *call, cudaError_t e) { emu_fail_after(call, 0, e); }
void emu_reset(void)
{
    emu_set_lazy(false);
    emu_set_schedule(NULL);
    std::lock_guard<std::mutex> g(lock);
    faults.clear();
    n_device = 1, driver = 13000, last = cudaSuccess, current = 0;
    emu::peer_writes = EMU_PEER_RIGHT, native_atomics = true;
    for (Device &d : device) {
        d.cfg = Device().cfg, d.sticky = cudaSuccess;
        for (bool &p : d.peer) p = false;
    }
}

/* ---------------------------------------------------------------- devices */

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t e = enter("cudaGetDeviceCount");
    *count = e == cudaSuccess ? n_device : 0;
    return fail(e);
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int dev)
{
    RT_ENTER("cudaGetDeviceProperties");
    if (dev < 0 || dev >= n_device) return fail(cudaErrorInvalidDevice);
    const emu_device &c = device[dev].cfg;
    memset((void *)p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Emulated GPU %d", dev);
    p->totalGlobalMem = c.bytes;
    p->sharedMemPerBlock = 48 << 10, p->sharedMemPerBlockOptin = 227 << 10, p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = 65536, p->warpSize = 32, p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048;
    p->major = c.arch / 10, p->minor = c.arch % 10, p->multiProcessorCount = c.n_sm;
    p->canMapHostMemory = p->unifiedAddressing = p->concurrentKernels = p->cooperativeLaunch =
        p->hostRegisterSupported = 1;
    p->pciBusID = dev + 1, p->asyncEngineCount = 1, p->memoryBusWidth = 64, p->l2CacheSize = 1 << 20;
    p->maxBlocksPerMultiProcessor = 32;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr attr, int dev)
{
    RT_ENTER("cudaDeviceGetAttribute");
    if (dev < 0 || dev >= n_device) return fail(cudaErrorInvalidDevice);
    const emu_device &c = device[dev].cfg;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 227 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = 228 << 10; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMultiProcessorCount: *v = c.n_sm; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *v = c.arch / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *v = c.arch % 10; break;
    case cudaDevAttrL2CacheSize: *v = 1 << 20; break;
    case cudaDevAttrGlobalMemoryBusWidth: *v = 64; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *v = 1000000; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported: *v = 1; break;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables: *v = coherent; break;
    default: *v = 0; break;
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int dev)
{
    RT_ENTER("cudaDeviceGetPCIBusId");
    if (dev < 0 || dev >= n_device || len < 13) return fail(cudaErrorInvalidValue);
    snprintf(id, (size_t)len, "0000:%02x:00.0", (unsigned)(dev + 1) & 0xffu);
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int dev)
{
    if (dev < 0 || dev >= n_device) return fail(n_device ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    current = dev;
    RT_ENTER("cudaSetDevice");
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *dev)
{
    RT_ENTER("cudaGetDevice");
    *dev = current;
    return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    RT_ENTER("cudaSetDeviceFlags");
    return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    (void)limit, (void)value;
    RT_ENTER("cudaDeviceSetLimit");
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    RT_ENTER("cudaDeviceSynchronize");
    if (unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    drain_device(current, false);
    return fail(lost(current));
}
cudaError_t cudaDeviceReset(void)
{
    drain_device(current, false);
    std::lock_guard<std::mutex> g(lock);
    device[current].sticky = cudaSuccess;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int dev, int peer)
{
    RT_ENTER("cudaDeviceCanAccessPeer");
    if (dev < 0 || dev >= n_device || peer < 0 || peer >= n_device) return fail(cudaErrorInvalidDevice);
    *can = dev != peer;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int src, int dst)
{
    RT_ENTER("cudaDeviceGetP2PAttribute");
    if (src < 0 || src >= n_device || dst < 0 || dst >= n_device || src == dst) return fail(cudaErrorInvalidDevice);
    if (attr != cudaDevP2PAttrNativeAtomicSupported) return fail(cudaErrorInvalidValue);
    *value = native_atomics;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    RT_ENTER("cudaDeviceEnablePeerAccess");
    if (flags) return fail(cudaErrorInvalidValue);
    if (peer < 0 || peer >= n_device || peer == current) return fail(cudaErrorInvalidDevice);
    if (device[current].peer[peer]) return fail(cudaErrorPeerAccessAlreadyEnabled);
    device[current].peer[peer] = true;
    return cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    RT_ENTER("cudaDeviceDisablePeerAccess");
    if (peer < 0 || peer >= n_device) return fail(cudaErrorInvalidDevice);
    if (!device[current].peer[peer]) return fail(cudaErrorPeerAccessNotEnabled);
    device[current].peer[peer] = false;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result)
{
    RT_ENTER("cudaGetDriverEntryPointByVersion");
    (void)version, (void)flags;
    bool known = !strcmp(symbol, "cuTensorMapEncodeTiled");
    *function = known ? emu::tensor_encode() : NULL;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver;
    return fail(planned("cudaDriverGetVersion"));
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last, keep = lost(current);
    last = cudaSuccess;
    return keep != cudaSuccess ? keep : e;
}
cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t keep = lost(current);
    return keep != cudaSuccess ? keep : last;
}

/* ---------------------------------------------------------------- memory */

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total)
{
    RT_ENTER("cudaMemGetInfo");
    std::lock_guard<std::mutex> g(lock);
    *total = device[current].cfg.bytes;
    *free_out = left_of(device[current]);
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    RT_ENTER("cudaMalloc");
    if (unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    return fail(take(p, bytes, DEVICE));
}
cudaError_t cudaFree(void *p)
{
    RT_ENTER("cudaFree");
    if (unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    drain_device(current, false);
    return fail(give(p, DEVICE));
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    RT_ENTER("cudaHostAlloc");
    if (unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    return fail(take(p, bytes, PINNED));
}
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    RT_ENTER("cudaMallocHost");
    if (unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    return fail(take(p, bytes, PINNED));
}
cudaError_t cudaFreeHost(void *p)
{
    drain_device(current, false);
    cudaError_t e = give(p, PINNED); /* of a lost device too: to a leak checker it would be one */
    RT_ENTER("cudaFreeHost");
    return fail(e);
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    RT_ENTER("cudaHostRegister");
    if (!p || !bytes) return fail(cudaErrorInvalidValue);
    told("cudaHostRegister", bytes);
    std::lock_guard<std::mutex> g(lock);
    if (find(p) != allocs.end() || find((char *)p + bytes - 1) != allocs.end())
        return last = cudaErrorHostMemoryAlreadyRegistered;
    allocs[(uintptr_t)p] = { bytes, current, REGISTERED, NULL, 0 };
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    RT_ENTER("cudaHostUnregister");
    return fail(give(p, REGISTERED));
}
cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned flags)
{
    bool known;
    (void)flags;
    RT_ENTER("cudaHostGetDevicePointer");
    if (kind_of(host, &known) == DEVICE || !known) return fail(cudaErrorInvalidValue);
    *dev = host;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    RT_ENTER("cudaPointerGetAttributes");
    std::lock_guard<std::mutex> g(lock);
    auto                        it = find(p);
    memset((void *)a, 0, sizeof *a);
    a->type = cudaMemoryTypeUnregistered, a->device = -2;
    if (it == allocs.end()) return cudaSuccess;
    a->type = it->second.kind == DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    a->device = it->second.device;
    a->devicePointer = (void *)(uintptr_t)p;
    a->hostPointer = it->second.kind == DEVICE ? NULL : (void *)(uintptr_t)p;
    return cudaSuccess;
}
static Rows line(void *dst, const void *src, size_t bytes)
{
    return Rows{ (char *)dst, (const char *)src, bytes, bytes, bytes, 1 };
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return copy_sync("cudaMemcpy", line(dst, src, bytes), kind);
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
    return copy_async("cudaMemcpyAsync", line(dst, src, bytes), kind, s);
}
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                                cudaStream_t s)
{
    (void)dst_device, (void)src_device;
    return copy_async("cudaMemcpyPeerAsync", line(dst, src, bytes), cudaMemcpyDeviceToDevice, s);
}
cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
    return copy_sync("cudaMemcpy2D", { (char *)dst, (const char *)src, dpitch, spitch, width, height }, kind);
}
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t s)
{
    return copy_async("cudaMemcpy2DAsync", { (char *)dst, (const char *)src, dpitch, spitch, width, height }, kind, s);
}
cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    RT_ENTER("cudaMemset");
    if (!bytes) return cudaSuccess;
    if (!range_ok(p, bytes, true)) return fail(cudaErrorInvalidValue);
    if (unsafe_now()) return fail(cudaErrorStreamCaptureImplicit);
    drain_device(current, true);
    fill(p, value, bytes);
    return fail(lost(current));
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    RT_ENTER("cudaMemsetAsync");
    if (!bytes) return cudaSuccess;
    if (!range_ok(p, bytes, true)) return fail(cudaErrorInvalidValue);
    return fail(enqueue(s, [p, value, bytes] { fill(p, value, bytes); }));
}

const char *cudaGetErrorName(cudaError_t e)
{
#define NAME(name, value) \
    case name: return #name;
    switch (e) {
        EMU_ERRORS(NAME)
    default: return "unrecognized error code";
    }
}
const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorECCUncorrectable: return "uncorrectable ECC error encountered";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorLaunchTimeout: return "the launch timed out and was terminated";
    case cudaErrorNotReady: return "device not ready";
    default: return cudaGetErrorName(e);
    }
}

/* ---------------------------------------------------------------- what a server's tests set: the environment
 * EMU_FAIL=call:skip:error[,...]   as emu_fail_after, the error by its number (100000 and above: EMU_STALL)
 * EMU_DEVICES=N  EMU_DRIVER=N  EMU_ARCH=75  EMU_BYTES=N  EMU_COHERENT=1 EMU_SLOW=skip:factor   as
 * emu_set_slow      EMU_OTHERS=FILE   holds how many bytes other processes have of each GPU, and may change
 * EMU_TRACE_ALLOC=1      a line on stderr for each allocation */

static long number_of(const char *name, long otherwise)
{
    const char *v = getenv(name);
    return v ? strtol(v, NULL, 10) : otherwise;
}
namespace
{
struct Environment {
    Environment()
    {
        emu_set_devices((int)number_of("EMU_DEVICES", n_device));
        driver = (int)number_of("EMU_DRIVER", driver);
        coherent = number_of("EMU_COHERENT", 0) != 0;
        for (Device &d : device) {
            d.cfg.arch = (int)number_of("EMU_ARCH", d.cfg.arch);
            d.cfg.bytes = (size_t)number_of("EMU_BYTES", (long)d.cfg.bytes);
        }
        const char *v = getenv("EMU_SLOW");
        unsigned    slow_skip, factor;
        if (v && sscanf(v, "%u:%u", &slow_skip, &factor) == 2) emu_set_slow(slow_skip, factor);
        v = getenv("EMU_FAIL");
        for (char call[64]; v && *v;) {
            unsigned skip, e;
            int      n = 0;
            if (sscanf(v, "%63[^:,]:%u:%u%n", call, &skip, &e, &n) != 3) {
                fprintf(stderr, "emu: EMU_FAIL: not call:skip:error at '%s'\n", v);
                abort();
            }
            emu_fail_after(call, skip, (cudaError_t)e);
            v += n;
            if (*v == ',') v++;
        }
    }
} environment;
} // namespace
