/* rx: makes expressions in normal form, each once. */
#include "base/hash.h"
#include "engine/grammar/grow.h"
#include "engine/grammar/rx_impl.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void rx_fail(struct rx *x, enum status st)
{
    if (!x->st) x->st = st;
}

bool rx_burn(struct rx *x, uint64_t n)
{
    if (x->st) return false;
    if (x->fuel < n) {
        rx_fail(x, ST_TOO_LARGE);
        return false;
    }
    x->fuel -= n;
    return true;
}

bool rx_grow(struct rx *x, void **array, uint32_t n_used, uint32_t n, uint32_t *n_room, size_t bytes)
{
    bool good = array_grow(array, n_used, n, n_room, bytes);
    if (!good) rx_fail(x, ST_NOMEM);
    return good;
}

/* ---------------------------------------------------------------- each once */

static uint64_t hash_of(const struct rx *x, const struct rx_node *n)
{
    uint64_t h = hash_combine(n->kind, (uint64_t)n->min << 32 | n->max);
    switch (n->kind) {
    case RX_K_CLASS: return hash_bytes(&x->class[n->a], sizeof *x->class, h);
    case RX_K_OR:
    case RX_K_AND: return hash_bytes(x->kid + n->a, n->b * sizeof *x->kid, h);
    default: return hash_combine(h, (uint64_t)n->a << 32 | n->b);
    }
}

static bool equal(const struct rx *x, const struct rx_node *a, const struct rx_node *b)
{
    if (a->kind != b->kind || a->min != b->min || a->max != b->max) return false;
    switch (a->kind) {
    case RX_K_CLASS: return memcmp(&x->class[a->a], &x -> class[b->a], sizeof *x->class) == 0;
    case RX_K_OR:
    case RX_K_AND: return a->b == b->b && memcmp(x->kid + a->a, x->kid + b->a, a->b * sizeof *x->kid) == 0;
    default: return a->a == b->a && a->b == b->b;
    }
}

static bool nodes_grow(struct rx *x)
{
    uint32_t room_before = x->node_room;
    if (!rx_grow(x, (void **)&x->node, x->n_node, 1, &x->node_room, sizeof *x->node)) return false;
    if (x->node_room == room_before) return true;
    chain_free(&x->chain);
    if (chain_init(&x->chain, x->node_room, &x->node[0].link, sizeof *x->node)) {
        rx_fail(x, ST_NOMEM);
        return false;
    }
    for (uint32_t i = 0; i < x->n_node; i++) chain_add(&x->chain, hash_of(x, &x->node[i]), (int32_t)i);
    return true;
}

static void set_facts(const struct rx *x, struct rx_node *n)
{
    const struct rx_node *a = n->kind > RX_K_CLASS ? &x->node[n->a] : NULL;
    n->plain = true;
    n->finite = true;
    n->depth = 1;
    switch (n->kind) {
    case RX_K_NONE: n->is_void = RX_VOID_YES; break;
    case RX_K_EMPTY: n->nullable = true; break;
    case RX_K_CLASS: break;
    case RX_K_CAT: {
        const struct rx_node *b = &x->node[n->b];
        n->nullable = a->nullable && b->nullable;
        n->plain = a->plain && b->plain;
        n->finite = a->finite && b->finite;
        n->depth = a->depth;
        if (a->nullable && b->depth > n->depth) n->depth = b->depth;
        n->depth++;
        break;
    }
    case RX_K_OR:
    case RX_K_AND:
        n->nullable = n->kind == RX_K_AND;
        n->plain = n->kind == RX_K_OR;
        n->finite = n->kind == RX_K_OR;
        for (uint32_t i = 0; i < n->b; i++) {
            const struct rx_node *k = &x->node[x->kid[n->a + i]];
            if (n->kind == RX_K_OR) n->nullable = n->nullable || k->nullable;
            if (n->kind == RX_K_AND) n->nullable = n->nullable && k->nullable;
            n->plain = n->plain && k->plain;
            n->finite = n->kind == RX_K_OR ? n->finite && k->finite : n->finite || k->finite;
            if (k->depth >= n->depth) n->depth = k->depth + 1;
        }
        break;
    case RX_K_NOT:
        n->nullable = !a->nullable;
        n->plain = false;
        n->finite = false;
        n->depth = a->depth + 1;
        break;
    case RX_K_REPEAT:
        n->nullable = n->min == 0;
        n->plain = a->plain;
        n->finite = a->finite && n->max != RX_MANY;
        n->depth = a->depth + 1;
        break;
    case RX_K_MULTIPLE:
        n->nullable = n->max == 0; /* from every remainder some digits lead to 0 */
        n->finite = false;
        break;
    }
    if (n->nullable || (n->plain && n->kind != RX_K_NONE)) n->is_void = RX_VOID_NO;
}

