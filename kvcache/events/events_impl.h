/* events_impl: the inside of struct kv_events.   Private to kvcache/events/ and its tests. */
#pragma once
#include "kvcache/events/queue.h"
#include "kvcache/events/wait.h"
#include <pthread.h>

enum event_state { EVENTS_AWAY, EVENTS_LOST, EVENTS_SYNC, EVENTS_LIVE };

/* Whose blocks have which salt. Written by the engine's thread alone; a name stands before an event has its number. */
struct event_adapters {
    char     name[EVENTS_NAMES][EVENTS_NAME_BYTES];
    uint32_t n_name;
    struct event_salt {
        struct kv_salt salt;
        struct kv_key  root;
        uint16_t       adapter; /* as in struct event */
    } salt[EVENTS_SALTS];
    uint32_t n_salt, last; /* ever kept, the oldest give way; last: found last */
};

struct event_pub;
struct kv_events {
    struct kv_events_cfg   cfg;
    struct kv_events_of    of;
    const struct kv_host  *host;
    struct kv_events_below below;
    struct kv_key          root; /* of prompts without a salt */
    struct event_adapters *adapters;

    struct event_queue queue;

    /* the engine's thread */
    enum event_state  state;
    uint64_t          epoch_seen;
    struct kv_key    *dev_key;      /* [n_block + n_guest] of the blocks in the device's tree */
    bool             *dev_told;     /* [n_block + n_guest]; a guest: the blocks before it were told */
    bool             *slot_told;    /* [n_slot] */
    uint16_t         *slot_adapter; /* [n_slot] of those told: as in struct event */
    uint32_t         *path;         /* [n_block + n_guest] scratch */
    int32_t          *slot_path;    /* [n_slot] scratch */
    struct event_wait wait;         /* slots that are READY and not told, as the block before theirs is on its way */
    enum { TELL_DEVICE, TELL_HOST, TELL_BELOW, TELL_NONE } telling;
    uint32_t tell_place;
    uint64_t tell_at;

    /* written by one thread each, read by any */
    _Atomic uint64_t n_told[EVENT_CLEARED + 1], n_dropped; /* engine; told: by kind */
    _Atomic uint64_t n_batch, n_slow, n_replay;            /* publisher */

    /* the publisher */
    _Atomic uint64_t  epoch; /* odd: the sockets are open; rises with each opening and closing */
    _Atomic bool      speak, stop;
    bool              started;
    pthread_t         thread;
    struct event_pub *pub;
};

/* events.c: the queue alone, for tests that read it themselves. open: as if the sockets were open. */
enum status events_create(const struct kv_events_cfg *cfg, struct kv_events **e_out);
enum status events_begin(struct kv_events *e, const struct kv_events_of *of);
void        events_destroy(struct kv_events *e);

/* encode.c: n events as one batch. out: large enough for events_encoded_max. Returns the length; 0: out is too
 * small. */
struct event_form {
    bool     as_array, hash_bytes; /* as in kv_events_cfg */
    uint32_t block_tokens, rank;
    double   time_s;                          /* since 1970 */
    const char (*adapter)[EVENTS_NAME_BYTES]; /* names of adapters */
};
size_t events_encoded_max(uint32_t n, uint32_t block_tokens);
size_t events_encode(const struct event_form *form, const struct event *const *event, uint32_t n, unsigned char *out,
                     size_t bytes);

/* publish.c */
enum status publish_open(struct kv_events *e, char *err, size_t err_bytes);
enum status publish_start(struct kv_events *e);
void        publish_close(struct kv_events *e);
