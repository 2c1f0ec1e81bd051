#include "server/auth.h"
#include "base/file.h"
#include "base/log.h"
#include "transfer/digest.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGEST = SHA256_DIGEST_LENGTH, KEYS_MAX = 100000, KEY_BYTES_MAX = 512, FILE_BYTES_MAX = 1 << 20 };

static const char SECRET[] = "SECRET"; /* in the first folder of --kv-nvme */

struct auth_key {
    unsigned char digest[DIGEST];
};
struct auth {
    pthread_rwlock_t lock; /* keys, n_key: readers hold it for one comparison, main for one pointer swap */
    struct auth_key *keys;
    uint32_t         n_key, n_fixed; /* the first n_fixed come from --api-key and stay */
    char            *path;
    size_t           bytes_min; /* of a key */
    bool             enabled, empty_denies;
    unsigned char    secret[AUTH_SECRET]; /* of this process */
};

static bool api_key_digest(const char *key, size_t n, unsigned char out[DIGEST])
{
    unsigned len = 0;
    return EVP_Digest(key, n, out, &len, EVP_sha256(), NULL) == 1 && len == DIGEST;
}

static enum status add(struct auth_key **keys, uint32_t *n, const char *key, size_t len)
{
    if (*n >= KEYS_MAX) return ST_TOO_LARGE;
    struct auth_key *grown = realloc(*keys, (*n + 1) * sizeof *grown);
    if (!grown) return ST_NOMEM;
    *keys = grown;
    if (!api_key_digest(key, len, grown[*n].digest)) return ST_NOMEM;
    (*n)++;
    return ST_OK;
}

/* One key a line; empty lines and lines that begin with '#' are skipped. ST_NOT_FOUND: there is no key, or no file. */
static enum status load_file(const struct auth *a, struct auth_key **keys, uint32_t *n, char *err, size_t n_err)
{
    const char *path = a->path;
    struct stat st;
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st)) {
        bool gone = errno == ENOENT;
        snprintf(err, n_err, "--api-key-file: cannot open %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return gone ? ST_NOT_FOUND : ST_IO;
    }
    char       *text = malloc(FILE_BYTES_MAX + 1);
    size_t      len = 0;
    int         error = text ? file_read_fd(fd, text, FILE_BYTES_MAX, &len) : ENOMEM;
    enum status ret = ST_OK;
    close(fd);
    if (error || len == FILE_BYTES_MAX) {
        snprintf(err, n_err, "--api-key-file: %s is %s", path,
                 len == FILE_BYTES_MAX ? "larger than 1 MiB" : "not readable");
        ret = ST_IO;
        goto done;
    }
    if (st.st_mode & 077)
        LOG_WARN("auth: %s may be read by others (mode %o), 0600 is better", path, (unsigned)(st.st_mode & 0777));
    text[len] = 0;
    uint32_t before = *n, line = 0;
    for (char *p = text, *next; p && ret == ST_OK; p = next) {
        next = strchr(p, '\n');
        size_t k = next ? (size_t)(next - p) : strlen(p);
        if (next) next++;
        line++;
        while (k && (p[k - 1] == '\r' || p[k - 1] == ' ' || p[k - 1] == '\t')) k--;
        if (!k || *p == '#') continue;
        for (size_t i = 0; i < k; i++)
            if (p[i] <= ' ' || p[i] > '~' || k > KEY_BYTES_MAX) ret = ST_INVALID;
        if (ret == ST_OK && k < a->bytes_min) {
            snprintf(err, n_err,
                     "--api-key-file: %s line %u has a key of %zu bytes, an address beyond loopback needs at least %zu",
                     path, line, k, a->bytes_min);
            ret = ST_INVALID;
            break;
        }
        if (ret == ST_OK) ret = add(keys, n, p, k);
        if (ret)
            snprintf(err, n_err,
                     "--api-key-file: %s line %u is not a key (printable ASCII, no blanks, at most %d bytes)", path,
                     line, KEY_BYTES_MAX);
    }
    if (ret == ST_OK && *n == before) {
        snprintf(err, n_err, "--api-key-file: %s holds no key", path);
        ret = ST_NOT_FOUND;
    }
done:
    if (text) OPENSSL_cleanse(text, FILE_BYTES_MAX + 1);
    free(text);
    return ret;
}

