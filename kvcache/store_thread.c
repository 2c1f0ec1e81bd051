/* store_thread: what a store's thread does: everything that may block. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/store_impl.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct store_crypt *store_crypt_of(const struct kv_store *s, uint32_t i, struct store_crypt *c)
{
    if (!s->key) return NULL;
    *c = (struct store_crypt){ s->cfg.secret, s->sealer, s->key + i };
    return c;
}

/* Other models' segments give way until more bytes fit beside what is there. false: they do not, or nothing is known. */
static bool make_room(struct kv_store *s, uint64_t more_bytes, int *error_out)
{
    uint64_t own = 0, others = 0, cap = s->cfg.cap_bytes;
    uint32_t n_removed = 0;
    *error_out = 0;
    if (s->root < 0) return true;
    int error = models_bytes(s->dir, &own);
    if (!error) error = models_shrink(s->root, s->own, own + more_bytes < cap ? cap - own - more_bytes : 0, &others, &n_removed);
    *error_out = error;
    if (error) return false;
    atomic_store(&s->other_bytes, others);
    atomic_fetch_add(&s->n_other_removed, n_removed);
    if (n_removed)
        LOG_INFO("kv: %s: %u segments of other models gave way, %" PRIu64 " MiB of such are left", s->path, n_removed, others >> 20);
    return own + more_bytes + others <= cap;
}

static void task_make(struct kv_store *s, struct task *t)
{
    struct store_crypt c;
    if (!make_room(s, s->g.segment_bytes, &t->error)) {
        t->st = t->error ? ST_IO : ST_TOO_LARGE;
        return;
    }
    t->st = store_file_make(s->dir, t->seq, &s->g, &s->cfg.fingerprint, s->cfg.payload_bytes, s->cfg.block_tokens,
                            store_crypt_of(s, (uint32_t)t->segment, &c), &s->direct, &t->fd, &t->error);
    t->direct = s->direct;
}

static void task_seal(struct kv_store *s, struct task *t)
{
    struct store_crypt c;
    t->st = store_footer_write(t->fd, &s->g, t->seq, t->row, t->n, store_crypt_of(s, (uint32_t)t->segment, &c), s->seal_buffer, &t->error);
}

static void task_remove(struct kv_store *s, struct task *t)
{
    char name[32];
    store_name(name, sizeof name, t->seq);
    if (t->fd >= 0) close(t->fd);
    t->st = unlinkat(s->dir, name, 0) && errno != ENOENT ? ST_IO : ST_OK;
    t->error = errno;
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void serve(struct kv_store *s, struct task *t)
{
    switch (t->kind) {
    case TASK_MAKE: task_make(s, t); break;
    case TASK_REMOVE: task_remove(s, t); break;
    case TASK_SEAL: task_seal(s, t); break;
    default: CHECK(t->kind <= TASK_REMOVE); break; /* what the thread tells comes back to store_give */
    }
    CHECK(ring_push(&s->answer, t));
}

bool store_give(struct kv_store *s, struct task *t)
{
    atomic_store(&s->telling, true);
    CHECK(ring_push(&s->answer, t));
    while (!atomic_load(&s->stop)) {
        struct task *back = ring_pop(&s->todo);
        if (back == t) {
            atomic_store(&s->telling, false);
            return true;
        }
        if (back)
            serve(s, back); /* the owner's wishes do not wait for what the thread tells it */
        else
            ring_wait(&s->todo, -1);
    }
    return false;
}

/* Newest first: what was written last is likely wanted first. */
static bool scan(struct kv_store *s, const uint64_t *seq, uint32_t n)
{
    struct task              *t = &s->scan_task;
    struct store_crypt        crypt;
    const struct store_crypt *c = store_crypt_of(s, s->n_slot, &crypt);
    for (uint32_t i = n; i-- > 0 && !atomic_load(&s->stop);) {
        *t = (struct task){ .kind = TASK_SCAN, .segment = NONE, .seq = seq[i], .fd = -1, .row = s->scan_row };
        bool direct = s->direct;
        t->st = store_file_open(s->dir, t->seq, &s->g, &s->cfg.fingerprint, false, c, &direct, &t->fd);
        if (t->st == ST_OK)
            t->st = store_file_scan(t->fd, &s->g, t->seq, &s->cfg.fingerprint, &s->cfg.key, s->cfg.payload_bytes, s->cfg.block_tokens, c,
                                    s->scan_buffer, t->row, &t->n, &t->from_footer);
        t->direct = direct;
        if (t->st || t->n == 0) { /* torn, foreign, of another version, or prepared and never written: its room is ours */
            t->foreign = true, t->n = 0;
            struct task gone = { .seq = t->seq, .fd = t->fd };
            task_remove(s, &gone);
            t->fd = -1;
        }
        if (!store_give(s, t)) return false;
    }
    return true;
}

enum { NAMES_MAX = 1 << 16 };
uint32_t store_list(int dir, uint64_t **seq_out)
{
    uint32_t       n = 0, cap = 0;
    uint64_t      *seq = NULL, one;
    int            fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR           *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (!store_seq_of(e->d_name, &one)) continue;
        if (n == NAMES_MAX) break; /* nobody of ours has made so many */
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            uint64_t *more = realloc(seq, cap * sizeof *seq);
            if (!more) break;
            seq = more;
        }
        seq[n++] = one;
    }
    if (d) closedir(d);
    if (n) qsort(seq, n, sizeof *seq, by_seq);
    *seq_out = seq;
    return n;
}

void *store_main(void *arg)
{
    struct kv_store *s = arg;
    uint64_t        *seq;
    uint32_t         n = store_list(s->dir, &seq);
    bool             go_on = scan(s, seq, n);
    free(seq);
    int error;
    if (go_on && !make_room(s, 0, &error) && error)
        LOG_WARN("kv: %s: what other models have there is not known: %s", s->path, strerror(error));
    if (go_on && s->share) share_turn(s); /* the first round: what others left is found before it is said that all is */
    s->scan_task = (struct task){ .kind = TASK_SCANNED, .segment = NONE, .fd = -1 };
    if (go_on) go_on = store_give(s, &s->scan_task);
    while (go_on && !atomic_load(&s->stop)) {
        struct task *t = ring_pop(&s->todo);
        if (t)
            serve(s, t);
        else
            ring_wait(&s->todo, s->share ? share_turn(s) : -1);
    }
    return NULL;
}
