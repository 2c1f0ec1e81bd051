/* pack_impl: the inside of a store of packs.   Private to kvcache/object/.   Thread: engine, except where said.
 *   pack_below.c   the functions of the row: find, read and write blocks
 *   pack_index.c   the index of which block is in which object; no I/O
 *   pack_put.c     objects that are filled and uploaded, and objects that are removed when the budget is used up
 *   pack_thread.c  the calls that can block: uploads, removals, lists, reads of tables */
#pragma once
#include "base/chain.h"
#include "base/ring.h"
#include "kvcache/object/pack.h"
#include "kvcache/object/pack_format.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    PACK_NONE = -1,
    PACK_BUFFERS = 4,  /* objects being filled or uploaded at a time */
    PACK_TABLES = 8,   /* tables being read or entered into the index at a time */
    PACK_LEARN = 1024, /* rows of a table that one turn enters into the index */
    PACK_REMOVES = 16, /* removals in flight */
    PACK_TASKS = PACK_BUFFERS + PACK_TABLES + PACK_REMOVES + 1,
    PACK_READ_FAILS = 2 /* failed reads of one object after which none of its blocks is used */
};

/* FREE -a write-> FILLING -full or old-> FULL -the budget has room-> PUTTING -> READY -it is the oldest-> REMOVING ->
 * FREE
 *                                                                     | failed: FREE
 * FREE -found in a list-> LEARNING -> READY. OTHER: an object of another model, or a damaged one, which only counts
 * against the budget */
enum pack_state {
    PACK_FREE,
    PACK_FILLING,
    PACK_FULL,
    PACK_PUTTING,
    PACK_LEARNING,
    PACK_READY,
    PACK_OTHER,
    PACK_REMOVING
};
struct pack_object {
    enum pack_state state;
    char            model[PACK_MODEL];
    struct pack_id  id;
    uint64_t        bytes; /* counted against the budget from PUTTING on */
    uint64_t        use_us, begin_us;
    uint32_t        n_used, n_pinned, n_writing, n_bad;
    int32_t         first;  /* head of the list of its entries */
    int32_t         buffer; /* set from FILLING to PUTTING, and in READY while a read of the buffer is in progress */
    bool            found;  /* written by another process */
    bool            old_key, doomed;
};
struct pack_entry {
    struct kv_key key;
    struct digest payload;
    uint64_t      gen;
    int32_t       next;           /* link of by_key, or of the free list */
    int32_t       before, behind; /* links of its object's list */
    int32_t       object;
    uint32_t      index;
    uint8_t       state; /* enum pack_entry_state */
    bool          begins;
};
enum pack_entry_state { PACK_ENTRY_FREE, PACK_ENTRY_WRITING, PACK_ENTRY_READY };

struct pack_buffer {
    unsigned char   *bytes; /* [object_bytes of n_record] */
    uint32_t         seg;
    int32_t          object; /* PACK_NONE: free */
    struct pack_row *row;    /* [n_record] */
    uint32_t         n_row;
};

/* PUT and REMOVE go from the owner to the thread and back; FOUND, GONE and LISTED from the thread to the owner and
 * back. */
enum pack_task_kind { PACK_PUT, PACK_REMOVE, PACK_FOUND, PACK_GONE, PACK_LISTED };
struct pack_task {
    enum pack_task_kind    kind;
    int32_t                object, buffer;
    char                   model[PACK_MODEL];
    struct pack_id         id;
    uint64_t               bytes;
    enum status            st;
    const struct pack_row *row; /* FOUND: rows inside `table`; NULL: the object only counts against the budget */
    uint32_t               n_row, n_learnt;
    bool                   old_key, used;
    struct object_req      req;
    struct object_piece    piece;
    unsigned char         *table; /* FOUND: [pack_table_bytes(PACK_RECORDS_MAX)] */
};

