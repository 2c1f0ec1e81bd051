#include "engine/model/adapter.h"
#include "base/check.h"
#include "engine/model/bind.h"
#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", WEIGHTS[] = "adapter_model.safetensors",
                  PICKLE[] = "adapter_model.bin";
enum { CONFIG_BYTES_MAX = 1 << 20, HEADER_BYTES_MAX = 8 << 20 };

/* A file in the making. */
struct making {
    const struct model_spec *spec;
    struct adapter_config    config;
    struct adapter          *a;
    char                    *err;
    size_t                   err_bytes;
};

__attribute__((format(printf, 3, 4))) static enum status fail(struct making *k, enum status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(k->err, k->err_bytes, fmt, ap);
    va_end(ap);
    return st;
}

/* ---- which matrix a tensor belongs to */

struct place_of {
    enum slot        slot;
    enum lora_target target;
    uint32_t         layer, more; /* more: slots after the first that the module holds as well */
    bool             is_b;
    char             module[256]; /* "model.layers.0.self_attn.q_proj" */
};

static bool target_of(enum slot slot, enum lora_target *out)
{
    static const struct {
        enum slot        slot;
        enum lora_target target;
    } all[] = { { SLOT_Q, LORA_Q },        { SLOT_K, LORA_K },         { SLOT_V, LORA_V },
                { SLOT_O, LORA_O },        { SLOT_GATE, LORA_GATE },   { SLOT_UP, LORA_UP },
                { SLOT_DOWN, LORA_DOWN },  { SLOT_S_GATE, LORA_GATE }, { SLOT_S_UP, LORA_UP },
                { SLOT_S_DOWN, LORA_DOWN } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].slot != slot) continue;
        *out = all[i].target;
        return true;
    }
    return false;
}

static enum status not_served(struct making *k, const char *tensor)
{
    const char *why = "belongs to no matrix of the model";
    enum slot   slot;
    uint32_t    layer, expert;
    char        path[300];
    const char *end = strstr(tensor, ".lora_");
    if (strstr(tensor, "lora_magnitude_vector")) why = "is of DoRA, which is not served";
    if (strstr(tensor, "lora_embedding_")) why = "is of the embedding, whose adapters are not served";
    if (end && !strstr(tensor, "lora_magnitude") && !strstr(tensor, "lora_embedding") &&
        !strncmp(tensor, "base_model.model.", 17)) {
        snprintf(path, sizeof path, "%.*s.weight", (int)(end - tensor - 17), tensor + 17);
        if (names_match(k->spec->family->names, path, &slot, &layer, &expert))
            why = slot >= SLOT_EXPERT_FIRST || slot == SLOT_ROUTER || slot == SLOT_S_WEIGHT
                      ? "is of experts or their router, whose adapters are not served"
                      : "is of the embedding, the head or a norm, whose adapters are not served";
    }
    return fail(k, ST_CONFIG, "%s: tensor %.160s %s; served are q, k, v, o, gate, up and down projections", WEIGHTS,
                tensor, why);
}

static enum status place_find(struct making *k, const char *tensor, struct place_of *out)
{
    static const char before[] = "base_model.model.", a[] = ".lora_A.weight", b[] = ".lora_B.weight";
    size_t            n = strlen(tensor), tail = sizeof a - 1, head = sizeof before - 1;
    uint32_t          expert;
    char              path[300], plain[300];
    if (n <= head + tail || strncmp(tensor, before, head) != 0 || n - head - tail >= sizeof out->module)
        return not_served(k, tensor);
    out->is_b = !strcmp(tensor + n - tail, b);
    if (!out->is_b && strcmp(tensor + n - tail, a) != 0) return not_served(k, tensor);
    snprintf(out->module, sizeof out->module, "%.*s", (int)(n - head - tail), tensor + head);
    snprintf(path, sizeof path, "%s.weight", out->module);
    const char            *name = k->spec->wrapper ? names_unwrap(path, plain, sizeof plain) : path;
    const struct name_row *row = names_row(k->spec->family->names, name, &out->layer, &expert);
    if (!row || !target_of(row->slot, &out->target)) return not_served(k, tensor);
    out->slot = row->slot;
    out->more = row->more;
    return ST_OK;
}

