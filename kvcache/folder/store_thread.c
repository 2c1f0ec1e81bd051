/* store_thread: a store's thread: opens the folder, tells the owner what lies there, and does what the owner asks. */
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kvcache/folder/store_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the segments in the own folder */

/* Moves a damaged segment out of the way and keeps it, so that an operator can look at it. A segment that cannot be
 * moved stays where it is and is not used. */
static void to_quarantine(struct kv_store *s, struct task *t, const char *what, uint64_t byte)
{
    char name[32];
    char path[64];
    store_name(name, sizeof name, t->seq);
    snprintf(path, sizeof path, "%s/%s", STORE_QUARANTINE, name);
    if (mkdirat(store_home(s), STORE_QUARANTINE, 0700) && errno != EEXIST) {
        LOG_WARN("kv: %s/%s: %s at byte %" PRIu64 "; it is not used, and cannot be moved away: %s", s->cfg.dir, name,
                 what, byte, strerror(errno));
        return;
    }
    t->moved = renameat(s->dir, name, store_home(s), path) == 0;
    LOG_WARN("kv: %s/%s: %s at byte %" PRIu64 "; it is not used%s%s%s", s->cfg.dir, name, what, byte,
             t->moved ? ", and lies in " : "", t->moved ? STORE_QUARANTINE : "", t->moved ? " now" : "");
}

/* Decides what becomes of a segment by what the scan found. Sound blocks are used, whatever else is wrong with it. */
static void judge_content(struct kv_store *s, struct task *t, const struct store_scan *found)
{
    char name[32];
    store_name(name, sizeof name, t->seq);
    if (t->n) {
        if (found->footer_damaged || found->n_damaged || found->n_unread)
            LOG_WARN("kv: %s/%s: %s at byte %" PRIu64 "%s%s: %u of its blocks are sound and used, %u are not",
                     s->cfg.dir, name, found->fault.error ? "cannot be read" : "damaged", found->fault.byte,
                     found->fault.error ? ", " : "", found->fault.error ? strerror(found->fault.error) : "", t->n,
                     found->n_damaged + found->n_unread);
        return;
    }
    if (found->n_unread) {
        t->word = STORE_NOT_READ;
        t->error = found->fault.error;
    } else if (found->footer_damaged) {
        t->word = STORE_DAMAGED;
        to_quarantine(s, t, "damaged, and no block in it is sound", found->fault.byte);
    } else {
        t->word = STORE_NO_FILE; /* prepared and never written, or cut short in its first blocks: its room is ours */
        store_remove(s, t);
        if (t->st) t->word = STORE_OTHER_VERSION; /* it is still there, and unwanted */
    }
}

static uint64_t bytes_of(const struct kv_store *s, uint64_t seq)
{
    char        name[32];
    struct stat st;
    store_name(name, sizeof name, seq);
    if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW)) return errno == ENOENT ? 0 : s->g.segment_bytes;
    return (uint64_t)st.st_size;
}

static void try_again_later(struct kv_store *s, uint64_t seq)
{
    struct store_unread *u = &s->unread;
    if (u->n < KEPT_MAX) u->seq[u->n++] = seq;
}

/* false: the store closes. */
static bool scan_one(struct kv_store *s, uint64_t seq, bool again)
{
    struct task       *t = &s->scan_task;
    struct store_keys  keys = store_keys_of(s, s->n_slot);
    struct store_form  form = store_form(s);
    struct store_fault fault;
    struct store_scan  found;
    *t = (struct task){ .kind = TASK_SCAN,
                        .segment = NONE,
                        .seq = seq,
                        .fd = -1,
                        .row = s->scan_row,
                        .again = again,
                        .direct = s->direct };
    t->bytes = bytes_of(s, seq);
    t->word = store_file_open(s->dir, seq, &form, &keys, &t->direct, &t->fd, &fault);
    t->mac = keys.mac_is;
    switch (t->word) {
    case STORE_OURS:
        store_file_scan(t->fd, &form, seq, &keys, s->scan_buffer, t->row, &found);
        t->n = found.n;
        judge_content(s, t, &found);
        break;
    case STORE_NOT_READ: t->error = fault.error; break;
    case STORE_DAMAGED: to_quarantine(s, t, "its header is damaged", fault.byte); break;
    case STORE_OTHER_VERSION:
    case STORE_OTHER_MODEL:
    case STORE_OTHER_START: store_remove(s, t); break;
    case STORE_OTHER_KEY:
    case STORE_NO_FILE: break;
    }
    if (t->word != STORE_OURS && t->fd >= 0) {
        close(t->fd);
        t->fd = -1;
    }
    if (!store_give(s, t)) return false;
    if (t->word == STORE_NOT_READ) try_again_later(s, seq);
    return true;
}

/* Newest first: the blocks written last are likely wanted first. */
static bool scan(struct kv_store *s, const uint64_t *seq, uint32_t n, bool again)
{
    for (uint32_t i = n; i-- > 0 && !atomic_load(&s->stop);)
        if (!scan_one(s, seq[i], again)) return false;
    return !atomic_load(&s->stop);
}

