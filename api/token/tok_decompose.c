#include "api/token/tok_decompose.h"
#include "api/token/tok_unicode_data.h"
#include <stdlib.h>
#include <string.h>

/* Hangul syllables: The Unicode Standard, section 3.12 */
enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7, L_COUNT = 19, V_COUNT = 21, T_COUNT = 28 };
enum { S_COUNT = L_COUNT * V_COUNT * T_COUNT, BLOCKS = 0x110000 >> 8, PAIR_SLOTS = 4096 };

unsigned char tok_mark[0x110000];

/* Records found by code point: block 0 is the empty one. */
struct map {
    const uint32_t *record;
    uint16_t        block[BLOCKS];
    uint16_t (*cell)[256]; /* where the record stands, + 1 */
};
static struct map canonical, compatible, lower;
static uint32_t   pair[PAIR_SLOTS]; /* index of a triple + 1, open addressing */

static bool map_init(struct map *m, const uint32_t *record, size_t n)
{
    uint16_t n_block = 1;
    m->record = record;
    for (size_t i = 0; i < n; i += 1 + (record[i] >> 24)) {
        uint16_t *b = &m->block[(record[i] & 0xffffff) >> 8];
        if (!*b) *b = n_block++;
    }
    m->cell = calloc(n_block, sizeof *m->cell);
    if (!m->cell) return false;
    for (size_t i = 0; i < n; i += 1 + (record[i] >> 24)) {
        uint32_t cp = record[i] & 0xffffff;
        m->cell[m->block[cp >> 8]][cp & 255] = (uint16_t)(i + 1);
    }
    return true;
}

static size_t map_get(const struct map *m, uint32_t cp, uint32_t *to)
{
    uint16_t at1 = m->cell[m->block[cp >> 8]][cp & 255];
    if (!at1) {
        to[0] = cp;
        return 1;
    }
    const uint32_t *r = m->record + at1 - 1;
    size_t          n = r[0] >> 24;
    memcpy(to, r + 1, n * sizeof *to);
    return n;
}

static uint32_t slot_of(uint32_t first, uint32_t second)
{
    uint64_t key = (uint64_t)first << 32 | second;
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 52);
}

bool tok_decompose_init(void)
{
    for (size_t i = 0; i < n_tok_mark_run; i++) {
        uint32_t from = tok_mark_run[i] >> 8, to = i + 1 < n_tok_mark_run ? tok_mark_run[i + 1] >> 8 : 0x110000;
        if (tok_mark_run[i] & 0xff) memset(tok_mark + from, (int)(tok_mark_run[i] & 0xff), to - from);
    }
    for (uint32_t i = 0; i < n_tok_compose / 3; i++) {
        uint32_t at = slot_of(tok_compose[3 * i], tok_compose[3 * i + 1]);
        while (pair[at]) at = (at + 1) % PAIR_SLOTS;
        pair[at] = i + 1;
    }
    return map_init(&canonical, tok_canonical, n_tok_canonical) &&
           map_init(&compatible, tok_compatible, n_tok_compatible) && map_init(&lower, tok_lower, n_tok_lower);
}

size_t tok_decompose(uint32_t cp, bool compatible_too, uint32_t *to)
{
    uint32_t s = cp - S_BASE;
    bool     other =
        compatible_too && compatible.cell[compatible.block[cp >> 8]][cp & 255]; /* there are those that differ alone */
    if (s >= S_COUNT) return map_get(other ? &compatible : &canonical, cp, to);
    to[0] = L_BASE + s / (V_COUNT * T_COUNT);
    to[1] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
    to[2] = T_BASE + s % T_COUNT;
    return to[2] == T_BASE ? 2 : 3;
}

size_t tok_lower_case(uint32_t cp, uint32_t *to) { return map_get(&lower, cp, to); }

uint32_t tok_compose_pair(uint32_t first, uint32_t second)
{
    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT)
        return S_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    if (first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0 && second - T_BASE - 1 < T_COUNT - 1)
        return first + second - T_BASE;
    for (uint32_t at = slot_of(first, second); pair[at]; at = (at + 1) % PAIR_SLOTS) {
        const uint32_t *t = tok_compose + 3 * (pair[at] - 1);
        if (t[0] == first && t[1] == second) return t[2];
    }
    return 0;
}
