#include "engine/model/dense.h"
#include "engine/model/bind.h"
#include "engine/model/source_json.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char WEIGHTS[] = "model.safetensors";
enum { HEADER_BYTES_MAX = 1 << 20 };

/* ---------------------------------------------------------------- the folder's files */

static double identity(double x) { return x; }
static double relu(double x) { return x > 0 ? x : 0; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double gelu(double x) { return x * 0.5 * (1 + erf(x * M_SQRT1_2)); }

/* Classes of torch.nn, with what their constructors do without arguments. */
static const struct {
    const char *name;
    double (*act)(double);
} activations[] = { { "Tanh", tanh },       { "Identity", identity }, { "ReLU", relu },
                    { "Sigmoid", sigmoid }, { "GELU", gelu },         { "SiLU", silu } };

static enum status read_activation(struct dense_layer *l, const char *file, const json_t *v, char *err,
                                   size_t err_bytes)
{
    const char *name = json_string_value(v), *dot = name ? strrchr(name, '.') : NULL;
    l->act = v ? identity : tanh; /* null; the constructor's default */
    if (!v || json_is_null(v)) return ST_OK;
    for (size_t i = 0; dot && i < sizeof activations / sizeof *activations; i++)
        if (!strncmp(name, "torch.nn.", 9) && !strcmp(dot + 1, activations[i].name)) {
            l->act = activations[i].act;
            return ST_OK;
        }
    return source_wrong(
        err, err_bytes,
        "%s: activation_function is '%.80s', served are torch.nn's Tanh, Identity, ReLU, Sigmoid, GELU and SiLU", file,
        name ? name : "no name");
}

/* Newer folders name what a layer takes and what it gives. */
static enum status check_names(const json_t *root, const char *file, char *err, size_t err_bytes)
{
    static const char *const keys[] = { "module_input_name", "module_output_name" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(root, keys[i]);
        if (!v || json_is_null(v) || json_str_is(v, "sentence_embedding")) continue;
        return source_wrong(err, err_bytes, "%s: %s is '%.60s', served is sentence_embedding", file, keys[i],
                            json_is_string(v) ? json_string_value(v) : "no string");
    }
    return ST_OK;
}

static enum status read_layer(struct dense_layer *l, const json_t *root, const char *file, char *err, size_t err_bytes)
{
    const json_t *bias = json_object_get(root, "bias");
    int64_t       n_in = 0, n_out = 0;
    json_get_int(root, "in_features", 1, DENSE_WIDTH_MAX, &n_in);
    json_get_int(root, "out_features", 1, DENSE_WIDTH_MAX, &n_out);
    if (n_in < 1 || n_out < 1)
        return source_wrong(err, err_bytes, "%s: in_features and out_features must be integers from 1 to %d", file,
                            DENSE_WIDTH_MAX);
    if (n_in != l->n_in)
        return source_wrong(err, err_bytes, "%s: in_features is %lld, but what goes in has %u numbers", file,
                            (long long)n_in, l->n_in);
    if (bias && !json_is_boolean(bias)) return source_wrong(err, err_bytes, "%s: bias must be true or false", file);
    l->n_out = (uint32_t)n_out;
    l->biased = !json_is_false(bias);
    enum status st = check_names(root, file, err, err_bytes);
    return st ? st : read_activation(l, file, json_object_get(root, "activation_function"), err, err_bytes);
}

uint32_t model_dense_width(const struct model_dense *d) { return d->layer[d->n_layer - 1].n_out; }

uint64_t model_dense_cost(const struct model_dense *d)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < d->n_layer; i++) n += (uint64_t)d->layer[i].n_in * d->layer[i].n_out;
    return n;
}

enum status model_dense_read(struct model_dense **d, const struct source *src, const char *path, uint32_t state_dim,
                             char *err, size_t err_bytes)
{
    char    file[DENSE_PATH_MAX + 32];
    json_t *root;
    if (!*d && !(*d = calloc(1, sizeof **d))) return ST_NOMEM;
    struct model_dense *all = *d;
    if (all->n_layer == DENSE_LAYERS_MAX)
        return source_wrong(err, err_bytes, "modules.json: found more than %d modules of type Dense", DENSE_LAYERS_MAX);
    struct dense_layer *l = &all->layer[all->n_layer];
    l->n_in = all->n_layer ? model_dense_width(all) : state_dim;
    snprintf(l->path, sizeof l->path, "%s", path);
    snprintf(file, sizeof file, "%s/config.json", l->path);
    enum status st = source_json(src, file, &root, err, err_bytes);
    if (!st && !root) st = source_wrong(err, err_bytes, "%s: no such file, but modules.json names its folder", file);
    if (!st) st = read_layer(l, root, file, err, err_bytes);
    json_decref(root);
    if (!st) all->n_layer++;
    return st;
}

/* ---------------------------------------------------------------- weights */

/* A file in the reading. */
struct reading {
    struct dense_layer *l;
    char                file[DENSE_PATH_MAX + 32];
    unsigned char      *data;
    size_t              n;
    char               *err;
    size_t              err_bytes;
};

