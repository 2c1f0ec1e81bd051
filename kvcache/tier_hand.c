#include "kvcache/tier_hand.h"
#include "base/log.h"
#include "kvcache/slab.h"
#include "kvcache/tier_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* [head][row]...[digest of all before it] */
struct hand_head {
    unsigned char        magic[8];
    uint32_t             version, n_row;
    struct kv_hand_shape shape;
    struct digest        stores;
};
static const unsigned char MAGIC[8] = { 'S', 'P', 'W', 'K', 'V', 'H', 'N', 'D' };
_Static_assert(sizeof(struct kv_hand_shape) == 80 && sizeof(struct kv_hand_row) == 64 &&
                   sizeof(struct hand_head) == 112,
               "no padding: what is not written would be in the digest");

/* ---- the index */

void kv_hand_shape_of(const struct kv_tiers_cfg *c, struct kv_hand_shape *out)
{
    static const char name[] = "spillway kv hand";
    uint64_t          stride = kv_record_bytes(c->block_bytes), n = c->host_bytes / stride;
    *out = (struct kv_hand_shape){ .fingerprint = kv_fingerprint(&c->ident),
                                   .key = digest_of(&c->key, name, sizeof name),
                                   .n_slot = n < INT32_MAX ? n : INT32_MAX,
                                   .stride = stride,
                                   .block_bytes = c->block_bytes,
                                   .block_tokens = c->ident.block_tokens,
                                   .version = KV_RECORD_VERSION };
}

const char *kv_hand_differs(const struct kv_hand_shape *a, const struct kv_hand_shape *b)
{
    if (a->version != b->version) return "its blocks are of another version";
    if (!kv_key_equal(&a->fingerprint, &b->fingerprint)) return "its blocks are of another model, type or layout";
    if (!digest_equal(a->key, b->key)) return "its blocks are under another key";
    if (a->n_slot != b->n_slot || a->stride != b->stride) return "it has another size (--kv-host-gib)";
    return memcmp(a, b, sizeof *a) ? "its blocks are of another shape" : NULL;
}

uint64_t kv_hand_bytes(uint32_t n_row)
{
    return sizeof(struct hand_head) + n_row * sizeof(struct kv_hand_row) + sizeof(struct digest);
}
struct kv_hand_row *kv_hand_rows(void *data)
{
    return (struct kv_hand_row *)(void *)((unsigned char *)data + sizeof(struct hand_head));
}

void kv_hand_finish(void *data, uint32_t n_row, const struct kv_hand_shape *shape, const struct digest_key *key,
                    struct digest stores)
{
    struct hand_head h = { .version = KV_HAND_VERSION, .n_row = n_row, .shape = *shape, .stores = stores };
    uint64_t         n = kv_hand_bytes(n_row) - sizeof(struct digest);
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(data, &h, sizeof h);
    struct digest d = digest_of(key, data, n);
    memcpy((unsigned char *)data + n, &d, sizeof d);
}

static enum status refuse(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "%s", what);
    return ST_INVALID;
}

enum status kv_hand_read(const void *data, size_t bytes, const struct kv_hand_shape *shape,
                         const struct digest_key *key, struct digest stores, struct kv_hand_index *out, char *why,
                         size_t why_bytes)
{
    struct hand_head h;
    struct digest    d;
    if (bytes < kv_hand_bytes(0)) return refuse(why, why_bytes, "its index is cut short");
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof MAGIC)) return refuse(why, why_bytes, "its index is none");
    if (h.version != KV_HAND_VERSION) return refuse(why, why_bytes, "its index is of another version");
    if (h.n_row > shape->n_slot || bytes != kv_hand_bytes(h.n_row))
        return refuse(why, why_bytes, "its index has another length than it says");
    memcpy(&d, (const unsigned char *)data + bytes - sizeof d, sizeof d);
    if (!digest_equal(d, digest_of(key, data, bytes - sizeof d)))
        return refuse(why, why_bytes, "its index has a wrong digest");
    const char *other = kv_hand_differs(shape, &h.shape);
    if (other) return refuse(why, why_bytes, other);
    const struct kv_hand_row *row = (const struct kv_hand_row *)(const void *)((const unsigned char *)data + sizeof h);
    unsigned char            *seen = calloc(shape->n_slot / 8 + 1, 1);
    if (!seen) return refuse(why, why_bytes, "no memory to read its index");
    bool good = true;
    for (uint32_t i = 0; good && i < h.n_row; i++) {
        uint32_t s = row[i].slot;
        good = s < shape->n_slot && !(seen[s / 8] & 1u << s % 8);
        if (good) seen[s / 8] |= (unsigned char)(1u << s % 8);
    }
    free(seen);
    if (!good) return refuse(why, why_bytes, "its index names a slot twice, or one that is not there");
    *out = (struct kv_hand_index){ .row = row, .n = h.n_row, .same_stores = digest_equal(h.stores, stores) };
    return ST_OK;
}

