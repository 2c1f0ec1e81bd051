/* store_kept: files of a store's folder that count against its cap and are not used: damaged segments, segments under
 * another key, and files that could not be read. They stay until their room is needed. Unreadable files stay even then,
 * because they may be sound. */
#include "base/log.h"
#include "kvcache/folder/store_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool store_has_room(const struct kv_store *s)
{
    uint64_t used =
        s->n_file * s->g.segment_bytes + s->kept_bytes + atomic_load_explicit(&s->name_bytes, memory_order_relaxed);
    return s->n_file < s->n_segment && used + s->g.segment_bytes <= s->cfg.cap_bytes;
}

int store_home(const struct kv_store *s) { return s->root >= 0 ? s->root : s->dir; }

int store_unlink(const struct kv_store *s, uint64_t seq, bool moved)
{
    char name[32];
    char path[64];
    store_name(name, sizeof name, seq);
    snprintf(path, sizeof path, "%s/%s", STORE_QUARANTINE, name);
    int failed = moved ? unlinkat(store_home(s), path, 0) : unlinkat(s->dir, name, 0);
    return failed && errno != ENOENT ? errno : 0;
}

void kept_add(struct kv_store *s, uint64_t seq, uint64_t bytes, enum kept_why why, bool moved)
{
    if (moved)
        kept_drop(s, seq, true); /* of the same number, from another model's sub-folder: it has taken its place */
    s->kept_bytes += bytes;
    s->stats.n_locked_segments += why == KEPT_KEY;
    s->stats.n_damaged_segments += why == KEPT_DAMAGED;
    s->stats.n_unread_segments += why == KEPT_UNREAD;
    if (s->n_kept == KEPT_MAX) return; /* its room counts, and it stays */
    s->kept[s->n_kept++] = (struct kept){ .seq = seq, .bytes = bytes, .why = why, .moved = moved };
}

void kept_drop(struct kv_store *s, uint64_t seq, bool moved)
{
    for (uint32_t i = 0; i < s->n_kept; i++) {
        struct kept *k = &s->kept[i];
        if (k->seq != seq || k->moved != moved) continue;
        s->kept_bytes -= k->bytes;
        s->stats.n_locked_segments -= k->why == KEPT_KEY;
        s->stats.n_damaged_segments -= k->why == KEPT_DAMAGED;
        s->stats.n_unread_segments -= k->why == KEPT_UNREAD;
        *k = s->kept[--s->n_kept];
        return;
    }
}

bool kept_first(const struct kv_store *s, struct kept *out)
{
    const struct kept *first = NULL;
    for (uint32_t i = 0; i < s->n_kept; i++) {
        const struct kept *k = &s->kept[i];
        if (k->why == KEPT_UNREAD) continue;
        if (!first || k->why < first->why || (k->why == first->why && k->seq < first->seq)) first = k;
    }
    if (first) *out = *first;
    return first != NULL;
}

/* An eighth of the folder, and one file at least. */
bool kept_overfull(const struct kv_store *s)
{
    uint64_t n = s->n_segment / 8;
    if (n > QUARANTINE_MAX) n = QUARANTINE_MAX;
    if (n < 1) n = 1;
    return s->stats.n_damaged_segments > n;
}

void kept_make_room(struct kv_store *s)
{
    struct kept k;
    while (!store_has_room(s) && s->n_file < s->n_segment && kept_first(s, &k)) {
        if (store_unlink(s, k.seq, k.moved)) return;
        kept_drop(s, k.seq, k.moved);
    }
}

void kept_say(const struct kv_store *s)
{
    const struct kv_store_stats *st = &s->stats;
    if (st->n_locked_segments)
        LOG_WARN(
            "kv: %s: %" PRIu64
            " segments are under another key (of MACs or of encryption), or have none where one is asked for: "
            "their blocks are misses; they go when their room is needed, and serve again when their key comes back",
            s->cfg.dir, st->n_locked_segments);
    if (st->n_damaged_segments)
        LOG_WARN("kv: %s: %" PRIu64 " damaged segments lie in %s/%s, at most %d and the newest of them are kept",
                 s->cfg.dir, st->n_damaged_segments, s->cfg.dir, STORE_QUARANTINE, QUARANTINE_MAX);
    if (st->n_unread_segments)
        LOG_WARN("kv: %s: %" PRIu64
                 " segments could not be read (%s): they stay, their blocks are misses, and they are tried again",
                 s->cfg.dir, st->n_unread_segments, strerror(s->unread_error));
}
