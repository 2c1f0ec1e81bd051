/* ucx_api: opens the library once and looks up every call of ucx_api.h in it. */
#ifdef WITH_UCX
#include "transfer/peer/ucx_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char     file[] = "libucp.so.0";
static struct ucx_api found;
static bool           good;
static char           reason[300];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
    static const struct {
        const char *name;
        size_t      at;
    } call[] = {
#define UCX_ROW(x) { #x, offsetof(struct ucx_api, x) },
        UCX_CALLS(UCX_ROW)
#undef UCX_ROW
    };
    /* These settings take effect only in the environment, before the library is opened. By default the library takes
     * over the process's signals when it is loaded, and over shared memory a GET from a dead peer succeeds. */
    (void)setenv("UCX_HANDLE_ERRORS", "none", 0);
    (void)setenv("UCX_POSIX_ERROR_HANDLING", "y", 0);
    (void)setenv("UCX_LOG_LEVEL", "error", 0);
    (void)setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        snprintf(reason, sizeof reason, "UCX cannot be opened (package libucx0): %.200s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        void *p = dlsym(h, call[i].name);
        if (!p) {
            snprintf(reason, sizeof reason, "%s has no %s: UCX 1.13 or newer is needed", file, call[i].name);
            return;
        }
        memcpy((char *)&found + call[i].at, &p, sizeof p);
    }
    unsigned release;
    found.ucp_get_version(&found.major, &found.minor, &release);
    if (found.major != UCX_MAJOR || found.minor < UCX_MINOR_MIN) {
        snprintf(reason, sizeof reason, "%s is version %u.%u, needed is %d.%d or a newer %d", file, found.major,
                 found.minor, UCX_MAJOR, UCX_MINOR_MIN, UCX_MAJOR);
        return;
    }
    good = true;
}

const struct ucx_api *ucx_api_get(char *why, size_t why_bytes)
{
    pthread_once(&once, find);
    snprintf(why, why_bytes, "%s", reason);
    return good ? &found : NULL;
}
#else
typedef int ucx_api_is_left_out; /* ISO C forbids an empty file */
#endif