/* load_file, and what it means that there is no key. */
static enum status read_keys(const struct auth *a, struct auth_key **keys, uint32_t *n, char *err, size_t n_err)
{
    enum status st = load_file(a, keys, n, err, n_err);
    if (st != ST_NOT_FOUND || !a->empty_denies) return st;
    LOG_WARN("auth: %s: no key of it is valid (--api-key-file-empty deny), %u of --api-key are", err, a->n_fixed);
    return ST_OK;
}

/* Prefixes that outlive the process need salts that do: the secret lies beside them, readable by the owner alone.
 * Without one the server serves all the same: its salts are then new, so that what tenants have in the folder is a miss
 * for as long. */
static void keep_secret(struct auth *a, const char *where)
{
    char          dir[512];
    unsigned char kept[AUTH_SECRET];
    uint64_t      bytes;
    size_t        n = 0;
    if (!config_dir_gib(where, dir, sizeof dir, &bytes)) return; /* said where the folders are opened */
    if (mkdir(dir, 0700) && errno != EEXIST) return;             /* likewise */
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return; /* likewise */
    int error = file_read(fd, SECRET, kept, sizeof kept, &n);
    if (!error && n == sizeof kept) {
        memcpy(a->secret, kept, sizeof kept);
    } else {
        bool damaged = !error || error == EFBIG;
        if (damaged)
            LOG_WARN(
                "auth: %s/%s is not %d bytes long: it is made anew, and prefixes of tenants that lie there are misses",
                dir, SECRET, AUTH_SECRET);
        /* One that is there and cannot be read may be readable at the next start: it stays. */
        if (damaged || error == ENOENT) error = file_replace(fd, SECRET, a->secret, sizeof a->secret, 0600);
        if (error)
            LOG_WARN(
                "auth: %s/%s cannot be kept (%s): prefixes of tenants in that folder are misses, now and at the next start",
                dir, SECRET, strerror(error));
    }
    OPENSSL_cleanse(kept, sizeof kept);
    close(fd);
}

/* Servers of one folder must salt alike: the secret follows from the key that they have in common. */
static enum status share_secret(struct auth *a, const char *key_file, char *err, size_t n_err)
{
    static const char label[] = "spillway tenant salts 1";
    char              text[DIGEST_SECRET_MAX];
    unsigned int      n_mac = 0;
    ssize_t           n = digest_secret_read(key_file, text);
    if (n < 0) {
        snprintf(err, n_err, "--kv-mac-key-file: %s: %s", key_file, strerror(errno));
        return ST_IO;
    }
    bool ok = HMAC(EVP_sha256(), text, (int)n, (const unsigned char *)label, sizeof label, a->secret, &n_mac) != NULL;
    OPENSSL_cleanse(text, sizeof text);
    return ok ? ST_OK : ST_NOMEM;
}

enum status auth_create(const struct config *c, struct auth **a_out, char *err, size_t n_err)
{
    struct auth *a = calloc(1, sizeof *a);
    enum status  st = a ? ST_OK : ST_NOMEM;
    snprintf(err, n_err, "no memory for the keys");
    if (!a) return st;
    pthread_rwlock_init(&a->lock, NULL);
    if (getrandom(a->secret, sizeof a->secret, 0) != sizeof a->secret) st = ST_IO;
    if (st == ST_OK && c->kv_nvme.n) keep_secret(a, c->kv_nvme.s[0]);
    bool peers = c->kv_peer.n || (c->kv_peer_listen && *c->kv_peer_listen);
    bool shared = peers || (c->kv_shared && *c->kv_shared) || (c->kv_object && *c->kv_object);
    if (st == ST_OK && shared && c->kv_mac_key_file.n) st = share_secret(a, c->kv_mac_key_file.s[0], err, n_err);
    for (uint32_t i = 0; st == ST_OK && i < c->api_key.n; i++)
        st = add(&a->keys, &a->n_key, c->api_key.s[i], strlen(c->api_key.s[i]));
    a->n_fixed = a->n_key;
    a->enabled = c->api_key.n > 0 || *c->api_key_file;
    if (st == ST_OK && *c->api_key_file) {
        a->path = strdup(c->api_key_file);
        a->bytes_min = c->host && !config_is_loopback(c->host) ? KEY_BYTES_PUBLIC_MIN : 1;
        a->empty_denies = c->api_key_file_empty == KEY_FILE_DENY;
        if (!a->path)
            st = ST_NOMEM;
        else if (access(a->path,
                        F_OK)) /* at the start a file that is not there is a mistake, whatever it means later */
            st = load_file(a, &a->keys, &a->n_key, err, n_err);
        else
            st = read_keys(a, &a->keys, &a->n_key, err, n_err);
    }
    if (st) {
        auth_free(a);
        return st;
    }
    *a_out = a;
    return ST_OK;
}

