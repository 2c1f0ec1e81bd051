#include "api/token/tok_vocab.h"
#include "api/token/tok_unicode.h"
#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 30, TOK_SEED = 0x746f6b };

static uint32_t hash_of(const char *s, size_t n) { return (uint32_t)hash_bytes(s, n, TOK_SEED); }

bool tok_strs_init(struct tok_strs *t, size_t n_expect)
{
    *t = (struct tok_strs){ 0 };
    size_t slots = 64;
    while (slots < 2 * n_expect && slots < (size_t)TOK_ID_BOUND * 2) slots *= 2;
    t->slot = calloc(slots, sizeof *t->slot);
    t->slot_mask = (uint32_t)(slots - 1);
    return t->slot != NULL;
}

void tok_strs_free(struct tok_strs *t)
{
    free(t->text);
    free(t->at);
    free(t->slot);
    *t = (struct tok_strs){ 0 };
}

static bool grow_slots(struct tok_strs *t)
{
    uint32_t         mask = t->slot_mask * 2 + 1;
    struct tok_slot *slot = calloc((size_t)mask + 1, sizeof *slot);
    if (!slot) return false;
    for (uint32_t i = 0; i <= t->slot_mask; i++) {
        if (!t->slot[i].at) continue;
        uint32_t at = t->slot[i].hash & mask;
        while (slot[at].at) at = (at + 1) & mask;
        slot[at] = t->slot[i];
    }
    free(t->slot);
    t->slot = slot;
    t->slot_mask = mask;
    return true;
}

static bool grow_ids(struct tok_strs *t, uint32_t id)
{
    if (id >= t->id_cap) {
        uint32_t  cap = t->id_cap * 2 > id + 1 ? t->id_cap * 2 : id + 1024;
        uint32_t *at = realloc(t->at, cap * sizeof *at);
        if (!at) return false;
        t->at = at;
        t->id_cap = cap;
    }
    while (t->n_id <= id) t->at[t->n_id++] = 0;
    return true;
}

static bool grow_text(struct tok_strs *t, size_t n)
{
    size_t need = t->n_text + sizeof(struct tok_str) + n + 1;
    if (n > TEXT_MAX || need > TEXT_MAX) return false;
    if (need <= t->text_cap) return true;
    size_t cap = t->text_cap * 2 > need ? t->text_cap * 2 : need + 4096;
    char  *text = realloc(t->text, cap);
    if (!text) return false;
    t->text = text;
    t->text_cap = cap;
    return true;
}

static struct tok_str head_of(const struct tok_strs *t, uint32_t at)
{
    struct tok_str head;
    memcpy(&head, t->text + at - sizeof head, sizeof head);
    return head;
}

static uint32_t slot_of(const struct tok_strs *t, const char *s, size_t n, uint32_t h)
{
    uint32_t i = h & t->slot_mask;
    for (; t->slot[i].at; i = (i + 1) & t->slot_mask)
        if (t->slot[i].hash == h && head_of(t, t->slot[i].at).n == n && !memcmp(t->text + t->slot[i].at, s, n)) break;
    return i;
}

enum tok_add tok_strs_add(struct tok_strs *t, const char *s, size_t n, uint32_t id)
{
    if (2 * (t->n + 1) > t->slot_mask && !grow_slots(t)) return TOK_ADD_NO_MEMORY;
    uint32_t h = hash_of(s, n), i = slot_of(t, s, n, h);
    if (t->slot[i].at) return TOK_ADD_TEXT_TWICE;
    if (id < t->n_id && t->at[id]) return TOK_ADD_ID_TWICE;
    if (id >= TOK_ID_BOUND || !grow_text(t, n) || !grow_ids(t, id)) return TOK_ADD_NO_MEMORY;
    struct tok_str head = { id, (uint32_t)n };
    memcpy(t->text + t->n_text, &head, sizeof head);
    t->n_text += sizeof head;
    t->at[id] = (uint32_t)t->n_text;
    t->slot[i] = (struct tok_slot){ h, t->at[id] };
    if (n) memcpy(t->text + t->n_text, s, n);
    t->text[t->n_text + n] = 0;
    t->n_text += n + 1;
    t->n++;
    return TOK_ADDED;
}

int64_t tok_strs_find(const struct tok_strs *t, const char *s, size_t n)
{
    uint32_t at = t->slot[slot_of(t, s, n, hash_of(s, n))].at;
    return at ? (int64_t)head_of(t, at).id : TOK_NONE;
}

/* 0x21..0x7e, 0xa1..0xac, 0xae..0xff are themselves; the other 68 bytes, in order, are U+0100, U+0101, ... */
#define R8(n) n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7
const uint16_t tok_byte_char[256] = {
    R8(0x100), R8(0x108), R8(0x110), R8(0x118), /* 0x00 */
    0x120,     0x21,      0x22,      0x23,      0x24,     0x25,     0x26,     0x27,     R8(0x28), R8(0x30),
    R8(0x38),                                                                        /* 0x20 */
    R8(0x40),  R8(0x48),  R8(0x50),  R8(0x58),  R8(0x60), R8(0x68), R8(0x70),        /* 0x40 */
    0x78,      0x79,      0x7a,      0x7b,      0x7c,     0x7d,     0x7e,     0x121, /* 0x78 */
    R8(0x122), R8(0x12a), R8(0x132), R8(0x13a),                                      /* 0x80 */
    0x142,     0xa1,      0xa2,      0xa3,      0xa4,     0xa5,     0xa6,     0xa7,     0xa8,     0xa9,
    0xaa,      0xab,      0xac,      0x143,     0xae,     0xaf,                                             /* 0xa0 */
    R8(0xb0),  R8(0xb8),  R8(0xc0),  R8(0xc8),  R8(0xd0), R8(0xd8), R8(0xe0), R8(0xe8), R8(0xf0), R8(0xf8), /* 0xb0 */
};

int tok_char_byte(uint32_t cp)
{
    if (cp < 0x100) return tok_byte_char[cp] == cp ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7f);
    return cp == 0x143 ? 0xad : -1;
}

int64_t tok_byte_level_decode(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n;) {
        int b = tok_char_byte(tok_next(s, &i));
        if (b < 0) return -1;
        out[m++] = (char)b;
    }
    return (int64_t)m;
}

size_t tok_byte_level_encode(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) m += tok_utf8_put(out + m, tok_byte_char[(unsigned char)s[i]]);
    return m;
}
