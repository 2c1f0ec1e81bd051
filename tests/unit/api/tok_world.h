/* tok_world: small tokenizers for tests: the parts of a tokenizer.json are given, the rest is default. Included once
 * per test. */
#pragma once
#include "test.h"
#include "api/token/detok.h"
#include "api/token/tokenizer.h"
#include "base/json.h"

struct parts {
    const char *added, *normalizer, *pre_tokenizer, *post_processor, *decoder; /* NULL: null */
    const char *model;                                                         /* members of the model object */
    const char *config;                                                        /* tokenizer_config.json */
    const char *type;                                                          /* of the model; NULL: BPE */
};

static inline enum status world_try(const struct parts *p, struct tok **t, char err[300])
{
    struct buf b;
    buf_init(&b, 1 << 24);
    buf_printf(&b, "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,",
               p->added ? p->added : "[]", p->normalizer ? p->normalizer : "null",
               p->pre_tokenizer ? p->pre_tokenizer : "null");
    buf_printf(&b, "\"post_processor\":%s,\"decoder\":%s,\"model\":{\"type\":\"%s\",%s}}",
               p->post_processor ? p->post_processor : "null", p->decoder ? p->decoder : "null",
               p->type ? p->type : "BPE", p->model);
    assert_false(b.failed);
    enum status st = tok_load(b.data, b.n, p->config, p->config ? strlen(p->config) : 0, t, err, 300);
    buf_free(&b);
    return st;
}

static inline struct tok *world_load(const struct parts *p)
{
    struct tok *t = NULL;
    char        err[300];
    if (world_try(p, &t, err)) fail_msg("%s", err);
    return t;
}

/* vocab and merges of a byte-level model: 256 bytes, then what merges of two texts make. */
static inline void world_byte_model(struct buf *b, const char *const (*merge)[2], unsigned n_merge)
{
    unsigned own = 0;
    buf_puts(b, "\"vocab\":{");
    for (unsigned i = 0; i < 256; i++) {
        bool     self = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        uint32_t cp = self ? i : 256 + own++;
        char     s[3] = { (char)(cp < 0x80 ? cp : 0xc0 | cp >> 6), (char)(cp < 0x80 ? 0 : 0x80 | (cp & 0x3f)), 0 };
        if (i) buf_putc(b, ',');
        json_put_str(b, s, strlen(s));
        buf_printf(b, ":%u", i);
    }
    for (unsigned i = 0; i < n_merge; i++) buf_printf(b, ",\"%s%s\":%u", merge[i][0], merge[i][1], 256 + i);
    buf_puts(b, "},\"merges\":[");
    for (unsigned i = 0; i < n_merge; i++) buf_printf(b, "%s[\"%s\",\"%s\"]", i ? "," : "", merge[i][0], merge[i][1]);
    buf_puts(b, "]");
    buf_cstr(b);
}

#define WORLD_BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
#define WORLD_GPT2       "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"

/* The ids of a text as numbers with spaces between them. */
static inline const char *world_ids_n(const struct tok *t, const char *text, size_t n, unsigned flags)
{
    static char    line[4096];
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    size_t         k = 0;
    arena_init(&a, 1 << 22);
    enum status st = tok_encode(t, text, n, flags, 1 << 20, &a, &ids);
    line[0] = 0;
    if (st)
        k = (size_t)snprintf(line, sizeof line, "%s", status_name(st));
    else
        for (size_t i = 0; i < ids.n && k + 12 < sizeof line; i++)
            k += (size_t)snprintf(line + k, sizeof line - k, "%s%u", i ? " " : "", ids.id[i]);
    arena_free(&a);
    return line;
}
static inline const char *world_ids(const struct tok *t, const char *text, unsigned flags)
{
    return world_ids_n(t, text, strlen(text), flags);
}
