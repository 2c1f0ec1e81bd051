#include "engine/model/ident.h"
#include "base/check.h"
#include "base/hash.h"
#include <math.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { SAMPLE = 4096 };

struct tensor_sum {
    uint64_t          leaf_bytes, n_leaf, n_taken;
    struct hash128    sum;  /* of the leaves taken, modulo 2^128 */
    _Atomic uint64_t *seen; /* a bit for each leaf; part of ident.bits */
};

struct ident {
    const struct st_set *set;
    struct tensor_sum   *tensor; /* [set->n_tensor] */
    _Atomic uint64_t    *bits;
    pthread_mutex_t      lock; /* sums and counts */
};

/* ---------------------------------------------------------------- SHA-256 */

struct sha {
    EVP_MD_CTX *ctx;
};

static void sha_begin(struct sha *s, const char *what)
{
    s->ctx = EVP_MD_CTX_new();
    CHECK(s->ctx);
    CHECK(EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL));
    CHECK(EVP_DigestUpdate(s->ctx, what, strlen(what) + 1));
}

static void sha_bytes(struct sha *s, const void *p, size_t n) { CHECK(EVP_DigestUpdate(s->ctx, p, n)); }

static void sha_u64(struct sha *s, uint64_t v)
{
    unsigned char b[8];
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)(v >> 8 * i);
    sha_bytes(s, b, sizeof b);
}

/* Its length first, so that two texts one behind the other are not one text cut elsewhere. */
static void sha_text(struct sha *s, const char *text)
{
    sha_u64(s, strlen(text));
    sha_bytes(s, text, strlen(text));
}

static void sha_end(struct sha *s, unsigned char out[IDENT_BYTES])
{
    unsigned int n = 0;
    CHECK(EVP_DigestFinal_ex(s->ctx, out, &n));
    CHECK(n == IDENT_BYTES);
    EVP_MD_CTX_free(s->ctx);
}

/* ---------------------------------------------------------------- leaves */

/* A leaf is a row: what the last dimension has. Blocks of a row are no rows: there it is what the last two have. */
static uint64_t leaf_bytes_of(const struct st_tensor *t)
{
    uint64_t n_leaf = 1;
    uint32_t inner = t->rank == 4 ? 2 : 1;
    for (uint32_t i = 0; i + inner < t->rank; i++)
        n_leaf *= t->shape[i]; /* st_open has seen that the product does not overflow */
    return n_leaf ? t->bytes / n_leaf : 0;
}

enum status ident_open(const struct st_set *set, struct ident **id_out)
{
    struct ident *id = calloc(1, sizeof *id);
    uint64_t      n_word = 0;
    if (!id) return ST_NOMEM;
    pthread_mutex_init(&id->lock, NULL);
    id->set = set;
    id->tensor = calloc((size_t)set->n_tensor + 1, sizeof *id->tensor);
    for (uint32_t i = 0; id->tensor && i < set->n_tensor; i++) {
        struct tensor_sum *s = &id->tensor[i];
        s->leaf_bytes = leaf_bytes_of(&set->tensor[i]);
        s->n_leaf = s->leaf_bytes ? set->tensor[i].bytes / s->leaf_bytes : 0;
        n_word += (s->n_leaf + 63) / 64;
    }
    id->bits = calloc((size_t)n_word + 1, sizeof *id->bits);
    if (!id->tensor || !id->bits) {
        ident_close(id);
        return ST_NOMEM;
    }
    _Atomic uint64_t *next = id->bits;
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        id->tensor[i].seen = next;
        next += (id->tensor[i].n_leaf + 63) / 64;
    }
    *id_out = id;
    return ST_OK;
}

void ident_close(struct ident *id)
{
    if (!id) return;
    pthread_mutex_destroy(&id->lock);
    free(id->tensor);
    free(id->bits);
    free(id);
}

static struct tensor_sum *sum_of(const struct ident *id, const struct st_tensor *t)
{
    CHECK(t >= id->set->tensor);
    CHECK(t < id->set->tensor + id->set->n_tensor);
    return &id->tensor[t - id->set->tensor];
}

static struct hash128 add128(struct hash128 a, struct hash128 b)
{
    struct hash128 sum = { a.lo + b.lo, a.hi + b.hi };
    sum.hi += sum.lo < a.lo;
    return sum;
}

