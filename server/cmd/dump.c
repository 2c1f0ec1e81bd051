#include "server/cmd/dump.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stacks.h"
#include "base/thread.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192, LIMIT_US = 10000000 };

static size_t describe(struct boot *b, char *text, size_t text_bytes)
{
    uint64_t now = clock_us();
    size_t   n = eng_dump(b->engine, now, text, text_bytes);
    if (!n) n = (size_t)snprintf(text, text_bytes, "no step is in flight: the engine hangs between two\n");
    return n + rank_team_dump(b->team, now, text + n, text_bytes - n);
}

void dump_log(struct boot *b)
{
    static char text[TEXT_BYTES];
    size_t      n = describe(b, text, sizeof text - 1);
    text[n] = 0;
    for (char *line = text, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        LOG_ERROR("engine: %s", line);
    }
}

static struct boot *dumped;
static _Atomic bool done;

static void *dump_main(void *arg)
{
    static char  text[TEXT_BYTES];
    struct boot *b = arg;
    size_t       n = describe(b, text, sizeof text);
    dprintf(STDERR_FILENO, "---- engine dump ----\n%.*s", (int)n, text);
    stacks_print(STDERR_FILENO, 1u << THREAD_ENGINE | 1u << THREAD_RANK | 1u << THREAD_XFER);
    dprintf(STDERR_FILENO, "---- end of dump ----\n");
    atomic_store(&done, true);
    return NULL;
}

/* A thread of its own: a reader of stderr who does not read, or a lock of the loader that the hanging thread holds,
 * must not keep the process from ending. */
void dump_all(struct boot *b)
{
    pthread_t t;
    if (dumped) return;
    dumped = b;
    if (thread_start(&t, THREAD_ANY, "dump", dump_main, b)) return;
    pthread_detach(t);
    for (uint64_t end = clock_us() + LIMIT_US; !atomic_load(&done) && clock_us() < end;) usleep(2000);
}
