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
    SEGMENTS_MAX = 1024, /* most open files; larger caps get larger segments */
    SEGMENTS_MIN = 3,    /* one being filled, one prepared, one to serve from */
    RETRY_US = 1000000,
    RETRY_MAX_US = 60000000,
    WRITES_MAX = 128,  /* in flight */
    LEARN_MAX = 1024,  /* most rows of a segment that one turn adds to the index */
    FOREIGN_MAX = 256, /* most open segments of other servers */
    KEPT_MAX = 2048,   /* most files of the own folder that are not in the index */
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
    uint32_t       xfer;             /* its segment in xfer */
    uint32_t       n_used, n_pinned; /* records begun; reads and writes in flight on them */
    uint32_t       mac;              /* index of the MAC key of its digests */
    uint64_t       seq, value;       /* value: number of uses, halved now and then */
    bool           found;            /* not written by this process */
    bool           doomed;           /* removed before all others */
};

/* Why a file of the own folder takes room without being in the index. In the order of removal when room is needed. */
enum kept_why {
    KEPT_DAMAGED,  /* in quarantine; at most QUARANTINE_MAX are kept */
    KEPT_UNWANTED, /* its removal failed */
    KEPT_KEY,      /* of another key; usable again if that key returns */
    KEPT_UNREAD,   /* not readable; tried again, and not removed */
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

/* Messages between the owner and the thread. MAKE, SEAL and REMOVE are requests of the owner and return as answers.
 * From SCAN on they are reports of the thread, which the owner returns. SCAN: a segment of the own folder. SCANNED: all
 * segments were reported, or (st) the folder is unusable now. FOUND: a segment of another server. GONE: its file has
 * vanished. CLAIM: the thread asks to take a segment over. UNCLAIM: it could not. CLAIMED: it has. LOST: other servers
 * took this one for dead. */
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
    enum task_kind  kind;
    int32_t         segment;
    int32_t         dropped; /* FOUND, when returned: the segment that lost its place to this one; NONE */
    uint64_t        seq;
    int             fd, error;
    enum status     st;
    uint32_t        n;      /* rows of a seal, of a scan */
    bool            direct; /* MAKE, SCAN, FOUND: the file was opened with O_DIRECT */
    enum store_word word;   /* SCAN: what the file is */
    uint64_t        bytes;  /* SCAN: its size on disk */
    bool            moved;  /* SCAN, REMOVE: it lies in quarantine */
    bool            again;  /* SCAN: a repeated attempt after a failed read */
    uint32_t        mac;    /* SCAN, FOUND: index of the MAC key of the file */
    struct store_row
        *row; /* SEAL: a table of the owner; SCAN: of the thread, which the owner reads until it returns the message */
};

/* Files that the thread could not read, and the time of the next attempt. */
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
    bool                  wanted;           /* a record found no segment: other models must give way */
    bool                  full;             /* other models have nothing left: a segment of our own goes */
    _Atomic uint64_t      other_bytes;      /* of other models; written by the thread */
    _Atomic uint64_t      name_bytes;       /* shared: in sub-folders of the same name; written by the thread */
    _Atomic bool          name_short; /* these leave no room: the thread removes segments that it cannot take over */
    _Atomic uint64_t      n_other_removed; /* removed segments of other models; written by the thread */
    uint32_t              n_segment;       /* most segments of its own */
    uint32_t              n_slot;          /* n_segment, and in a shared folder room for those of others */
    struct segment       *segment;         /* [n_slot] */
    struct entry         *entry;
    struct chain          by_key; /* entries */
    uint32_t              n_entry, n_file, n_writing, n_foreign, n_lost;
    int32_t               open, spare; /* NONE */
    uint64_t              next_seq, gen;
    uint64_t              paused_until_us, retry_us;
    bool                  lease_lost;
    bool                  blind;     /* the folder cannot be used or listed: no file is made in it */
    char                  away[200]; /* the reason as last logged; "": it is usable */
    uint64_t              away_since_us;
    uint32_t              n_fd_max; /* most open files */
    struct kept          *kept;     /* [KEPT_MAX], n_kept of them */
    uint32_t              n_kept;
    uint64_t              kept_bytes; /* sum over kept, and over files that did not fit into kept */
    int                   unread_error;
    bool                  believed;  /* a found block was recomputed and was right */
    bool                  mistrusts; /* a found block was wrong: found blocks are refused from now on */
    uint32_t              n_found;   /* entries in segments that were found */
    uint32_t              n_begin;   /* those of n_found that begin a prompt */
    uint32_t              canary;    /* an entry that begins a prompt */
    struct kv_store_stats stats;

    /* the thread */
    pthread_t    thread;
    bool         started, task_out; /* task_out: a MAKE or REMOVE is in flight; one at a time keeps the cap simple */
    bool         seal_out;
    struct ring  todo, answer;
    _Atomic bool stop;
    struct task  file_task, seal_task, scan_task;
    struct task *learning; /* message whose rows the owner is adding to the index; NULL: none */
    uint32_t     n_learnt;
    struct store_row *seal_row, *scan_row;
    void             *seal_buffer, *scan_buffer;
    struct seal_key
                  *key; /* [n_slot + 1] keys of sealed files, the last for the file being scanned; NULL: plain files */
    struct sealer *sealer;      /* the thread's */
    struct share  *share;       /* the thread's; NULL: the folder is not shared */
    _Atomic bool   telling;     /* the thread waits for the owner */
    bool           direct;      /* the thread's: files can be opened with O_DIRECT */
    struct store_unread unread; /* the thread's */
    char why[200]; /* why the folder is unusable; the thread's, and the owner's while it holds TASK_SCANNED */
};

