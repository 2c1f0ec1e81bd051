/* rx_utf8: turns ranges of characters into sequences of ranges of bytes. */
#include "engine/grammar/rx_utf8.h"

static uint32_t of_bytes(struct rx *x, unsigned from, unsigned to)
{
    struct rx_class c = { { 0 } };
    rx_class_add(&c, from, to);
    return rx_of_class(x, &c);
}

/* The n last bytes of any character: each of them is free. */
static uint32_t tail(struct rx *x, int n)
{
    uint32_t r = RX_EMPTY;
    while (n-- > 0) r = rx_cat(x, of_bytes(x, 0x80, 0xBF), r);
    return r;
}

/* Characters whose n last bytes, of six bits each, go from `from` to `to`. */
static uint32_t tails(struct rx *x, uint32_t from, uint32_t to, int n)
{
    if (n == 0) return RX_EMPTY;
    uint32_t bits = 6 * (uint32_t)(n - 1), low = (1u << bits) - 1;
    uint32_t first = from >> bits, last = to >> bits;
    if (first == last) return rx_cat(x, of_bytes(x, 0x80 + first, 0x80 + first), tails(x, from & low, to & low, n - 1));
    uint32_t part[3] = { RX_NONE, RX_NONE, RX_NONE };
    if (from & low) {
        part[0] = rx_cat(x, of_bytes(x, 0x80 + first, 0x80 + first), tails(x, from & low, low, n - 1));
        first++;
    }
    if ((to & low) != low) {
        part[1] = rx_cat(x, of_bytes(x, 0x80 + last, 0x80 + last), tails(x, 0, to & low, n - 1));
        last--;
    }
    if (first <= last) part[2] = rx_cat(x, of_bytes(x, 0x80 + first, 0x80 + last), tail(x, n - 1));
    return rx_or(x, part, 3);
}

/* Characters that take n bytes after the first one, which is `lead` plus their upper bits. */
static uint32_t with_lead(struct rx *x, uint32_t from, uint32_t to, unsigned lead, int n)
{
    uint32_t bits = 6 * (uint32_t)n, low = (1u << bits) - 1, r = RX_NONE;
    uint32_t first = from >> bits, last = to >> bits;
    while (first <= last) {
        bool     from_there = first == from >> bits && (from & low) != 0;
        bool     to_there = first == to >> bits && (to & low) != low;
        uint32_t end = first;
        if (!from_there && !to_there) /* whole: as many as there are, as one class */
            while (end < last && !(end + 1 == to >> bits && (to & low) != low)) end++;
        uint32_t b = of_bytes(x, lead + first, lead + end);
        r = rx_or2(x, r, rx_cat(x, b, tails(x, from_there ? from & low : 0, to_there ? to & low : low, n)));
        first = end + 1;
    }
    return r;
}

static uint32_t within(struct rx *x, uint32_t from, uint32_t to, uint32_t low, uint32_t high, unsigned lead, int n)
{
    if (from < low) from = low;
    if (to > high) to = high;
    return from > to ? (uint32_t)RX_NONE : with_lead(x, from, to, lead, n);
}

uint32_t rx_of_chars(struct rx *x, uint32_t from, uint32_t to)
{
    uint32_t ascii_to = to < 0x7F ? to : 0x7F;
    uint32_t part[5] = {
        from <= 0x7F && from <= to ? of_bytes(x, from, ascii_to) : (uint32_t)RX_NONE,
        within(x, from, to, 0x80, 0x7FF, 0xC0, 1),
        within(x, from, to, 0x800, 0xD7FF, 0xE0, 2),
        within(x, from, to, 0xE000, 0xFFFF, 0xE0, 2),
        within(x, from, to, 0x10000, RX_CODE_POINT_MAX, 0xF0, 3),
    };
    return rx_or(x, part, 5);
}

uint32_t rx_json_plain(struct rx *x)
{
    struct rx_class ascii = { { 0 } };
    rx_class_add(&ascii, ' ', '!');
    rx_class_add(&ascii, '#', ';');
    rx_class_add(&ascii, '=', '[');
    rx_class_add(&ascii, ']', '~');
    uint32_t part[3] = { rx_of_class(x, &ascii), rx_of_chars(x, 0x80, 0x2027),
                         rx_of_chars(x, 0x202A, RX_CODE_POINT_MAX) };
    return rx_or(x, part, 3);
}
