/* ucx_api: the UCX calls that are used, looked up at run time, so that a server without peers starts without the
 * library.
 * Thread: any after ucx_api_get.   Private to transfer/peer. */
#pragma once
#include <stddef.h>
#include <ucp/api/ucp.h>

#define UCX_CALLS(X)              \
    X(ucp_get_version)            \
    X(ucp_init_version)           \
    X(ucp_cleanup)                \
    X(ucp_config_read)            \
    X(ucp_config_modify)          \
    X(ucp_config_release)         \
    X(ucp_worker_create)          \
    X(ucp_worker_destroy)         \
    X(ucp_worker_query)           \
    X(ucp_worker_release_address) \
    X(ucp_worker_get_efd)         \
    X(ucp_worker_arm)             \
    X(ucp_worker_progress)        \
    X(ucp_mem_map)                \
    X(ucp_mem_unmap)              \
    X(ucp_rkey_pack)              \
    X(ucp_rkey_buffer_release)    \
    X(ucp_ep_rkey_unpack)         \
    X(ucp_rkey_destroy)           \
    X(ucp_ep_create)              \
    X(ucp_ep_close_nbx)           \
    X(ucp_ep_print_info)          \
    X(ucp_get_nbx)                \
    X(ucp_request_check_status)   \
    X(ucp_request_free)           \
    X(ucs_status_string)

struct ucx_api {
#define UCX_FIELD(call) __typeof__(&call) call;
    UCX_CALLS(UCX_FIELD)
#undef UCX_FIELD
    unsigned major, minor;
};
enum { UCX_MAJOR = 1, UCX_MINOR_MIN = 13 };

/* Opens the library at the first call. The table is static. NULL: `why` says in one line what is missing. */
const struct ucx_api *ucx_api_get(char *why, size_t why_bytes);
