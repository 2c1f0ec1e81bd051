/* rx_texts: an expression of many texts, any of which may come. Texts that begin alike share their beginning, so that a
 * step through tens of thousands of them costs the branches at one place, where rx_or would step through each.
 *   init -> rx_texts_bytes, rx_texts_rx ..., rx_texts_end for each text -> rx_texts_any -> free
 * Thread and errors: as in rx.h; without memory the set of expressions fails. */
#pragma once
#include "engine/grammar/rx.h"

struct rx_texts {
    struct rx *x;
    uint32_t  *unit; /* the texts in a row, each as its expressions */
    uint32_t   n_unit, unit_room;
    size_t    *end; /* [n] where in unit[] each ends */
    uint32_t   n, end_room;
    uint32_t   byte[256]; /* expressions of bytes; RX_NONE: not made yet */
};

/* No texts yet, of expressions of x, which must outlive t. rx_texts_free leaves the expressions. */
void rx_texts_init(struct rx_texts *t, struct rx *x);
void rx_texts_free(struct rx_texts *t);
/* Goes on with the text that was begun last: by these bytes, by an expression of x. */
void rx_texts_bytes(struct rx_texts *t, const void *bytes, size_t n);
void rx_texts_rx(struct rx_texts *t, uint32_t rx);
void rx_texts_end(struct rx_texts *t); /* that text is whole */
/* Any one of the texts, and any that an expression matches; RX_NONE: there are none, or rx_status. */
uint32_t rx_texts_any(const struct rx_texts *t);
uint32_t rx_texts_within(const struct rx_texts *t, uint32_t whole);
