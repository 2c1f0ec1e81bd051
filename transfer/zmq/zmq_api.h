/* zmq_api: the calls of libzmq that are used, looked up at run time, so that a server without KV events starts without
 * the library. They are declared here after version 4, whose binary interface is stable, so that the build needs no
 * headers.   Thread: any after zmq_api_get; a socket belongs to one thread. */
#pragma once
#include <stddef.h>

struct zmq_message { /* a message of the library, by its size */
    _Alignas(void *) unsigned char opaque[64];
};
struct zmq_item { /* what to poll for */
    void *socket;
    int   fd;
    short events, revents;
};
enum { ZMQ_ROUTER = 6, ZMQ_XPUB = 9 };
enum {
    ZMQ_LINGER = 17,
    ZMQ_MAXMSGSIZE = 22,
    ZMQ_SNDHWM = 23,
    ZMQ_RCVHWM = 24,
    ZMQ_IPV6 = 42,
    ZMQ_XPUB_NODROP = 69,
};
enum { ZMQ_DONTWAIT = 1, ZMQ_SNDMORE = 2, ZMQ_POLLIN = 1 };

struct zmq_api {
    void (*zmq_version)(int *major, int *minor, int *patch);
    void *(*zmq_ctx_new)(void);
    int (*zmq_ctx_term)(void *ctx);
    void *(*zmq_socket)(void *ctx, int type);
    int (*zmq_close)(void *socket);
    int (*zmq_setsockopt)(void *socket, int option, const void *value, size_t bytes);
    int (*zmq_bind)(void *socket, const char *address);
    int (*zmq_connect)(void *socket, const char *address);
    int (*zmq_poll)(struct zmq_item *item, int n, long timeout_ms);
    int (*zmq_msg_init)(struct zmq_message *m);
    int (*zmq_msg_init_size)(struct zmq_message *m, size_t bytes);
    int (*zmq_msg_init_data)(struct zmq_message *m, void *data, size_t bytes, void (*release)(void *data, void *hint),
                             void *hint);
    void *(*zmq_msg_data)(struct zmq_message *m);
    size_t (*zmq_msg_size)(const struct zmq_message *m);
    int (*zmq_msg_more)(const struct zmq_message *m);
    int (*zmq_msg_send)(struct zmq_message *m, void *socket, int flags);
    int (*zmq_msg_recv)(struct zmq_message *m, void *socket, int flags);
    int (*zmq_msg_close)(struct zmq_message *m);
    int (*zmq_errno)(void);
    const char *(*zmq_strerror)(int error);
};

/* NULL: the library is absent or too old; why: one line. */
const struct zmq_api *zmq_api_get(char *why, size_t why_bytes);
