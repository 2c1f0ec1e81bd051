#include "server/config_kv.h"
#include "api/transfer.h"
#include "base/status.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/tier.h"
#include "server/config_events.h"
#include "server/usage.h"
#include "transfer/object/object.h"
#include "transfer/peer/names.h"
#include "transfer/peer/net.h"
#include <string.h>

enum { DIR_BYTES = 512 };

/* Checks --kv-shared. Blocks that other servers wrote are believed only with a MAC, and a prefix helps other servers
 * only if the folder holds all of it. */
static int check_shared(const struct config *c, char *err, size_t n_err)
{
    char     dir[DIR_BYTES];
    uint64_t bytes;
    if (c->kv_nvme.n)
        return usage_error(
            err, n_err,
            "--kv-shared and --kv-nvme: one of them; a prefix of which each holds a part would be of no use to other servers");
    if (!c->kv_mac_key_file.n)
        return usage_error(
            err, n_err,
            "--kv-shared needs --kv-mac-key-file, the same on all its servers: without it who writes there could forge");
    if (c->kv_encrypt && !c->kv_encrypt_key_file.n)
        return usage_error(
            err, n_err,
            "--kv-shared needs --kv-encrypt-key-file instead of --kv-encrypt: other servers could not read a key of this start");
    if (!config_shared(c->kv_shared, dir, sizeof dir, &bytes))
        return usage_error(err, n_err, "--kv-shared: '%.300s' is not DIR or DIR:GIB, as in /fsx/kv:100", c->kv_shared);
    return 0;
}

/* The length of a path without the slashes at its end. */
static size_t bare_length(const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    return n;
}

static int check_nvme(const struct config *c, char *err, size_t n_err)
{
    char     dir[KV_STORES_MAX][DIR_BYTES];
    uint64_t bytes;
    if (c->kv_nvme.n > KV_STORES_MAX)
        return usage_error(err, n_err, "--kv-nvme: found %u folders, allowed are %d", c->kv_nvme.n, KV_STORES_MAX);
    for (uint32_t i = 0; i < c->kv_nvme.n; i++) {
        if (!config_dir_gib(c->kv_nvme.s[i], dir[i], sizeof dir[i], &bytes))
            return usage_error(err, n_err, "--kv-nvme: '%.300s' is not DIR:GIB, as in /mnt/nvme0/kv:100",
                               c->kv_nvme.s[i]);
        size_t n = bare_length(dir[i]);
        for (uint32_t k = 0; k < i; k++)
            if (bare_length(dir[k]) == n && !memcmp(dir[k], dir[i], n))
                return usage_error(err, n_err, "--kv-nvme: the folder %.300s is named twice", dir[i]);
    }
    return 0;
}

static int check_keys(const char *name, const struct str_list *l, char *err, size_t n_err)
{
    if (l->n > STORE_KEYS_MAX)
        return usage_error(err, n_err,
                           "--%s: found %u files, allowed are %d: the key to write with, and the one before it", name,
                           l->n, STORE_KEYS_MAX);
    for (uint32_t i = 0; i < l->n; i++)
        if (!*l->s[i]) return usage_error(err, n_err, "--%s: the value is empty", name);
    return 0;
}

/* As --kv-shared: what others write there is believed on the word of the MAC. */
static int check_object(const struct config *c, char *err, size_t n_err)
{
    uint32_t n_folder = *c->kv_shared ? 1 : c->kv_nvme.n;
    if (c->kv_host_gib <= 0)
        return usage_error(err, n_err, "--kv-object needs --kv-host-gib: blocks go through the host");
    if (!object_is_url(c->kv_object))
        return usage_error(err, n_err,
                           "--kv-object: found '%.200s', needed is s3://BUCKET/PREFIX or redis://HOST[:PORT][/DB]",
                           c->kv_object);
    if (!c->kv_mac_key_file.n)
        return usage_error(
            err, n_err,
            "--kv-object needs --kv-mac-key-file, the same on all its servers: without it who writes there could forge");
    if (c->kv_encrypt || c->kv_encrypt_key_file.n)
        return usage_error(
            err, n_err,
            "--kv-object and --kv-encrypt or --kv-encrypt-key-file: one of them; objects are not encrypted by "
            "this server, use the encryption of the bucket");
    if (n_folder + 1 > KV_STORES_MAX)
        return usage_error(err, n_err, "--kv-nvme: found %u folders, allowed beside --kv-object are %d", n_folder,
                           KV_STORES_MAX - 1);
    return 0;
}

static bool on_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strcmp(host, "::1") || !strncmp(host, "127.", 4);
}

/* The MAC proves blocks of peers, and the key proves the peers. On one machine the user's own processes need
 * neither. */