/* Tells the owner of the segments in quarantine, because they take room too. */
static bool scan_quarantine(struct kv_store *s)
{
    uint64_t *seq = NULL;
    uint32_t  n = 0;
    bool      go_on = true;
    int       fd = openat(store_home(s), STORE_QUARANTINE, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return true;
    if (store_list(fd, &seq, &n)) n = 0;
    for (uint32_t i = 0; i < n && go_on; i++) {
        char        name[32];
        struct stat st;
        store_name(name, sizeof name, seq[i]);
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        s->scan_task = (struct task){ .kind = TASK_SCAN,
                                      .segment = NONE,
                                      .seq = seq[i],
                                      .fd = -1,
                                      .word = STORE_DAMAGED,
                                      .moved = true,
                                      .bytes = (uint64_t)st.st_size };
        go_on = store_give(s, &s->scan_task);
    }
    free(seq);
    close(fd);
    return go_on;
}

/* ---- the thread */

enum { LOCKED_US = 50000 };

static uint64_t wait_longer(const struct kv_store *s, uint64_t wait_us)
{
    if (!wait_us) return s->cfg.retry_us;
    return 2 * wait_us > RETRY_MAX_US ? RETRY_MAX_US : 2 * wait_us;
}

/* This wait does not grow: a server that follows one which drains opens the folder as soon as that one has left. */
static uint64_t wait_for_lock(const struct kv_store *s)
{
    return s->cfg.retry_us < LOCKED_US ? s->cfg.retry_us : LOCKED_US;
}

/* Serves the tasks of the owner for us microseconds. false: the store closes. */
static bool serve_for(struct kv_store *s, uint64_t us)
{
    for (uint64_t end = clock_us() + us; !atomic_load(&s->stop);) {
        uint64_t     now = clock_us();
        struct task *t = ring_pop(&s->todo);
        if (t)
            store_serve(s, t);
        else if (now >= end)
            return true;
        else
            ring_wait(&s->todo, (int64_t)(end - now));
    }
    return false;
}

/* The folder, opened and listed. *seq_out is the caller's to free. */
static enum status open_and_list(struct kv_store *s, uint64_t **seq_out, uint32_t *n_out)
{
    char        why[sizeof s->why];
    enum status st = folder_open(s, why, sizeof why);
    if (!st) {
        int error = store_list(s->dir, seq_out, n_out);
        if (!error) return ST_OK;
        snprintf(why, sizeof why, "the folder cannot be listed: %s", strerror(error));
        folder_close(s);
        st = ST_IO;
    }
    memcpy(s->why, why, sizeof why);
    return st;
}

/* All that lies in the folder, however long it takes until it can be used. false: the store closes. */
static bool learn_folder(struct kv_store *s)
{
    uint64_t *seq = NULL;
    uint32_t  n = 0;
    char      told[sizeof s->why] = "";
    for (uint64_t wait_us = 0;;) {
        enum status st = open_and_list(s, &seq, &n);
        if (!st) break;
        s->scan_task = (struct task){ .kind = TASK_SCANNED, .segment = NONE, .fd = -1, .st = st };
        if (strcmp(told, s->why) != 0 && !store_give(s, &s->scan_task)) return false;
        memcpy(told, s->why, sizeof told);
        wait_us = st == ST_AGAIN ? wait_for_lock(s) : wait_longer(s, wait_us);
        if (!serve_for(s, wait_us)) return false;
    }
    bool go_on = scan_quarantine(s) && scan(s, seq, n, false);
    int  error;
    free(seq);
    if (go_on && !store_make_room(s, 0, &error) && error)
        LOG_WARN("kv: %s: what other models have there is not known: %s", s->path, strerror(error));
    if (go_on && s->share) share_turn(s); /* the first round: what others left is found before it is said that all is */
    s->scan_task = (struct task){ .kind = TASK_SCANNED, .segment = NONE, .fd = -1 };
    return go_on && store_give(s, &s->scan_task);
}

/* What could not be read is tried again. Returns how long it may sleep, in us; -1: as long as it likes. */
static int64_t unread_turn(struct kv_store *s)
{
    struct store_unread *u = &s->unread;
    uint64_t             now = clock_us();
    if (!u->n) return -1;
    if (!u->next_us) u->next_us = now + (u->wait_us = wait_longer(s, u->wait_us));
    if (now < u->next_us) return (int64_t)(u->next_us - now);
    uint64_t seq[KEPT_MAX];
    uint32_t n = u->n;
    memcpy(seq, u->seq, n * sizeof *seq);
    u->n = 0;
    u->next_us = 0;
    scan(s, seq, n, true);
    if (!u->n) u->wait_us = 0;
    return 0;
}

void *store_main(void *arg)
{
    struct kv_store *s = arg;
    bool             go_on = learn_folder(s);
    while (go_on && !atomic_load(&s->stop)) {
        struct task *t = ring_pop(&s->todo);
        if (t) {
            store_serve(s, t);
            continue;
        }
        int64_t us = unread_turn(s), share_us = s->share ? share_turn(s) : -1;
        if (us < 0 || (share_us >= 0 && share_us < us)) us = share_us;
        ring_wait(&s->todo, us);
    }
    return NULL;
}
