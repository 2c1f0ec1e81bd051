/* ucx: implements ucx.h with the calls of ucx_api.h. */
#ifdef WITH_UCX
#include "transfer/peer/ucx.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "transfer/peer/near.h"
#include "transfer/peer/ucx_api.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PROGRESS_MAX = 64, CLOSE_US = 2000000 };

/* tls: UCX's setting that selects the transport. lane: prefixes of the names by which UCX reports it as chosen. */
static const struct {
    const char *tls, *lane[3];
} transports[PEER_TRANSPORTS] = {
    [PEER_TCP] = { .tls = "tcp", .lane = { "tcp/" } },
    [PEER_SHM] = { .tls = "posix", .lane = { "posix/" } },
    [PEER_RDMA] = { .tls = "rc,ud,dc", .lane = { "rc_", "dc_" } },
};

struct ucx {
    const struct ucx_api *api;
    enum peer_transport   transport;
    ucp_context_h         context;
    ucp_worker_h          worker;
    int                   fd;
    ucp_address_t        *address;
    size_t                n_address;
    ucp_mem_h             mem;
    unsigned char         rkey[PWIRE_ADDRESS_MAX];
    uint32_t              n_rkey;
    unsigned char        *base;
    uint64_t              bytes;
    int                   lent_fd; /* what near_say has named; -1: nothing */
    struct near_copy     *copier;  /* over shm alone */
    struct list           reaches; /* a left one stays until UCX has closed it and its GETs have ended */
    uint32_t              n_flight;
};

struct ucx_reach {
    struct list          link;
    struct ucx          *u;
    ucp_ep_h             ep;
    ucp_rkey_h           rkey;
    uint64_t             base, bytes;
    const unsigned char *near; /* the peer's memory, mapped here; NULL: UCX moves its bytes */
    bool                 lost, left;
    void                *closing; /* UCX's request to close the endpoint; NULL: none is pending */
    uint32_t             n_flight;
};
/* ---- life */

static enum status fail(char *err, size_t n, const struct ucx *u, const char *what, ucs_status_t s)
{
    snprintf(err, n, "UCX over %s: %s: %s", peer_transport_name[u->transport], what, u->api->ucs_status_string(s));
    return ST_CONFIG;
}

static ucs_status_t init(struct ucx *u, const char *device)
{
    const struct ucx_api *a = u->api;
    ucp_config_t         *c;
    ucs_status_t          s = a->ucp_config_read(NULL, NULL, &c);
    if (s) return s;
    const struct {
        const char *name, *value;
    } set[] = { { "TLS", transports[u->transport].tls }, { "KEEPALIVE_INTERVAL", "1s" }, { "NET_DEVICES", device } };
    for (size_t i = 0; !s && i < sizeof set / sizeof *set; i++)
        if (set[i].value) s = a->ucp_config_modify(c, set[i].name, set[i].value);
    ucp_params_t p = { .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                     UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                       .features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
                       .mt_workers_shared = 0,
                       .estimated_num_eps = 2 * PEERS_MAX };
    if (!s) s = a->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &p, c, &u->context);
    a->ucp_config_release(c);
    return s;
}

static ucs_status_t make_worker(struct ucx *u)
{
    ucp_worker_params_t p = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE };
    ucs_status_t        s = u->api->ucp_worker_create(u->context, &p, &u->worker);
    if (s) return s;
    ucp_worker_attr_t attr = { .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS };
    s = u->api->ucp_worker_query(u->worker, &attr);
    if (s) return s;
    u->address = attr.address;
    u->n_address = attr.address_length;
    return u->api->ucp_worker_get_efd(u->worker, &u->fd);
}

enum status ucx_open(enum peer_transport transport, const char *device, struct ucx **u_out, char *err, size_t err_bytes)
{
    const struct ucx_api *api = ucx_api_get(err, err_bytes);
    if (!api) return ST_CONFIG;
    struct ucx *u = calloc(1, sizeof *u);
    if (!u) return ST_NOMEM;
    u->api = api;
    u->transport = transport;
    u->lent_fd = -1;
    list_init(&u->reaches);
    ucs_status_t s = init(u, device);
    if (s) fail(err, err_bytes, u, "it has no such transport here", s);
    if (!s && (s = make_worker(u))) fail(err, err_bytes, u, "no worker", s);
    if (!s && transport == PEER_SHM && !(u->copier = near_copy_open())) {
        s = UCS_ERR_NO_MEMORY;
        fail(err, err_bytes, u, "no copier", s);
    }
    if (!s && u->n_address > PWIRE_ADDRESS_MAX) {
        s = UCS_ERR_BUFFER_TOO_SMALL;
        fail(err, err_bytes, u, "its address is too long, name one interface", s);
    }
    if (s) {
        ucx_close(u);
        return ST_CONFIG;
    }
    *u_out = u;
    return ST_OK;
}

