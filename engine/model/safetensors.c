#include "engine/model/safetensors.h"
#include "engine/model/folder.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char INDEX[] = "model.safetensors.index.json", SINGLE[] = "model.safetensors";
static const char LFS[] = "version https://git-lfs.github.com/spec/";
enum { INDEX_BYTES_MAX = 256 << 20, SHARDS_MAX = 4096 };

struct st_names {
    struct arena arena;
};

struct st_ctx {
    struct st_set *set;
    uint32_t       cap;
    char          *err;
    size_t         err_bytes;
};

__attribute__((format(printf, 3, 4))) static enum status st_fail(struct st_ctx *c, enum status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->err, c->err_bytes, fmt, ap);
    va_end(ap);
    return st;
}

/* Bits of an element; 0: no such type. */
static uint32_t st_dtype_bits(const char *s, enum st_dtype *dtype_out)
{
    static const struct {
        const char   *name;
        uint32_t      bits;
        enum st_dtype dtype;
    } types[] = {
        { "F32", 32, ST_DT_F32 },       { "BF16", 16, ST_DT_BF16 },
        { "F16", 16, ST_DT_F16 },       { "BOOL", 8, ST_DT_OTHER },
        { "U8", 8, ST_DT_U8 },          { "I8", 8, ST_DT_I8 },
        { "I16", 16, ST_DT_OTHER },     { "U16", 16, ST_DT_OTHER },
        { "I32", 32, ST_DT_I32 },       { "U32", 32, ST_DT_OTHER },
        { "I64", 64, ST_DT_OTHER },     { "U64", 64, ST_DT_OTHER },
        { "F64", 64, ST_DT_OTHER },     { "C64", 64, ST_DT_OTHER },
        { "F8_E4M3", 8, ST_DT_F8E4M3 }, { "F8_E5M2", 8, ST_DT_OTHER },
        { "F8_E8M0", 8, ST_DT_OTHER },  { "F8_E4M3FNUZ", 8, ST_DT_OTHER },
        { "F4", 4, ST_DT_OTHER },       { "F8_E5M2FNUZ", 8, ST_DT_OTHER },
        { "F6_E2M3", 6, ST_DT_OTHER },  { "F6_E3M2", 6, ST_DT_OTHER },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, s)) {
            *dtype_out = types[i].dtype;
            return types[i].bits;
        }
    return 0;
}

static bool st_u64(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

const char *st_shape_text(const struct st_tensor *t, char *text, size_t text_bytes)
{
    size_t n = (size_t)snprintf(text, text_bytes, "[");
    for (uint32_t i = 0; i < t->rank && n < text_bytes; i++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    if (n < text_bytes) snprintf(text + n, text_bytes - n, "]");
    return text;
}

/* One entry of the header. begin and end count from the first byte after the header, of which there are data_bytes. */
static enum status st_entry(struct st_ctx *c, const char *file, const char *name, const json_t *v, uint64_t data_bytes,
                            struct st_tensor *t)
{
    const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"),
                 *off = json_object_get(v, "data_offsets");
    if (!json_is_object(v) || json_object_size(v) != 3 || !json_is_string(dtype) || !json_is_array(shape) ||
        !json_is_array(off))
        return st_fail(c, ST_CONFIG, "%s: tensor %.120s: wants exactly dtype, shape and data_offsets", file, name);
    uint32_t bits = st_dtype_bits(json_string_value(dtype), &t->dtype);
    if (!bits)
        return st_fail(c, ST_CONFIG, "%s: tensor %.120s: unknown dtype \"%.32s\"", file, name,
                       json_string_value(dtype));
    snprintf(t->dtype_text, sizeof t->dtype_text, "%s", json_string_value(dtype));

    if (json_array_size(shape) > ST_RANK_MAX)
        return st_fail(c, ST_CONFIG, "%s: tensor %.120s: %zu dimensions, at most %d", file, name,
                       json_array_size(shape), ST_RANK_MAX);
    t->rank = (uint32_t)json_array_size(shape);
    uint64_t n = 1;
    bool     zero = false;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (!st_u64(json_array_get(shape, i), &t->shape[i]))
            return st_fail(c, ST_CONFIG, "%s: tensor %.120s: shape[%u] is not a whole number >= 0", file, name, i);
        zero |= t->shape[i] == 0;
        if (!zero && __builtin_mul_overflow(n, t->shape[i], &n))
            return st_fail(c, ST_CONFIG, "%s: tensor %.120s: the product of its shape overflows", file, name);
    }
    if (zero) n = 0;
    if (__builtin_mul_overflow(n, bits, &n) || n % 8)
        return st_fail(c, ST_CONFIG, "%s: tensor %.120s: its shape is no whole number of bytes, or too many", file,
                       name);

    uint64_t begin, end;
    if (json_array_size(off) != 2 || !st_u64(json_array_get(off, 0), &begin) || !st_u64(json_array_get(off, 1), &end) ||
        begin > end)
        return st_fail(c, ST_CONFIG, "%s: tensor %.120s: data_offsets must be [begin, end] with begin <= end", file,
                       name);
    if (end - begin != n / 8)
        return st_fail(c, ST_CONFIG, "%s: tensor %.120s: %" PRIu64 " bytes by its offsets, %" PRIu64 " by its shape",
                       file, name, end - begin, n / 8);
    if (end > data_bytes)
        return st_fail(c, ST_CONFIG, "%s: truncated: tensor %.120s ends at data byte %" PRIu64 " of %" PRIu64, file,
                       name, end, data_bytes);
    t->offset = begin;
    t->bytes = n / 8;
    return ST_OK;
}

static int st_by_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* an empty one lies before its neighbour */
}

