/* pack_impl: the inside of a store of packs.   Private to kvcache/object/.
 *   pack_below.c   the row: blocks that are looked for, read and written
 *   pack_index.c   which block is in which object; no I/O
 *   pack_put.c     objects on their way into the store, and out of it when the budget is used up
 *   pack_thread.c  what blocks: uploads, removals, lists, tables */
#pragma once
#include "base/chain.h"
#include "base/ring.h"
#include "kvcache/object/pack.h"
#include "kvcache/object/pack_format.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    PACK_NONE = -1,
    PACK_BUFFERS = 4,  /* objects that are filled or on their way up */
    PACK_TABLES = 8,   /* tables that are read or learned at a time */
    PACK_LEARN = 1024, /* rows of a table that a turn takes into the index */
    PACK_REMOVES = 16, /* removals that are out */
    PACK_TASKS = PACK_BUFFERS + PACK_TABLES + PACK_REMOVES + 1,
    PACK_READ_FAILS = 2 /* of one object: then nothing of it is believed */
};

/* FREE -write-> FILLING -full, or old-> FULL -there is room-> PUTTING -> READY -the oldest-> REMOVING -> FREE
 *                                                               | failed: FREE
 * FREE -found-> LEARNING -> READY; OTHER: of another model or damaged, it only takes room */
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
    int32_t         first;  /* list of its entries */
    int32_t         buffer; /* FILLING to PUTTING; and READY as long as one reads there */
    bool            found;  /* not written by this process */
    bool            old_key, doomed;
};
struct pack_entry {
    struct kv_key key;
    struct digest payload;
    uint64_t      gen;
    int32_t       next;           /* by_key's; of free ones the next free one */
    int32_t       before, behind; /* in its object */
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

/* From the owner to the thread and back (PUT, REMOVE); from the thread to the owner and back (FOUND, GONE, LISTED). */
enum pack_task_kind { PACK_PUT, PACK_REMOVE, PACK_FOUND, PACK_GONE, PACK_LISTED };
struct pack_task {
    enum pack_task_kind    kind;
    int32_t                object, buffer;
    char                   model[PACK_MODEL];
    struct pack_id         id;
    uint64_t               bytes;
    enum status            st;
    const struct pack_row *row; /* FOUND: in table; NULL: it only takes room */
    uint32_t               n_row, n_learnt;
    bool                   old_key, used;
    struct object_req      req;
    struct object_piece    piece;
    unsigned char         *table; /* FOUND: [pack_table_bytes(PACK_RECORDS_MAX)] */
};

/* The thread's own: objects that it has told of, or put. */
struct pack_known {
    char           model[PACK_MODEL];
    struct pack_id id;
    int32_t        object; /* the owner's number; PACK_NONE: not said yet */
    int32_t        next;   /* by_seq's; of free ones the next free one */
    uint32_t       round;  /* of the last full list that it was in, or had to be in */
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
    uint32_t             n_record; /* of an object that is made here */
    uint32_t             seg;
    struct pack_object  *object;
    uint32_t             n_object, n_object_max, object_at;
    struct pack_entry   *entry;
    uint32_t             n_entry, n_entry_max, n_begin; /* n_begin: found ones that begin a prompt */
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
    /* the thread's */
    pthread_t             thread;
    bool                  started;
    _Atomic bool          stop;
    struct object_client *client, *big;
    struct pack_task      found[PACK_TABLES], told; /* told: GONE and LISTED, one at a time */
    struct pack_known    *known;                    /* [n_object_max] */
    int32_t               free_known;
    struct chain          by_seq;
    struct pack_list     *list;
    _Atomic uint64_t      n_unread; /* objects that found no place in the index */
};

/* pack_index.c */
enum status pack_index_open(struct pack_store *s);
void        pack_index_close(struct pack_store *s);
int32_t     pack_find(const struct pack_store *s, const struct kv_key *key);
/* PACK_NONE: all are used. */
int32_t  pack_insert(struct pack_store *s, int32_t object, uint32_t index, const struct kv_key *key,
                     struct digest payload, bool begins, enum pack_entry_state state);
void     pack_forget(struct pack_store *s, int32_t entry);
uint64_t pack_forget_object(struct pack_store *s, int32_t object); /* how many blocks */
int32_t  pack_object_take(struct pack_store *s);                   /* a free one; PACK_NONE */
/* Found blocks wait until one of them was computed again. */
static inline bool pack_hides(const struct pack_store *s, int32_t e)
{
    return s->cfg.prove && !s->believed && s->object[s->entry[e].object].found;
}
enum status pack_index_check(const struct pack_store *s);

/* pack_put.c */
int32_t pack_buffer_for_write(struct pack_store *s); /* one with room for a record; PACK_NONE: not now */
void    pack_put_turn(struct pack_store *s);         /* what is full or old goes up; the oldest goes */
void    pack_put_done(struct pack_store *s, struct pack_task *t);
void    pack_remove_done(struct pack_store *s, struct pack_task *t);
bool    pack_remove(struct pack_store *s, int32_t object); /* it is not pinned. false: too many removals are out */
void    pack_close_filling(struct pack_store *s);          /* what is gathered is full as it is, if there is anything */
/* Once nobody reads there any more: its buffer is free, and one that is doomed is no object any more. */
void pack_let_go(struct pack_store *s, int32_t object);

/* pack_thread.c */
void       *pack_main(void *arg);
enum status pack_thread_open(struct pack_store *s);
void        pack_thread_close(struct pack_store *s);
