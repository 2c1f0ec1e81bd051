/* tok_corpus: the strings and id sequences of tools/golden/make_tokenizer_golden.py, made the same way, and its
 * tokenizer kinds. corpus_open -> ... -> corpus_close.   Thread: one. */
#pragma once
#include "api/token/detok.h"
#include "api/token/tokenizer.h"
#include "base/buf.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CORPUS_N = 10000, CORPUS_BLOCK = 10, CORPUS_IDS_MAX = 4096 };

struct corpus {
    json_t     *alphabet, *kinds;
    const char *folder;
};
struct corpus_rng {
    uint64_t x;
};

static inline uint64_t corpus_below(struct corpus_rng *r, uint64_t n) /* splitmix64 */
{
    uint64_t z = r->x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static inline json_t *corpus_file(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return json_load_file(path, JSON_ALLOW_NUL, NULL);
}

static inline bool corpus_open(struct corpus *c, const char *folder)
{
    *c = (struct corpus){ corpus_file(folder, "alphabet.json"), corpus_file(folder, "kinds.json"), folder };
    return c->alphabet && c->kinds;
}

static inline void corpus_close(struct corpus *c)
{
    json_decref(c->alphabet);
    json_decref(c->kinds);
}

struct corpus_text {
    const char *p;
    size_t      n;
};
static inline struct corpus_text corpus_fragment(const struct corpus *c, struct corpus_rng *r)
{
    const json_t *list = json_object_get(c->alphabet, "fragments"),
                 *s = json_array_get(list, corpus_below(r, json_array_size(list)));
    return (struct corpus_text){ json_string_value(s), json_string_length(s) };
}

static inline size_t corpus_utf8(uint32_t cp, char to[4])
{
    if (cp < 0x80) {
        to[0] = (char)cp;
        return 1;
    }
    static const unsigned lead[] = { [2] = 0xc0, [3] = 0xe0, [4] = 0xf0 };
    size_t                n = 2 + (cp >= 0x800) + (cp >= 0x10000);
    for (size_t i = n - 1; i > 0; i--, cp >>= 6) to[i] = (char)(0x80 | (cp & 0x3f));
    to[0] = (char)(lead[n] | cp);
    return n;
}

static inline size_t corpus_char(const struct corpus *c, struct corpus_rng *r, char to[4])
{
    const json_t *list = json_object_get(c->alphabet, "ranges"),
                 *range = json_array_get(list, corpus_below(r, json_array_size(list)));
    uint32_t a = (uint32_t)json_integer_value(json_array_get(range, 0)),
             b = (uint32_t)json_integer_value(json_array_get(range, 1));
    uint32_t cp = a + (uint32_t)corpus_below(r, b - a + 1);
    return corpus_utf8(cp, to);
}

static inline void corpus_piece(const struct corpus *c, struct corpus_rng *r, struct buf *b)
{
    uint64_t           k = corpus_below(r, 10), times = 1;
    struct corpus_text f;
    char               one[4];
    if (k < 6 || k == 7) {
        f = corpus_fragment(c, r);
        if (k == 7) times = 2 + corpus_below(r, 20);
        while (times--) buf_put(b, f.p, f.n);
    } else if (k == 8) {
        for (times = 1 + corpus_below(r, 12); times--;) {
            uint64_t from = corpus_below(r, 8) ? 97 : 65;
            buf_putc(b, (char)(from + corpus_below(r, 26)));
        }
    } else {
        size_t n = corpus_char(c, r, one);
        if (k == 9) times = 1 + corpus_below(r, 6);
        while (times--) buf_put(b, one, n);
    }
}

static inline void corpus_string(const struct corpus *c, uint32_t i, struct buf *b)
{
    struct corpus_rng r = { i };
    uint64_t          k = corpus_below(&r, 100);
    buf_clear(b);
    if (k == 99) {
        struct corpus_text f = corpus_fragment(c, &r);
        for (uint64_t times = 100 + corpus_below(&r, 400); times--;) buf_put(b, f.p, f.n);
        return;
    }
    uint64_t longest = k < 50 ? 6 : 24;
    if (k >= 90) longest = 100;
    uint64_t n = 1 + corpus_below(&r, longest), space = corpus_below(&r, 2);
    while (n--) {
        corpus_piece(c, &r, b);
        if (space && corpus_below(&r, 2)) buf_putc(b, ' ');
    }
}

/* What id sequences are made of with one tokenizer. */
struct corpus_ids {
    uint32_t byte_id[256], special[256], n_special, n_vocab;
    bool     bytes;
};

static inline void corpus_ids_of(const struct tok *t, struct corpus_ids *x)
{
    *x = (struct corpus_ids){ .n_vocab = tok_vocab_size(t), .bytes = true };
    uint32_t own = 0;
    for (uint32_t b = 0; b < 256 && x->bytes; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        x->bytes = tok_id_of(t, name, 6, &x->byte_id[b]);
    }
    if (!x->bytes) {
        x->bytes = true;
        for (uint32_t b = 0; b < 256 && x->bytes; b++) {
            bool     self = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            uint32_t cp = self ? b : 256 + own++;
            char     s[2] = { (char)(cp < 0x80 ? cp : 0xc0 | cp >> 6), (char)(0x80 | (cp & 0x3f)) };
            x->bytes = tok_id_of(t, s, cp < 0x80 ? 1 : 2, &x->byte_id[b]);
        }
    }
    for (uint32_t id = 0; id < x->n_vocab && x->n_special < 256; id++)
        if (tok_is_special(t, id)) x->special[x->n_special++] = id;
}

static inline uint32_t corpus_sequence(const struct corpus *c, const struct corpus_ids *x, uint32_t i, uint32_t *id)
{
    struct corpus_rng r = { i + ((uint64_t)1 << 32) };
    uint32_t          n = 0;
    for (uint64_t left = 1 + corpus_below(&r, 24); left--;) {
        uint64_t k = corpus_below(&r, 8);
        if (k < 4) {
            id[n++] = (uint32_t)corpus_below(&r, x->n_vocab + 2);
        } else if (k < 6 && x->bytes) {
            char               one[4];
            bool               frag = corpus_below(&r, 2);
            struct corpus_text s = frag ? corpus_fragment(c, &r) : (struct corpus_text){ one, 0 };
            if (!frag) s.n = corpus_char(c, &r, one);
            if (!corpus_below(&r, 3)) {
                size_t skip = corpus_below(&r, s.n);
                s.p += skip;
                s.n -= skip;
            }
            if (!corpus_below(&r, 3) && s.n) s.n = 1 + corpus_below(&r, s.n);
            for (size_t k2 = 0; k2 < s.n && k2 < 40; k2++) id[n++] = x->byte_id[(unsigned char)s.p[k2]];
        } else if (k == 6 && x->n_special) {
            id[n++] = x->special[corpus_below(&r, x->n_special)];
        } else if (n) {
            uint64_t times = 1 + corpus_below(&r, 3);
            for (uint32_t last = id[n - 1]; times--;) id[n++] = last;
        }
    }
    return n;
}

/* tokenizer.json of a kind: its components around its model. A model that no member is set in comes as it stands in its
 * file, because its scores must be read as they are written there. Freed by the caller. */
static inline char *corpus_tokenizer(const struct corpus *c, const char *kind)
{
    char    path[1024];
    json_t *o = json_deep_copy(json_object_get(c->kinds, kind)), *head = json_object_get(o, "model"),
           *set = json_object_get(head, "set");
    snprintf(path, sizeof path, "%s/model_%s.json", c->folder, json_string_value(json_object_get(head, "file")));
    if (json_object_size(set)) {
        json_t *model = json_load_file(path, JSON_ALLOW_NUL, NULL);
        json_object_update(model, set);
        json_object_set_new(o, "model", model);
        char *text = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        return text;
    }
    FILE      *f = fopen(path, "rb");
    struct buf b;
    char       chunk[4096];
    buf_init(&b, 1 << 24);
    json_object_del(o, "model");
    char *rest = json_dumps(o, JSON_COMPACT);
    buf_puts(&b, "{\"model\":");
    for (size_t n; f && (n = fread(chunk, 1, sizeof chunk, f));) buf_put(&b, chunk, n);
    buf_putc(&b, ',');
    buf_puts(&b, rest + 1);
    buf_putc(&b, 0);
    char *text = b.failed ? NULL : strdup(b.data);
    buf_free(&b);
    free(rest);
    json_decref(o);
    if (f) fclose(f);
    return text;
}
