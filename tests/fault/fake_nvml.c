/* fake_nvml: a libnvidia-ml.so.1 of two GPUs, that tells plain numbers, lies, loses a GPU, hangs, is old, or reports
 * XIDs. FAKE_NVML names the mode; FAKE_NVML_GO a file whose coming is the moment of "lost" and "hang"; FAKE_NVML_EVENTS
 * a file with a line "GPU XID" for each event, read as it grows. With -DOLD the functions of newer drivers are not
 * there. GPU i is on the bus where the emulated GPU i is (cudaDeviceGetPCIBusId in tests/emu). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int mode(const char *m)
{
    const char *v = getenv("FAKE_NVML");
    return v && strcmp(v, m) == 0;
}

static int touched(void)
{
    const char *f = getenv("FAKE_NVML_GO");
    return f && access(f, F_OK) == 0;
}

static void hang(void)
{
    for (;;) sleep(1000);
}

/* The answer about a GPU: 15 of the second one when it is lost. */
static int gone(void *d) { return mode("lost") && touched() && (size_t)d == 2 ? 15 : 0; }

int nvmlInit_v2(void)
{
    if (mode("stuck")) hang();
    return mode("no driver") ? 9 : 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = mode("many") ? 40 : 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d)
{
    *d = (void *)(size_t)(i + 1);
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *d, unsigned *u)
{
    if (mode("hang") && touched()) hang();
    u[0] = mode("lies") ? 5000 : 40 + (unsigned)(size_t)d;
    u[1] = mode("lies") ? 0xffffffffu : 7;
    return gone(d);
}

int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m)
{
    m[0] = 1000;
    m[1] = 600;
    m[2] = 400;
    return gone(d);
}

int nvmlDeviceGetPowerUsage(void *d, unsigned *mw)
{
    *mw = 312500;
    return gone(d);
}

int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c)
{
    *c = 61;
    return sensor ? 2 : gone(d);
}

int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *n)
{
    *n = type ? 3 : 17;
    return counter ? 2 : gone(d);
}

#ifndef OLD
struct pci {
    char     old_id[16];
    unsigned domain, bus, device, id, subsystem;
    char     bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *d, struct pci *p)
{
    memset(p, 0, sizeof *p);
    p->bus = (unsigned)(size_t)d;
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", p->bus);
    return mode("no places") ? 3 : gone(d);
}

struct memory {
    unsigned           version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(void *d, struct memory *m)
{
    if (m->version != (sizeof *m | 2u << 24)) return 25;
    m->total = mode("lies") ? 10 : 85899345920ull;
    m->used = mode("lies") ? ~0ull : 12345678;
    return gone(d);
}

int nvmlDeviceGetRemappedRows(void *d, unsigned *c, unsigned *u, unsigned *p, unsigned *f)
{
    *c = 1;
    *u = 2;
    *p = 1;
    *f = 0;
    return gone(d);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *m)
{
    *m = 0x1 | 0x4 | 0x40;
    return gone(d);
}

int nvmlEventSetCreate(void **e)
{
    *e = (void *)0x55;
    return 0;
}

int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *e)
{
    (void)d;
    return e == (void *)0x55 && (types & 8) ? 0 : 2;
}

struct event {
    void              *device;
    unsigned long long type, data;
    unsigned           a, b;
};

/* Has the file a line that was not told yet? */
static int next_event(struct event *e)
{
    static long told;
    const char *path = getenv("FAKE_NVML_EVENTS");
    FILE       *f = path ? fopen(path, "r") : NULL;
    unsigned    gpu;
    if (!f) return 0;
    fseek(f, told, SEEK_SET);
    int n = fscanf(f, "%u %llu;", &gpu, &e->data);
    if (n == 2) told = ftell(f);
    fclose(f);
    if (n != 2) return 0;
    e->device = (void *)(size_t)(gpu + 1);
    e->type = 8;
    return 1;
}

int nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms)
{
    (void)set;
    if (mode("spin")) return 10;
    if (next_event(e)) return 0;
    usleep(ms * 1000);
    return 10;
}
#endif
