/* store_impl: the inside of struct kv_store.   Private to kvcache/folder/. */
#pragma once
#include "base/chain.h"
#include "base/ring.h"
#include "kvcache/folder/store.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/folder/store_models.h"
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
    KEPT_MAX = 2048,   /* files of the own folder that are not in the index */
    QUARANTINE_MAX = 4,
};
/* FREE -make-> MAKING -> SPARE -> OPEN -full-> SEALING -> SEALED -evict-> REMOVING -> FREE; at open: FREE -> SEALED.
 * In a shared folder: FREE -found-> FOREIGN -its server is gone-> CLAIMED -renamed-> SEALED, or FOREIGN again; and
 * FOREIGN -its file is gone, or its place is wanted-> LOST -no readers-> FREE */
enum seg_state {
    SEG_FREE,
    SEG_MAKING,
    SEG_SPARE,
    SEG_OPEN,
    SEG_SEALING,
    SEG_SEALED,
    SEG_REMOVING,
    SEG_FOREIGN,
    SEG_CLAIMED,
    SEG_LOST
};
static inline bool seg_is_own(enum seg_state s)
{
    return s != SEG_FREE && s != SEG_FOREIGN && s != SEG_LOST;
} /* counts against the cap */

struct segment {
    enum seg_state state;
    int            fd;
    uint32_t       xfer;             /* its segment there */
    uint32_t       n_used, n_pinned; /* records begun; reads and writes in flight */
    uint32_t       mac;              /* which of the store's MAC keys its digests are under */
    uint64_t       seq, value;       /* value: uses, halved as time goes by */
    bool           found;            /* not written by this store */
    bool           doomed;           /* goes before all others */
};

/* A file of the own folder that takes room and serves nobody. In the order in which they go when the room is needed. */
enum kept_why {
    KEPT_DAMAGED,  /* in quarantine; more than QUARANTINE_MAX of them are not kept */
    KEPT_UNWANTED, /* could not be removed when it should have been */
    KEPT_KEY,      /* of another key: it is of use again when that key comes back */
    KEPT_UNREAD,   /* could not be read: it is tried again, and does not go */
};
struct kept {
    uint64_t      seq, bytes;
    enum kept_why why;
    bool          moved; /* it lies in STORE_QUARANTINE */
};

enum entry_state { ENTRY_NONE, ENTRY_WRITING, ENTRY_READY };
struct entry { /* of place segment * n_record + index */
    struct kv_key key;
    struct digest payload;
    uint64_t      gen;
    int32_t       next; /* by_key's */
    uint8_t       state;
    bool          begins; /* the first block of a prompt */
};

/* What the owner asks of the thread, and the same back as the answer; and what the thread tells the owner (from SCAN
 * on), and the same back. SCAN: a segment of the own folder; SCANNED: that was all of them, or (st) the folder cannot
 * be used now; FOUND: one of another server; GONE: its file has vanished; CLAIM: may the store take it over, UNCLAIM:
 * it could not, CLAIMED: it has; LOST: others took this server for dead. */
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
    uint32_t          n;      /* rows of a seal, of a scan */
    bool              direct; /* MAKE, SCAN, FOUND: the file was opened so */
    enum store_word   word;   /* SCAN: what the file is */
    uint64_t          bytes;  /* SCAN: that it takes on disk */
    bool              moved;  /* SCAN, REMOVE: it lies in quarantine */
    bool              again;  /* SCAN: what could not be read was tried again */
    uint32_t          mac;    /* SCAN, FOUND: which of the MAC keys the file is under */
    struct store_row *row;    /* SEAL: the owner's table; SCAN: the thread's, until it is given back */
};

/* What the thread could not read, and when it tries again. */
struct store_unread {
    uint64_t seq[KEPT_MAX];
    uint32_t n;
    uint64_t next_us, wait_us;
};

struct kv_store {
    struct kv_below       below; /* first: store_below.c */
    struct kv_store_cfg   cfg;
    struct store_geometry g;
    char                  path[512];
    int                   dir, lock;        /* dir: where the segments lie */
    int                   root;             /* cfg.dir; -1: the folder is shared */
    char                  own[MODELS_NAME]; /* of dir in root */
    bool                  wanted;           /* a record found no segment to go into: other models give way */
    bool                  full;             /* they have given all that they had: one of our own goes */
    _Atomic uint64_t      other_bytes;      /* of other models; the thread's to write */
    _Atomic uint64_t      name_bytes;       /* shared: in sub-folders of the same name; the thread's to write */
    _Atomic bool          name_short;       /* they leave no room: the thread removes what it cannot take over */
    _Atomic uint64_t      n_other_removed;  /* segments, likewise */
    uint32_t              n_segment;        /* most of its own that there may be */
    uint32_t              n_slot;           /* the same and, where the folder is shared, those of others */
    struct segment       *segment;          /* [n_slot] */
    struct entry         *entry;
    struct chain          by_key; /* entries */
    uint32_t              n_entry, n_file, n_writing, n_foreign, n_lost;
    int32_t               open, spare; /* NONE */
    uint64_t              next_seq, gen;
    uint64_t              paused_until_us, retry_us;
    bool                  lease_lost;
    bool                  blind;     /* the folder cannot be used, or not be listed: nothing is made in it */
    char                  away[200]; /* why, as last said; "": it can */
    uint64_t              away_since_us;
    uint32_t              n_fd_max; /* files that it may have open */
    struct kept          *kept;     /* [KEPT_MAX], n_kept of them */
    uint32_t              n_kept;
    uint64_t              kept_bytes; /* of all of them, and of those that there was no place for */
    int                   unread_error;
    bool                  believed;  /* one of the blocks that were found was computed again, and was right */
    bool                  mistrusts; /* one was wrong: nothing that is found is taken any more */
    uint32_t              n_found;   /* entries in segments that were found */
    uint32_t              n_begin;   /* of them, those that begin a prompt */
    uint32_t              canary;    /* one of them */
    struct kv_store_stats stats;