/* The rows of the file's matrix [n_out, n_in] become columns here. A bias is one column. */
static enum status take(struct reading *r, const struct st_tensor *t, uint32_t n_in, float **out)
{
    const struct dense_layer *l = r->l;
    enum dtype                type = bind_dtype(t->dtype);
    char                      have[64], want[64];
    bool                      is_bias = out == &r->l->bias;
    snprintf(want, sizeof want, is_bias ? "[%u]" : "[%u, %u]", l->n_out, n_in);
    if (type == DT_COUNT || type == DT_F8E4M3)
        return source_wrong(r->err, r->err_bytes, "%s: tensor %s has dtype %s, served are BF16, F16 and F32", r->file,
                            t->name, t->dtype_text);
    if (strcmp(st_shape_text(t, have, sizeof have), want) != 0)
        return source_wrong(r->err, r->err_bytes, "%s: tensor %s has shape %s, config.json makes it %s", r->file,
                            t->name, have, want);
    if (!(*out = malloc((size_t)n_in * l->n_out * sizeof **out))) return ST_NOMEM;
    for (size_t k = 0; k < (size_t)n_in * l->n_out; k++) {
        float x = bind_float(r->data + t->offset, type, k);
        if (!isfinite(x))
            return source_wrong(r->err, r->err_bytes, "%s: tensor %s has a number that is not finite", r->file,
                                t->name);
        (*out)[k % n_in * l->n_out + k / n_in] = x;
    }
    return ST_OK;
}

/* As in torch, a tensor that the layer does not have is a fault, as is one that is missing. */
static enum status take_all(struct reading *r, const struct st_set *set)
{
    struct dense_layer *l = r->l;
    enum status         st = ST_OK;
    for (uint32_t i = 0; i < set->n_tensor && !st; i++) {
        const struct st_tensor *t = &set->tensor[i];
        if (!strcmp(t->name, "linear.weight"))
            st = take(r, t, l->n_in, &l->weight);
        else if (!strcmp(t->name, "linear.bias") && l->biased)
            st = take(r, t, 1, &l->bias);
        else
            st = source_wrong(r->err, r->err_bytes, "%s: found tensor %.80s, needed are linear.weight%s", r->file,
                              t->name, l->biased ? " and linear.bias" : ", as config.json says that bias is false");
    }
    if (st || (l->weight && (l->bias || !l->biased))) return st;
    return source_wrong(r->err, r->err_bytes, "%s: missing tensor linear.%s", r->file, l->weight ? "bias" : "weight");
}

static enum status read_file(struct reading *r, const struct source *src)
{
    const struct dense_layer *l = r->l;
    struct source_file        f;
    uint64_t                  most = ((uint64_t)l->n_in + 1) * l->n_out * sizeof(float) + HEADER_BYTES_MAX;
    enum status               st = source_open(src, r->file, &f);
    if (st == ST_NOT_FOUND)
        return source_wrong(r->err, r->err_bytes, "%s: no such file; weights of a pickle (.bin) are not read", r->file);
    if (st) {
        snprintf(r->err, r->err_bytes, "%s: cannot open: %s", r->file, strerror(errno));
        return st;
    }
    if (f.bytes > most)
        st = source_wrong(r->err, r->err_bytes, "%s: has %llu bytes, config.json makes it at most %llu", r->file,
                          (unsigned long long)f.bytes, (unsigned long long)most);
    r->n = (size_t)f.bytes;
    if (!st && !(r->data = malloc(r->n + 1))) st = ST_NOMEM;
    if (!st && (st = source_read(&f, 0, r->data, r->n)))
        snprintf(r->err, r->err_bytes, "%s: cannot read: %s", r->file, strerror(errno));
    source_close(&f);
    return st;
}

static enum status load_layer(struct dense_layer *l, const struct source *src, char *err, size_t err_bytes)
{
    struct reading r = { .l = l, .err = err, .err_bytes = err_bytes };
    struct st_set *set = NULL;
    char           why[400];
    snprintf(r.file, sizeof r.file, "%s/%s", l->path, WEIGHTS);
    enum status st = read_file(&r, src);
    if (!st) { /* the bytes are read where they lie, under the name that a folder has for them */
        const struct source_embed own = { WEIGHTS, r.data, r.n };
        const struct source       alone = { .embed = &own, .n_embed = 1 };
        st = st_open(&alone, &set, why, sizeof why);
        if (st) snprintf(err, err_bytes, "%s/%s", l->path, why);
    }
    if (!st) st = take_all(&r, set);
    st_close(set);
    free(r.data);
    return st;
}

enum status model_dense_load(struct model_dense *d, const struct source *src, char *err, size_t err_bytes)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; i < d->n_layer && !st; i++) {
        struct dense_layer *l = &d->layer[i];
        if (!src->dummy)
            st = load_layer(l, src, err, err_bytes);
        else if (!(l->weight = calloc((size_t)l->n_in * l->n_out, sizeof *l->weight)))
            st = ST_NOMEM;
        if (st == ST_NOMEM) snprintf(err, err_bytes, "model: no memory for the layer of %s", l->path);
    }
    return st;
}

/* ---------------------------------------------------------------- vectors */

/* Each sum goes over the inputs in their order; outputs are independent of each other. */
static void apply(const struct dense_layer *l, const double *x, double *out)
{
    for (uint32_t o = 0; o < l->n_out; o++) out[o] = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        const float *w = l->weight + (size_t)i * l->n_out;
        for (uint32_t o = 0; o < l->n_out; o++) out[o] += (double)w[o] * x[i];
    }
    for (uint32_t o = 0; o < l->n_out; o++) out[o] = l->act(l->bias ? out[o] + (double)l->bias[o] : out[o]);
}

void model_dense_apply(const struct model_dense *d, const double *state, double *vector_out)
{
    double at[2][DENSE_WIDTH_MAX]; /* what goes into a layer, and what comes out */
    for (uint32_t i = 0; i < d->n_layer; i++) {
        apply(&d->layer[i], state, at[i % 2]);
        state = at[i % 2];
    }
    memcpy(vector_out, state, model_dense_width(d) * sizeof *vector_out);
}

void model_dense_free(struct model_dense *d)
{
    if (!d) return;
    for (uint32_t i = 0; i < d->n_layer; i++) {
        free(d->layer[i].weight);
        free(d->layer[i].bias);
    }
    free(d);
}