/* The thread's list of objects that it has reported to the owner or uploaded. */
struct pack_known {
    char           model[PACK_MODEL];
    struct pack_id id;
    int32_t        object; /* the owner's number; PACK_NONE: not known yet */
    int32_t        next;   /* link of by_seq, or of the free list */
    uint32_t       round;  /* number of the last full list that had it, or that could not have it yet */
    bool           used;
};

struct pack_store {
    struct kv_below      below; /* first */
    struct kv_below_cfg  cfg;
    struct object_store *store;
    struct xfer_objects  names; /* of the segment */
    struct pack_shape    shape;
    char                 model[PACK_MODEL];
    uint64_t             record_bytes, buffer_bytes;
    uint32_t             n_record; /* records of an object written here */
    uint32_t             seg;
    struct pack_object  *object;
    uint32_t             n_object, n_object_max, object_at;
    struct pack_entry   *entry;
    uint32_t             n_entry, n_entry_max, n_begin; /* n_begin: found entries that begin a prompt */
    int32_t              free_entry;
    struct chain         by_key;
    struct pack_buffer   buffer[PACK_BUFFERS];
    int32_t              filling; /* a buffer */
    uint64_t             bytes, gen, n_evicted, n_recovered, n_damaged, n_failed_put;
    uint32_t             n_removing, n_putting, canary;
    bool                 believed, mistrusts, listed, closing;
    uint64_t             scan_us;
    struct pack_task     put[PACK_BUFFERS], remove[PACK_REMOVES];
    struct pack_task    *learning;
    struct ring          todo, answer;
    /* owned by the thread */
    pthread_t             thread;
    bool                  started;
    _Atomic bool          stop;
    struct object_client *client, *big;
    struct pack_task      found[PACK_TABLES], told; /* told: GONE and LISTED, one at a time */
    struct pack_known    *known;                    /* [n_object_max] */
    int32_t               free_known;
    struct chain          by_seq;
    struct pack_list     *list;
    _Atomic uint64_t      n_unread; /* objects for which the index had no room */
};

/* pack_index.c */
enum status pack_index_open(struct pack_store *s);
void        pack_index_close(struct pack_store *s);
int32_t     pack_find(const struct pack_store *s, const struct kv_key *key);
/* Returns the new entry; PACK_NONE: all entries are used. */
int32_t  pack_insert(struct pack_store *s, int32_t object, uint32_t index, const struct kv_key *key,
                     struct digest payload, bool begins, enum pack_entry_state state);
void     pack_forget(struct pack_store *s, int32_t entry);
uint64_t pack_forget_object(struct pack_store *s, int32_t object); /* forgets all its blocks; returns how many */
int32_t  pack_object_take(struct pack_store *s);                   /* a free object; PACK_NONE: all are used */
/* With cfg.prove, found blocks are not offered until one of them was computed again with the same result. */
static inline bool pack_hides(const struct pack_store *s, int32_t e)
{
    return s->cfg.prove && !s->believed && s->object[s->entry[e].object].found;
}
enum status pack_index_check(const struct pack_store *s);

/* pack_put.c */
int32_t pack_buffer_for_write(struct pack_store *s); /* a buffer with room for a record; PACK_NONE: none now */
void    pack_put_turn(struct pack_store *s);         /* uploads full and old buffers; removes the oldest objects */
void    pack_put_done(struct pack_store *s, struct pack_task *t);
void    pack_remove_done(struct pack_store *s, struct pack_task *t);
bool    pack_remove(struct pack_store *s, int32_t object); /* it is not pinned. false: PACK_REMOVES are in flight */
void    pack_close_filling(struct pack_store *s); /* declares the buffer being filled full, if it has a record */
/* Call when the last reader of an object is done: frees its buffer, and the object too if it is doomed. */
void pack_let_go(struct pack_store *s, int32_t object);

/* pack_thread.c */
void       *pack_main(void *arg);
enum status pack_thread_open(struct pack_store *s);
void        pack_thread_close(struct pack_store *s);
