/* lex: makes the states of the automaton, each once. */
#include "engine/grammar/lex.h"
#include "base/arena.h"
#include "base/hash.h"
#include "engine/grammar/rx_utf8.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Work that one step may cost, a fifth of what a mask may: a state of a schema with thousands of names has thousands of
 * items, and whether a text of hundreds of characters is left takes a search as long. */
enum { FUEL_A_STEP = 4000000, TABLE_FIRST = 256 };

struct lex_made {
    pthread_mutex_t  lock; /* of all below, and of what making a state writes */
    struct rx       *rx;
    struct arena     arena;
    struct lex_item *begin; /* [n_terminal] */
    uint32_t         n_terminal, n_state, state_max;
    uint64_t         fuel_max;
    uint32_t         plain; /* rx_json_plain */
    uint32_t         room;  /* rx_room at first */
    uint32_t        *table; /* [table_n] numbers of states by hash, 0: none */
    uint32_t         table_n;
    uint8_t          rep[256]; /* a byte of each kind */
    struct lex_item *work;     /* [n_terminal] */
};

void lex_lock(struct lex *l)
{
    pthread_mutex_lock(&l->made->lock);
    rx_refuel(l->made->rx, FUEL_A_STEP); /* for what the holder does with the expressions */
}
void       lex_unlock(struct lex *l) { pthread_mutex_unlock(&l->made->lock); }
struct rx *lex_rx(struct lex *l) { return l->made->rx; }
uint32_t   lex_plain(struct lex *l) { return l->made->plain; }

/* ---------------------------------------------------------------- each once */

static uint64_t hash_items(const struct lex_item *item, uint32_t n) { return hash_bytes(item, n * sizeof *item, n); }

static void fill(struct lex *l, struct lex_state *s, const struct lex_item *item, uint32_t n)
{
    struct lex_item *own = (struct lex_item *)(void *)((char *)s + sizeof *s + l->n_kind * sizeof *s->next);
    uint32_t        *accept = (uint32_t *)(void *)(own + n);
    if (n) memcpy(own, item, n * sizeof *own);
    s->n_item = n;
    s->item = own;
    s->accept = accept;
    for (uint32_t i = 0; i < n; i++) {
        if (rx_nullable(l->made->rx, item[i].rest)) accept[s->n_accept++] = item[i].terminal;
        s->more = s->more || item[i].rest != RX_EMPTY;
        rx_sign(l->made->rx, item[i].rest, s->sign); /* a sum, so that their order does not matter */
    }
    for (uint32_t k = 0; k < l->n_kind; k++) atomic_init(&s->next[k], LEX_UNKNOWN);
}

/* Twice the room, so that a grammar with few states takes little memory. */
static bool table_grow(struct lex *l)
{
    struct lex_made *m = l->made;
    uint32_t         n = 2 * m->table_n, *table = calloc(n, sizeof *table);
    if (!table) return false;
    for (uint32_t id = 1; id < m->n_state; id++) {
        uint32_t at = (uint32_t)l->state[id]->hash & (n - 1);
        while (table[at]) at = (at + 1) & (n - 1);
        table[at] = id;
    }
    free(m->table);
    m->table = table;
    m->table_n = n;
    return true;
}

/* The state with these items; a new one if there is none yet. Under the lock. LEX_UNKNOWN: over a bound. */
static uint32_t intern(struct lex *l, const struct lex_item *item, uint32_t n)
{
    struct lex_made *m = l->made;
    uint64_t         h = hash_items(item, n);
    if (2 * m->n_state >= m->table_n && !table_grow(l)) return LEX_UNKNOWN;
    uint32_t at = (uint32_t)h & (m->table_n - 1);
    for (; m->table[at]; at = (at + 1) & (m->table_n - 1)) {
        struct lex_state *s = l->state[m->table[at]];
        if (s->hash == h && s->n_item == n && memcmp(s->item, item, n * sizeof *item) == 0) return m->table[at];
    }
    if (m->n_state == m->state_max) return LEX_UNKNOWN;
    struct lex_state *s;
    size_t            bytes = sizeof *s + l->n_kind * sizeof *s->next + n * (sizeof *item + sizeof(uint32_t));
    s = arena_calloc(&m->arena, 1, bytes);
    if (!s) return LEX_UNKNOWN;
    s->hash = h;
    fill(l, s, item, n);
    uint32_t id = m->n_state++;
    l->state[id] = s;
    if (n) m->table[at] = id;
    return id;
}

/* ---------------------------------------------------------------- life */