/* ---- one tensor */

static bool all_finite(const unsigned char *x, enum dtype t, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(bind_float(x, t, (size_t)i))) return false;
    return true;
}

/* The shape of the matrix that the tensor's module is: of all slots that the module holds. */
static bool module_shape(const struct model_spec *spec, const struct place_of *at, uint64_t shape[2])
{
    uint32_t    rank;
    const char *keys;
    uint64_t    one[2];
    if (at->layer >= spec->n_layer || !bind_want(spec, at->slot, at->layer, shape, &rank, &keys)) return false;
    for (uint32_t i = 1; i <= at->more; i++) {
        if (!bind_want(spec, (enum slot)(at->slot + i), at->layer, one, &rank, &keys)) return false;
        shape[0] += one[0];
    }
    return true;
}

static enum status tensor_check(struct making *k, const struct st_tensor *t, const struct place_of *at)
{
    uint64_t shape[2];
    char     text[64], want[64];
    if (!module_shape(k->spec, at, shape)) return not_served(k, t->name);
    enum dtype type = bind_dtype(t->dtype);
    if (type == DT_COUNT || type == DT_F8E4M3)
        return fail(k, ST_CONFIG, "%s: tensor %.160s has dtype %s, supported are F32, BF16 and F16", WEIGHTS, t->name,
                    t->dtype_text);
    st_shape_text(t, text, sizeof text);
    const uint64_t *have = t->shape;
    uint64_t        rank = at->is_b ? have[1] : have[0], wide = at->is_b ? have[0] : have[1];
    uint64_t        fits = at->is_b ? shape[0] : shape[1];
    snprintf(want, sizeof want, at->is_b ? "[%llu, rank]" : "[rank, %llu]", (unsigned long long)fits);
    if (t->rank != 2 || rank == 0 || wide != fits)
        return fail(k, ST_CONFIG, "%s: tensor %.160s has shape %s, the model makes it %s", WEIGHTS, t->name, text,
                    want);
    if (rank > k->a->rank_max)
        return fail(k, ST_CONFIG, "%s: tensor %.160s has rank %llu, --max-lora-rank is %u", WEIGHTS, t->name,
                    (unsigned long long)rank, k->a->rank_max);
    return ST_OK;
}

/* Fills the parts of every slot that the tensor's module holds. data: the file's bytes. */
static enum status tensor_take(struct making *k, const struct st_tensor *t, const char *data)
{
    struct place_of at;
    enum status     st = place_find(k, t->name, &at);
    if (st || (st = tensor_check(k, t, &at))) return st;
    const unsigned char *bytes = (const unsigned char *)data + t->offset;
    enum dtype           type = bind_dtype(t->dtype);
    uint32_t             rank = (uint32_t)t->shape[at.is_b ? 1 : 0], row = 0;
    float                scale;
    if (!all_finite(bytes, type, t->shape[0] * t->shape[1]))
        return fail(k, ST_CONFIG, "%s: tensor %.160s holds numbers that are not finite", WEIGHTS, t->name);
    if ((st = adapter_config_scale(&k->config, at.module, rank, &scale, k->err, k->err_bytes))) return st;
    for (uint32_t i = 0; i <= at.more; i++) {
        struct adapter_part *p = &k->a->part[at.layer][at.target + i];
        uint64_t             shape[2];
        uint32_t             n;
        const char          *keys;
        if (at.is_b ? p->b : p->a)
            return fail(k, ST_CONFIG, "%s: two tensors are of the matrix of %.160s", WEIGHTS, t->name);
        p->rank = rank; /* the other half has the same: the file says one rank for the module */
        p->scale = scale;
        if (at.is_b) {
            p->b = bytes;
            p->b_dtype = type;
            p->row = row;
        } else {
            p->a = bytes;
            p->a_dtype = type;
        }
        bind_want(k->spec, (enum slot)(at.slot + i), at.layer, shape, &n, &keys);
        row += (uint32_t)shape[0];
    }
    return ST_OK;
}

