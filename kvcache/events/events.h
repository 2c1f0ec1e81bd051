/* events: tells routers which blocks this server holds, on which tier.   Thread: engine, except where marked "any
 * thread". kv_events_open -> kv_events_start -> (stored, removed ..., kv_events_turn)* -> kv_events_close.
 *
 * The engine's thread puts one event for each block into a bounded queue. A thread of its own (publish.c) makes batches
 * of them and sends them over ZeroMQ in the form of vLLM. The engine never waits for it.
 *
 * What a subscriber has seen is a mirror of the server's blocks. These states keep it true:
 *
 *   AWAY --socket is open--> SYNC --all blocks were told--> LIVE
 *    ^                        |                              |
 *    +--- socket closed; the queue was full (LOST, until it is empty) ---+
 *
 * SYNC begins with "all blocks cleared". It then tells every block that is held, some in each turn, beside what changes
 * meanwhile: an event about a block that was not told yet is left out. So a loss costs a new telling and leaves no
 * false mirror. */
#pragma once
#include "base/status.h"
#include "kvcache/device/kv.h"
#include "kvcache/ident.h"
#include <stddef.h>

enum kv_medium { KV_MEDIUM_GPU, KV_MEDIUM_CPU, KV_MEDIUM_STORAGE, KV_MEDIA };

struct kv_events_cfg {
    const char *endpoint;        /* ZeroMQ address: bound if it has "*" or "::" or is ipc://, else connected to */
    const char *replay_endpoint; /* bound; "": no replay */
    const char *topic;           /* first frame of each message */
    uint32_t    buffer_steps;    /* batches kept for replay */
    uint32_t    hwm;             /* most messages that wait for one subscriber */
    uint32_t    queue_max;       /* most events between the engine and the publisher */
    bool        as_array;        /* events as arrays, as older vLLM writes them; else as maps */
    bool        hash_bytes;      /* hashes as 32 bytes; else as integers of 64 bits */
    uint32_t    rank;            /* data-parallel rank to name in each batch */
};

struct kv_events;
/* Opens the library; kv_events_start starts the publisher. ST_CONFIG: the library is absent. err: one line. */
enum status kv_events_open(const struct kv_events_cfg *cfg, struct kv_events **e_out, char *err, size_t err_bytes);
void        kv_events_close(struct kv_events *e); /* NULL: no-op. After the engine has ended */

/* Whose blocks are told, before the first of them is stored. wake: ends the sleep of the engine's thread, called from
 * any thread; NULL: it does not sleep. */
struct kv_events_of {
    const struct kv *kv;
    uint32_t         n_block, n_guest, block_tokens; /* as in kv_cfg. Guests are told as blocks of the host alone */
    struct kv_key    fingerprint;                    /* the beginning of the blocks' keys */
    void (*wake)(void *ctx);
    void *wake_ctx;
};
enum status     kv_events_start(struct kv_events *e, const struct kv_events_of *of);
struct kv_watch kv_events_watch(struct kv_events *e); /* for kv_cfg.watch */

/* Blocks of prompts with this salt are told with the name of the adapter that computes them, from now on. Names are
 * kept for good: EVENTS_NAMES of them, and those of EVENTS_SALTS salts; a name beyond that is told as none. name: below
 * EVENTS_NAME_BYTES. e NULL: no-op. */
enum { EVENTS_NAMES = 256, EVENTS_SALTS = 1024, EVENTS_NAME_BYTES = 256 };
void kv_events_adapter(struct kv_events *e, struct kv_salt salt, const char *name);

/* The slots of the host tell what becomes of them, from now on. NULL: they are gone. */
struct kv_host;
enum status kv_events_host(struct kv_events *e, struct kv_host *host);

/* Places below the host. each: tells what place i has at position `at` by kv_events_entry, if it can be read, and
 * returns the next position; UINT64_MAX: the end. has: place i holds the key. */
struct kv_events_below {
    void    *ctx;
    uint32_t n;
    uint64_t (*each)(void *ctx, uint32_t i, uint64_t at);
    bool (*has)(void *ctx, uint32_t i, const struct kv_key *key);
};
void kv_events_places(struct kv_events *e, const struct kv_events_below *below); /* NULL: they are closed */
/* The block of position `at` in place i can be read now. */
void kv_events_entry_stored(struct kv_events *e, uint32_t i, uint64_t at, const struct kv_key *key);
void kv_events_entry_removed(struct kv_events *e, uint32_t i, uint64_t at, const struct kv_key *key);
/* From each alone: the block of place i is told unless another place before it has it. */
void kv_events_entry(struct kv_events *e, uint32_t i, const struct kv_key *key);

/* The end of a turn of the engine: its events become one batch, or more. Cheap when there are none. */
void kv_events_turn(struct kv_events *e);
/* The engine may not sleep for longer than this, in us; < 0: as long as it likes. */
int64_t kv_events_sleep_us(const struct kv_events *e);

/* Any thread. false: the sockets are closed and nothing is told, until true: for a server that gives way to another. */
void kv_events_speak(struct kv_events *e, bool speak);

struct kv_events_stats {
    uint64_t n_stored, n_removed, n_cleared, n_batch; /* told */
    uint64_t n_dropped;                               /* left out because the queue was full */
    uint64_t n_slow;                                  /* batches that a subscriber or the memory had no room for */
    uint64_t n_replay;                                /* replays asked for */
    bool     open;                                    /* the sockets are open */
};
void kv_events_stats(const struct kv_events *e, struct kv_events_stats *out); /* any thread */