enum status lex_create(struct rx *x, const uint32_t *rest, uint32_t n_terminal, const struct lex_limits *limits,
                       struct lex **lex_out)
{
    struct lex      *l = calloc(1, sizeof *l);
    struct lex_made *m = calloc(1, sizeof *m);
    if (!l || !m) {
        free(l);
        free(m);
        rx_free(x);
        return ST_NOMEM;
    }
    l->made = m;
    m->rx = x;
    m->room = rx_room(x);
    m->n_terminal = n_terminal;
    m->state_max = limits->state_max;
    m->fuel_max = limits->fuel_max;
    m->table_n = TABLE_FIRST;
    pthread_mutex_init(&m->lock, NULL);
    arena_init(&m->arena, limits->bytes_max);
    m->plain = rx_json_plain(x);
    l->n_kind = rx_kinds(x, l->kind);
    for (unsigned b = 0; b < 256; b++) m->rep[l->kind[b]] = (uint8_t)b;
    l->state = calloc(m->state_max, sizeof *l->state); /* pages that are never touched cost nothing */
    m->table = calloc(m->table_n, sizeof *m->table);
    m->begin = calloc(n_terminal + 1, sizeof *m->begin);
    m->work = calloc(n_terminal + 1, sizeof *m->work);
    if (!l->state || !m->table || !m->begin || !m->work) {
        lex_free(l);
        return ST_NOMEM;
    }
    for (uint32_t t = 0; t < n_terminal; t++) m->begin[t] = (struct lex_item){ t, rest[t] };
    if (intern(l, NULL, 0) != LEX_DEAD) {
        lex_free(l);
        return ST_TOO_LARGE;
    }
    for (uint32_t k = 0; k < l->n_kind; k++) atomic_init(&l->state[LEX_DEAD]->next[k], LEX_DEAD);
    *lex_out = l;
    return ST_OK;
}

void lex_free(struct lex *l)
{
    if (!l) return;
    struct lex_made *m = l->made;
    arena_free(&m->arena);
    rx_free(m->rx);
    free(m->table);
    free(m->begin);
    free(m->work);
    pthread_mutex_destroy(&m->lock);
    free(m);
    free(l->state);
    free(l);
}

size_t lex_bytes(struct lex *l)
{
    lex_lock(l);
    size_t bytes = l->made->arena.bytes + rx_bytes(l->made->rx) + l->made->n_state * (sizeof *l->state + 8);
    lex_unlock(l);
    return bytes;
}

bool lex_is_worn(struct lex *l)
{
    lex_lock(l);
    const struct lex_made *m = l->made;
    bool                   worn =
        m->n_state > m->state_max / 2 || m->arena.bytes > m->arena.bytes_max / 2 || rx_room(m->rx) < m->room / 2;
    lex_unlock(l);
    return worn;
}

uint32_t lex_n_state(struct lex *l)
{
    lex_lock(l);
    uint32_t n = l->made->n_state;
    lex_unlock(l);
    return n;
}

/* ---------------------------------------------------------------- steps */

uint32_t lex_start(struct lex *l, const uint32_t *terminal, uint32_t n)
{
    struct lex_made *m = l->made;
    if (n == 0) return LEX_DEAD;
    lex_lock(l);
    for (uint32_t i = 0; i < n; i++) m->work[i] = m->begin[terminal[i]];
    uint32_t id = intern(l, m->work, n);
    lex_unlock(l);
    return id;
}

uint32_t lex_some(struct lex *l, uint32_t state, const bool *in, bool want)
{
    struct lex_made        *m = l->made;
    const struct lex_state *s = l->state[state];
    uint32_t                n = 0;
    lex_lock(l);
    for (uint32_t i = 0; i < s->n_item; i++)
        if (in[i] == want) m->work[n++] = s->item[i];
    uint32_t id = intern(l, m->work, n);
    lex_unlock(l);
    return id;
}

/* Of the calling thread. */
static _Thread_local uint64_t allowance;

void lex_allow(const struct lex *l) { allowance = l->made->fuel_max; }

/* Most states go on with few bytes. The other kinds need no derivative. Under the lock. */
static void open_state(struct lex *l, struct lex_state *s)
{
    const struct rx *x = l->made->rx;
    struct rx_class  may = { { 0 } };
    for (uint32_t i = 0; i < s->n_item; i++) rx_first(x, s->item[i].rest, &may);
    for (uint32_t k = 0; k < l->n_kind; k++)
        if (!rx_class_has(&may, l->made->rep[k])) atomic_store_explicit(&s->next[k], LEX_DEAD, memory_order_relaxed);
    atomic_store_explicit(&s->open, true, memory_order_release);
}

void lex_open(struct lex *l, uint32_t state)
{
    struct lex_state *s = l->state[state];
    if (atomic_load_explicit(&s->open, memory_order_acquire)) return;
    lex_lock(l);
    if (!s->open) open_state(l, s);
    lex_unlock(l);
}

uint32_t lex_make(struct lex *l, uint32_t from, uint8_t kind)
{
    struct lex_made  *m = l->made;
    struct lex_state *s = l->state[from];
    if (allowance == 0) return LEX_UNKNOWN;
    lex_lock(l);
    if (!s->open) open_state(l, s);
    uint32_t to = atomic_load_explicit(&s->next[kind], memory_order_relaxed), n = 0;
    if (to != LEX_UNKNOWN) { /* no terminal goes on, or another thread was quicker */
        lex_unlock(l);
        return to;
    }
    for (uint32_t i = 0; i < s->n_item; i++) {
        uint32_t rest = rx_derive(m->rx, s->item[i].rest, kind);
        if (rest == RX_NONE || rx_is_void(m->rx, rest)) continue;
        m->work[n++] = (struct lex_item){ s->item[i].terminal, rest };
    }
    if (rx_status(m->rx))
        to = LEX_UNKNOWN;
    else
        to = n ? intern(l, m->work, n) : (uint32_t)LEX_DEAD;
    if (to != LEX_UNKNOWN) atomic_store_explicit(&s->next[kind], to, memory_order_release);
    uint64_t spent = FUEL_A_STEP - rx_fuel(m->rx);
    allowance -= spent < allowance ? spent : allowance;
    lex_unlock(l);
    return to;
}
