/* heap: a priority queue in an array of the caller's, the first one at [0]. Each item has four children, so that a way
 * down takes half as many steps as with two.   Thread: one owner.
 * Items are numbers; what they mean, and which of two comes before the other, the caller's order says. All is inline,
 * so that an order known at compile time costs what it would cost written out. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_order {
    bool (*before)(const void *ctx, uint64_t a,
                   uint64_t b); /* strict; where it says for any two who is first, so do the heap's answers */
    void (*put)(void *ctx, uint64_t item, size_t at); /* is told where an item stands from now on; NULL: nobody asks */
    void *ctx;
};

enum { HEAP_CHILDREN = 4 };
#define HEAP_INLINE static inline __attribute__((always_inline))

HEAP_INLINE size_t heap_parent(size_t at) { return (at - 1) / HEAP_CHILDREN; } /* at > 0 */

/* Writes the item to its place and tells its owner where it stands. It does not order anything. */
HEAP_INLINE void heap_put(uint64_t *heap, size_t at, uint64_t item, struct heap_order o)
{
    heap[at] = item;
    if (o.put) o.put(o.ctx, item, at);
}

/* Puts an item, whose way down is in order, to `at` or above it; what stood on the way moves down. heap[at] itself is
 * not read. */
HEAP_INLINE void heap_up(uint64_t *heap, size_t at, uint64_t item, struct heap_order o)
{
    for (; at > 0; at = heap_parent(at)) {
        uint64_t parent = heap[heap_parent(at)];
        if (!o.before(o.ctx, item, parent)) break;
        heap_put(heap, at, parent, o);
    }
    heap_put(heap, at, item, o);
}

/* Puts an item, whose way up is in order, to `at` or below it. heap[at] itself is not read. */
HEAP_INLINE void heap_down(uint64_t *heap, size_t n, size_t at, uint64_t item, struct heap_order o)
{
    for (size_t child; (child = HEAP_CHILDREN * at + 1) < n; at = child) {
        size_t end = child + HEAP_CHILDREN < n ? child + HEAP_CHILDREN : n;
        for (size_t c = child + 1; c < end; c++)
            if (o.before(o.ctx, heap[c], heap[child])) child = c;
        if (!o.before(o.ctx, heap[child], item)) break;
        heap_put(heap, at, heap[child], o);
    }
    heap_put(heap, at, item, o);
}

/* Puts an item to `at`, or to where its order has it. */
HEAP_INLINE void heap_settle(uint64_t *heap, size_t n, size_t at, uint64_t item, struct heap_order o)
{
    if (at > 0 && o.before(o.ctx, item, heap[heap_parent(at)]))
        heap_up(heap, at, item, o);
    else
        heap_down(heap, n, at, item, o);
}

/* Room for one more is the caller's to see to. */
HEAP_INLINE void heap_push(uint64_t *heap, size_t *n, uint64_t item, struct heap_order o)
{
    heap_up(heap, (*n)++, item, o);
}

/* Takes out the item that stands at `at`; order.put hears nothing of it. */
HEAP_INLINE uint64_t heap_take(uint64_t *heap, size_t *n, size_t at, struct heap_order o)
{
    uint64_t item = heap[at];
    uint64_t last = heap[--*n];
    if (at < *n) heap_settle(heap, *n, at, last, o);
    return item;
}

/* Brings n items that stand anyhow into order. */
HEAP_INLINE void heap_make(uint64_t *heap, size_t n, struct heap_order o)
{
    for (size_t i = n / HEAP_CHILDREN + 1; i-- > 0;)
        if (i < n) heap_down(heap, n, i, heap[i], o);
}