/* Which folders there are, in their order: the store bits of a slot mean these. */
static struct digest stores_of(const struct kv_tiers *t)
{
    char   text[KV_STORES_MAX * 600];
    size_t n = 0;
    for (uint32_t i = 0; i < t->cfg.n_store; i++) n += (size_t)snprintf(text + n, 600, "%.512s\n", t->cfg.store[i].dir);
    return digest_of(&t->cfg.key, text, n);
}

/* ---- the old one */

/* A pin ends with its process. The blocks that it held are handed over with the highest priority instead. */
static struct kv_hand_row row_of(const struct kv_tiers *t, int32_t i)
{
    const struct host_slot *s = &t->host.slot[i];
    bool                    pinned = s->class == KV_CLASS_PINNED;
    return (struct kv_hand_row){ .key = s->key,
                                 .payload = s->payload,
                                 .until_s = pinned ? 0 : down_until_wall(t, &s->hold),
                                 .slot = (uint32_t)i,
                                 .store = s->store,
                                 .priority = pinned ? KV_PRIORITY_MAX : s->hold.priority,
                                 .used = s->hold.used || pinned,
                                 .memory_only = s->hold.memory_only };
}

static int write_index(const struct kv_tiers *t)
{
    uint64_t bytes = kv_hand_bytes(t->host.n_ready);
    int      fd = memfd_create("spillway-kv-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void    *p = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED) {
        if (fd >= 0) close(fd);
        return -1;
    }
    struct kv_hand_row  *row = kv_hand_rows(p);
    struct kv_hand_shape shape;
    uint32_t             n = 0;
    for (int32_t i = slot_oldest(&t->host); i != SLOT_NONE; i = slot_newer(&t->host, i)) {
        if (!t->host.slot[i].doomed && !slot_hidden(t, i)) row[n++] = row_of(t, i);
    }
    kv_hand_shape_of(&t->cfg, &shape);
    kv_hand_finish(p, n, &shape, &t->cfg.key, stores_of(t));
    munmap(p, bytes);
    /* sealed: what the next process has checked cannot change afterwards */
    if (ftruncate(fd, (off_t)kv_hand_bytes(n)) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void drop_index(struct kv_tiers *t)
{
    if (t->hand.index_fd >= 0) close(t->hand.index_fd);
    t->hand.index_fd = -1;
}

void kv_tiers_shape(const struct kv_tiers *t, struct kv_hand_shape *out) { kv_hand_shape_of(&t->cfg, out); }

void kv_tiers_hand(struct kv_tiers *t, enum kv_hand want) { atomic_store(&t->hand.want, (int)want); }

enum kv_hand kv_tiers_hand_is(const struct kv_tiers *t, int *slab_fd_out, int *index_fd_out)
{
    enum kv_hand is = (enum kv_hand)atomic_load(&t->hand.is);
    *slab_fd_out = is == KV_FROZEN ? t->host.slab_fd : -1;
    *index_fd_out = is == KV_FROZEN ? t->hand.index_fd : -1;
    return is;
}

/* Nothing is on its way any more, and what only the device held has gone down as far as there was room and time. */
static bool come_to_rest(struct kv_tiers *t)
{
    enum { FLUSH_US = 3000000 };
    audit_stop(t);
    up_close(t);
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++)
        if (t->load[i].used) return false;
    if (!t->hand.flush_end_us) drain_device_begin(t, t->cfg.clock() + FLUSH_US);
    if (t->hand.flushing) {
        bool more = drain_device_step(t);
        down_turn(t);
        if (more) return false;
        drain_device_end(t);
    }
    down_close(t);
    move_end(t);
    if (!place_vacate(t) || kv_tiers_busy(t)) return false;
    t->hand.flush_end_us = 0;
    return true;
}

bool hand_turn(struct kv_tiers *t)
{
    enum kv_hand is = (enum kv_hand)atomic_load(&t->hand.is), want = (enum kv_hand)atomic_load(&t->hand.want);
    t->frozen = is != KV_SERVES || want != KV_SERVES;
    if (is == want) {
        if (t->hand.flush_end_us) drain_device_end(t); /* it was told to and then not to */
        t->hand.flush_end_us = 0;
        t->hand.vacating = false;
        return t->frozen;
    }
    if (want == KV_SERVES) {
        drop_index(t);
        t->frozen = t->hand.held = false;
    } else if (is == KV_SERVES) { /* FROZEN comes before GIVEN */
        if (!come_to_rest(t)) return true;
        drop_index(t);
        t->hand.index_fd = write_index(t);
        want = KV_FROZEN;
    } else if (want == KV_GIVEN) {
        below_close(t);
    }
    atomic_store(&t->hand.is, (int)want);
    return t->frozen;
}

void hand_close(struct kv_tiers *t)
{
    drain_device_end(t);
    drop_index(t);
    if (!t->cfg.hand.given) return; /* opening did not come so far */
    close(t->cfg.hand.slab_fd);
    close(t->cfg.hand.index_fd);
}

/* ---- the new one */

static enum status map_index(int fd, void **p_out, size_t *bytes_out, char *why, size_t why_bytes)
{
    struct stat st;
    int         seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_SHRINK)) != (F_SEAL_WRITE | F_SEAL_SHRINK) || fstat(fd, &st) ||
        st.st_size <= 0)
        return refuse(why, why_bytes, "its index is not sealed");
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return refuse(why, why_bytes, "its index cannot be mapped");
    *p_out = p;
    *bytes_out = (size_t)st.st_size;
    return ST_OK;
}