enum status auth_reload(struct auth *a, char *err, size_t n_err)
{
    if (!a->path) return ST_OK;
    uint32_t         n = a->n_fixed;
    struct auth_key *keys = malloc((n + 1) * sizeof *keys);
    if (!keys) {
        snprintf(err, n_err, "no memory for the keys");
        return ST_NOMEM;
    }
    if (n) memcpy(keys, a->keys, n * sizeof *keys);
    enum status st = read_keys(a, &keys, &n, err, n_err);
    if (st) {
        free(keys);
        return st;
    }
    pthread_rwlock_wrlock(&a->lock);
    struct auth_key *old = a->keys;
    a->keys = keys;
    a->n_key = n;
    pthread_rwlock_unlock(&a->lock);
    free(old);
    return ST_OK;
}

bool     auth_enabled(const struct auth *a) { return a->enabled; }
uint32_t auth_count(const struct auth *a) { return a->n_key; }

bool auth_check(struct auth *a, const struct http_head *head, uint64_t *tenant_out)
{
    struct slice  key = head->api_key;
    unsigned char digest[DIGEST];
    if (head->n_auth > 1 || head->n_key > 1) return false;
    if (head->n_auth) {
        struct slice v = head->authorization;
        if (v.n < 8 || strncasecmp(v.p, "Bearer ", 7)) return false;
        for (v.p += 7, v.n -= 7; v.n && *v.p == ' '; v.p++, v.n--) {}
        if (head->n_key && (v.n != key.n || CRYPTO_memcmp(v.p, key.p, v.n))) return false;
        key = v;
    } else if (!head->n_key) {
        return false;
    }
    if (!key.n || key.n > KEY_BYTES_MAX || !api_key_digest(key.p, key.n, digest)) return false;

    unsigned found = 0;
    if (pthread_rwlock_rdlock(&a->lock)) return false;
    for (uint32_t i = 0; i < a->n_key; i++)
        found |= CRYPTO_memcmp(digest, a->keys[i].digest, DIGEST) == 0; /* all of them, always */
    pthread_rwlock_unlock(&a->lock);
    if (!found) return false;
    uint64_t tenant;
    memcpy(&tenant, digest, sizeof tenant);
    *tenant_out = tenant ? tenant : 1;
    return true;
}

void auth_salt(const struct auth *a, uint64_t tenant, uint64_t lo, uint64_t hi, uint64_t *lo_out, uint64_t *hi_out)
{
    uint64_t      in[3] = { tenant, lo, hi };
    unsigned char out[DIGEST];
    unsigned      len = 0;
    if (!HMAC(EVP_sha256(), a->secret, sizeof a->secret, (unsigned char *)in, sizeof in, out, &len)) {
        /* no digest: a salt that nobody else has, so nothing is shared */
        static _Atomic uint64_t unique;
        *lo_out = ++unique;
        *hi_out = ~(uint64_t)0;
        return;
    }
    memcpy(lo_out, out, 8);
    memcpy(hi_out, out + 8, 8);
}

const unsigned char *auth_secret(const struct auth *a) { return a->secret; }
void                 auth_set_secret(struct auth *a, const unsigned char secret[AUTH_SECRET])
{
    memcpy(a->secret, secret, AUTH_SECRET);
}

void auth_free(struct auth *a)
{
    if (!a) return;
    if (a->keys) OPENSSL_cleanse(a->keys, a->n_key * sizeof *a->keys);
    OPENSSL_cleanse(a->secret, sizeof a->secret);
    pthread_rwlock_destroy(&a->lock);
    free(a->keys);
    free(a->path);
    free(a);
}
