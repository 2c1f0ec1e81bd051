#include "server/nvml.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/snapshot.h"
#include "base/thread.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of nvml.h, CUDA 13: the ABI alone, so that no header of the driver's is needed. */
enum {
    NVML_OK = 0,
    NVML_GPU_LOST = 15,
    NVML_XID = 0x8,
    NVML_DOUBLE_BIT = 0x2,
    NVML_UNCORRECTED = 1,
    NVML_VOLATILE = 0
};
typedef void *nvml_device, *nvml_events;
struct nvml_use {
    unsigned gpu, memory; /* percent */
};
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned           version; /* size | 2 << 24 */
    unsigned long long total, reserved, free, used;
};
struct nvml_pci {
    char     old_id[16];
    unsigned domain, bus, device, id, subsystem;
    char     bus_id[32];
};
struct nvml_event {
    nvml_device        device;
    unsigned long long type, data;
    unsigned           instance, compute_instance;
};

/* Functions of the library; those behind `may lack` are NULL in older or smaller ones. */
#define NVML_FUNCTIONS(X)                                                                                         \
    X(Init, "nvmlInit_v2", false, void)                                                                           \
    X(Count, "nvmlDeviceGetCount_v2", false, unsigned *n)                                                         \
    X(Handle, "nvmlDeviceGetHandleByIndex_v2", false, unsigned i, nvml_device *d)                                 \
    X(Pci, "nvmlDeviceGetPciInfo_v3", true, nvml_device d, struct nvml_pci *p)                                    \
    X(Use, "nvmlDeviceGetUtilizationRates", true, nvml_device d, struct nvml_use *u)                              \
    X(Memory, "nvmlDeviceGetMemoryInfo", true, nvml_device d, struct nvml_memory *m)                              \
    X(MemoryNew, "nvmlDeviceGetMemoryInfo_v2", true, nvml_device d, struct nvml_memory_v2 *m)                     \
    X(Power, "nvmlDeviceGetPowerUsage", true, nvml_device d, unsigned *mw)                                        \
    X(Temperature, "nvmlDeviceGetTemperature", true, nvml_device d, int sensor, unsigned *c)                      \
    X(Ecc, "nvmlDeviceGetTotalEccErrors", true, nvml_device d, int type, int counter, unsigned long long *n)      \
    X(Rows, "nvmlDeviceGetRemappedRows", true, nvml_device d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) \
    X(Reasons, "nvmlDeviceGetCurrentClocksEventReasons", true, nvml_device d, unsigned long long *mask)           \
    X(EventsNew, "nvmlEventSetCreate", true, nvml_events *e)                                                      \
    X(EventsOf, "nvmlDeviceRegisterEvents", true, nvml_device d, unsigned long long types, nvml_events e)         \
    X(EventsWait, "nvmlEventSetWait_v2", true, nvml_events e, struct nvml_event *event, unsigned ms)
struct nvml_api {
#define MEMBER(name, symbol, may_lack, ...) int (*name)(__VA_ARGS__);
    NVML_FUNCTIONS(MEMBER)
#undef MEMBER
};

enum { WAIT_MS = 100, ROUND = NVML_EVERY_US / 1000 / WAIT_MS, CLOSE_MS = 400 };

struct nvml {
    struct snapshot snapshot; /* of struct nvml_sample */
    pthread_t       thread;
    sem_t           ended;
    _Atomic bool    stop;
    /* the thread's */
    struct nvml_api    api;
    nvml_device        device[NVML_GPUS_MAX];
    nvml_events        events; /* NULL: none */
    struct nvml_sample sample;
};

/* Bits of the mask of reasons: software's power cap, hardware's slowdown, sync boost, software's and hardware's thermal
 * limit, power brake, display clocks. Idle and clocks that somebody asked for are no throttling. */
static const unsigned long long throttle_bit[NVML_THROTTLES] = { 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100 };

/* ---- the library ---- */