/* By the clock that kv_tick is told: no tick has been yet. */
static struct kv_hold hold_of(const struct kv_tiers *t, const struct kv_hand_row *r)
{
    uint64_t wall = t->cfg.wall(), rest = r->until_s > wall ? r->until_s - wall : 0;
    int8_t   priority = r->priority < KV_PRIORITY_MIN || r->priority > KV_PRIORITY_MAX ? 0 : r->priority;
    if (rest > KV_TTL_MAX_S) rest = KV_TTL_MAX_S;
    return (struct kv_hold){ .until_s = r->until_s ? (uint32_t)(t->cfg.clock() / 1000000 + rest) : KV_NO_END,
                             .priority = priority,
                             .used = r->used,
                             .memory_only = r->memory_only };
}

static void take_rows(struct kv_tiers *t, const struct kv_hand_row *row, uint32_t n, bool same_stores)
{
    for (uint32_t i = 0; i < n; i++) {
        if (slot_find(&t->host, &row[i].key) != SLOT_NONE) continue; /* a key twice: the older one */
        slot_adopt(&t->host, (int32_t)row[i].slot, &row[i].key, row[i].payload, hold_of(t, &row[i]),
                   same_stores && row[i].store <= t->cfg.n_store ? row[i].store : 0);
    }
    kv_host_free_again(&t->host);
}

enum status hand_adopt(struct kv_tiers *t, char *why, size_t why_bytes)
{
    uint64_t             bytes = t->host.n_slot * t->host.stride;
    struct kv_hand_shape shape;
    struct kv_hand_index found;
    struct stat          st;
    void                *index, *slab;
    size_t               index_bytes;
    kv_hand_shape_of(&t->cfg, &shape);
    /* a slab that could shrink could kill whoever reads it */
    int seals = fcntl(t->cfg.hand.slab_fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(t->cfg.hand.slab_fd, &st) || (uint64_t)st.st_size != bytes)
        return refuse(why, why_bytes, "it has another size, or could shrink");
    enum status bad = map_index(t->cfg.hand.index_fd, &index, &index_bytes, why, why_bytes);
    if (bad) return bad;
    bad = kv_hand_read(index, index_bytes, &shape, &t->cfg.key, stores_of(t), &found, why, why_bytes);
    if (!bad && slab_map(t->cfg.hand.slab_fd, bytes, &slab)) bad = refuse(why, why_bytes, strerror(errno));
    if (!bad) {
        t->host.slab = slab;
        t->host.slab_fd = t->cfg.hand.slab_fd;
        take_rows(t, found.row, found.n, found.same_stores);
        atomic_store(&t->hand.want, (int)KV_FROZEN);
        atomic_store(&t->hand.is, (int)KV_FROZEN);
        t->frozen = t->hand.held = true;
        LOG_INFO("kv: took over %u blocks of the server before, %.2f GiB; each is checked when it is first wanted",
                 t->host.n_ready, (double)(t->host.n_ready * t->host.stride) / (1 << 30));
    }
    munmap(index, index_bytes);
    return bad;
}
