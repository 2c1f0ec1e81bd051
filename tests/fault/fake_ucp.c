/* fake_ucp: a libucp.so.0 whose GETs fail or are slow; everything else is the library's own, of which this one is made
 * to depend on a copy under another name. FAKE_UCP=fail:N: of every 2 N GETs the N-th fails at once, and the last one
 * after its bytes have come. FAKE_UCP=slow:N: GETs come at N bytes a second. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

typedef ucs_status_ptr_t       get_fn(ucp_ep_h ep, void *p, size_t n, uint64_t from, ucp_rkey_h key,
                                      const ucp_request_param_t *how);
static ucp_send_nbx_callback_t of_caller; /* the same one for all GETs */
static unsigned long           n_get;

static unsigned long number(const char *mode)
{
    const char *v = getenv("FAKE_UCP");
    size_t      n = strlen(mode);
    return v && !strncmp(v, mode, n) && v[n] == ':' ? strtoul(v + n + 1, NULL, 10) : 0;
}

static void came_but_failed(void *request, ucs_status_t s, void *arg)
{
    (void)s;
    of_caller(request, UCS_ERR_CONNECTION_RESET, arg);
}

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *p, size_t n, uint64_t from, ucp_rkey_h key,
                             const ucp_request_param_t *how)
{
    static get_fn      *next;
    unsigned long       every = number("fail"), per_s = number("slow");
    ucp_request_param_t changed = *how;
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "ucp_get_nbx");
        if (!found) abort();
        memcpy(&next, &found, sizeof next);
    }
    n_get++;
    if (per_s) usleep((useconds_t)(n * 1000000 / per_s));
    if (!every || n_get % every) return next(ep, p, n, from, key, how);
    if (n_get / every % 2) return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
    of_caller = how->cb.send;
    changed.cb.send = came_but_failed;
    void *request = next(ep, p, n, from, key, &changed);
    return request ? request : UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
}
