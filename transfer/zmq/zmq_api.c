#include "transfer/zmq/zmq_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char     file[] = "libzmq.so.5";
static struct zmq_api found;
static bool           good;
static char           reason[300];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
#define CALL(x)                         \
    {                                   \
#x, offsetof(struct zmq_api, x) \
    }
    static const struct {
        const char *name;
        size_t      at;
    } call[] = {
        CALL(zmq_version),       CALL(zmq_ctx_new),       CALL(zmq_ctx_term),  CALL(zmq_socket),   CALL(zmq_close),
        CALL(zmq_setsockopt),    CALL(zmq_bind),          CALL(zmq_connect),   CALL(zmq_poll),     CALL(zmq_msg_init),
        CALL(zmq_msg_init_size), CALL(zmq_msg_init_data), CALL(zmq_msg_data),  CALL(zmq_msg_size), CALL(zmq_msg_more),
        CALL(zmq_msg_send),      CALL(zmq_msg_recv),      CALL(zmq_msg_close), CALL(zmq_errno),    CALL(zmq_strerror),
    };
#undef CALL
    enum { MAJOR = 4, MINOR_MIN = 2 };
    void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        snprintf(reason, sizeof reason, "ZeroMQ cannot be opened (package libzmq5): %.200s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        void *p = dlsym(h, call[i].name);
        if (!p) {
            snprintf(reason, sizeof reason, "%s has no %s", file, call[i].name);
            return;
        }
        memcpy((char *)&found + call[i].at, &p, sizeof p);
    }
    int major, minor, patch;
    found.zmq_version(&major, &minor, &patch);
    good = major == MAJOR && minor >= MINOR_MIN;
    if (!good)
        snprintf(reason, sizeof reason, "%s is version %d.%d, needed is %d.%d or a newer %d", file, major, minor, MAJOR,
                 MINOR_MIN, MAJOR);
}

const struct zmq_api *zmq_api_get(char *why, size_t why_bytes)
{
    pthread_once(&once, find);
    snprintf(why, why_bytes, "%s", reason);
    return good ? &found : NULL;
}
