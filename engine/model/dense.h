/* dense: the layers that a pooled state goes through before it is a vector: the Dense modules of sentence-transformers.
 * model_dense_read for each, in their order -> model_dense_load (weights) -> model_dense_apply* -> model_dense_free.
 *   Thread: one while loading; then constant, any.
 * A state is on the host already, and a layer is small: the product is made there, in double and in one order, so it is
 * the same on every device and for every number of ranks, and a text's vector depends on its state alone. */
#pragma once
#include "engine/model/source.h"

enum { DENSE_LAYERS_MAX = 4, DENSE_WIDTH_MAX = 8192, DENSE_PATH_MAX = 200 };

struct dense_layer {
    char     path[DENSE_PATH_MAX + 1]; /* its folder, below that of the model */
    uint32_t n_in, n_out;
    bool     biased;
    double (*act)(double);
    float *weight; /* [n_in, n_out]: all outputs of an input side by side; NULL before model_dense_load */
    float *bias;   /* [n_out], or NULL */
};
struct model_dense {
    uint32_t           n_layer;
    struct dense_layer layer[DENSE_LAYERS_MAX];
};

/* Adds the layer that path/config.json describes. *d: the layers before it, or NULL for none; state_dim: numbers of what
 * goes into the first. *d stays the caller's. ST_CONFIG: a value that is not served, with one line in err; ST_IO,
 * ST_NOMEM. */
enum status model_dense_read(struct model_dense **d, const struct source *src, const char *path, uint32_t state_dim,
                             char *err, size_t err_bytes);
/* Reads the weights. A source without weights gives zeros. ST_CONFIG, ST_IO, ST_NOMEM with err. */
enum status model_dense_load(struct model_dense *d, const struct source *src, char *err, size_t err_bytes);
uint64_t    model_dense_cost(const struct model_dense *d);  /* multiplications that a vector takes */
uint32_t    model_dense_width(const struct model_dense *d); /* numbers of a vector */
/* state [n_in of the first layer] -> vector_out [model_dense_width], which may be state. */
void model_dense_apply(const struct model_dense *d, const double *state, double *vector_out);
void model_dense_free(struct model_dense *d); /* or NULL */
