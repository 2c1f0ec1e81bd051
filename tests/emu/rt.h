/* rt: what the files of the emulated runtime share.   C++17, private to tests/emu. */
#pragma once
#include <atomic>
#include <deque>
#include <emu.h>
#include <emu_kernel.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace emu
{
extern enum emu_peer peer_writes; /* emu_set_peer */
}

namespace rt
{
enum { DEVICES_MAX = 16 };
typedef std::function<void()> Op;
/* A piece of a stream's work: a kernel, or something else. */
struct Work {
    Op                                 op;
    std::shared_ptr<const emu::Launch> kernel; /* empty: op */
};

struct Stream {
    int                        device = 0;
    bool                       blocking = true; /* waits for the legacy stream, and it for this one */
    std::recursive_mutex       m;               /* whoever runs its work                            */
    std::mutex                 qm;              /* q, pushed                                        */
    std::deque<Work>           q;
    std::shared_ptr<emu::Grid> begun; /* the kernel at the front of q has begun early */
    uint64_t                   pushed = 0;
    std::atomic<uint64_t>      done{ 0 };
    std::atomic<double>        stall_until{ 0 }; /* its first piece of work stands still until then: now() */
    CUgraph_st                *cap = NULL;       /* the capture that is open                         */
    uint64_t                   cap_n = 0;        /* nodes that this stream gave to it                */
    uint64_t                   cap_joined = 0;   /* of them, how many another stream has waited for  */
    bool                       cap_origin = false;
};
struct Device {
    emu_device              cfg = { (size_t)2 << 30, 90, 8 };
    size_t                  used = 0;
    cudaError_t             sticky = cudaSuccess;
    std::shared_ptr<Stream> legacy;
    bool                    peer[DEVICES_MAX] = {};
};
enum memory { DEVICE, PINNED, REGISTERED };
struct Alloc {
    size_t bytes;
    int    device;
    memory kind;
    void  *map; /* not NULL: the mapping that it lies in */
    size_t map_bytes;
};

extern std::mutex            lock; /* of all that follows */
extern int                   n_device;
extern Device                device[DEVICES_MAX];
extern std::atomic<bool>     lazy;
extern __thread int          current; /* of this OS thread */
extern __thread unsigned     capturing;
extern std::atomic<unsigned> capturing_global;

/* the fault planned for it, or the device's own; a planned stall is over when it returns */
cudaError_t enter(const char *call);
cudaError_t planned(const char *call); /* the fault planned for it alone */
double      now();                     /* seconds */
double      stall_end(cudaError_t e);  /* of an error that says EMU_STALL: now() when it ends; else 0 */
cudaError_t fail(cudaError_t e);       /* remembers it, gives it back; ends the device where e does */
void        lose(int dev, cudaError_t e);
cudaError_t lost(int dev);
bool        unsafe_now(); /* a capture is open that forbids calls such as cudaMalloc here */
memory      kind_of(const void *p, bool *known);

/* stream.cc */
std::shared_ptr<Stream> stream_of(cudaStream_t s);      /* empty: no such stream */
cudaError_t             enqueue(cudaStream_t s, Op op); /* no kernel */
void                    drain_device(int dev, bool blocking_only);
void                    drop_streams();
} // namespace rt

#define RT_ENTER(call)                              \
    do {                                            \
        cudaError_t e_ = rt::enter(call);           \
        if (e_ != cudaSuccess) return rt::fail(e_); \
    } while (0)
