/* store_share: the folder of several servers: the own sub-folder and its lease, the segments of other servers, and
 * those that servers left behind when they ended. The rules are in store.h. A round looks at a bounded number of
 * folders, and opens a bounded number of files. */
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "kvcache/folder/store_impl.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PEERS_MAX = 64,
    KNOWN_MAX = 4096, /* files of others that are known by number */
    OPENS_MAX = 32,   /* files opened in a round */
    LEASE_BYTES = 64,
    NAME_MAX_BYTES = 80,
    SCAN_US = 5000000,
    GRACE_US = 120000000,
    UNWANTED = 10, /* graces after which what nobody has room for goes */
};
static const char LEASE[] = "LEASE";

struct share_peer {
    char     name[NAME_MAX_BYTES], lease[LEASE_BYTES];
    uint64_t since_us; /* when the lease was last seen to change */
    bool     seen, left;
    bool     same_name; /* an earlier start of this server, or one that follows it */
    bool     told;      /* same_name: that it lives has been said */
};
struct known {
    uint64_t seq;
    int32_t  segment;    /* NONE: there was no room for it, or nothing to read in it */
    bool     seen, ours; /* ours: of our geometry: it may be taken over */
};
struct share {
    int               root;
    char              name[NAME_MAX_BYTES], lease[LEASE_BYTES];
    uint64_t          count, next_beat_us, next_round_us;
    bool              lost;
    bool              freed; /* places of segments, since the last round */
    struct share_peer peer[PEERS_MAX];
    uint32_t          n_peer, n_known, n_open;
    uint64_t          name_bytes; /* of this round */
    struct known      known[KNOWN_MAX];
    struct task       task;
};

/* ---- the lease: one short line in place, opened and closed each time, so that a network file system shows it to
 * others */

static void lease_text(struct share *h, const char *word)
{
    int n = snprintf(h->lease, sizeof h->lease, "spillway lease 1 %020" PRIu64 " %-6s", ++h->count, word);
    memset(h->lease + n, ' ', sizeof h->lease - (size_t)n);
    h->lease[sizeof h->lease - 1] = '\n';
}