    /* the thread */
    pthread_t           thread;
    bool                started, task_out; /* task_out: make or remove in flight: one at a time keeps the cap simple */
    bool                seal_out;
    struct ring         todo, answer;
    _Atomic bool        stop;
    struct task         file_task, seal_task, scan_task;
    struct task        *learning; /* whose rows the owner takes; NULL */
    uint32_t            n_learnt;
    struct store_row   *seal_row, *scan_row;
    void               *seal_buffer, *scan_buffer;
    struct seal_key    *key;    /* [n_slot + 1] of sealed files; the last is of the file that is scanned; NULL: plain */
    struct sealer      *sealer; /* the thread's */
    struct share       *share;  /* the thread's; NULL: the folder is this store's alone */
    _Atomic bool        telling; /* the thread waits for the owner */
    bool                direct;  /* the thread's: files can be opened so */
    struct store_unread unread;  /* the thread's */
    char why[200]; /* the thread's, the owner's while it is told TASK_SCANNED: why the folder cannot be used */
};

/* store_thread.c: the thread. */
struct share;
void *store_main(void *store);

/* store_task.c: what blocks. Thread: the store's. */
/* For the file of a segment; i n_slot: the one that is scanned. */
struct store_keys store_keys_of(const struct kv_store *s, uint32_t i);
/* Segments of other models give way until more_bytes fit beside all that is there. false: they do not fit, or
 * (*error_out, an errno) nothing is known. */
bool store_make_room(struct kv_store *s, uint64_t more_bytes, int *error_out);
/* Closes and unlinks the file of t; the outcome is t's st and error. */
void store_remove(struct kv_store *s, struct task *t);
/* Does what the owner has asked and answers it. */
void store_serve(struct kv_store *s, struct task *t);
/* Gives t to the owner and waits until it comes back, doing meanwhile what the owner asks. false: the store closes. */
bool store_give(struct kv_store *s, struct task *t);

/* The form of this store's segments. */
static inline struct store_form store_form(const struct kv_store *s)
{
    return (struct store_form){ &s->g, &s->cfg.fingerprint, s->cfg.payload_bytes, s->cfg.block_tokens };
}

/* store_kept.c: files that take room and serve nobody. Thread: the owner, but for the first two. */
int  store_home(const struct kv_store *s);                             /* the folder that STORE_QUARANTINE lies in */
int  store_unlink(const struct kv_store *s, uint64_t seq, bool moved); /* 0 or errno; one that is gone is no error */
bool store_has_room(const struct kv_store *s);                         /* for one segment more */
void kept_add(struct kv_store *s, uint64_t seq, uint64_t bytes, enum kept_why why, bool moved);
void kept_drop(struct kv_store *s, uint64_t seq, bool moved); /* no-op when there is none */
/* The one that goes first when room is needed: false: none may. */
bool kept_first(const struct kv_store *s, struct kept *out);
bool kept_overfull(const struct kv_store *s); /* quarantine holds more than it may */
/* Removes what may go until there is room for one segment more, here and now (at start alone). */
void kept_make_room(struct kv_store *s);
/* One line each for what was found at start, with counts. */
void kept_say(const struct kv_store *s);
/* store.c: all entries of a segment; how many there were */
uint32_t store_forget_segment(struct kv_store *s, uint32_t i);
/* An entry that is not to be found, until its folder is believed (store_prove.c). */
static inline bool store_hides(const struct kv_store *s, uint32_t id)
{
    return s->cfg.prove && !s->believed && s->segment[id / s->g.n_record].found;
}

/* store_folder.c. Thread: the store's; close: the owner too, when that has ended.
 * ST_AGAIN: another server has it; ST_IO: anything else that may change; why: one line without the folder's name. All
 * is closed then. */
enum status folder_open(struct kv_store *s, char *why, size_t why_bytes);
void        folder_close(struct kv_store *s);

/* store_share.c: the folder of several servers. Thread: the store's, but for close.
 * Makes the sub-folder, whose descriptor becomes s->dir, and its lease. */
enum status share_open(struct kv_store *s, char *why, size_t why_bytes);
/* What is due: heartbeat, a round through the folders of others. Returns how long it may sleep, in us. */
int64_t share_turn(struct kv_store *s);
void    share_close(struct kv_store *s); /* says that the folder is left; its thread has ended. NULL share: nothing */
