/* store_impl: the inside of struct kv_store.   Private to kvcache/store*.c. */
#pragma once
#include "base/ring.h"
#include "kvcache/store.h"
#include "kvcache/store_file.h"
#include "kvcache/store_models.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    NONE = -1,
    SEGMENTS_MAX = 1024, /* open files; larger caps get larger segments */
    SEGMENTS_MIN = 3,    /* one that is filled, one that is prepared, one to serve from */
    RETRY_US = 1000000,
    RETRY_MAX_US = 60000000,
    WRITES_MAX = 128,  /* in flight */
    LEARN_MAX = 1024,  /* rows of a segment that a turn takes into the index */
    FOREIGN_MAX = 256, /* segments of other servers, open at a time */
};
/* FREE -make-> MAKING -> SPARE -> OPEN -full-> SEALING -> SEALED -evict-> REMOVING -> FREE; at open: FREE -> SEALED.
 * In a shared folder: FREE -found-> FOREIGN -its server is gone-> CLAIMED -renamed-> SEALED, or FOREIGN again; and
 * FOREIGN -its file is gone, or its place is wanted-> LOST -no readers-> FREE */
enum seg_state { SEG_FREE, SEG_MAKING, SEG_SPARE, SEG_OPEN, SEG_SEALING, SEG_SEALED, SEG_REMOVING, SEG_FOREIGN, SEG_CLAIMED, SEG_LOST };
static inline bool seg_is_own(enum seg_state s) { return s != SEG_FREE && s != SEG_FOREIGN && s != SEG_LOST; } /* counts against the cap */

struct segment {
    enum seg_state state;
    int            fd;
    uint32_t       xfer;             /* its segment there */
    uint32_t       n_used, n_pinned; /* records begun; reads and writes in flight */
    uint64_t       seq, value;       /* value: uses, halved as time goes by */
};

enum entry_state { ENTRY_NONE, ENTRY_WRITING, ENTRY_READY };
struct entry { /* of place segment * n_record + index */
    struct kv_key key;
    struct digest payload;
    uint64_t      gen;
    int32_t       next; /* in its bucket */
    uint8_t       state;
};

/* What the owner asks of the thread, and the same back as the answer; and what the thread tells the owner (from SCAN on), and the
 * same back. SCAN: a segment of the own folder; SCANNED: that was all of them; FOUND: one of another server; GONE: its file has
 * vanished; CLAIM: may the store take it over, UNCLAIM: it could not, CLAIMED: it has; LOST: others took this server for dead. */
enum task_kind {
    TASK_MAKE,
    TASK_SEAL,
    TASK_REMOVE,
    TASK_SCAN,
    TASK_SCANNED,
    TASK_FOUND,
    TASK_GONE,
    TASK_CLAIM,
    TASK_UNCLAIM,
    TASK_CLAIMED,
    TASK_LOST
};
struct task {
    enum task_kind    kind;
    int32_t           segment;
    int32_t           dropped; /* FOUND, on its way back: the segment whose place it has; NONE */
    uint64_t          seq;
    int               fd, error;
    enum status       st;
    uint32_t          n; /* rows of a seal, of a scan */
    bool              foreign, from_footer;
    bool              direct; /* MAKE, SCAN, FOUND: the file was opened so */
    struct store_row *row;    /* SEAL: the owner's table; SCAN: the thread's, until it is given back */
};

struct kv_store {
    struct kv_store_cfg   cfg;
    struct store_geometry g;
    char                  path[512];
    int                   dir, lock;        /* dir: where the segments lie */
    int                   root;             /* cfg.dir; -1: the folder is shared */
    char                  own[MODELS_NAME]; /* of dir in root */
    bool                  wanted;           /* a record found no segment to go into: other models give way */
    bool                  full;             /* they have given all that they had: one of our own goes */
    _Atomic uint64_t      other_bytes;      /* of other models; the thread's to write */
    _Atomic uint64_t      n_other_removed;  /* segments, likewise */
    uint32_t              n_segment;        /* most of its own that there may be */
    uint32_t              n_slot;           /* the same and, where the folder is shared, those of others */
    struct segment       *segment;          /* [n_slot] */
    struct entry         *entry;
    int32_t              *bucket;
    uint32_t              n_bucket, n_entry, n_file, n_writing, n_foreign, n_lost;
    int32_t               open, spare; /* NONE */
    uint64_t              next_seq, gen;
    uint64_t              paused_until_us, retry_us;
    bool                  lease_lost;
    struct kv_store_stats stats;

    /* the thread */
    pthread_t         thread;
    bool              started, task_out; /* task_out: make or remove in flight: one at a time keeps the cap simple */
    bool              seal_out;
    struct ring       todo, answer;
    _Atomic bool      stop;
    struct task       file_task, seal_task, scan_task;
    struct task      *learning; /* whose rows the owner takes; NULL */
    uint32_t          n_learnt;
    struct store_row *seal_row, *scan_row;
    void             *seal_buffer, *scan_buffer;
    struct seal_key  *key;     /* [n_slot + 1] of sealed files; the last is of the file that is scanned; NULL: plain */
    struct sealer    *sealer;  /* the thread's */
    struct share     *share;   /* the thread's; NULL: the folder is this store's alone */
    _Atomic bool      telling; /* the thread waits for the owner */
    bool              direct;  /* the thread's: files can be opened so */
};

/* store_thread.c: the thread, and what may block. */
struct share;
void *store_main(void *store);
/* Gives t to the owner and waits until it comes back, doing meanwhile what the owner asks. false: the store closes. Thread: the store's. */
bool store_give(struct kv_store *s, struct task *t);
/* The segments that lie in a folder, by rising seq: *seq_out is the caller's to free. */
uint32_t store_list(int dir, uint64_t **seq_out);
/* For the file of a segment; i n_slot: the one that is scanned. NULL: plain. */
const struct store_crypt *store_crypt_of(const struct kv_store *s, uint32_t i, struct store_crypt *c);

/* store_share.c: the folder of several servers. Thread: the store's, but for open and close.
 * Makes the sub-folder, whose descriptor becomes s->dir, and its lease. err: one line. */
enum status share_open(struct kv_store *s, char *err, size_t err_bytes);
/* What is due: heartbeat, a round through the folders of others. Returns how long it may sleep, in us. */
int64_t share_turn(struct kv_store *s);
void    share_close(struct kv_store *s); /* says that the folder is left; its thread has ended. NULL share: nothing */
