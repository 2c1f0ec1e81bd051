#include "kernels/cuda/nccl_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifndef CUDA_EMU
static struct nccl_api found;
static bool            good;
static char            reason[300];
static pthread_once_t  once = PTHREAD_ONCE_INIT;

static void find(void)
{
    static const struct {
        const char *name;
        size_t      at;
        bool        may_lack;
    } sym[] = {
#define SYM(x) { "nccl" #x, offsetof(struct nccl_api, x), false }
#define SYM_NEWER(x)                                  \
    {                                                 \
        "nccl" #x, offsetof(struct nccl_api, x), true \
    }
        SYM(GetVersion),
        SYM(GetUniqueId),
        SYM(CommInitRankConfig),
        SYM(CommGetAsyncError),
        SYM(CommAbort),
        SYM(GetErrorString),
        SYM(GetLastError),
        SYM(AllReduce),
        SYM(AllGather),
        SYM(Broadcast),
        SYM_NEWER(MemAlloc),
        SYM_NEWER(MemFree),
        SYM_NEWER(CommWindowRegister),
        SYM_NEWER(CommWindowDeregister),
#undef SYM
#undef SYM_NEWER
    };
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(reason, sizeof reason, "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof sym / sizeof *sym; i++) {
        void *f = dlsym(lib, sym[i].name);
        if (!f && sym[i].may_lack) continue;
        if (!f) {
            snprintf(reason, sizeof reason, "libnccl.so.2 has no %s: it is older than 2.14", sym[i].name);
            return;
        }
        memcpy((char *)&found + sym[i].at, &f, sizeof f);
    }
    if (found.GetVersion(&found.version) != NCCL_OK || found.version < NCCL_MIN_VERSION) {
        snprintf(reason, sizeof reason, "libnccl.so.2 is version %d, needed is %d or newer", found.version,
                 NCCL_MIN_VERSION);
        return;
    }
    good = true;
}

const struct nccl_api *nccl_api_get(char *why, size_t why_bytes)
{
    pthread_once(&once, find);
    snprintf(why, why_bytes, "%s", reason);
    return good ? &found : NULL;
}
#else
const struct nccl_api *nccl_api_get(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "%s", "");
    return emu_nccl();
}
#endif

bool nccl_has_windows(const struct nccl_api *api, char *why, size_t why_bytes)
{
    bool all = api->MemAlloc && api->MemFree && api->CommWindowRegister && api->CommWindowDeregister;
    snprintf(why, why_bytes, "NCCL %d is found%s, 22700 (2.27) or newer is needed", api->version,
             all || api->version < NCCL_WINDOWS_VERSION ? "" : " without the calls");
    return all && api->version >= NCCL_WINDOWS_VERSION;
}
