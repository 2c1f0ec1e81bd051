/* gemm_file: pinned algorithms as text, one line each:
 *   spillway gemm algorithms 2
 *   gpu NVIDIA H100 80GB HBM3
 *   arch 90
 *   cublaslt 130100
 *   workspace 33554432
 *   algo <n> <k> <in> <out> <rows> <64 bytes in hex> tile <id> stages <id> splitk <n> us <t> gbs <x> tflops
 *   <x> err <x>
 *   end <lines before this one> <hash of them, hex>
 * Only the hex matters to the library; the rest is for people and for whoever compares two files. */
#include "base/file.h"
#include "base/hash.h"
#include "kernels/cuda/gemm.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 4 << 20, ROWS_MAX = 20000 };
static const char magic[] = "spillway gemm algorithms 2";

static enum dtype type_of(const char *s)
{
    if (!strcmp(s, "bf16")) return DT_BF16;
    if (!strcmp(s, "f16")) return DT_F16;
    return !strcmp(s, "f32") ? DT_F32 : DT_COUNT;
}
static const char *type_name(enum dtype t)
{
    if (t == DT_BF16) return "bf16";
    return t == DT_F16 ? "f16" : "f32";
}

static bool hex_parse(const char *s, void *out, size_t bytes)
{
    unsigned char *p = out;
    if (strlen(s) != 2 * bytes) return false;
    for (size_t i = 0; i < bytes; i++) {
        unsigned v;
        if (!isxdigit((unsigned char)s[2 * i]) || !isxdigit((unsigned char)s[2 * i + 1]) ||
            sscanf(s + 2 * i, "%2x", &v) != 1)
            return false;
        p[i] = (unsigned char)v;
    }
    return true;
}

enum status gemm_file_add(struct gemm_file *f, const struct gemm_file_row *r)
{
    if (f->n_row == f->cap) {
        uint32_t              cap = f->cap ? 2 * f->cap : 128;
        struct gemm_file_row *more = realloc(f->row, cap * sizeof *more);
        if (!more) return ST_NOMEM;
        f->row = more;
        f->cap = cap;
    }
    f->row[f->n_row++] = *r;
    return ST_OK;
}

const struct gemm_file_row *gemm_file_find(const struct gemm_file *f, uint32_t n, uint32_t k, enum dtype in,
                                           enum dtype out, uint32_t bucket)
{
    for (uint32_t i = 0; i < f->n_row; i++) {
        const struct gemm_file_row *r = &f->row[i];
        if (r->n == n && r->k == k && r->in == in && r->out == out && r->bucket == bucket) return r;
    }
    return NULL;
}

void gemm_file_free(struct gemm_file *f)
{
    free(f->row);
    *f = (struct gemm_file){ .n_row = 0 };
}

/* ---------------------------------------------------------------- reading */

static bool line_algo(const char *line, struct gemm_file_row *r)
{
    char in[8], out[8], hex[2 * sizeof r->algo + 1];
    if (sscanf(line,
               "algo %" SCNu32 " %" SCNu32 " %7s %7s %" SCNu32
               " %128s tile %d stages %d splitk %d us %lf gbs %lf tflops %lf err %lf",
               &r->n, &r->k, in, out, &r->bucket, hex, &r->tile, &r->stages, &r->splitk, &r->us, &r->gbs, &r->tflops,
               &r->err) != 13)
        return false;
    r->in = type_of(in);
    r->out = type_of(out);
    return r->n && r->k && r->bucket && r->in != DT_COUNT && r->out != DT_COUNT &&
           hex_parse(hex, &r->algo, sizeof r->algo);
}

static bool line_read(struct gemm_file *f, const char *line, uint32_t number)
{
    struct gemm_file_row r = { .n = 0 };
    switch (number) {
    case 0: return !strcmp(line, magic);
    case 1: return !strncmp(line, "gpu ", 4) && snprintf(f->gpu, sizeof f->gpu, "%s", line + 4) > 0;
    case 2: return sscanf(line, "arch %d", &f->arch) == 1;
    case 3: return sscanf(line, "cublaslt %zu", &f->version) == 1;
    case 4: return sscanf(line, "workspace %zu", &f->workspace_bytes) == 1;
    default: return f->n_row < ROWS_MAX && line_algo(line, &r) && gemm_file_add(f, &r) == ST_OK;
    }
}

