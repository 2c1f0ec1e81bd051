/* rx: regular expressions over bytes, for terminals of a grammar. Each expression exists once in its set, so that
 * equal ones have equal numbers, and it is never changed.
 *   create -> constructors and derivatives, in any order -> free
 * An expression is stepped through a text by its derivatives (Brzozowski 1964, "Derivatives of regular expressions";
 * Owens, Reppy and Turon 2009 for classes and for the rules that keep their number small). Intersection and complement
 * cost nothing there, and a repetition is a counter instead of copies.
 * Thread: one at a time; a set that is shared needs a lock (lex.c has one).
 * Errors are sticky: over a bound or without memory a constructor returns RX_NONE, and rx_status says why from then
 * on. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RX_NONE = 0,  /* matches nothing */
    RX_EMPTY = 1, /* matches the empty text alone */
    RX_ALL = 2,   /* matches any text */
};
#define RX_MANY UINT32_MAX /* a repetition without an upper bound */

struct rx;

/* A set of byte values. */
struct rx_class {
    uint64_t bits[4];
};
static inline void rx_class_add(struct rx_class *c, unsigned from, unsigned to) /* both ends belong to it */
{
    for (unsigned b = from; b <= to; b++) c->bits[b / 64] |= 1ull << (b % 64);
}
static inline bool rx_class_has(const struct rx_class *c, unsigned byte)
{
    return c->bits[byte / 64] >> (byte % 64) & 1;
}

/* What making and stepping expressions may cost. */
struct rx_limits {
    uint32_t node_max; /* expressions in all */
    uint64_t
        fuel; /* units of work: an operand looked at, a derivative taken. No clock, so that a machine's speed decides nothing */
    uint32_t depth_max; /* of nested operands: it bounds the recursion of rx_derive */
};

/* NULL: no memory. */
struct rx  *rx_create(const struct rx_limits *limits);
void        rx_free(struct rx *x);
enum status rx_status(const struct rx *x);          /* ST_OK, ST_NOMEM, ST_TOO_LARGE */
void        rx_refuel(struct rx *x, uint64_t fuel); /* sets the fuel, and clears an earlier ST_TOO_LARGE */
uint64_t    rx_fuel(const struct rx *x);            /* what is left of it */
size_t      rx_bytes(const struct rx *x);           /* memory in use */
uint32_t    rx_room(const struct rx *x);            /* expressions that may still be made */

/* The constructors return the number of an expression, or RX_NONE if it matches nothing or cannot be made (rx_status).
 * One byte of the class; this byte; these bytes in order; a text of a and then one of b. */
uint32_t rx_of_class(struct rx *x, const struct rx_class *c);
uint32_t rx_of_byte(struct rx *x, unsigned byte);
uint32_t rx_of_bytes(struct rx *x, const void *bytes, size_t n);
uint32_t rx_cat(struct rx *x, uint32_t a, uint32_t b);
/* The operands may be in any order and may repeat; none of them: RX_NONE for or, RX_ALL for and. rx_not: every text
 * that a does not match: */
uint32_t rx_or(struct rx *x, const uint32_t *operand, size_t n);
uint32_t rx_and(struct rx *x, const uint32_t *operand, size_t n);
uint32_t rx_or2(struct rx *x, uint32_t a, uint32_t b);
uint32_t rx_and2(struct rx *x, uint32_t a, uint32_t b);
uint32_t rx_not(struct rx *x, uint32_t a);
/* min to max times; max may be RX_MANY. */
uint32_t rx_repeat(struct rx *x, uint32_t a, uint32_t min, uint32_t max);

/* Decimal digits, with points that count for nothing, whose number is a multiple of m; also no digits at all. m > 0,
 * below 2^28. */
uint32_t rx_multiple(struct rx *x, uint32_t m);

/* Adds to sum a number of 128 bits that is equal for equal expressions of all sets in this process, and that no client
 * can foresee. */
void rx_sign(const struct rx *x, uint32_t a, uint64_t sum[2]);

bool rx_nullable(const struct rx *x, uint32_t a); /* does it match the empty text? */

/* Divides the byte values into kinds that no class made so far distinguishes, and writes the kind of each value. After
 * it only derivatives make classes, as combinations of existing ones. Returns the number of kinds, 1 to 256. */
uint32_t rx_kinds(struct rx *x, uint8_t kind_out[256]);
/* The expression still to match after a byte of this kind (after rx_kinds). */
uint32_t rx_derive(struct rx *x, uint32_t a, uint8_t kind);
/* Adds the bytes with which its texts may begin, and perhaps others: behind all that it does not add the derivative
 * matches nothing. */
void rx_first(const struct rx *x, uint32_t a, struct rx_class *out);
/* Does it match these bytes? kind: as rx_kinds wrote it. */
bool rx_matches(struct rx *x, uint32_t a, const uint8_t kind[256], const void *bytes, size_t n);
/* Does it match no text at all? Only an expression with an intersection or a complement needs a search (after
 * rx_kinds). */
bool rx_is_void(struct rx *x, uint32_t a);

/* How many texts of `part`, characters in UTF-8, whichever they are, may stand at the beginning of a text of an
 * expression, which matches some text. */
struct rx_run {
    uint32_t most;  /* 0: none, or it is not known */
    bool     bound; /* with more of them no text begins; so it is with RX_MANY too, where that says nothing */
    bool     alone; /* a text may consist of them alone */
};
struct rx_run rx_run(struct rx *x, uint32_t a, uint32_t part); /* after rx_kinds */
/* Is every text of `part` one of `whole`? May return false although it is, but never true where it is not. */
bool rx_covers(const struct rx *x, uint32_t whole, uint32_t part);