static enum status whole_pairs(struct making *k)
{
    static const char *const name[LORA_TARGETS] = { "q", "k", "v", "o", "gate", "up", "down" };
    for (uint32_t l = 0; l < k->a->n_layer; l++)
        for (int t = 0; t < LORA_TARGETS; t++) {
            const struct adapter_part *p = &k->a->part[l][t];
            if (!p->a == !p->b) continue;
            return fail(k, ST_CONFIG, "%s: layer %u has lora_%s of %s and no lora_%s", WEIGHTS, l, p->a ? "A" : "B",
                        name[t], p->a ? "B" : "A");
        }
    return ST_OK;
}

/* ---- the whole */

static enum status read_tensors(struct making *k, const struct adapter_files *f)
{
    /* st_open reads the file's bytes where they lie, so what was checked is what is used. */
    const struct source_embed file = { "model.safetensors", (const unsigned char *)f->weights, f->n_weights };
    struct source             src = { .embed = &file, .n_embed = 1 };
    struct st_set            *set = NULL;
    char                      why[400];
    enum status               st = st_open(&src, &set, why, sizeof why);
    if (st) return fail(k, st, "adapter_%s", why); /* it begins with the file's name */
    if (!set->n_tensor) st = fail(k, ST_CONFIG, "%s: it holds no tensors", WEIGHTS);
    for (uint32_t i = 0; i < set->n_tensor && !st; i++) st = tensor_take(k, &set->tensor[i], f->weights);
    st_close(set);
    return st ? st : whole_pairs(k);
}

static void digest_files(const struct adapter_files *f, unsigned char out[32])
{
    static const char what[] = "spillway adapter 1";
    uint64_t          n = f->n_config;
    unsigned char     length[8];
    unsigned int      n_out = 0;
    EVP_MD_CTX       *ctx = EVP_MD_CTX_new();
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(n >> 8 * i);
    CHECK(ctx);
    CHECK(EVP_DigestInit_ex(ctx, EVP_sha256(), NULL));
    CHECK(EVP_DigestUpdate(ctx, what, sizeof what));
    CHECK(EVP_DigestUpdate(ctx, length, sizeof length));
    CHECK(EVP_DigestUpdate(ctx, f->config, f->n_config));
    CHECK(EVP_DigestUpdate(ctx, f->weights, f->n_weights));
    CHECK(EVP_DigestFinal_ex(ctx, out, &n_out) && n_out == 32);
    EVP_MD_CTX_free(ctx);
}

