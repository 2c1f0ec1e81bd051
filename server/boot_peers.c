#include "server/boot_peers.h"
#include "base/check.h"
#include "transfer/digest.h"
#include "transfer/peer/lane_ucx.h"
#include "transfer/peer/names.h"
#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool boot_peers_wanted(const struct config *c) { return c->kv_peer.n || *c->kv_peer_listen; }

/* Without a file, on loopback alone, the key is zeros. */
static int read_secret(struct boot *b, unsigned char secret[PWIRE_SECRET])
{
    struct digest_key k;
    const char       *path = b->cfg->kv_peer_key_file;
    if (!*path) return 0;
    enum status st = digest_key_read(&k, path);
    if (st == ST_IO)
        snprintf(b->err, sizeof b->err, "--kv-peer-key-file: %s: %s", path, strerror(errno));
    else if (st)
        snprintf(b->err, sizeof b->err, "--kv-peer-key-file: at least 16 bytes are needed");
    if (st) return EXIT_CONFIG;
    memcpy(secret, k.key, PWIRE_SECRET);
    OPENSSL_cleanse(&k, sizeof k);
    return 0;
}

/* What answers tell of this server. An address of all interfaces tells nobody where it is: then its own name is
 * told. */
static void fill_peering(struct boot *b, const struct peer_net *net)
{
    const struct config *c = b->cfg;
    struct api_peering  *p = &b->peering;
    unsigned char        id[PWIRE_ID];
    char                 port[8];
    static_assert((int)PWIRE_ID == (int)KV_PARCEL_ID, "an engine's id is told as it is");
    lane_ucx_id(net, id);
    for (int i = 0; i < PWIRE_ID; i++) snprintf(p->engine + 2 * i, 3, "%02x", id[i]);
    p->role = (enum server_role)c->role;
    p->keeps = *c->kv_peer_listen != 0;
    p->port = lane_ucx_port(net);
    p->block_tokens = c->block_size;
    p->tp_size = c->tensor_parallel;
    if (p->keeps) CHECK(names_split(c->kv_peer_listen, p->host, sizeof p->host, port));
    if (!strcmp(p->host, "0.0.0.0") || !strcmp(p->host, "::")) (void)gethostname(p->host, sizeof p->host - 1);
    b->model.peering = p;
}

int boot_peers_lane(struct boot *b, struct xfer_lane **lane_out, struct peer_net **net_out)
{
    const struct config *c = b->cfg;
    char                 why[400];
    struct lane_ucx_cfg  lc = { .transport = (enum peer_transport)c->kv_peer_transport,
                                .listen = *c->kv_peer_listen ? c->kv_peer_listen : NULL,
                                .peer = c->kv_peer.s,
                                .n_peer = c->kv_peer.n };
    int                  code = read_secret(b, lc.secret);
    if (!code && lane_ucx_create(&lc, lane_out, net_out, why, sizeof why)) {
        snprintf(b->err, sizeof b->err, "--kv-peer: %s", why);
        code = EXIT_CONFIG;
    }
    OPENSSL_cleanse(&lc.secret, sizeof lc.secret);
    if (!code) fill_peering(b, *net_out);
    return code;
}
