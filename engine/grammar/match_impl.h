/* match_impl: the structs of a matcher. Private to engine/grammar/.   Thread: one at a time for a matcher. */
#pragma once
#include "engine/grammar/grammar_impl.h"
#include "engine/grammar/match.h"
#include "engine/grammar/vocab_impl.h"
#include <assert.h>

enum {
    THREADS_MAX = 64, /* readings of one text that are followed at once */
    ROWS_MAX = 2048,
    ITEMS_MAX = 12288,
    SEEN = 4096, /* a power of two, above twice ROW_ITEMS_MAX */
    MEMO = 1024,
    WALK_THREADS = 2048, /* threads of all nodes on the path from the root of a trie to one node */
    WALK_FUEL = 200000,  /* steps of the rules in one mask of one reading */
};
#define ROW_NONE UINT32_MAX

/* An alternative whose symbols before `dot` have matched, and the rule that ends with it, which began at row `origin`: its
 * own, or one that has ended in that (GR_TAIL). count: what that rule has counted since (gr_more). */
struct gr_item {
    uint32_t dot : 21, count : GR_COUNT_BITS;
    uint32_t origin : 11, rule : 21;
};
static_assert(ROWS_MAX <= 1 << 11 && GR_RULES_MAX <= 1 << 21 && GR_SYMBOLS_MAX <= 1 << 21, "an item holds them");
static_assert(sizeof(struct gr_item) == 8, "a matcher has thousands of them");
static inline bool gr_same(struct gr_item a, struct gr_item b)
{
    return a.dot == b.dot && a.count == b.count && a.origin == b.origin && a.rule == b.rule;
}

/* What may follow at one place of the text: at its beginning, or where a terminal has ended. */
struct gr_row {
    uint32_t item, n_item;       /* in gr_match.item; ended rules are left out */
    uint32_t start;              /* the automaton's state in which its terminals begin */
    uint32_t key_row, key_state; /* it follows that row by the terminals that end in that state; ROW_NONE: by several */
    uint64_t first;              /* bytes with which its terminals begin, as mask_bit; 0: not computed yet */
    bool     end;                /* the text may end here */
    bool     tokens;             /* a token that is a terminal by its number may follow */
};

/* One reading: the terminals that began at a row and have reached a state. fresh: they have matched no byte yet. */
struct gr_thread {
    uint32_t row, state, fresh;
};
struct gr_config {
    uint32_t         n;
    struct gr_thread thread[THREADS_MAX];
};

struct gr_match {
    struct grammar        *g;
    const struct gr_vocab *v;
    enum status            st;    /* of the call in progress */
    bool                   blank; /* of gr_mask: its bits are still to be cleared */
    struct gr_config       now;
    uint32_t               n_back, back_at; /* how many are in back[]; index of the next one */
    struct gr_config       back[GR_BACK];   /* before each of the last tokens */
    uint32_t               n_row, n_item;
    struct gr_row          row[ROWS_MAX];
    struct gr_item         item[ITEMS_MAX];
    uint32_t               memo[MEMO]; /* rows by their key; checked against it */
    /* for making a row */
    uint32_t stamp;
    struct {
        struct gr_item item;
        uint32_t       stamp;
    } seen[SEEN];
    uint32_t         terminal[ROW_ITEMS_MAX];
    struct gr_thread walk[WALK_THREADS];
};

/* ---- row.c */

/* The row at the beginning of a text. ROW_NONE: m->st says why. */
uint32_t row_first(struct gr_match *m);
/* The row that follows where terminals of these threads end in their states. n > 0. ROW_NONE: m->st says why. */
uint32_t row_after(struct gr_match *m, const struct gr_thread *ended, uint32_t n);
/* The row after a token that is a terminal by its number, at these threads' fresh rows. ROW_NONE with ST_INVALID in
 * m->st:
 * the token is not allowed. */
uint32_t row_after_token(struct gr_match *m, const struct gr_thread *at, uint32_t n, uint32_t token);
/* The state in which what may follow begins, whichever of a thread's terminals end; LEX_DEAD: nothing follows, or
 * m->st. */
uint32_t row_start_behind(struct gr_match *m, struct gr_thread t);
/* Forgets the rows that neither a thread nor an item refers to. */
void rows_collect(struct gr_match *m);
/* Forgets rows from n on. */
void rows_cut(struct gr_match *m, uint32_t n);

/* ---- match.c */

/* Steps n threads over one byte: writes at most `room` threads and returns how many. 0: the byte is not allowed, or
 * m->st says that a bound is reached. */
uint32_t match_step(struct gr_match *m, const struct gr_thread *from, uint32_t n, uint8_t byte, struct gr_thread *out,
                    uint32_t room);