static uint32_t sum(uint32_t a, uint32_t b) { return a > UINT32_MAX - b ? UINT32_MAX : a + b; }

/* Of an intersection the sum, so that a byte which takes it further in more of its operands is seen to do so. */
static uint32_t need_of(const struct rx *x, const struct rx_node *n)
{
    uint32_t need = n->kind == RX_K_OR ? UINT32_MAX : 0;
    uint64_t times;
    if (n->nullable) return 0;
    switch (n->kind) {
    case RX_K_CAT: return sum(x->node[n->a].need, x->node[n->b].need);
    case RX_K_OR:
        for (uint32_t i = 0; i < n->b; i++)
            if (x->node[x->kid[n->a + i]].need < need) need = x->node[x->kid[n->a + i]].need;
        return need;
    case RX_K_AND:
        for (uint32_t i = 0; i < n->b; i++) need = sum(need, x->node[x->kid[n->a + i]].need);
        return need;
    case RX_K_REPEAT:
        times = (uint64_t)n->min * x->node[n->a].need;
        return times > UINT32_MAX ? UINT32_MAX : (uint32_t)times;
    default: return 1;
    }
}

/* ---------------------------------------------------------------- signs */

static uint64_t       secret[2]; /* of this process */
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;
static void           make_secret(void)
{
    secret[0] = hash_seed();
    secret[1] = hash_u64(hash_seed() ^ secret[0]);
}

/* By the operands' signs; their order does not count for or and and, whose operands lie as they were made. */
static void set_sign(const struct rx *x, struct rx_node *n)
{
    bool     kids = n->kind == RX_K_OR || n->kind == RX_K_AND;
    uint64_t bounds = (uint64_t)n->min << 32 | n->max;
    for (int k = 0; k < 2; k++) {
        uint64_t h = hash_combine(secret[k] + n->kind, bounds);
        if (n->kind == RX_K_CLASS) h = hash_bytes(&x->class[n->a], sizeof *x->class, h);
        if (n->kind == RX_K_CAT || n->kind == RX_K_NOT || n->kind == RX_K_REPEAT)
            h = hash_combine(h, x->node[n->a].sign[k]);
        if (n->kind == RX_K_CAT) h = hash_combine(h ^ secret[k], x->node[n->b].sign[k]);
        uint64_t sum = 0;
        for (uint32_t i = 0; kids && i < n->b; i++)
            sum += hash_combine(secret[k] ^ n->kind, x->node[x->kid[n->a + i]].sign[k]);
        n->sign[k] = kids ? hash_combine(h, sum + n->b) : h;
    }
}

void rx_sign(const struct rx *x, uint32_t a, uint64_t sum[2])
{
    for (int k = 0; k < 2; k++) sum[k] += hash_combine(secret[k], x->node[a].sign[k]);
}

/* The number of an expression that is in normal form. Its operands in kid[] are the last ones there, and are taken
 * away again if it exists already. */
static uint32_t intern(struct rx *x, struct rx_node n)
{
    bool     kids = n.kind == RX_K_OR || n.kind == RX_K_AND;
    uint64_t h = hash_of(x, &n);
    for (int32_t i = chain_first(&x->chain, h); i != CHAIN_NONE; i = chain_next(&x->chain, i)) {
        if (!equal(x, &x->node[i], &n)) continue;
        if (kids) x->n_kid = n.a;
        return (uint32_t)i;
    }
    if (!rx_burn(x, 1)) return RX_NONE;
    if (x->n_node == x->limits.node_max) {
        rx_fail(x, ST_TOO_LARGE);
        return RX_NONE;
    }
    set_facts(x, &n);
    n.need = need_of(x, &n);
    set_sign(x, &n);
    if (n.depth > x->limits.depth_max) {
        rx_fail(x, ST_TOO_LARGE);
        return RX_NONE;
    }
    if (!nodes_grow(x)) return RX_NONE;
    uint32_t id = x->n_node++;
    x->node[id] = n;
    chain_add(&x->chain, h, (int32_t)id);
    return id;
}