static enum status text_read(char *text, struct gemm_file *f, const char *path, char *err, size_t err_bytes)
{
    uint32_t number = 0;
    for (char *line = text, *next; *line; line = next, number++) {
        char    *nl = strchr(line, '\n');
        uint32_t lines;
        uint64_t hash;
        if (!nl) break;
        if (sscanf(line, "end %" SCNu32 " %" SCNx64, &lines, &hash) == 2) {
            /* the text before has its newlines cut, as it had not when it was hashed: put them back */
            for (char *p = text; p < line; p++)
                if (!*p) *p = '\n';
            if (lines == number && number >= 5 && hash == hash_bytes(text, (size_t)(line - text), 0) && !nl[1])
                return ST_OK;
            snprintf(err, err_bytes, "%s: damaged: its last line does not fit the %u before", path, number);
            return ST_CONFIG;
        }
        *nl = 0;
        next = nl + 1;
        if (!line_read(f, line, number)) {
            snprintf(err, err_bytes, "%s:%u: not a line of algorithms: %.60s", path, number + 1, line);
            return ST_CONFIG;
        }
    }
    snprintf(err, err_bytes, "%s: damaged: cut short after line %u", path, number);
    return ST_CONFIG;
}

enum status gemm_file_read(const char *path, struct gemm_file *f, char *err, size_t err_bytes)
{
    FILE *in = fopen(path, "re");
    if (!in) {
        snprintf(err, err_bytes, "%s: %s", path, strerror(errno));
        return errno == ENOENT || errno == ENOTDIR ? ST_NOT_FOUND : ST_CONFIG;
    }
    struct gemm_file got = { .n_row = 0 };
    char            *text = malloc(FILE_BYTES_MAX + 1);
    enum status      st = ST_NOMEM;
    if (text) {
        size_t n = fread(text, 1, FILE_BYTES_MAX, in);
        text[n] = 0;
        st = text_read(text, &got, path, err, err_bytes);
    } else {
        snprintf(err, err_bytes, "%s: no memory", path);
    }
    free(text);
    fclose(in);
    if (st)
        gemm_file_free(&got);
    else
        *f = got;
    return st;
}

/* ---------------------------------------------------------------- writing */

static bool dirs_make(const char *path)
{
    char dir[400];
    if (snprintf(dir, sizeof dir, "%s", path) >= (int)sizeof dir) return false;
    for (char *p = dir + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        if (mkdir(dir, 0777) && errno != EEXIST) return false;
        *p = '/';
    }
    return true;
}

static size_t line_print(char *to, size_t bytes, const struct gemm_file_row *r)
{
    char                 hex[2 * sizeof r->algo + 1];
    const unsigned char *p = (const unsigned char *)&r->algo;
    for (size_t i = 0; i < sizeof r->algo; i++) snprintf(hex + 2 * i, 3, "%02x", p[i]);
    return (size_t)snprintf(
        to, bytes, "algo %u %u %s %s %u %s tile %d stages %d splitk %d us %.2f gbs %.1f tflops %.2f err %.3g\n", r->n,
        r->k, type_name(r->in), type_name(r->out), r->bucket, hex, r->tile, r->stages, r->splitk, r->us, r->gbs,
        r->tflops, r->err);
}

enum status gemm_file_write(const char *path, const struct gemm_file *f, char *err, size_t err_bytes)
{
    size_t cap = 1024 + (size_t)f->n_row * 400, n;
    char  *text = malloc(cap);
    if (!text) {
        snprintf(err, err_bytes, "%s: no memory", path);
        return ST_NOMEM;
    }
    n = (size_t)snprintf(text, cap, "%s\ngpu %s\narch %d\ncublaslt %zu\nworkspace %zu\n", magic, f->gpu, f->arch,
                         f->version, f->workspace_bytes);
    for (uint32_t i = 0; i < f->n_row; i++) n += line_print(text + n, cap - n, &f->row[i]);
    n += (size_t)snprintf(text + n, cap - n, "end %u %016" PRIx64 "\n", f->n_row + 5, hash_bytes(text, n, 0));
    int why = dirs_make(path) ? file_replace(AT_FDCWD, path, text, n, 0644) : errno;
    if (why) snprintf(err, err_bytes, "%s: cannot be written: %s", path, strerror(why));
    free(text);
    return why ? ST_IO : ST_OK;
}

const char *gemm_file_name(const char *gpu, int arch, size_t version, char *text, size_t text_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char        slug[64];
    size_t      n = 0;
    for (const char *p = gpu; *p && n + 1 < sizeof slug; p++) {
        if (isalnum((unsigned char)*p))
            slug[n++] = (char)tolower((unsigned char)*p);
        else if (n && slug[n - 1] != '-')
            slug[n++] = '-';
    }
    slug[n] = 0;
    if (cache && *cache)
        snprintf(text, text_bytes, "%s/spillway/gemm-%s-sm%d-%zu.txt", cache, slug, arch, version);
    else if (home && *home)
        snprintf(text, text_bytes, "%s/.cache/spillway/gemm-%s-sm%d-%zu.txt", home, slug, arch, version);
    else
        snprintf(text, text_bytes, "/var/cache/spillway/gemm-%s-sm%d-%zu.txt", slug, arch, version);
    return text;
}
