/* tokenize: ids of a text by a model folder's tokenizer.json.
 *   tokenize [--special] [--plain] [--decode] [--lines] [--bench] FOLDER [TEXT]
 * Without TEXT it reads standard input. --special: with BOS and EOS; --plain: special tokens in the text are plain
 * text; --decode: TEXT holds ids; --lines: each line of TEXT is a string of JSON (or ids, with --decode), and gets a
 * line of its own; --bench: loads and encodes again and again and says how fast, in CPU time. */
#include "api/token/detok.h"
#include "base/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 1 << 28, BENCH_US = 2000000 };
enum { OPT_SPECIAL = 1, OPT_PLAIN = 2, OPT_DECODE = 4, OPT_BENCH = 8, OPT_LINES = 16 };

static bool read_all(FILE *f, struct buf *b)
{
    char   chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) buf_put(b, chunk, n);
    return !ferror(f) && !b->failed;
}

static bool read_file(const char *folder, const char *name, struct buf *b)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool ok = read_all(f, b);
    fclose(f);
    return ok;
}

static void decode(const struct tok *t, const char *text, struct buf *out)
{
    struct detok d;
    buf_clear(out);
    detok_init(&d, t, NULL);
    for (char *end; *(text += strcspn(text, "0123456789")); text = end)
        detok_push(&d, (uint32_t)strtoul(text, &end, 10), false, out);
    detok_finish(&d, out);
    detok_free(&d);
}

static enum status encode(const struct tok *t, const char *text, size_t n, unsigned flags, struct arena *a)
{
    struct tok_ids ids = { NULL, 0, 0 };
    enum status    st = tok_encode(t, n ? text : "", n, flags, SIZE_MAX / 8, a, &ids);
    for (size_t i = 0; i < ids.n && !st; i++) printf("%s%u", i ? " " : "", ids.id[i]);
    if (st) printf("%s", status_name(st));
    putchar('\n');
    arena_reset(a);
    return st;
}

/* One line: a string of JSON to ids, or ids to a string of JSON. */
static enum status one_line(const struct tok *t, const char *line, size_t n, unsigned options, unsigned flags,
                            struct arena *a)
{
    if (options & OPT_DECODE) {
        struct buf out, quoted;
        buf_init(&out, FILE_MAX);
        buf_init(&quoted, FILE_MAX);
        decode(t, line, &out);
        json_put_str(&quoted, out.n ? out.data : "", out.n);
        printf("%.*s\n", (int)quoted.n, quoted.data);
        buf_free(&out);
        buf_free(&quoted);
        return ST_OK;
    }
    json_t     *v = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    enum status st = ST_INVALID;
    if (json_is_string(v))
        st = encode(t, json_string_value(v), json_string_length(v), flags, a);
    else
        fprintf(stderr, "tokenize: a line is no string of JSON\n");
    json_decref(v);
    return st;
}

static int lines(const struct tok *t, struct buf *text, unsigned options, unsigned flags)
{
    struct arena a;
    enum status  worst = ST_OK;
    arena_init(&a, SIZE_MAX);
    buf_cstr(text);
    for (char *p = text->data, *end; (end = strchr(p, '\n')); p = end + 1) {
        *end = 0;
        enum status st = one_line(t, p, (size_t)(end - p), options, flags, &a);
        if (st) worst = st;
    }
    arena_free(&a);
    return worst ? 1 : 0;
}

/* CPU time: what else runs on the machine does not count. */
static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void bench(const struct tok *t, const struct buf *text, unsigned flags)
{
    struct arena a;
    uint64_t     from = cpu_us(), us = 0;
    size_t       n_id = 0, bytes = 0;
    arena_init(&a, SIZE_MAX);
    while (text->n && us < BENCH_US) {
        struct tok_ids ids = { NULL, 0, 0 };
        if (tok_encode(t, text->data, text->n, flags, SIZE_MAX / 8, &a, &ids)) break;
        n_id = ids.n;
        bytes += text->n;
        arena_reset(&a);
        us = cpu_us() - from;
    }
    arena_free(&a);
    if (us) printf("encode: %zu bytes, %zu ids, %.1f MB/s of CPU time\n", text->n, n_id, (double)bytes / (double)us);
}

static int run(const struct tok *t, struct buf *text, unsigned options)
{
    unsigned flags = (options & OPT_SPECIAL ? TOK_ADD_SPECIAL : 0) | (options & OPT_PLAIN ? TOK_NO_SPECIAL_PARSE : 0);
    struct arena a;
    if (options & OPT_BENCH) {
        bench(t, text, flags);
        return 0;
    }
    if (options & OPT_LINES) return lines(t, text, options, flags);
    if (options & OPT_DECODE) {
        struct buf out;
        buf_init(&out, FILE_MAX);
        buf_cstr(text);
        decode(t, text->data, &out);
        if (out.n) fwrite(out.data, 1, out.n, stdout);
        putchar('\n');
        buf_free(&out);
        return 0;
    }
    arena_init(&a, SIZE_MAX);
    enum status st = encode(t, text->data, text->n, flags, &a);
    arena_free(&a);
    if (st) fprintf(stderr, "tokenize: %s\n", status_name(st));
    return st ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        unsigned    bit;
    } option[] = {
        { "--special", OPT_SPECIAL }, { "--plain", OPT_PLAIN }, { "--decode", OPT_DECODE },
        { "--bench", OPT_BENCH },     { "--lines", OPT_LINES },
    };
    unsigned    options = 0;
    int         i = 1;
    struct buf  json, config, text;
    struct tok *t = NULL;
    char        err[512];
    for (; i < argc && !strncmp(argv[i], "--", 2); i++)
        for (size_t k = 0; k < sizeof option / sizeof *option; k++)
            if (!strcmp(argv[i], option[k].name)) options |= option[k].bit;
    if (i >= argc) {
        fprintf(stderr, "usage: tokenize [--special] [--plain] [--decode] [--lines] [--bench] FOLDER [TEXT]\n");
        return EXIT_USAGE;
    }
    buf_init(&json, FILE_MAX);
    buf_init(&config, FILE_MAX);
    buf_init(&text, FILE_MAX);
    if (!read_file(argv[i], "tokenizer.json", &json)) {
        fprintf(stderr, "tokenize: cannot read %s/tokenizer.json: %s\n", argv[i], strerror(errno));
        return EXIT_IO;
    }
    bool has_config = read_file(argv[i], "tokenizer_config.json", &config) && config.n;
    if (i + 1 < argc)
        buf_puts(&text, argv[i + 1]);
    else
        read_all(stdin, &text);
    uint64_t    from = cpu_us();
    enum status st = tok_load(json.data, json.n, has_config ? config.data : NULL, config.n, &t, err, sizeof err);
    if (!st && options & OPT_BENCH)
        printf("load: %u ids in %.1f ms\n", tok_vocab_size(t), (double)(cpu_us() - from) / 1000);
    int rc = EXIT_CONFIG;
    if (st)
        fprintf(stderr, "tokenize: %s\n", err);
    else
        rc = run(t, &text, options);
    tok_free(t);
    buf_free(&json);
    buf_free(&config);
    buf_free(&text);
    return rc;
}