static bool load(struct nvml_api *api)
{
    static const struct {
        const char *symbol;
        size_t      at;
        bool        may_lack;
    } row[] = {
#define ROW(name, symbol, may_lack, ...) { symbol, offsetof(struct nvml_api, name), may_lack },
        NVML_FUNCTIONS(ROW)
#undef ROW
    };
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return false;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        void *f = dlsym(lib, row[i].symbol);
        if (!f && !row[i].may_lack) {
            LOG_WARN("nvml: libnvidia-ml.so.1 has no %s, /metrics tells nothing of GPUs", row[i].symbol);
            return false;
        }
        memcpy((char *)api + row[i].at, &f, sizeof f);
    }
    return true; /* the library stays: a call may hang in it for good */
}

/* Where GPU i is on the bus, by which a device of ours is known to be this one. */
static void place(struct nvml *n, unsigned i)
{
    struct nvml_gpu *g = &n->sample.gpu[i];
    struct nvml_pci  p = { .domain = 0 };
    g->placed = n->api.Pci && !n->api.Pci(n->device[i], &p);
    g->place = (struct dev_place){ p.domain, p.bus, p.device };
}

static bool find_gpus(struct nvml *n)
{
    unsigned count = 0;
    int      error = n->api.Init();
    if (!error) error = n->api.Count(&count);
    if (error) {
        LOG_WARN("nvml: the driver does not answer (error %d), /metrics tells nothing of GPUs", error);
        return false;
    }
    n->sample.n_gpu = count < NVML_GPUS_MAX ? count : NVML_GPUS_MAX;
    for (unsigned i = 0; i < n->sample.n_gpu; i++) {
        if (n->api.Handle(i, &n->device[i]))
            n->sample.gpu[i].lost = true;
        else
            place(n, i);
    }
    if (!n->sample.n_gpu || !n->api.EventsNew || !n->api.EventsOf || !n->api.EventsWait || n->api.EventsNew(&n->events))
        n->events = NULL;
    for (unsigned i = 0; n->events && i < n->sample.n_gpu; i++)
        if (!n->sample.gpu[i].lost) (void)n->api.EventsOf(n->device[i], NVML_XID | NVML_DOUBLE_BIT, n->events);
    return n->sample.n_gpu > 0;
}

/* ---- a round ---- */

/* Did the call succeed? A GPU that is lost is told of once. */
static bool good(struct nvml_gpu *g, unsigned i, int error)
{
    if (error == NVML_GPU_LOST && !g->lost) {
        g->lost = true;
        LOG_ERROR("nvml: gpu %u is lost: the driver does not reach it any more", i);
    }
    return error == NVML_OK;
}

static void read_memory(const struct nvml_api *a, nvml_device d, struct nvml_gpu *g, unsigned i)
{
    struct nvml_memory old;
    struct nvml_memory_v2 new = { .version = (unsigned)sizeof new | 2u << 24 };
    unsigned long long total, used;
    if (a->MemoryNew && good(g, i, a->MemoryNew(d, &new))) {
        total = new.total;
        used = new.used;
    } else if (a->Memory && good(g, i, a->Memory(d, &old))) {
        total = old.total;
        used = old.used;
    } else {
        return;
    }
    if (!total || used > total) {
        g->n_odd++;
        return;
    }
    g->memory_total = total;
    g->memory_used = used;
}

static void read_errors(const struct nvml_api *a, nvml_device d, struct nvml_gpu *g, unsigned i)
{
    unsigned long long n = 0;
    unsigned           corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (a->Ecc && good(g, i, a->Ecc(d, 0, NVML_VOLATILE, &n))) g->ecc_corrected = n;
    if (a->Ecc && good(g, i, a->Ecc(d, NVML_UNCORRECTED, NVML_VOLATILE, &n))) g->ecc_uncorrected = n;
    if (a->Rows && good(g, i, a->Rows(d, &corrected, &uncorrected, &pending, &failed))) {
        g->rows_remapped = corrected + uncorrected;
        g->rows_pending = pending != 0;
        g->rows_failed = failed != 0;
    }
}