static int check_peers(const struct config *c, char *err, size_t n_err)
{
    bool listens = *c->kv_peer_listen != 0, here = true;
    char host[256], port[8];
    if (c->kv_host_gib <= 0)
        return usage_error(err, n_err, "--kv-peer and --kv-peer-listen need --kv-host-gib: blocks go through the host");
    if (c->kv_peer.n > PEERS_MAX)
        return usage_error(err, n_err, "--kv-peer: found %u servers, allowed are %d", c->kv_peer.n, PEERS_MAX);
    for (uint32_t i = 0; i < c->kv_peer.n; i++) {
        if (!names_split(c->kv_peer.s[i], host, sizeof host, port))
            return usage_error(err, n_err, "--kv-peer: found '%.200s', needed is HOST:PORT", c->kv_peer.s[i]);
        here &= on_loopback(host);
    }
    if (listens && !names_split(c->kv_peer_listen, host, sizeof host, port))
        return usage_error(err, n_err, "--kv-peer-listen: found '%.200s', needed is ADDRESS:PORT", c->kv_peer_listen);
    if (listens) here &= on_loopback(host);
    if (!here && !*c->kv_peer_key_file)
        return usage_error(err, n_err, "--kv-peer and --kv-peer-listen beyond loopback need --kv-peer-key-file");
    if (!here && !c->kv_mac_key_file.n)
        return usage_error(
            err, n_err,
            "--kv-peer and --kv-peer-listen beyond loopback need --kv-mac-key-file, the same on all servers: without it the network could forge");
    uint32_t room = KV_STORES_MAX - 1 - (*c->kv_object != 0);
    if (c->kv_nvme.n > room)
        return usage_error(err, n_err, "--kv-nvme: found %u folders, allowed beside peers and objects are %u",
                           c->kv_nvme.n, room);
    if (*c->takeover) return usage_error(err, n_err, "--takeover and --kv-peer or --kv-peer-listen: one of them");
    return 0;
}

static int check_role(const struct config *c, char *err, size_t n_err)
{
    if (c->role == ROLE_PREFILL && !*c->kv_peer_listen)
        return usage_error(err, n_err, "--role prefill needs --kv-peer-listen: others pull its prompts there");
    if (c->role == ROLE_DECODE && !c->kv_peer.n)
        return usage_error(err, n_err, "--role decode needs --kv-peer: the servers whose prompts it pulls");
    return 0;
}

int config_kv_check(const struct config *c, char *err, size_t n_err)
{
    if (check_keys("kv-mac-key-file", &c->kv_mac_key_file, err, n_err)) return EXIT_USAGE;
    if (check_keys("kv-encrypt-key-file", &c->kv_encrypt_key_file, err, n_err)) return EXIT_USAGE;
    enum { NAME_BYTES = 40 };
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    const char       *name = c->kv_shared_name;
    if (strlen(name) > NAME_BYTES || strspn(name, allowed) != strlen(name))
        return usage_error(err, n_err, "--kv-shared-name: found '%.60s', allowed are letters, digits and -, at most %d",
                           name, NAME_BYTES);
    if ((c->kv_peer.n || *c->kv_peer_listen) && check_peers(c, err, n_err)) return EXIT_USAGE;
    if (check_role(c, err, n_err)) return EXIT_USAGE;
    if (*c->kv_peer_key_file && !c->kv_peer.n && !*c->kv_peer_listen)
        return usage_error(err, n_err, "--kv-peer-key-file needs --kv-peer or --kv-peer-listen");
    if (c->kv_in_place == IN_PLACE_ON && c->kv_host_gib <= 0)
        return usage_error(err, n_err, "--kv-host-in-place on needs --kv-host-gib: there is no host KV to read");
    struct config_events events;
    if (config_events_read(c->kv_events_config, &events, err, n_err)) return EXIT_USAGE;
    if (events.on && !c->prefix_caching)
        return usage_error(err, n_err, "--kv-events-config needs prefix caching (--enable-prefix-caching)");
    bool shared = *c->kv_shared != 0;
    bool any = shared || c->kv_nvme.n;
    if (any && c->kv_host_gib <= 0)
        return usage_error(err, n_err, "%s needs --kv-host-gib: blocks go through the host",
                           shared ? "--kv-shared" : "--kv-nvme");
    if (*c->kv_object && check_object(c, err, n_err)) return EXIT_USAGE;
    if (c->kv_host_gib > 0 && !c->prefix_caching)
        return usage_error(err, n_err, "--kv-host-gib needs prefix caching (--enable-prefix-caching)");
    if (!any && (c->kv_encrypt || c->kv_encrypt_key_file.n))
        return usage_error(
            err, n_err,
            "--kv-encrypt and --kv-encrypt-key-file need --kv-nvme or --kv-shared: memory is not encrypted");
    return shared ? check_shared(c, err, n_err) : check_nvme(c, err, n_err);
}