/* The tensors lie in order; they must follow each other without overlap or hole up to the end of the file. */
static enum status st_cover(struct st_ctx *c, const char *file, const struct st_tensor *t, uint32_t n,
                            uint64_t data_bytes)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (t[i].offset != at)
            return st_fail(c, ST_CONFIG, "%s: tensor %.120s begins at data byte %" PRIu64 ", %s at %" PRIu64, file,
                           t[i].name, t[i].offset,
                           t[i].offset < at ? "overlapping the one before, which ends" : "after a gap that begins", at);
        at += t[i].bytes;
    }
    if (at != data_bytes)
        return st_fail(c, ST_CONFIG, "%s: %" PRIu64 " bytes follow the last tensor, which ends at data byte %" PRIu64,
                       file, data_bytes - at, at);
    return ST_OK;
}

static enum status st_metadata(struct st_ctx *c, const char *file, json_t *v)
{
    const char *key;
    json_t     *s;
    if (!json_is_object(v)) return st_fail(c, ST_CONFIG, "%s: __metadata__ is not an object", file);
    json_object_foreach(v, key, s) if (!json_is_string(s)) return st_fail(
        c, ST_CONFIG, "%s: __metadata__.%.120s is not a string", file, key);
    return ST_OK;
}

/* The header's JSON into set->tensor. want: the index's names for this file, or NULL: all. */
static enum status st_header(struct st_ctx *c, uint32_t file, json_t *root, uint64_t data_offset, const json_t *want)
{
    struct st_set *set = c->set;
    const char    *fname = set->file[file].name, *name;
    uint64_t       data_bytes = set->file[file].bytes - data_offset;
    uint32_t       n = 0;
    json_t        *v;
    if (!json_is_object(root)) return st_fail(c, ST_CONFIG, "%s: the header is not a JSON object", fname);
    struct st_tensor *t = calloc(json_object_size(root) + 1, sizeof *t);
    if (!t) return st_fail(c, ST_NOMEM, "%s: no memory for %zu tensors", fname, json_object_size(root));

    enum status st = ST_OK;
    json_object_foreach(root, name, v)
    {
        if (!strcmp(name, "__metadata__")) {
            if ((st = st_metadata(c, fname, v))) goto out;
            continue;
        }
        if ((st = st_entry(c, fname, name, v, data_bytes, &t[n]))) goto out;
        t[n].file = file;
        if (!(t[n++].name = arena_strdup(&set->names->arena, name))) {
            st = st_fail(c, ST_NOMEM, "%s: no memory for the names", fname);
            goto out;
        }
    }
    qsort(t, n, sizeof *t, st_by_offset);
    if ((st = st_cover(c, fname, t, n, data_bytes))) goto out;

    struct st_tensor *all = realloc(set->tensor, ((size_t)set->n_tensor + n + 1) * sizeof *all);
    if (!all) {
        st = st_fail(c, ST_NOMEM, "%s: no memory for %u tensors", fname, n);
        goto out;
    }
    set->tensor = all;
    uint32_t n_skip = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (want && !json_object_get(want, t[i].name)) {
            n_skip++;
            continue;
        }
        t[i].offset += data_offset;
        all[set->n_tensor++] = t[i];
    }
    if (n_skip) LOG_WARN("model: %s holds %u tensors that the index does not name, they are left out", fname, n_skip);
