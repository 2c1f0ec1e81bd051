/* store_task: the blocking work that the owner of a store gives to its thread, and the messages of the thread to the
 * owner. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/folder/store_impl.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct store_keys store_keys_of(const struct kv_store *s, uint32_t i)
{
    struct store_keys k = { .mac = { &s->cfg.key, s->cfg.old_key },
                            .n_mac = s->cfg.old_key ? 2 : 1,
                            .sealer = s->sealer };
    if (!s->key) return k;
    k.secret[0] = s->cfg.secret;
    k.secret[1] = s->cfg.old_secret;
    k.n_secret = s->cfg.old_secret ? 2 : 1;
    k.ephemeral = s->cfg.ephemeral;
    k.key = s->key + i;
    return k;
}

/* Bytes of the segments in quarantine. */
static uint64_t quarantine_bytes(const struct kv_store *s)
{
    uint64_t  bytes = 0, *seq = NULL;
    uint32_t  n = 0;
    const int fd = openat(store_home(s), STORE_QUARANTINE, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    if (store_list(fd, &seq, &n)) n = 0;
    for (uint32_t i = 0; i < n; i++) {
        char        name[32];
        struct stat st;
        store_name(name, sizeof name, seq[i]);
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) bytes += (uint64_t)st.st_size;
    }
    free(seq);
    close(fd);
    return bytes;
}

bool store_make_room(struct kv_store *s, uint64_t more_bytes, int *error_out)
{
    uint64_t own = 0, others = 0, cap = s->cfg.cap_bytes;
    uint32_t n_removed = 0;
    *error_out = 0;
    if (s->root < 0) return true;
    int error = models_bytes(s->dir, &own);
    own += quarantine_bytes(s);
    if (!error)
        error =
            models_shrink(s->root, s->own, own + more_bytes < cap ? cap - own - more_bytes : 0, &others, &n_removed);
    *error_out = error;
    if (error) return false;
    atomic_store(&s->other_bytes, others);
    atomic_fetch_add(&s->n_other_removed, n_removed);
    if (n_removed)
        LOG_INFO("kv: %s: %u segments of other models gave way, %" PRIu64 " MiB of such are left", s->path, n_removed,
                 others >> 20);
    return own + more_bytes + others <= cap;
}

static void task_make(struct kv_store *s, struct task *t)
{
    struct store_keys keys = store_keys_of(s, (uint32_t)t->segment);
    struct store_form form = store_form(s);
    if (!store_make_room(s, s->g.segment_bytes, &t->error)) {
        t->st = t->error ? ST_IO : ST_TOO_LARGE;
        return;
    }
    t->st = store_file_make(s->dir, t->seq, &form, &keys, &s->direct, &t->fd, &t->error);
    t->direct = s->direct;
}

static void task_seal(struct kv_store *s, struct task *t)
{
    struct store_keys keys = store_keys_of(s, (uint32_t)t->segment);
    t->st = store_footer_write(t->fd, &s->g, t->seq, t->row, t->n, &keys, s->seal_buffer, &t->error);
}

void store_remove(struct kv_store *s, struct task *t)
{
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    t->error = store_unlink(s, t->seq, t->moved);
    t->st = t->error ? ST_IO : ST_OK;
}

void store_serve(struct kv_store *s, struct task *t)
{
    switch (t->kind) {
    case TASK_MAKE: task_make(s, t); break;
    case TASK_REMOVE: store_remove(s, t); break;
    case TASK_SEAL: task_seal(s, t); break;
    default: CHECK(t->kind <= TASK_REMOVE); break; /* messages of the thread come back to store_give */
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
            store_serve(s, back); /* the owner's tasks do not wait until it has read this message */
        else
            ring_wait(&s->todo, -1);
    }
    return false;
}