void ucx_close(struct ucx *u)
{
    if (!u) return;
    LIST_EACH(it, &u->reaches) ucx_leave(LIST_ENTRY(it, struct ucx_reach, link));
    for (uint64_t end = clock_us() + CLOSE_US; !list_empty(&u->reaches) && clock_us() < end;) {
        ucx_progress(u);
        if (!list_empty(&u->reaches)) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    if (!list_empty(&u->reaches)) LOG_WARN("peer: UCX has not let go of its connections");
    near_copy_close(u->copier);
    if (u->lent_fd >= 0) close(u->lent_fd);
    if (u->mem) (void)u->api->ucp_mem_unmap(u->context, u->mem);
    if (u->address) u->api->ucp_worker_release_address(u->worker, u->address);
    if (u->worker) u->api->ucp_worker_destroy(u->worker);
    if (u->context) u->api->ucp_cleanup(u->context);
    free(u);
}

/* ---- its events */

int      ucx_fd(const struct ucx *u) { return u->fd; }
int      ucx_copy_fd(const struct ucx *u) { return u->copier ? near_copy_fd(u->copier) : -1; }
bool     ucx_arm(struct ucx *u) { return u->api->ucp_worker_arm(u->worker) == UCS_OK; }
uint32_t ucx_in_flight(const struct ucx *u) { return u->n_flight; }

/* Frees each left reach that UCX has closed and whose GETs have all ended. */
static void sweep(struct ucx *u)
{
    LIST_EACH(it, &u->reaches) {
        struct ucx_reach *r = LIST_ENTRY(it, struct ucx_reach, link);
        if (!r->left) continue;
        if (r->closing && u->api->ucp_request_check_status(r->closing) != UCS_INPROGRESS) {
            u->api->ucp_request_free(r->closing);
            r->closing = NULL;
        }
        if (r->closing || r->n_flight) continue;
        if (r->rkey) u->api->ucp_rkey_destroy(r->rkey);
        near_unmap(r->near, r->bytes);
        list_del(&r->link);
        free(r);
    }
}

void ucx_progress(struct ucx *u)
{
    for (int i = 0; i < PROGRESS_MAX && u->api->ucp_worker_progress(u->worker); i++) continue;
    while (ucx_copy(u)) continue;
    sweep(u);
}

/* ---- what is lent */

static ucs_status_t pack_rkey(struct ucx *u)
{
    void        *rkey;
    size_t       n;
    ucs_status_t s = u->api->ucp_rkey_pack(u->context, u->mem, &rkey, &n);
    if (s) return s;
    if (n <= sizeof u->rkey) memcpy(u->rkey, rkey, n);
    u->n_rkey = (uint32_t)n;
    u->api->ucp_rkey_buffer_release(rkey);
    return UCS_OK;
}

/* Adds where the memory is found. Without that peers read it all the same, more slowly. */
static void add_near(struct ucx *u, int fd)
{
    if (u->transport != PEER_SHM || u->n_rkey + NEAR_BYTES > sizeof u->rkey) return;
    u->lent_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (u->lent_fd >= 0 && near_say(u->lent_fd, u->rkey + u->n_rkey) == ST_OK) u->n_rkey += NEAR_BYTES;
}

enum status ucx_lend(struct ucx *u, void *base, uint64_t bytes, int fd)
{
    CHECK(!u->mem);
    ucp_mem_map_params_t p = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                               .address = base,
                               .length = bytes };
    ucs_status_t         s = u->api->ucp_mem_map(u->context, &p, &u->mem);
    if (!s) s = pack_rkey(u);
    if (s) {
        LOG_ERROR("peer: UCX cannot lend %llu bytes: %s", (unsigned long long)bytes, u->api->ucs_status_string(s));
        return ST_NOMEM;
    }
    u->base = base;
    u->bytes = bytes;
    if (u->n_rkey > sizeof u->rkey) return ST_CONFIG;
    add_near(u, fd);
    return ST_OK;
}

const unsigned char *ucx_address(const struct ucx *u, uint32_t *n_out)
{
    *n_out = (uint32_t)u->n_address;
    return (const unsigned char *)u->address;
}

const unsigned char *ucx_rkey(const struct ucx *u, uint32_t *n_out)
{
    *n_out = u->n_rkey;
    return u->rkey;
}

