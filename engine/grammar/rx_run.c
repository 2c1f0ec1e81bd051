/* rx_run: how many parts, such as characters, may begin the texts of an expression. */
#include "engine/grammar/rx_impl.h"

enum { RUN_OPERANDS = 16, CHAR_BYTES_MAX = 4 };

static bool covers_one(const struct rx *x, uint32_t whole, uint32_t part)
{
    const struct rx_node *w = &x->node[whole], *p = &x->node[part];
    if (whole == part || part == RX_NONE) return true;
    if (w->kind != p->kind) return false;
    if (w->kind == RX_K_CAT) return rx_covers(x, w->a, p->a) && rx_covers(x, w->b, p->b);
    if (w->kind != RX_K_CLASS) return false;
    for (int i = 0; i < 4; i++)
        if (x->class[p->a].bits[i] & ~x->class[w->a].bits[i]) return false;
    return true;
}

bool rx_covers(const struct rx *x, uint32_t whole, uint32_t part)
{
    const struct rx_node *w = &x->node[whole], *p = &x->node[part];
    uint32_t              n_part = p->kind == RX_K_OR ? p->b : 1, n_whole = w->kind == RX_K_OR ? w->b : 1;
    for (uint32_t i = 0; i < n_part; i++) {
        uint32_t one = p->kind == RX_K_OR ? x->kid[p->a + i] : part;
        bool     in = false;
        for (uint32_t k = 0; k < n_whole && !in; k++)
            in = covers_one(x, w->kind == RX_K_OR ? x->kid[w->a + k] : whole, one);
        if (!in) return false;
    }
    return true;
}

/* Can no byte begin a text of both? */
static bool begin_apart(struct rx *x, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < x->n_kind; k++)
        if (rx_derive(x, a, (uint8_t)k) != RX_NONE && rx_derive(x, b, (uint8_t)k) != RX_NONE) return false;
    return x->st == ST_OK;
}

/* Bytes of each text of an expression of classes; 0: they differ, or it is another expression, or they are many. */
static uint32_t length_of(const struct rx *x, uint32_t a)
{
    uint32_t n = 0, one = 1;
    for (; x->node[a].kind == RX_K_CAT && one && n < CHAR_BYTES_MAX; a = x->node[a].b)
        n += one = length_of(x, x->node[a].a);
    if (!one || n >= CHAR_BYTES_MAX) return 0;
    const struct rx_node *last = &x->node[a];
    if (last->kind == RX_K_CLASS) return n + 1;
    one = last->kind == RX_K_OR ? length_of(x, x->kid[last->a]) : 0;
    for (uint32_t i = 1; one && i < last->b; i++)
        if (length_of(x, x->kid[last->a + i]) != one) return 0;
    return one ? n + one : 0;
}

/* Is each of its texts as long as a character of UTF-8 that begins so? */
static bool is_character(const struct rx *x, uint32_t a)
{
    static const unsigned from[] = { 0, 0, 0xC0, 0xE0, 0xF0 }, to[] = { 0, 0x7F, 0xDF, 0xEF, 0xFF };
    uint32_t              n = length_of(x, a);
    while (x->node[a].kind == RX_K_CAT) a = x->node[a].a;
    if (n == 0 || n > CHAR_BYTES_MAX || x->node[a].kind != RX_K_CLASS) return false;
    for (unsigned byte = 0; byte < 256; byte++)
        if (rx_class_has(&x->class[x->node[a].a], byte) && (byte < from[n] || byte > to[n])) return false;
    return true;
}

/* Is a run of parts never more of them than texts of the operand, whose alternatives may be longer? */
static bool one_by_one(struct rx *x, uint32_t operand, uint32_t part)
{
    bool     many = x->node[operand].kind == RX_K_OR;
    uint32_t n = many ? x->node[operand].b : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t one = many ? x->kid[x->node[operand].a + i] : operand;
        if (!is_character(x, one) && !begin_apart(x, one, part)) return false;
    }
    return true;
}

/* The bytes of all texts of an expression of classes. */
static void add_bytes(const struct rx *x, uint32_t a, struct rx_class *out)
{
    const struct rx_node *n = &x->node[a];
    if (n->kind == RX_K_CLASS)
        for (int i = 0; i < 4; i++) out->bits[i] |= x->class[n->a].bits[i];
    if (n->kind == RX_K_CAT) {
        add_bytes(x, n->a, out);
        add_bytes(x, n->b, out);
    }
    for (uint32_t i = 0; n->kind == RX_K_OR && i < n->b; i++) add_bytes(x, x->kid[n->a + i], out);
}

/* Whether no text of parts changes what may follow. */
static bool unchanged_by(struct rx *x, uint32_t a, uint32_t part)
{
    struct rx_class bytes = { { 0 } };
    add_bytes(x, part, &bytes);
    for (uint32_t k = 0; k < x->n_kind; k++)
        if (rx_class_has(&bytes, x->rep[k]) && rx_derive(x, a, (uint8_t)k) != a) return false;
    return true;
}

/* Of an intersection. One operand says how many parts may come. Of the others each stays what it is behind them, or
 * takes finitely many texts out of infinitely many; and a text that goes on behind the parts is left (it may have all
 * the parts that are allowed before it). */
static struct rx_run run_of_all(struct rx *x, uint32_t a, uint32_t part)
{
    const struct rx_run unknown = { .most = 0 };
    struct rx_run       run = unknown;
    uint32_t            kept[RUN_OPERANDS], n_kept = 0, n = x->node[a].b;
    bool                few = false;
    if (n > RUN_OPERANDS) return unknown;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t       kid = x->kid[x->node[a].a + i];
        struct rx_node k = x->node[kid];
        bool           repeats = x->node[k.kind == RX_K_CAT ? k.a : kid].kind == RX_K_REPEAT;
        if (k.kind == RX_K_NOT && x->node[k.a].finite) {
            few = true;
        } else if (!run.most && repeats && (run = rx_run(x, kid, part)).most) {
            kept[n_kept++] = k.kind == RX_K_CAT ? k.b : (uint32_t)RX_EMPTY;
        } else if (unchanged_by(x, kid, part)) {
            kept[n_kept++] = kid;
        } else {
            return unknown;
        }
    }
    if (few && run.most != RX_MANY) return unknown;
    return n_kept == 1 || !rx_is_void(x, rx_and(x, kept, n_kept)) ? run : unknown;
}

struct rx_run rx_run(struct rx *x, uint32_t a, uint32_t part)
{
    struct rx_run run = { .most = 0 };
    uint32_t      head = a, tail = RX_EMPTY, n_tail = 0;
    for (; x->node[head].kind == RX_K_CAT; head = x->node[head].a, n_tail++) tail = x->node[head].b;
    const struct rx_node n = x->node[head];
    if (n.kind == RX_K_REPEAT && rx_covers(x, n.a, part)) {
        run = (struct rx_run){ n.max, one_by_one(x, n.a, part) && begin_apart(x, tail, part), x->node[tail].nullable };
        if (n_tail > 0) n_tail--;
    } else if (n.kind == RX_K_AND) {
        run = run_of_all(x, head, part);
    }
    if (n_tail > 0 && run.alone) run.bound = false; /* what is behind may begin with more */
    run.bound = run.bound || run.most == RX_MANY;
    return x->st ? (struct rx_run){ .most = 0 } : run;
}