static bool lease_write(int dir, const char *text, int flags)
{
    int  fd = openat(dir, LEASE, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    bool ok = fd >= 0 && pwrite(fd, text, LEASE_BYTES, 0) == LEASE_BYTES;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    return ok;
}

static bool lease_read(int dir, char *out)
{
    int  fd = openat(dir, LEASE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool ok = fd >= 0 && pread(fd, out, LEASE_BYTES, 0) == LEASE_BYTES;
    if (fd >= 0) close(fd);
    return ok;
}

/* true: it is still ours. Cannot be read for another reason than that it is gone: ours until the contrary is seen. */
static bool beat(struct kv_store *s, struct share *h)
{
    char is[LEASE_BYTES];
    int  fd = openat(s->dir, LEASE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return false;
    ssize_t n = fd < 0 ? -1 : pread(fd, is, sizeof is, 0);
    if (fd >= 0) close(fd);
    if (n == (ssize_t)sizeof is && memcmp(is, h->lease, sizeof is)) return false;
    lease_text(h, "held");
    if (lease_write(s->dir, h->lease, 0)) return true;
    lease_read(s->dir, h->lease); /* whatever stands there now: the next beat compares with it */
    return true;
}

enum status share_open(struct kv_store *s, char *why, size_t why_bytes)
{
    struct share *h = s->share = calloc(1, sizeof *h);
    char          host[48] = "";
    uint64_t      boot;
    if (!h) return ST_NOMEM;
    h->root = -1;
    if (file_make_folder(s->path, 0700, why, why_bytes)) return ST_IO;
    h->root = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (h->root < 0) goto fail;
    if (s->cfg.name)
        snprintf(host, sizeof host, "%s", s->cfg.name);
    else
        gethostname(host, sizeof host - 1);
    for (char *p = host; *p; p++)
        if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z'))) *p = '-';
    if (RAND_bytes((unsigned char *)&boot, sizeof boot) != 1) return ST_IO;
    snprintf(h->name, sizeof h->name, "srv-%s-%016" PRIx64, host, boot);
    lease_text(h, "held");
    if (mkdirat(h->root, h->name, 0700)) goto fail;
    s->dir = openat(h->root, h->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (s->dir < 0 || !lease_write(s->dir, h->lease, O_CREAT | O_EXCL)) goto fail;
    return ST_OK;
fail:
    snprintf(why, why_bytes, "a folder of its own cannot be made there: %s", strerror(errno));
    return ST_IO;
}

void share_close(struct kv_store *s)
{
    struct share *h = s->share;
    uint64_t     *seq = NULL;
    if (!h) return;
    if (s->dir >= 0 && !h->lost) {
        uint32_t n = 0;
        if (s->started && (store_list(s->dir, &seq, &n) || n > 0)) { /* others may have it at once */
            lease_text(h, "left");
            lease_write(s->dir, h->lease, 0);
        } else {
            unlinkat(s->dir, LEASE, 0);
            unlinkat(h->root, h->name, AT_REMOVEDIR);
        }
        free(seq);
    }
    if (h->root >= 0) close(h->root);
    free(h);
    s->share = NULL;
}

/* ---- what others have */

static struct known *known_of(struct share *h, uint64_t seq)
{
    for (uint32_t i = 0; i < h->n_known; i++)
        if (h->known[i].seq == seq) return &h->known[i];
    return NULL;
}
static void known_drop(struct share *h, struct known *k) { *k = h->known[--h->n_known]; }

/* srv-NAME-<16 digits>, of the same name. */
static bool is_same_name(const struct share *h, const char *name)
{
    enum { DIGITS = 16 };
    size_t n = strlen(h->name);
    return strlen(name) == n && !memcmp(name, h->name, n - DIGITS) &&
           strspn(name + n - DIGITS, "0123456789abcdef") == DIGITS;
}

static uint64_t bytes_of(int dir, uint64_t seq)
{
    char        name[32];
    struct stat st;
    store_name(name, sizeof name, seq);
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static uint64_t grace_of(const struct kv_store *s) { return s->cfg.grace_us ? s->cfg.grace_us : GRACE_US; }
static uint64_t beat_of(const struct kv_store *s) { return grace_of(s) / 8 < SCAN_US ? grace_of(s) / 8 : SCAN_US; }

/* One of the same name is gone when it misses three beats: two of one name that live are a mistake, or a takeover. */
static bool is_gone(const struct kv_store *s, const struct share_peer *p)
{
    uint64_t wait = p->same_name ? 3 * beat_of(s) : grace_of(s);
    return p->left || clock_us() - p->since_us > wait;
}

static struct share_peer *share_peer_of(struct share *h, const char *name)
{
    for (uint32_t i = 0; i < h->n_peer; i++)
        if (!strcmp(h->peer[i].name, name)) return &h->peer[i];
    if (h->n_peer == PEERS_MAX) return NULL;
    struct share_peer *p = &h->peer[h->n_peer++];
    *p = (struct share_peer){ .since_us = clock_us(), .same_name = is_same_name(h, name) };
    snprintf(p->name, sizeof p->name, "%.*s", (int)sizeof p->name - 1, name); /* the caller's fit */
    return p;
}

/* Only a live server changes its lease: what an earlier start left, however short ago, is no reason for the line. */
static void tell_of_namesake(const struct kv_store *s, const struct share *h, struct share_peer *p)
{
    enum { PREFIX = 4, SUFFIX = 17 }; /* srv-, and - with the digits of the start */
    p->told = true;
    LOG_WARN("kv: %s: another server named '%.*s' is alive there (%s): the two have one budget of %" PRIu64
             " MiB together; give each its own --kv-shared-name, unless one drains for the other",
             s->path, (int)strlen(h->name) - PREFIX - SUFFIX, h->name + PREFIX, p->name, s->cfg.cap_bytes >> 20);
}

static void peer_look(const struct kv_store *s, const struct share *h, struct share_peer *p, int dir)
{
    char text[LEASE_BYTES] = "";
    lease_read(dir, text); /* none: as one that does not change */
    bool known = p->lease[0] != 0, changed = memcmp(text, p->lease, sizeof text) != 0;
    if (changed) {
        memcpy(p->lease, text, sizeof text);
        p->since_us = clock_us();
    }
    p->left = !memcmp(text + strlen("spillway lease 1 ") + 21, "left ", 5);
    if (p->same_name && known && changed && text[0] && !p->left && !p->told) tell_of_namesake(s, h, p);
}

/* A new file: its rows go to the owner. heads: its server is gone, so a segment without a footer will not get one, and
 * its heads are read instead. false: the store closes. */
static bool find_one(struct kv_store *s, struct share *h, int dir, uint64_t seq, bool heads)
{
    struct store_keys     keys = store_keys_of(s, s->n_slot);
    struct store_form     form = store_form(s);
    struct store_geometry its;
    struct store_fault    fault;
    struct store_scan     found;
    bool                  direct = true;
    struct task          *t = &h->task;
    *t =
        (struct task){ .kind = TASK_FOUND, .segment = NONE, .dropped = NONE, .seq = seq, .fd = -1, .row = s->scan_row };
    h->n_open++;
    enum store_word word = store_file_open_foreign(dir, seq, &form, &keys, &direct, &its, &t->fd, &fault);
    t->mac = keys.mac_is;
    if (word) t->fd = -1;
    t->direct = direct;
    bool known =
        word == STORE_OTHER_MODEL || word == STORE_OTHER_KEY || word == STORE_OTHER_START; /* it stays what it is */
    if (!word && heads) {
        form.g = &its;
        store_file_scan(t->fd, &form, seq, &keys, s->scan_buffer, t->row, &found);
        t->n = found.n;
    } else if (!word &&
               store_footer_read(t->fd, &its, seq, s->cfg.block_tokens, &keys, s->scan_buffer, t->row, &t->n)) {
        t->n = 0;
    }
    if (!word && t->n) {
        known = true;
        if (!store_give(s, t)) return false;
        for (uint32_t i = 0; t->dropped != NONE && i < h->n_known; i++)
            if (h->known[i].segment == t->dropped) h->known[i].segment = NONE;
    }
    if (t->segment == NONE && t->fd >= 0) close(t->fd);
    if (known && h->n_known < KNOWN_MAX)
        h->known[h->n_known++] =
            (struct known){ seq, t->segment, true, !word && its.segment_bytes == s->g.segment_bytes };
    return true;
}

/* One that a server left behind comes into the own folder, when the owner has room. A rename is done by one server
 * alone, whoever tries. */
static bool claim(struct kv_store *s, struct share *h, int dir, struct known *k)
{
    struct task *t = &h->task;
    char         name[32];
    struct stat  st;
    *t = (struct task){ .kind = TASK_CLAIM, .segment = k->segment, .seq = k->seq, .fd = -1 };
    if (!store_give(s, t)) return false;
    if (t->st) return true; /* no room */
    store_name(name, sizeof name, k->seq);
    bool ok = renameat(dir, name, s->dir, name) == 0 ||
              fstatat(s->dir, name, &st, 0) == 0; /* a renewed request is told that it is gone */
    t->kind = ok ? TASK_CLAIMED : TASK_UNCLAIM;
    if (!store_give(s, t)) return false;
    if (ok) {
        known_drop(h, k);
        h->freed = true;
    }
    return true;
}

static void drop_oldest(struct share *h, const struct share_peer *p, int dir, uint64_t seq)
{
    char     name[32];
    uint64_t bytes = bytes_of(dir, seq);
    store_name(name, sizeof name, seq);
    if (unlinkat(dir, name, 0) == 0 && p->same_name) h->name_bytes -= bytes;
}

/* What lies in the folder of another server. */
static bool look_into(struct kv_store *s, struct share *h, struct share_peer *p)
{
    int dir = openat(h->root, p->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0) return true;
    peer_look(s, h, p, dir);
    uint64_t *seq = NULL, now = clock_us(), grace = grace_of(s);
    uint32_t  n = 0;
    if (store_list(dir, &seq, &n)) { /* nothing is concluded from that */
        close(dir);
        return true;
    }
    bool gone = is_gone(s, p), go_on = true, taken = false;
    for (uint32_t i = 0; p->same_name && i < n; i++) h->name_bytes += bytes_of(dir, seq[i]);
    for (uint32_t i = n; i-- > 0 && go_on && !atomic_load(&s->stop);) { /* newest first */
        struct known *k = known_of(h, seq[i]);
        if (!k && h->n_open < OPENS_MAX) {
            go_on = find_one(s, h, dir, seq[i], gone);
            k = known_of(h, seq[i]);
        }
        if (!k) continue;
        k->seen = true;
        if (!go_on || !gone || !k->ours || k->segment == NONE || h->lost) continue;
        uint64_t bytes = bytes_of(dir, seq[i]);
        go_on = claim(s, h, dir, k);
        if (!go_on || known_of(h, seq[i])) continue; /* there was no room for it */
        taken = true;
        if (p->same_name) h->name_bytes -= bytes;
    }
    if (go_on && gone && n == 0) { /* nothing is left in it */
        unlinkat(dir, LEASE, 0);
        unlinkat(h->root, p->name, AT_REMOVEDIR);
    } else if (go_on && n && now - p->since_us > UNWANTED * grace) { /* nobody had room for it: one file a round */
        drop_oldest(h, p, dir, seq[0]);
    } else if (go_on && n && gone && p->same_name && !taken && atomic_exchange(&s->name_short, false)) {
        drop_oldest(h, p, dir, seq[0]); /* it cannot be taken over, and its room is needed */
    }
    free(seq);
    close(dir);
    return go_on;
}

/* Of the same name, of more than a round looks at. */
static uint64_t bytes_beyond(const struct share *h, const char *name)
{
    uint64_t *seq = NULL, bytes = 0;
    uint32_t  n = 0;
    int       dir = openat(h->root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0) return 0;
    if (store_list(dir, &seq, &n)) n = 0;
    for (uint32_t i = 0; i < n; i++) bytes += bytes_of(dir, seq[i]);
    free(seq);
    close(dir);
    return bytes;
}

static void look_around(struct kv_store *s, struct share *h)
{
    int            fd = openat(h->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR           *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    bool           go_on = true;
    if (!d && fd >= 0) close(fd);
    if (!d) return; /* the folder is away: nothing is concluded from that */
    for (uint32_t i = 0; i < h->n_peer; i++) h->peer[i].seen = false;
    for (uint32_t i = 0; i < h->n_known;) { /* what there was no room for is tried again when some was freed */
        h->known[i].seen = false;
        if (h->freed && h->known[i].ours && h->known[i].segment == NONE)
            known_drop(h, &h->known[i]);
        else
            i++;
    }
    h->freed = false;
    h->n_open = 0;
    h->name_bytes = 0;
    while (go_on && (e = readdir(d))) {
        if (strncmp(e->d_name, "srv-", 4) || strlen(e->d_name) >= NAME_MAX_BYTES || !strcmp(e->d_name, h->name))
            continue;
        struct share_peer *p = share_peer_of(h, e->d_name);
        if (!p && is_same_name(h, e->d_name)) h->name_bytes += bytes_beyond(h, e->d_name);
        if (!p) continue;
        p->seen = true;
        go_on = look_into(s, h, p);
    }
    closedir(d);
    if (go_on) atomic_store(&s->name_bytes, h->name_bytes);
    for (uint32_t i = 0; go_on && i < h->n_known;) {
        struct known *k = &h->known[i];
        if (k->seen) {
            i++;
            continue;
        }
        h->task = (struct task){ .kind = TASK_GONE, .segment = k->segment, .fd = -1 };
        if (k->segment != NONE) {
            go_on = store_give(s, &h->task);
            h->freed = true;
        }
        known_drop(h, k);
    }
    for (uint32_t i = 0; i < h->n_peer;)
        if (h->peer[i].seen)
            i++;
        else
            h->peer[i] = h->peer[--h->n_peer];
}

int64_t share_turn(struct kv_store *s)
{
    struct share *h = s->share;
    uint64_t      scan = s->cfg.scan_us ? s->cfg.scan_us : SCAN_US;
    if (clock_us() >= h->next_beat_us && !h->lost) {
        h->lost = !beat(s, h);
        h->next_beat_us = clock_us() + beat_of(s);
        h->task = (struct task){ .kind = TASK_LOST, .segment = NONE, .fd = -1 };
        if (h->lost && !store_give(s, &h->task)) return 0;
    }
    if (clock_us() >= h->next_round_us) {
        look_around(s, h);
        h->next_round_us = clock_us() + scan;
    }
    uint64_t now = clock_us(),
             next = h->lost || h->next_round_us < h->next_beat_us ? h->next_round_us : h->next_beat_us;
    return next > now ? (int64_t)(next - now) : 0;
}
