#include "server/cmd/batch_identity.h"
#include "server/options.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, TEXT_BYTES_MAX = 256 << 20 };

static void put_hex(const unsigned char *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", p[i]);
}

int batch_identity_file(int fd, char hex_out[65], uint64_t *n_line_out)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char         *p = malloc(READ_BYTES), last = '\n';
    EVP_MD_CTX   *ctx = EVP_MD_CTX_new();
    uint64_t      n_line = 0;
    off_t         at = 0;
    int           error = p && ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 ? 0 : ENOMEM;
    while (!error) {
        ssize_t n = pread(fd, p, READ_BYTES, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) error = errno;
        if (n <= 0) break;
        EVP_DigestUpdate(ctx, p, (size_t)n);
        for (const char *lf = p; (lf = memchr(lf, '\n', (size_t)(p + n - lf))); lf++) n_line++;
        last = p[n - 1];
        at += n;
    }
    if (!error && EVP_DigestFinal_ex(ctx, digest, NULL) != 1) error = ENOMEM;
    EVP_MD_CTX_free(ctx);
    free(p);
    if (error) return error;
    put_hex(digest, sizeof digest, hex_out);
    *n_line_out = n_line + (last != '\n');
    return 0;
}

/* An option's value as text, cut where it is longer. */
static void value_of(const struct config *cfg, const struct opt *o, char *out, size_t n)
{
    const char *at = (const char *)cfg + o->at;
    size_t      used = 0;
    *out = 0;
    switch (o->type) {
    case OPT_BOOL: snprintf(out, n, "%s", *(const bool *)at ? "true" : "false"); break;
    case OPT_U32: snprintf(out, n, "%" PRIu32, *(const uint32_t *)(const void *)at); break;
    case OPT_BYTES: snprintf(out, n, "%" PRIu64, *(const uint64_t *)(const void *)at); break;
    case OPT_NUM: snprintf(out, n, "%.17g", *(const double *)(const void *)at); break;
    case OPT_STR: snprintf(out, n, "%s", *(const char *const *)(const void *)at); break;
    case OPT_ENUM: snprintf(out, n, "%s", option_word(o->name, *(const unsigned *)(const void *)at)); break;
    case OPT_LIST: {
        const struct str_list *l = (const struct str_list *)(const void *)at;
        for (uint32_t i = 0; i < l->n && used < n; i++)
            used += (size_t)snprintf(out + used, n - used, "%s%s", i ? "," : "", l->s[i]);
        break;
    }
    }
}

/* Groups whose options can change an answer, or which requests are refused. */
static bool group_counts(const char *group)
{
    return !strcmp(group, "model") || !strcmp(group, "device") || !strcmp(group, "engine");
}

json_t *batch_identity(const struct config *cfg, const char *input_hex)
{
    uint32_t          n;
    const struct opt *o = options_table(&n);
    const char       *group = "";
    char              value[4096];
    json_t           *options = json_object();
    int               bad = 0;
    for (const struct opt *end = o + n; o < end; o++) {
        if (o->group) group = o->group;
        if (!group_counts(group)) continue;
        value_of(cfg, o, value, sizeof value);
        bad |= json_object_set_new(options, o->name, json_string(value));
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:o}", "version", SPILLWAY_VERSION, "input", input_hex, "--errors",
                            cfg->batch_errors, "option", options);
    if (!bad && all) return all;
    json_decref(all);
    return NULL;
}

static int add_text(EVP_MD_CTX *ctx, const struct boot *b, const char *name)
{
    char       *text = NULL;
    size_t      n = 0;
    enum status st = source_text(&b->src, name, TEXT_BYTES_MAX, &text, &n);
    EVP_DigestUpdate(ctx, name, strlen(name) + 1);
    EVP_DigestUpdate(ctx, &n, sizeof n);
    if (!st) EVP_DigestUpdate(ctx, text, n);
    free(text);
    return st == ST_NOMEM;
}

/* Of --chat-template. */
static int add_template(EVP_MD_CTX *ctx, const struct boot *b)
{
    char     hex[65];
    uint64_t n_line;
    if (!*b->cfg->chat_template) return 0;
    int fd = open(b->cfg->chat_template, O_RDONLY | O_CLOEXEC);
    int bad = fd < 0 || batch_identity_file(fd, hex, &n_line);
    if (!bad) EVP_DigestUpdate(ctx, hex, sizeof hex);
    if (fd >= 0) close(fd);
    return bad;
}

bool batch_identity_model(json_t *all, const struct boot *b)
{
    static const char *const file[] = { "tokenizer.json",         "tokenizer_config.json", "tekken.json",
                                        "chat_template.jinja",    "chat_template.json",    "generation_config.json",
                                        "special_tokens_map.json" };
    unsigned char            weights[32], digest[SHA256_DIGEST_LENGTH];
    char                     hex[65];
    EVP_MD_CTX              *ctx = EVP_MD_CTX_new();
    int                      bad = !ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1;
    for (size_t i = 0; !bad && i < sizeof file / sizeof *file; i++) bad = add_text(ctx, b, file[i]);
    bad = bad || add_template(ctx, b);
    bad = bad || EVP_DigestFinal_ex(ctx, digest, NULL) != 1;
    EVP_MD_CTX_free(ctx);
    if (bad) return false;
    put_hex(digest, sizeof digest, hex);
    bad = json_object_set_new(all, "tokenizer and templates", json_string(hex));
    bad |= json_object_set_new(all, "device", json_string(option_word("device", b->device)));
    rank_team_ident(b->team, weights);
    put_hex(weights, sizeof weights, hex);
    return !(json_object_set_new(all, "model", json_string(hex)) || bad);
}
