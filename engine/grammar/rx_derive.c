/* rx_derive: computes the derivatives of expressions. */
#include "base/hash.h"
#include "engine/grammar/rx_impl.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST_LOOKS = 1000 }; /* expressions that rx_first looks at; a common one may be met in many ways */

uint32_t rx_kinds(struct rx *x, uint8_t kind_out[256])
{
    uint64_t sign[256]; /* in which classes a value is */
    memset(sign, 0, sizeof sign);
    for (uint32_t c = 0; c < x->n_class; c++)
        for (unsigned b = 0; b < 256; b++) sign[b] = hash_combine(sign[b], rx_class_has(&x->class[c], b));
    x->n_kind = 0;
    memset(x->memo, 0, sizeof x->memo);
    for (unsigned b = 0; b < 256; b++) {
        uint32_t k = 0;
        while (k < x->n_kind && sign[x->rep[k]] != sign[b]) k++;
        if (k == x->n_kind) x->rep[x->n_kind++] = (uint8_t)b;
        kind_out[b] = (uint8_t)k;
    }
    return x->n_kind;
}

/* The derivatives of the operands of an or / an and, combined. */
static uint32_t derive_kids(struct rx *x, uint32_t a, uint8_t kind)
{
    bool      all = x->node[a].kind == RX_K_AND;
    uint32_t  n = x->node[a].b, first = x->node[a].a, kept = 0;
    uint32_t  few[32];
    uint32_t *d = n <= 32 ? few : malloc(n * sizeof *d);
    if (!d) {
        if (!x->st) x->st = ST_NOMEM;
        return RX_NONE;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = rx_derive(x, x->kid[first + i], kind);
        if (k != (all ? RX_ALL : RX_NONE)) d[kept++] = k;
    }
    uint32_t r = all ? rx_and(x, d, kept) : rx_or(x, d, kept);
    if (d != few) free(d);
    return r;
}

static uint32_t derive_cat(struct rx *x, uint32_t a, uint8_t kind)
{
    uint32_t head = x->node[a].a, tail = x->node[a].b;
    uint32_t r = rx_cat(x, rx_derive(x, head, kind), tail);
    if (!x->node[head].nullable) return r;
    return rx_or2(x, r, rx_derive(x, tail, kind));
}

static uint32_t derive_repeat(struct rx *x, uint32_t a, uint8_t kind)
{
    const struct rx_node *n = &x->node[a];
    uint32_t              of = n->a, min = n->min, max = n->max;
    uint32_t              d = rx_derive(x, of, kind);
    if (d == RX_NONE) return RX_NONE;
    return rx_cat(x, d, rx_repeat(x, of, min ? min - 1 : 0, max == RX_MANY ? RX_MANY : max - 1));
}

static uint32_t derive_multiple(struct rx *x, uint32_t a, uint8_t kind)
{
    struct rx_node n = x->node[a];
    uint8_t        byte = x->rep[kind];
    if (byte == '.') return a;
    if (byte < '0' || byte > '9') return RX_NONE;
    n.max = (n.max * 10 + (uint32_t)(byte - '0')) % n.min;
    return rx_remainder(x, n.min, n.max);
}

uint32_t rx_derive(struct rx *x, uint32_t a, uint8_t kind)
{
    if (a == RX_NONE || a == RX_EMPTY || !rx_burn(x, 1)) return RX_NONE;
    if (a == RX_ALL) return RX_ALL;
    const struct rx_node *n = &x->node[a];
    if (n->kind == RX_K_CLASS) return rx_class_has(&x->class[n->a], x -> rep[kind]) ? RX_EMPTY : RX_NONE;
    struct rx_memo *m = &x->memo[hash_combine(a, kind) % RX_MEMO];
    if (m->of == a && m->kind == kind) return m->result;
    uint32_t r = RX_NONE;
    switch (n->kind) {
    case RX_K_CAT: r = derive_cat(x, a, kind); break;
    case RX_K_OR:
    case RX_K_AND: r = derive_kids(x, a, kind); break;
    case RX_K_MULTIPLE: r = derive_multiple(x, a, kind); break;
    case RX_K_NOT: r = rx_not(x, rx_derive(x, n->a, kind)); break;
    default: r = derive_repeat(x, a, kind); break;
    }
    if (x->st) return RX_NONE;
    m->of = a;
    m->kind = kind;
    m->result = r;
    return r;
}

bool rx_matches(struct rx *x, uint32_t a, const uint8_t kind[256], const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n && a != RX_NONE; i++) a = rx_derive(x, a, kind[p[i]]);
    return rx_nullable(x, a);
}

/* ---------------------------------------------------------------- first bytes */

static void add_first(const struct rx *x, uint32_t a, uint32_t *left, struct rx_class *out);

/* Of an intersection: the bytes that begin texts of all operands. */
static void add_first_of_all(const struct rx *x, const struct rx_node *n, uint32_t *left, struct rx_class *out)
{
    struct rx_class all;
    memset(&all, 0xff, sizeof all);
    for (uint32_t i = 0; i < n->b; i++) {
        struct rx_class one = { { 0 } };
        add_first(x, x->kid[n->a + i], left, &one);
        for (int w = 0; w < 4; w++) all.bits[w] &= one.bits[w];
    }
    for (int w = 0; w < 4; w++) out->bits[w] |= all.bits[w];
}

/* left: expressions that may still be looked at; without any, every byte is added. */
static void add_first(const struct rx *x, uint32_t a, uint32_t *left, struct rx_class *out)
{
    const struct rx_node *n = &x->node[a];
    if (*left == 0) {
        rx_class_add(out, 0, 255);
        return;
    }
    --*left;
    switch (n->kind) {
    case RX_K_NONE:
    case RX_K_EMPTY: break;
    case RX_K_CLASS:
        for (int w = 0; w < 4; w++) out->bits[w] |= x->class[n->a].bits[w];
        break;
    case RX_K_CAT:
        add_first(x, n->a, left, out);
        if (x->node[n->a].nullable) add_first(x, n->b, left, out);
        break;
    case RX_K_OR:
        for (uint32_t i = 0; i < n->b; i++) add_first(x, x->kid[n->a + i], left, out);
        break;
    case RX_K_AND: add_first_of_all(x, n, left, out); break;
    case RX_K_REPEAT: add_first(x, n->a, left, out); break;
    default: rx_class_add(out, 0, 255); break; /* a complement; digits */
    }
}

void rx_first(const struct rx *x, uint32_t a, struct rx_class *out)
{
    uint32_t left = FIRST_LOOKS;
    add_first(x, a, &left, out);
}