out:
    free(t);
    return st;
}

static enum status st_file(struct st_ctx *c, uint32_t file, const json_t *want)
{
    const struct source_file *f = &c->set->file[file];
    unsigned char             head[sizeof LFS - 1];
    if (f->bytes >= sizeof head) {
        if (source_read(f, 0, head, sizeof head))
            return st_fail(c, ST_IO, "%s: cannot read: %s", f->name, strerror(errno));
        if (!memcmp(head, LFS, sizeof head))
            return st_fail(c, ST_CONFIG,
                           "%s: is a git-lfs pointer, not weights: run git lfs pull in the model's folder", f->name);
    }
    if (f->bytes < 8)
        return st_fail(c, ST_CONFIG, "%s: %" PRIu64 " bytes, too short for a header at offset 0", f->name, f->bytes);
    if (source_read(f, 0, head, 8)) return st_fail(c, ST_IO, "%s: cannot read: %s", f->name, strerror(errno));
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
    if (n < 2 || n > ST_HEADER_BYTES_MAX)
        return st_fail(c, ST_CONFIG, "%s: header length at offset 0 is %" PRIu64 ", must be 2 to %d", f->name, n,
                       ST_HEADER_BYTES_MAX);
    if (n > f->bytes - 8)
        return st_fail(c, ST_CONFIG, "%s: truncated: header of %" PRIu64 " bytes at offset 8, the file has %" PRIu64,
                       f->name, n, f->bytes);

    char *text = malloc((size_t)n);
    if (!text) return st_fail(c, ST_NOMEM, "%s: no memory for a header of %" PRIu64 " bytes", f->name, n);
    enum status st = ST_OK;
    if (source_read(f, 8, text, (size_t)n)) {
        st = st_fail(c, ST_IO, "%s: cannot read: %s", f->name, strerror(errno));
    } else if (text[0] != '{') {
        st = st_fail(c, ST_CONFIG, "%s: header at offset 8 does not begin with {", f->name);
    } else {
        struct json_error je;
        json_t           *root = json_parse(text, (size_t)n, 4, &je);
        if (!root)
            st = st_fail(c, ST_CONFIG, "%s: header is not valid JSON at offset %" PRIu64 ": %s", f->name,
                         8 + (uint64_t)je.offset, je.text);
        else
            st = st_header(c, file, root, 8 + n, want);
        json_decref(root);
    }
    free(text);
    return st;
}

static enum status st_add_file(struct st_ctx *c, const struct source *src, const char *name)
{
    enum status st = source_open(src, name, &c->set->file[c->set->n_file]);
    if (st == ST_NOT_FOUND) return st_fail(c, ST_CONFIG, "%s: no such file, but %s names it", name, INDEX);
    if (st) return st_fail(c, st, "%s: cannot open: %s", name, strerror(errno));
    c->set->n_file++;
    return ST_OK;
}

/* A shard's name must stay in the folder: plain, and of the one kind that is read (never .bin or .py). */
static bool st_shard_name_ok(const char *s)
{
    size_t n = strlen(s), suffix = strlen(".safetensors");
    return n > suffix && n < sizeof((struct source_file *)0)->name && s[0] != '.' && !strpbrk(s, "/\\") &&
           !strcmp(s + n - suffix, ".safetensors");
}

/* by_file: { shard: { tensor: null } } from { tensor: shard } */
static enum status st_index_group(struct st_ctx *c, json_t *map, json_t *by_file)
{
    const char *name;
    json_t     *v;
    json_object_foreach(map, name, v)
    {
        const char *shard = json_string_value(v);
        if (!shard || strlen(shard) != json_string_length(v) || !st_shard_name_ok(shard))
            return st_fail(
                c, ST_CONFIG,
                "%s: weight_map[\"%.120s\"] must be the plain name of a .safetensors file in the folder, not \"%.80s\"",
                INDEX, name, shard ? shard : "");
        json_t *names = json_object_get(by_file, shard);
        if (!names) {
            if (json_object_size(by_file) >= SHARDS_MAX)
                return st_fail(c, ST_CONFIG, "%s: more than %d files", INDEX, SHARDS_MAX);
            names = json_object();
            if (json_object_set_new(by_file, shard, names)) return st_fail(c, ST_NOMEM, "%s: no memory", INDEX);
        }
        if (json_object_set_new(names, name, json_null())) return st_fail(c, ST_NOMEM, "%s: no memory", INDEX);
    }
    if (!json_object_size(by_file)) return st_fail(c, ST_CONFIG, "%s: weight_map is empty", INDEX);
    return ST_OK;
}