enum status adapter_make(const struct model_spec *spec, const struct adapter_files *files, const char *name,
                         uint32_t rank_max, struct adapter **out, char *err, size_t err_bytes)
{
    static _Atomic uint64_t serial;
    struct making k = { .spec = spec, .a = calloc(1, sizeof(struct adapter)), .err = err, .err_bytes = err_bytes };
    if (!k.a) {
        free(files->weights);
        return fail(&k, ST_NOMEM, "no memory for an adapter");
    }
    k.a->bytes = files->weights;
    k.a->rank_max = rank_max;
    k.a->n_layer = spec->n_layer;
    k.a->n_keep = 1;
    k.a->part = calloc(spec->n_layer, sizeof *k.a->part);
    snprintf(k.a->name, sizeof k.a->name, "%s", name);
    enum status st = k.a->part ? ST_OK : fail(&k, ST_NOMEM, "no memory for an adapter");
    if (!st) st = adapter_config_read(files->config, files->n_config, &k.config, err, err_bytes);
    if (!st) {
        st = read_tensors(&k, files);
        adapter_config_free(&k.config);
    }
    if (st) {
        adapter_drop(k.a);
        return st;
    }
    digest_files(files, k.a->digest);
    k.a->serial = atomic_fetch_add(&serial, 1) + 1;
    *out = k.a;
    return ST_OK;
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The largest file that an adapter of this model can have. */
static uint64_t weights_bytes_max(const struct model_spec *s, uint32_t rank_max)
{
    uint64_t q = 0, kv = 0, inter = s->shared_inter;
    for (uint32_t l = 0; l < s->n_layer; l++) {
        uint64_t dim = spec_head_dim(s, l);
        q = max_u64(q, s->n_head * dim);
        kv = max_u64(kv, spec_n_kv_head(s, l) * dim);
        inter = max_u64(inter, spec_inter(s, l));
    }
    uint64_t wide = 2 * (s->hidden + q) + 2 * (s->hidden + kv) + 3 * (s->hidden + inter);
    return HEADER_BYTES_MAX + wide * rank_max * s->n_layer * sizeof(float);
}

static enum status read_file(struct making *k, const struct source *src, const char *name, uint64_t bytes_max,
                             char **text_out, size_t *n_out)
{
    enum status st = source_text(src, name, (size_t)bytes_max, text_out, n_out);
    if (!st) return ST_OK;
    int e = errno;
    if (st == ST_TOO_LARGE)
        return fail(k, ST_CONFIG, "%s: larger than the %llu bytes that an adapter of this model can have", name,
                    (unsigned long long)bytes_max);
    if (st == ST_NOT_FOUND && !strcmp(name, WEIGHTS)) {
        struct source_file f;
        if (source_open(src, PICKLE, &f) == ST_OK) {
            source_close(&f);
            return fail(k, ST_CONFIG, "%.200s: %s is there, which is pickle and is never opened: save it as %s",
                        src->dir, PICKLE, WEIGHTS);
        }
    }
    return fail(k, st, "%.200s: cannot read %s: %s", src->dir, name, strerror(e));
}

enum status adapter_load(const struct model_spec *spec, const char *dir, const char *name, uint32_t rank_max,
                         struct adapter **out, char *err, size_t err_bytes)
{
    struct source        src = { .dir = dir };
    struct making        k = { .err = err, .err_bytes = err_bytes };
    struct adapter_files f = { .n_config = 0 };
    char                *config = NULL;
    enum status          st = read_file(&k, &src, CONFIG, CONFIG_BYTES_MAX, &config, &f.n_config);
    if (!st) st = read_file(&k, &src, WEIGHTS, weights_bytes_max(spec, rank_max), &f.weights, &f.n_weights);
    f.config = config;
    if (!st) st = adapter_make(spec, &f, name, rank_max, out, err, err_bytes);
    free(config);
    if (st) return st;
    if (((*out)->path = strdup(dir))) return ST_OK;
    adapter_drop(*out);
    return fail(&k, ST_NOMEM, "no memory for an adapter");
}

struct adapter *adapter_keep(struct adapter *a)
{
    if (a) atomic_fetch_add_explicit(&a->n_keep, 1, memory_order_relaxed);
    return a;
}

void adapter_drop(struct adapter *a)
{
    if (!a || atomic_fetch_sub_explicit(&a->n_keep, 1, memory_order_acq_rel) > 1) return;
    free(a->path);
    free(a->part);
    free(a->bytes);
    free(a);
}

/* The rank of the slots is part of it: sums of another length, although only of zeros more, are not promised to have
 * the same bits on every device. */
struct kv_salt adapter_salt(const struct adapter *a, struct kv_salt salt)
{
    static const char what[] = "spillway adapter salt 1";
    unsigned char     in[sizeof what + 32 + 3 * 8], *p = in, h[32];
    unsigned int      n = 0;
    const uint64_t    word[] = { a ? a->rank_max : 0, salt.lo, salt.hi };
    if (!a) return salt;
    memcpy(p, what, sizeof what);
    p += sizeof what;
    memcpy(p, a->digest, sizeof a->digest);
    p += sizeof a->digest;
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        for (int b = 0; b < 8; b++) *p++ = (unsigned char)(word[i] >> 8 * b);
    CHECK(EVP_Digest(in, sizeof in, h, &n, EVP_sha256(), NULL) && n == sizeof h);
    salt = (struct kv_salt){ 0, 0 };
    for (int b = 0; b < 8; b++) salt.lo |= (uint64_t)h[b] << 8 * b;
    for (int b = 0; b < 6; b++) salt.hi |= (uint64_t)h[8 + b] << 8 * b;
    salt.hi |= KV_SALT_ADAPTER << 48;
    return salt;
}