/* store_thread.c: the thread. */
struct share;
void *store_main(void *store);

/* store_task.c: what blocks. Thread: the store's. */
/* The keys for the file of segment i; i == n_slot: for the file being scanned. */
struct store_keys store_keys_of(const struct kv_store *s, uint32_t i);
/* Segments of other models give way until more_bytes fit beside all that is there. false: they do not fit, or
 * (*error_out, an errno) nothing is known. */
bool store_make_room(struct kv_store *s, uint64_t more_bytes, int *error_out);
/* Closes and unlinks the file of t; the outcome is t's st and error. */
void store_remove(struct kv_store *s, struct task *t);
/* Carries out a request of the owner and sends the answer. */
void store_serve(struct kv_store *s, struct task *t);
/* Gives t to the owner and waits until it comes back, doing meanwhile what the owner asks. false: the store closes. */
bool store_give(struct kv_store *s, struct task *t);

/* The form of this store's segments. */
static inline struct store_form store_form(const struct kv_store *s)
{
    return (struct store_form){ &s->g, &s->cfg.fingerprint, s->cfg.payload_bytes, s->cfg.block_tokens };
}

/* store_kept.c: files that take room without being in the index. Thread: the owner; the first two: any. */
int  store_home(const struct kv_store *s);                             /* the folder that STORE_QUARANTINE lies in */
int  store_unlink(const struct kv_store *s, uint64_t seq, bool moved); /* 0 or errno; a missing file is no error */
bool store_has_room(const struct kv_store *s);                         /* for one more segment */
void kept_add(struct kv_store *s, uint64_t seq, uint64_t bytes, enum kept_why why, bool moved);
void kept_drop(struct kv_store *s, uint64_t seq, bool moved); /* no-op if it is not there */
/* The file to remove first when room is needed; false: none may be removed. */
bool kept_first(const struct kv_store *s, struct kept *out);
bool kept_overfull(const struct kv_store *s); /* quarantine holds more than QUARANTINE_MAX */
/* Removes files until there is room for one more segment. Blocking; at start only. */
void kept_make_room(struct kv_store *s);
/* Logs the counts of files found at start. */
void kept_say(const struct kv_store *s);
/* store.c: removes all entries of a segment from the index; returns their number */
uint32_t store_forget_segment(struct kv_store *s, uint32_t i);
/* True for an entry that find must not return before the folder is believed (store_prove.c). */
static inline bool store_hides(const struct kv_store *s, uint32_t id)
{
    return s->cfg.prove && !s->believed && s->segment[id / s->g.n_record].found;
}

/* store_folder.c. Thread: the store's; close: also the owner, after the thread has ended.
 * ST_AGAIN: another server uses the folder; ST_IO: any other condition that may change. why: one line without the
 * folder's name. On error nothing is left open. */
enum status folder_open(struct kv_store *s, char *why, size_t why_bytes);
void        folder_close(struct kv_store *s);

/* store_share.c: a folder of several servers. Thread: the store's; close: any, after the thread has ended.
 * Makes the sub-folder, whose descriptor becomes s->dir, and its lease. */
enum status share_open(struct kv_store *s, char *why, size_t why_bytes);
/* Does what is due: the heartbeat, a round through the folders of others. Returns the longest sleep in us. */
int64_t share_turn(struct kv_store *s);
void    share_close(struct kv_store *s); /* marks the lease as left. NULL share: no-op */
