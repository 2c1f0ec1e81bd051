#include "base/msgpack.h"
#include <string.h>

/* A first byte, then v as n bytes, the highest first. */
static void head(struct msgpack *m, unsigned char first, uint64_t v, uint32_t n)
{
    if (m->full || (size_t)(m->end - m->at) < 1 + (size_t)n) {
        m->full = true;
        return;
    }
    *m->at++ = first;
    for (uint32_t i = n; i-- > 0;) *m->at++ = (unsigned char)(v >> 8 * i);
}

static void body(struct msgpack *m, const void *p, size_t n)
{
    if (m->full || (size_t)(m->end - m->at) < n) {
        m->full = true;
        return;
    }
    if (n) memcpy(m->at, p, n);
    m->at += n;
}

void msgpack_nil(struct msgpack *m) { head(m, 0xc0, 0, 0); }

void msgpack_uint(struct msgpack *m, uint64_t v)
{
    if (v < 0x80)
        head(m, (unsigned char)v, 0, 0);
    else if (v <= UINT8_MAX)
        head(m, 0xcc, v, 1);
    else if (v <= UINT16_MAX)
        head(m, 0xcd, v, 2);
    else if (v <= UINT32_MAX)
        head(m, 0xce, v, 4);
    else
        head(m, 0xcf, v, 8);
}

void msgpack_double(struct msgpack *m, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    head(m, 0xcb, bits, 8);
}

void msgpack_text(struct msgpack *m, const char *s)
{
    size_t n = strlen(s);
    if (n > UINT32_MAX) {
        m->full = true;
        return;
    }
    if (n < 32)
        head(m, (unsigned char)(0xa0 | n), 0, 0);
    else if (n <= UINT8_MAX)
        head(m, 0xd9, n, 1);
    else if (n <= UINT16_MAX)
        head(m, 0xda, n, 2);
    else
        head(m, 0xdb, n, 4);
    body(m, s, n);
}

void msgpack_bytes(struct msgpack *m, const void *p, uint32_t n)
{
    if (n <= UINT8_MAX)
        head(m, 0xc4, n, 1);
    else if (n <= UINT16_MAX)
        head(m, 0xc5, n, 2);
    else
        head(m, 0xc6, n, 4);
    body(m, p, n);
}

void msgpack_array(struct msgpack *m, uint32_t n)
{
    if (n < 16)
        head(m, (unsigned char)(0x90 | n), 0, 0);
    else if (n <= UINT16_MAX)
        head(m, 0xdc, n, 2);
    else
        head(m, 0xdd, n, 4);
}

void msgpack_map(struct msgpack *m, uint32_t n)
{
    if (n < 16)
        head(m, (unsigned char)(0x80 | n), 0, 0);
    else if (n <= UINT16_MAX)
        head(m, 0xde, n, 2);
    else
        head(m, 0xdf, n, 4);
}