static enum status st_index_files(struct st_ctx *c, const struct source *src, json_t *by_file)
{
    const char *shard;
    json_t     *names;
    if (!(c->set->file = calloc(json_object_size(by_file), sizeof *c->set->file)))
        return st_fail(c, ST_NOMEM, "%s: no memory", INDEX);
    json_object_foreach(by_file, shard, names)
    {
        uint32_t    before = c->set->n_tensor, file = c->set->n_file;
        enum status st = st_add_file(c, src, shard);
        if (st || (st = st_file(c, file, names))) return st;
        for (uint32_t i = before; i < c->set->n_tensor; i++) json_object_del(names, c->set->tensor[i].name);
        if (json_object_size(names))
            return st_fail(c, ST_CONFIG, "%s: %s says that tensor %.120s is here, it is not", shard, INDEX,
                           json_object_iter_key(json_object_iter(names)));
    }
    return ST_OK;
}

static enum status st_open_index(struct st_ctx *c, const struct source *src, const char *text, size_t n)
{
    struct json_error je;
    json_t *root = json_parse(text, n, 8, &je), *map = json_object_get(root, "weight_map"), *by_file = json_object();
    enum status st;
    if (!root) {
        bool lfs = n >= sizeof LFS - 1 && !memcmp(text, LFS, sizeof LFS - 1);
        st = lfs ? st_fail(c, ST_CONFIG,
                           "%s: is a git-lfs pointer, not an index: run git lfs pull in the model's folder", INDEX)
                 : st_fail(c, ST_CONFIG, "%s: not valid JSON at offset %zu: %s", INDEX, je.offset, je.text);
    } else if (!json_is_object(map)) {
        st = st_fail(c, ST_CONFIG, "%s: weight_map is missing or not an object", INDEX);
    } else if (!by_file) {
        st = st_fail(c, ST_NOMEM, "%s: no memory", INDEX);
    } else if (!(st = st_index_group(c, map, by_file))) {
        st = st_index_files(c, src, by_file);
    }
    json_decref(by_file);
    json_decref(root);
    return st;
}

static enum status st_open_single(struct st_ctx *c, const struct source *src)
{
    if (!(c->set->file = calloc(1, sizeof *c->set->file))) return st_fail(c, ST_NOMEM, "%s: no memory", SINGLE);
    enum status st = source_open(src, SINGLE, &c->set->file[0]);
    if (st == ST_NOT_FOUND) {
        char found[512] = "no other weights are";
        if (src->dir) folder_no_weights(src->dir, found, sizeof found);
        return st_fail(c, ST_CONFIG, "%s: neither %s nor %s is there, but %s", source_where(src), SINGLE, INDEX, found);
    }
    if (st) return st_fail(c, st, "%s: cannot open: %s", SINGLE, strerror(errno));
    c->set->n_file = 1;
    return st_file(c, 0, NULL);
}

enum status st_open(const struct source *src, struct st_set **set_out, char *err, size_t err_bytes)
{
    struct st_set *set = calloc(1, sizeof *set);
    struct st_ctx  c = { .set = set, .err = err, .err_bytes = err_bytes };
    if (!set || !(set->names = calloc(1, sizeof *set->names))) {
        free(set);
        return st_fail(&c, ST_NOMEM, "model: no memory");
    }
    arena_init(&set->names->arena, (size_t)1 << 30);
    char       *text = NULL;
    size_t      n = 0;
    enum status st = source_text(src, INDEX, INDEX_BYTES_MAX, &text, &n);
    if (!st)
        st = st_open_index(&c, src, text, n);
    else if (st == ST_NOT_FOUND)
        st = st_open_single(&c, src);
    else
        st = st_fail(&c, st == ST_TOO_LARGE ? ST_CONFIG : st, "%s: cannot read: %s", INDEX, strerror(errno));
    free(text);
    if (st)
        st_close(set);
    else
        *set_out = set;
    return st;
}

void st_close(struct st_set *set)
{
    if (!set) return;
    for (uint32_t i = 0; i < set->n_file; i++) source_close(&set->file[i]);
    arena_free(&set->names->arena);
    free(set->names);
    free(set->file);
    free(set->tensor);
    free(set);
}