/* ---------------------------------------------------------------- life */

struct rx *rx_create(const struct rx_limits *limits)
{
    struct rx *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    pthread_once(&secret_once, make_secret);
    x->limits = *limits;
    x->fuel = limits->fuel;
    if (nodes_grow(x)) intern(x, (struct rx_node){ .kind = RX_K_NONE });
    intern(x, (struct rx_node){ .kind = RX_K_EMPTY });
    intern(x, (struct rx_node){ .kind = RX_K_NOT, .a = RX_NONE });
    if (!x->st) return x;
    rx_free(x);
    return NULL;
}

void rx_free(struct rx *x)
{
    if (!x) return;
    chain_free(&x->chain);
    free(x->node);
    free(x->class);
    free(x->kid);
    free(x);
}

enum status rx_status(const struct rx *x) { return x->st; }

void rx_refuel(struct rx *x, uint64_t fuel)
{
    x->fuel = fuel;
    if (x->st == ST_TOO_LARGE && x->n_node < x->limits.node_max) x->st = ST_OK;
}

uint64_t rx_fuel(const struct rx *x) { return x->fuel; }

uint32_t rx_room(const struct rx *x) { return x->limits.node_max - x->n_node; }

size_t rx_bytes(const struct rx *x)
{
    return sizeof *x + x->node_room * (sizeof *x->node + sizeof(int32_t)) + x->class_room * sizeof *x->class +
           x->kid_room * sizeof *x->kid;
}

bool rx_nullable(const struct rx *x, uint32_t a) { return x->node[a].nullable; }

/* ---------------------------------------------------------------- constructors */

uint32_t rx_of_class(struct rx *x, const struct rx_class *c)
{
    static const struct rx_class nothing;
    if (memcmp(c, &nothing, sizeof nothing) == 0) return RX_NONE;
    if (!rx_grow(x, (void **)&x->class, x->n_class, 1, &x->class_room, sizeof *x->class)) return RX_NONE;
    x->class[x->n_class] = *c;
    uint32_t at = x->n_class++, id = intern(x, (struct rx_node){ .kind = RX_K_CLASS, .a = at });
    if (id == RX_NONE || x->node[id].a != at) x->n_class--; /* it is there already */
    return id;
}

uint32_t rx_of_byte(struct rx *x, unsigned byte)
{
    struct rx_class c = { { 0 } };
    rx_class_add(&c, byte, byte);
    return rx_of_class(x, &c);
}

uint32_t rx_of_bytes(struct rx *x, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t             r = RX_EMPTY;
    while (n-- > 0) r = rx_cat(x, rx_of_byte(x, p[n]), r);
    return r;
}

uint32_t rx_remainder(struct rx *x, uint32_t m, uint32_t remainder)
{
    return intern(x, (struct rx_node){ .kind = RX_K_MULTIPLE, .min = m, .max = remainder });
}

uint32_t rx_multiple(struct rx *x, uint32_t m)
{
    for (unsigned b = '0'; b <= '9'; b++) rx_of_byte(x, b); /* classes that tell the digits apart */
    rx_of_byte(x, '.');
    return rx_remainder(x, m, 0);
}