void ident_take(struct ident *id, const struct st_tensor *t, uint64_t at, const void *data, uint64_t bytes)
{
    struct tensor_sum *s = sum_of(id, t);
    if (!bytes) return;
    CHECK(s->leaf_bytes);
    CHECK(at % s->leaf_bytes == 0);
    CHECK(bytes % s->leaf_bytes == 0);
    CHECK(at <= t->bytes);
    CHECK(bytes <= t->bytes - at);
    struct hash128 sum = { 0, 0 };
    uint64_t       first = at / s->leaf_bytes, n = bytes / s->leaf_bytes, n_new = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t leaf = first + i, bit = (uint64_t)1 << leaf % 64;
        if (atomic_fetch_or_explicit(&s->seen[leaf / 64], bit, memory_order_relaxed) & bit) continue;
        sum = add128(sum, hash128_bytes((const char *)data + i * s->leaf_bytes, (size_t)s->leaf_bytes, leaf + 1));
        n_new++;
    }
    pthread_mutex_lock(&id->lock);
    s->sum = add128(s->sum, sum);
    s->n_taken += n_new;
    pthread_mutex_unlock(&id->lock);
}

enum status ident_take_whole(struct ident *id, const struct st_tensor *t)
{
    struct tensor_sum *s = sum_of(id, t);
    pthread_mutex_lock(&id->lock);
    bool all = s->n_taken == s->n_leaf;
    pthread_mutex_unlock(&id->lock);
    if (all) return ST_OK;
    void *data = malloc((size_t)t->bytes + 1);
    if (!data) return ST_NOMEM;
    enum status st = source_read(&id->set->file[t->file], t->offset, data, (size_t)t->bytes);
    if (!st) ident_take(id, t, 0, data, t->bytes);
    free(data);
    return st;
}

bool ident_has(const struct ident *id, const struct st_tensor *t)
{
    const struct tensor_sum *s = sum_of(id, t);
    return s->n_taken > 0 || s->n_leaf == 0;
}

/* ---------------------------------------------------------------- roots */

static int by_name(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Tensors in order of their names: files may hold them in any order. malloc'd; the caller frees. */
static const struct st_tensor **tensors_by_name(const struct st_set *set)
{
    const struct st_tensor **t = calloc((size_t)set->n_tensor + 1, sizeof *t);
    CHECK(t);
    for (uint32_t i = 0; i < set->n_tensor; i++) t[i] = &set->tensor[i];
    qsort(t, set->n_tensor, sizeof *t, by_name);
    return t;
}

static void sha_tensor(struct sha *s, const struct st_tensor *t)
{
    sha_text(s, t->name);
    sha_text(s, t->dtype_text);
    sha_u64(s, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) sha_u64(s, t->shape[i]);
}

void ident_root(const struct ident *id, unsigned char out[IDENT_BYTES])
{
    const struct st_tensor **t = tensors_by_name(id->set);
    struct sha               s;
    sha_begin(&s, "spillway weights 1");
    for (uint32_t i = 0; i < id->set->n_tensor; i++) {
        const struct tensor_sum *sum = sum_of(id, t[i]);
        if (!sum->n_taken) continue;
        sha_tensor(&s, t[i]);
        sha_u64(&s, sum->n_taken);
        sha_u64(&s, sum->sum.lo);
        sha_u64(&s, sum->sum.hi);
    }
    sha_end(&s, out);
    free(t);
}

void ident_root_dummy(unsigned char out[IDENT_BYTES])
{
    struct sha s;
    sha_begin(&s, "spillway dummy weights 1"); /* their numbers depend on config.json alone */
    sha_end(&s, out);
}

void ident_root_random(unsigned char out[IDENT_BYTES]) { CHECK(getrandom(out, IDENT_BYTES, 0) == IDENT_BYTES); }

/* ---------------------------------------------------------------- config.json */

/* Keys whose values change no number of a forward: who wrote the file, how text is cut and ended, and what training
 * did. Any other key may. The types of weights are told by the tensors and by the device. */
static const char *const without_effect[] = {
    "_name_or_path",     "transformers_version", "torch_dtype",   "dtype",
    "use_cache",         "bos_token_id",         "eos_token_id",  "pad_token_id",
    "initializer_range", "attention_dropout",    "hidden_dropout"
};

void ident_config(const json_t *root, unsigned char out[IDENT_BYTES])
{
    struct sha s;
    json_t    *own = json_deep_copy(root), *text = json_object_get(own, "text_config");
    CHECK(own);
    for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++) {
        (void)json_object_del(own, without_effect[i]);
        if (json_is_object(text)) (void)json_object_del(text, without_effect[i]);
    }
    char *plain = json_dumps(own, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17));
    CHECK(plain);
    sha_begin(&s, "spillway config 1");
    sha_text(&s, plain);
    sha_end(&s, out);
    free(plain);
    json_decref(own);
}

