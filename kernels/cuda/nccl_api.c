#include "kernels/cuda/nccl_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct nccl_api found;
static bool            good;
static char            reason[300];
static pthread_once_t  once = PTHREAD_ONCE_INIT;

#ifdef CUDA_EMU
static void find(void) { found = *emu_nccl(), good = true; }
#else
static void find(void)
{
    static const struct {
        const char *name;
        size_t      at;
    } sym[] = {
#define SYM(x)                                  \
    {                                           \
        "nccl" #x, offsetof(struct nccl_api, x) \
    }
        SYM(GetVersion),     SYM(GetUniqueId),  SYM(CommInitRankConfig), SYM(CommGetAsyncError), SYM(CommAbort),
        SYM(GetErrorString), SYM(GetLastError), SYM(AllReduce),          SYM(AllGather),         SYM(Broadcast),
#undef SYM
    };
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(reason, sizeof reason, "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof sym / sizeof *sym; i++) {
        void *f = dlsym(lib, sym[i].name);
        if (!f) {
            snprintf(reason, sizeof reason, "libnccl.so.2 has no %s: it is older than 2.14", sym[i].name);
            return;
        }
        memcpy((char *)&found + sym[i].at, &f, sizeof f);
    }
    if (found.GetVersion(&found.version) != NCCL_OK || found.version < NCCL_MIN_VERSION) {
        snprintf(reason, sizeof reason, "libnccl.so.2 is version %d, needed is %d or newer", found.version, NCCL_MIN_VERSION);
        return;
    }
    good = true;
}
#endif

const struct nccl_api *nccl_api_get(char *why, size_t why_bytes)
{
    pthread_once(&once, find);
    snprintf(why, why_bytes, "%s", reason);
    return good ? &found : NULL;
}