uint32_t rx_cat(struct rx *x, uint32_t a, uint32_t b)
{
    if (a == RX_NONE || b == RX_NONE) return RX_NONE;
    if (a == RX_EMPTY) return b;
    if (b == RX_EMPTY) return a;
    if ((a == RX_ALL && x->node[b].nullable) || (b == RX_ALL && x->node[a].nullable)) return RX_ALL;
    return intern(x, (struct rx_node){ .kind = RX_K_CAT, .a = a, .b = b });
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Adds an operand of an or / an and behind kid[from], its own operands in its place if it is one of the same kind. */
static bool push(struct rx *x, enum rx_kind kind, uint32_t a)
{
    const struct rx_node *n = &x->node[a];
    uint32_t              count = n->kind == kind ? n->b : 1;
    if (!rx_burn(x, count) || !rx_grow(x, (void **)&x->kid, x->n_kid, count, &x->kid_room, sizeof *x->kid))
        return false;
    if (n->kind == kind)
        memcpy(x->kid + x->n_kid, x->kid + n->a, count * sizeof *x->kid);
    else
        x->kid[x->n_kid] = a;
    x->n_kid += count;
    return true;
}

/* kid[from ..] without repetitions, in order. */
static void sort_kids(struct rx *x, uint32_t from)
{
    if (x->n_kid == from) return; /* there may be no array yet */
    uint32_t *k = x->kid + from, n = x->n_kid - from, kept = 0;
    qsort(k, n, sizeof *k, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!kept || k[kept - 1] != k[i]) k[kept++] = k[i];
    x->n_kid = from + kept;
}

/* The classes among kid[from ..] become one: their union for or, their intersection for and. */
static void merge_classes(struct rx *x, enum rx_kind kind, uint32_t from)
{
    struct rx_class all;
    uint32_t        n_class = 0, kept = from;
    memset(&all, kind == RX_K_AND ? 0xff : 0, sizeof all);
    for (uint32_t i = from; i < x->n_kid; i++) n_class += x->node[x->kid[i]].kind == RX_K_CLASS;
    if (n_class < 2) return;
    for (uint32_t i = from; i < x->n_kid; i++) {
        const struct rx_node *n = &x->node[x->kid[i]];
        if (n->kind != RX_K_CLASS) {
            x->kid[kept++] = x->kid[i];
            continue;
        }
        for (int w = 0; w < 4; w++) {
            uint64_t bits = x->class[n->a].bits[w];
            all.bits[w] = kind == RX_K_AND ? all.bits[w] & bits : all.bits[w] | bits;
        }
    }
    x->kid[kept++] = rx_of_class(x, &all);
    x->n_kid = kept;
    sort_kids(x, from);
}

static uint32_t combine(struct rx *x, enum rx_kind kind, const uint32_t *operand, size_t n)
{
    uint32_t unit = kind == RX_K_OR ? RX_NONE : RX_ALL; /* changes nothing */
    uint32_t zero = kind == RX_K_OR ? RX_ALL : RX_NONE; /* decides all */
    uint32_t from = x->n_kid;
    for (size_t i = 0; i < n; i++) {
        if (operand[i] == unit) continue;
        if (operand[i] == zero || !push(x, kind, operand[i])) {
            x->n_kid = from;
            return x->st ? RX_NONE : zero;
        }
    }
    sort_kids(x, from);
    merge_classes(x, kind, from);
    uint32_t count = x->n_kid - from, only = count == 1 ? x->kid[from] : unit;
    if (kind == RX_K_AND && count > 0 && x->kid[from] == RX_NONE) { /* classes without a common byte */
        x->n_kid = from;
        return RX_NONE;
    }
    if (count < 2) {
        x->n_kid = from;
        return only;
    }
    uint32_t id = intern(x, (struct rx_node){ .kind = (uint8_t)kind, .a = from, .b = count });
    if (x->st) x->n_kid = from;
    return id;
}

uint32_t rx_or(struct rx *x, const uint32_t *operand, size_t n) { return combine(x, RX_K_OR, operand, n); }
uint32_t rx_and(struct rx *x, const uint32_t *operand, size_t n) { return combine(x, RX_K_AND, operand, n); }
uint32_t rx_or2(struct rx *x, uint32_t a, uint32_t b) { return rx_or(x, (uint32_t[]){ a, b }, 2); }
uint32_t rx_and2(struct rx *x, uint32_t a, uint32_t b) { return rx_and(x, (uint32_t[]){ a, b }, 2); }

uint32_t rx_not(struct rx *x, uint32_t a)
{
    if (x->st) return RX_NONE;
    if (x->node[a].kind == RX_K_NOT) return x->node[a].a;
    return intern(x, (struct rx_node){ .kind = RX_K_NOT, .a = a });
}

uint32_t rx_repeat(struct rx *x, uint32_t a, uint32_t min, uint32_t max)
{
    if (max < min) return RX_NONE;
    if (x->node[a].nullable) min = 0; /* an operand may stand for nothing */
    if (max == 0 || a == RX_EMPTY) return RX_EMPTY;
    if (a == RX_NONE) return min == 0 ? RX_EMPTY : RX_NONE;
    if (min == 1 && max == 1) return a;
    if (a == RX_ALL) return RX_ALL;
    const struct rx_node *n = &x->node[a];
    if (n->kind == RX_K_REPEAT && n->min == 0 && n->max == RX_MANY) return a;
    return intern(x, (struct rx_node){ .kind = RX_K_REPEAT, .a = a, .min = min, .max = max });
}
