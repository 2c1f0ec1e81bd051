#include "server/unread.h"
#include "base/log.h"
#include "server/conn_impl.h"
#include "server/metrics.h"
#include <event2/buffer.h>

#define MIB ((uint64_t)1 << 20)
enum { DROP_NOTE = 64 << 10 }; /* freed at once: enough to be counted for server_give_back */

static uint64_t within(uint64_t v, uint64_t min, uint64_t max)
{
    if (v < min) return min;
    return v > max ? max : v;
}

void unread_init(struct io *io, uint64_t memory_bytes, uint32_t n_io)
{
    io->unread[UNREAD_OPEN].bytes_max = within(memory_bytes / 256, 4 * MIB, 16 * MIB) / n_io;
    io->unread[UNREAD_LET_IN].bytes_max = within(memory_bytes / 16, 64 * MIB, 512 * MIB) / n_io;
    for (int i = 0; i < UNREAD_CLASSES; i++) list_init(&io->unread[i].conns);
}

/* Of its answers, what the socket has not taken. */
static size_t unsent(const struct conn *c) { return evbuffer_get_length(c->out); }

/* Input counts where it waits: behind an answer that is being made, or one that is not read. */
static uint64_t holds(const struct conn *c)
{
    uint64_t out = unsent(c);
    if (!out && c->state != CONN_WAIT) return 0;
    return out + evbuffer_get_length(c->in);
}

void unread_forget(struct conn *c)
{
    struct unread *u = &c->io->unread[c->held_class];
    atomic_fetch_add_explicit(&c->io->srv->n_freed, c->held + sizeof *c, memory_order_relaxed);
    u->bytes -= c->held;
    c->held = 0;
    list_del(&c->still);
}

void unread_note(struct conn *c)
{
    uint64_t now = holds(c);
    if (!now && !c->held) return;
    enum unread_class class = c->req.let_in ? UNREAD_LET_IN : UNREAD_OPEN;
    bool     moved = c->held_drained != c->out_bytes - unsent(c) || class != c->held_class || !c->held;
    uint64_t before = c->held;
    c->held_drained = c->out_bytes - unsent(c);
    if (before > now + DROP_NOTE) atomic_fetch_add_explicit(&c->io->srv->n_freed, before - now, memory_order_relaxed);
    c->io->unread[c->held_class].bytes -= before;
    c->io->unread[class].bytes += now;
    c->held = now;
    c->held_class = class;
    if (!moved && now) return;
    list_del(&c->still);
    if (now) list_add_tail(&c->io->unread[class].conns, &c->still);
}

void unread_relieve(struct io *io, void (*reset)(struct conn *c))
{
    for (int i = 0; i < UNREAD_CLASSES; i++) {
        struct unread *u = &io->unread[i];
        while (u->bytes > u->bytes_max && !list_empty(&u->conns)) {
            LOG_WARN_LIMITED(
                "conn: %llu MiB wait for clients that do not read (%s), closing the one that has been still for longest",
                (unsigned long long)(u->bytes / MIB), i == UNREAD_OPEN ? "open routes" : "answers of the model");
            metrics_unread_dropped(io->srv->metrics);
            reset(LIST_ENTRY(u->conns.next, struct conn, still));
        }
    }
}