/* ---- what is read */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t s)
{
    struct ucx_reach *r = arg;
    (void)ep;
    (void)s;
    r->lost = true; /* the caller of ucx_lost closes it, because this callback runs inside UCX */
}

/* Does UCX use the transport that was asked for? UCX reports its choice only as text. */
static bool took_transport(const struct ucx_reach *r)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *f = open_memstream(&text, &n);
    bool   took = false;
    if (!f) return false;
    r->u->api->ucp_ep_print_info(r->ep, f);
    fclose(f);
    for (int i = 0; i < 3; i++) {
        const char *lane = transports[r->u->transport].lane[i];
        took |= lane && strstr(text, lane);
    }
    free(text);
    return took;
}

/* Over shm a peer says at the end of its rkey where its memory is found. */
static void come_near(struct ucx_reach *r, const struct ucx_there *there)
{
    if (!r->u->copier || there->n_rkey < NEAR_BYTES) return;
    (void)near_map(there->rkey + there->n_rkey - NEAR_BYTES, there->bytes, &r->near);
}

enum status ucx_reach(struct ucx *u, const struct ucx_there *there, struct ucx_reach **r_out, char *err,
                      size_t err_bytes)
{
    struct ucx_reach *r = calloc(1, sizeof *r);
    if (!r) return ST_NOMEM;
    r->u = u;
    r->base = there->base;
    r->bytes = there->bytes;
    ucp_ep_params_t p = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                          .address = (const ucp_address_t *)there->address,
                          .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                          .err_handler = { .cb = on_error, .arg = r } };
    ucs_status_t    s = u->api->ucp_ep_create(u->worker, &p, &r->ep);
    if (s) {
        free(r);
        return fail(err, err_bytes, u, "the peer cannot be reached", s);
    }
    list_add_tail(&u->reaches, &r->link);
    s = u->api->ucp_ep_rkey_unpack(r->ep, there->rkey, &r->rkey);
    if (s) {
        r->rkey = NULL;
        fail(err, err_bytes, u, "the peer's memory cannot be reached", s);
    } else if (!took_transport(r)) {
        s = UCS_ERR_UNREACHABLE;
        fail(err, err_bytes, u, "UCX has taken another transport instead", s);
    }
    if (s) {
        ucx_leave(r);
        return ST_CONFIG;
    }
    come_near(r, there);
    *r_out = r;
    return ST_OK;
}

bool ucx_lost(const struct ucx_reach *r) { return r->lost; }
bool ucx_near(const struct ucx_reach *r) { return r->near != NULL; }

void ucx_leave(struct ucx_reach *r)
{
    if (r->left) return;
    r->left = true;
    ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE };
    void               *request = r->u->api->ucp_ep_close_nbx(r->ep, &p);
    if (UCS_PTR_IS_PTR(request)) r->closing = request;
}

static void got(void *request, ucs_status_t s, void *arg)
{
    struct ucx_job   *job = arg;
    struct ucx_reach *r = job->r;
    if (request) r->u->api->ucp_request_free(request);
    r->n_flight--;
    r->u->n_flight--;
    job->done(job->arg, s == UCS_OK ? ST_OK : ST_PEER_LOST);
}

void ucx_get(struct ucx_job *job, struct ucx_reach *r, void *p, uint32_t bytes, uint64_t off, ucx_done *done, void *arg)
{
    struct ucx *u = r->u;
    CHECK(off <= r->bytes && bytes <= r->bytes - off);
    *job = (struct ucx_job){ .r = r, .done = done, .arg = arg };
    r->n_flight++;
    u->n_flight++;
    if (r->left || r->lost) {
        got(NULL, UCS_ERR_CANCELED, job);
        return;
    }
    if (r->near) {
        job->near = (struct near_job){ .dst = p, .src = r->near + off, .bytes = bytes };
        near_copy_give(u->copier, &job->near);
        return;
    }
    ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                  .cb.send = got,
                                  .user_data = job };
    if (u->mem && (unsigned char *)p >= u->base && (unsigned char *)p < u->base + u->bytes) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        param.memh = u->mem;
    }
    void *request = u->api->ucp_get_nbx(r->ep, p, bytes, r->base + off, r->rkey, &param);
    if (!UCS_PTR_IS_PTR(request)) got(NULL, UCS_PTR_RAW_STATUS(request), job);
}

bool ucx_copy(struct ucx *u)
{
    struct near_job *ended = u->copier ? near_copy_take(u->copier) : NULL;
    if (!ended) return false;
    got(NULL, UCS_OK, LIST_ENTRY(ended, struct ucx_job, near));
    return true;
}
#else
typedef int ucx_is_left_out; /* ISO C forbids an empty file */
#endif