static void read_gpu(const struct nvml_api *a, nvml_device d, struct nvml_gpu *g, unsigned i)
{
    struct nvml_use    use = { 0, 0 };
    unsigned           v = 0;
    unsigned long long mask = 0;
    if (a->Use && good(g, i, a->Use(d, &use))) {
        if (use.gpu > 100 || use.memory > 100) {
            g->n_odd++;
        } else {
            g->utilization = use.gpu / 100.0;
            g->memory_utilization = use.memory / 100.0;
        }
    }
    if (g->lost) return;
    read_memory(a, d, g, i);
    if (a->Power && good(g, i, a->Power(d, &v))) g->power_w = v / 1e3;
    if (a->Temperature && good(g, i, a->Temperature(d, 0, &v))) g->temperature_c = v;
    read_errors(a, d, g, i);
    if (!a->Reasons || !good(g, i, a->Reasons(d, &mask))) return;
    g->throttle = 0;
    for (uint32_t k = 0; k < NVML_THROTTLES; k++)
        if (mask & throttle_bit[k]) g->throttle |= 1u << k;
}

static void take_event(struct nvml *n, const struct nvml_event *e)
{
    if (e->type != NVML_XID) return; /* a double-bit error is counted by ECC, and has an XID of its own */
    for (unsigned i = 0; i < n->sample.n_gpu; i++) {
        if (n->device[i] != e->device) continue;
        const struct xid *x = xid_find(e->data);
        struct nvml_gpu  *g = &n->sample.gpu[i];
        g->n_xid++;
        g->last_xid = e->data;
        g->act[x->act].n++;
        g->act[x->act].xid = e->data;
        LOG_WARN_LIMITED("nvml: gpu %u reports XID %llu (%s)", i, e->data, x->meaning);
    }
}

/* Waits a moment, for events where there are any. */
static void rest(struct nvml *n)
{
    struct nvml_event e = { .device = NULL };
    uint64_t          begin = clock_us();
    if (n->events && !n->api.EventsWait(n->events, &e, WAIT_MS)) {
        take_event(n, &e);
        snapshot_put(&n->snapshot, &n->sample);
    }
    uint64_t spent = clock_us() - begin; /* a library that returns at once must not make this loop spin */
    if (spent < WAIT_MS * 1000u)
        nanosleep(&(struct timespec){ .tv_nsec = (long)(WAIT_MS * 1000u - spent) * 1000 }, NULL);
}

static void *run(void *arg)
{
    struct nvml *n = arg;
    bool         any = load(&n->api) && find_gpus(n);
    for (uint32_t k = 0; any && !atomic_load(&n->stop); k++) {
        for (unsigned i = 0; k % ROUND == 0 && i < n->sample.n_gpu; i++)
            if (!n->sample.gpu[i].lost) read_gpu(&n->api, n->device[i], &n->sample.gpu[i], i);
        if (k % ROUND == 0) {
            n->sample.at_us = clock_us();
            snapshot_put(&n->snapshot, &n->sample);
        }
        rest(n);
    }
    sem_post(&n->ended);
    return NULL;
}

/* ---- life ---- */

enum status nvml_open(struct nvml **n_out)
{
    struct nvml *n = calloc(1, sizeof *n);
    if (!n || !snapshot_init(&n->snapshot, sizeof n->sample)) {
        free(n);
        return ST_NOMEM;
    }
    sem_init(&n->ended, 0, 0);
    enum status st = thread_start(&n->thread, THREAD_ANY, "nvml", run, n);
    if (st) {
        sem_destroy(&n->ended);
        snapshot_free(&n->snapshot);
        free(n);
        return st;
    }
    *n_out = n;
    return ST_OK;
}

bool nvml_get(const struct nvml *n, struct nvml_sample *out)
{
    return n && snapshot_get(&n->snapshot, out) && out->n_gpu;
}

void nvml_close(struct nvml *n)
{
    struct timespec until;
    if (!n) return;
    atomic_store(&n->stop, true);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += CLOSE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (sem_timedwait(&n->ended,
                      &until)) { /* the driver hangs: the process ends without it, and n stays the thread's */
        pthread_detach(n->thread);
        return;
    }
    pthread_join(n->thread, NULL);
    sem_destroy(&n->ended);
    snapshot_free(&n->snapshot);
    free(n);
}