/* ---------------------------------------------------------------- models */

/* RoPE takes sines and cosines of the C library, whose last bits differ between versions and processors: some hundred
 * of them tell. So do logarithms, where queries grow by them. */
static void sha_angles(struct sha *s, const struct ident_loaded *l)
{
    for (uint32_t pos = 1; pos < 1 << 16; pos = pos * 2 + pos % 3)
        for (uint32_t i = 0; i < l->spec->rot / 2; i++) {
            float angle = (float)pos * l->inv_freq[i], of[2] = { cosf(angle), sinf(angle) };
            sha_bytes(s, of, sizeof of);
        }
    for (uint32_t n = 1; l->spec->q_beta != 0 && n < 1 << 10; n++) {
        float of = logf((float)n);
        sha_bytes(s, &of, sizeof of);
    }
}

void ident_model(const struct ident_loaded *l, unsigned char out[IDENT_BYTES])
{
    struct sha s;
    sha_begin(&s, "spillway model 1");
    sha_bytes(&s, l->spec->config, sizeof l->spec->config);
    sha_bytes(&s, l->root, IDENT_BYTES);
    sha_text(&s, l->spec->family->arch);
    sha_u64(&s, l->spec->rot / 2);
    sha_bytes(&s, l->inv_freq, l->spec->rot / 2 * sizeof *l->inv_freq);
    sha_bytes(&s, &l->rope_scale, sizeof l->rope_scale);
    sha_angles(&s, l);
    sha_text(&s, l->arith);
    sha_text(&s, dtype_name(l->weights));
    if (l->quant.code != DT_F32) {
        sha_text(&s, dtype_name(l->quant.code));
        sha_u64(&s, l->quant.group);
        sha_u64(&s, (uint64_t)l->quant.zero << 2 | (uint64_t)l->quant.act8 << 1 | l->quant_head);
    }
    if (l->whole_experts) sha_text(&s, "whole experts");
    sha_end(&s, out);
}

void ident_ranks(const unsigned char (*rank)[IDENT_BYTES], uint32_t n_rank, unsigned char out[IDENT_BYTES])
{
    struct sha s;
    sha_begin(&s, "spillway ranks 1");
    sha_u64(&s, n_rank);
    for (uint32_t i = 0; i < n_rank; i++) sha_bytes(&s, rank[i], IDENT_BYTES);
    sha_end(&s, out);
}

static enum status sha_sample(struct sha *s, const struct st_set *set, const struct st_tensor *t)
{
    unsigned char part[SAMPLE];
    size_t        n = t->bytes < SAMPLE ? (size_t)t->bytes : (size_t)SAMPLE;
    enum status   st = source_read(&set->file[t->file], t->offset + (t->bytes - n) / 2, part, n);
    if (!st) sha_bytes(s, part, n);
    return st;
}

enum status ident_quick(const struct model_spec *spec, const struct st_set *set, unsigned char out[IDENT_BYTES])
{
    struct sha  s;
    enum status st = ST_OK;
    sha_begin(&s, "spillway quick 1");
    sha_bytes(&s, spec->config, sizeof spec->config);
    const struct st_tensor **t = set ? tensors_by_name(set) : NULL;
    for (uint32_t i = 0; set && !st && i < set->n_tensor; i++) {
        sha_tensor(&s, t[i]);
        st = sha_sample(&s, set, t[i]);
    }
    free(t);
    sha_end(&s, out);
    return st;
}
