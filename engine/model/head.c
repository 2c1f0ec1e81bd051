#include "engine/model/head.h"
#include "engine/model/bind.h"
#include "engine/model/source_json.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- the folder's files */

static enum status make_labels(struct model_head *h, const json_t *config)
{
    const json_t *names = json_object_get(config, "id2label");
    if (!(h->label = calloc(h->n_label, sizeof *h->label))) return ST_NOMEM;
    for (uint32_t i = 0; i < h->n_label; i++) {
        char key[40];
        snprintf(key, sizeof key, "LABEL_%u", i);
        const char *name = json_string_value(json_object_get(names, key + sizeof "LABEL"));
        if (json_object_size(names) != h->n_label || !name) name = key;
        if (!(h->label[i] = strdup(name))) return ST_NOMEM;
    }
    return ST_OK;
}

/* The last part of the name of a class of torch.nn. */
static enum status read_activation(struct model_head *h, const char *file, const json_t *v, char *err, size_t err_bytes)
{
    static const struct {
        const char   *name;
        enum head_act act;
    } known[] = { { "Sigmoid", HEAD_SIGMOID }, { "Identity", HEAD_PLAIN }, { "Softmax", HEAD_SOFTMAX } };
    const char *name = json_string_value(v), *dot = name ? strrchr(name, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof known / sizeof *known; i++)
        if (!strncmp(name, "torch.nn.", 9) && !strcmp(dot + 1, known[i].name)) {
            h->act = known[i].act;
            return ST_OK;
        }
    return source_wrong(err, err_bytes,
                        "%s: the activation of scores is '%.80s', served are torch.nn's Sigmoid, Identity and Softmax",
                        file, name ? name : "no name");
}

static enum status read_problem(struct model_head *h, const json_t *config, char *err, size_t err_bytes)
{
    const json_t *v = json_object_get(config, "problem_type");
    h->act = h->n_label == 1 ? HEAD_SIGMOID : HEAD_SOFTMAX;
    if (!v || json_is_null(v)) return ST_OK;
    if (json_str_is(v, "single_label_classification")) return ST_OK;
    if (json_str_is(v, "multi_label_classification"))
        h->act = HEAD_SIGMOID;
    else if (json_str_is(v, "regression"))
        h->act = HEAD_PLAIN;
    else
        return source_wrong(err, err_bytes,
                            "config.json: problem_type is '%.60s', served are single_label_classification, "
                            "multi_label_classification and regression",
                            json_is_string(v) ? json_string_value(v) : "no string");
    return ST_OK;
}

/* How logits become scores: what sentence-transformers has saved goes before what transformers says. */
static enum status read_act(struct model_head *h, const struct source *src, const json_t *config, char *err,
                            size_t err_bytes)
{
    static const char file[] = "config_sentence_transformers.json";
    json_t           *own;
    const json_t     *nested = json_object_get(json_object_get(config, "sentence_transformers"), "activation_fn");
    const json_t     *old = json_object_get(config, "sbert_ce_default_activation_function");
    enum status       st = source_json(src, file, &own, err, err_bytes);
    if (st) return st;
    const json_t *saved = json_object_get(own, "activation_fn");
    if (saved && !json_is_null(saved))
        st = read_activation(h, file, saved, err, err_bytes);
    else if (nested && !json_is_null(nested))
        st = read_activation(h, "config.json: sentence_transformers", nested, err, err_bytes);
    else if (old && !json_is_null(old))
        st = read_activation(h, "config.json: sbert_ce_default_activation_function", old, err, err_bytes);
    else
        st = read_problem(h, config, err, err_bytes);
    json_decref(own);
    return st;
}

/* classifier_from_token and method, as vLLM has them: the rows of lm_head.weight become those of the classes. */
static enum status read_words(struct model_head *h, const json_t *words, const json_t *method, char *err,
                              size_t err_bytes)
{
    size_t n = json_array_size(words);
    bool   two = json_str_is(method, "from_2_way_softmax"), plain = json_str_is(method, "no_post_processing");
    if (!method || json_is_null(method)) two = true;
    if (!two && !plain)
        return source_wrong(err, err_bytes,
                            "config.json: method is '%.60s', served are from_2_way_softmax and no_post_processing",
                            json_is_string(method) ? json_string_value(method) : "no string");
    if (!n || n > HEAD_TOKENS_MAX || (two && n != 2))
        return source_wrong(err, err_bytes, "config.json: classifier_from_token has %zu tokens, needed are %s", n,
                            two ? "2 for from_2_way_softmax" : "1 to 64");
    h->of = two ? HEAD_LOG_ODDS : HEAD_TOKENS;
    h->n_row = (uint32_t)n;
    h->n_label = two ? 1 : h->n_row;
    for (uint32_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        if (!word) return source_wrong(err, err_bytes, "config.json: classifier_from_token[%u] is no string", i);
        uint32_t at = two ? 1 - i : i; /* the second one is the true one */
        if (!(h->word[at] = strdup(word))) return ST_NOMEM;
    }
    return ST_OK;
}

/* The modules of sentence-transformers: a Transformer, then a LogitScore with the ids of its tokens. */
static enum status read_logit_score(struct model_head *h, const struct source *src, const struct model_spec *spec,
                                    bool *found_out, char *err, size_t err_bytes)
{
    json_t     *modules, *row, *own = NULL;
    size_t      i;
    char        file[256];
    enum status st = source_json(src, "modules.json", &modules, err, err_bytes);
    *found_out = false;
    json_array_foreach(modules, i, row)
    {
        const char *type = json_string_value(json_object_get(row, "type"));
        const char *path = json_string_value(json_object_get(row, "path"));
        const char *dot = type ? strrchr(type, '.') : NULL;
        int64_t     yes = -1, no = -1;
        if (st || !dot || strcmp(dot, ".LogitScore") != 0 || !path || strlen(path) > 200) continue;
        snprintf(file, sizeof file, "%s/config.json", path);
        if ((st = source_json(src, file, &own, err, err_bytes))) break;
        const json_t *less = json_object_get(own, "false_token_id");
        bool          one = !less || json_is_null(less);
        bool          good = !json_get_int(own, "true_token_id", 0, (int64_t)spec->vocab - 1, &yes) && yes >= 0;
        if (!one) good = good && !json_get_int(own, "false_token_id", 0, (int64_t)spec->vocab - 1, &no);
        json_decref(own);
        if (!good) {
            st = source_wrong(err, err_bytes,
                              "%s: true_token_id and false_token_id must be token ids below vocab_size, %u", file,
                              spec->vocab);
            break;
        }
        *found_out = true;
        h->of = HEAD_LOG_ODDS;
        h->n_label = 1;
        h->n_row = one ? 1 : 2;
        h->token[0] = (uint32_t)yes;
        h->token[1] = (uint32_t)(one ? 0 : no);
    }
    json_decref(modules);
    return st;
}

static enum status read_kind(struct model_head *h, const struct source *src, const struct model_spec *spec,
                             const json_t *config, bool wanted, bool *found_out, char *err, size_t err_bytes)
{
    const json_t *words = json_object_get(config, "classifier_from_token");
    *found_out = true;
    if (words && !json_is_null(words)) return read_words(h, words, json_object_get(config, "method"), err, err_bytes);
    if (spec->classifies) {
        int64_t pad = -1;
        h->n_label = h->n_row = spec->n_label;
        json_get_int(config, "pad_token_id", 0, INT32_MAX, &pad);
        if (pad >= 0 && !model_is_encoder(spec)) h->pad_id = (uint32_t)pad;
        return ST_OK;
    }
    enum status st = read_logit_score(h, src, spec, found_out, err, err_bytes);
    if (st || *found_out || !wanted) return st;
    *found_out = true;
    h->of = HEAD_LOG_ODDS;
    h->n_row = 2;
    h->n_label = 1;
    h->word[0] = strdup("yes");
    h->word[1] = strdup("no");
    return h->word[0] && h->word[1] ? ST_OK : ST_NOMEM;
}

enum status model_head_read(const struct source *src, const struct model_spec *spec, bool wanted,
                            struct model_head **head_out, char *err, size_t err_bytes)
{
    json_t            *config = NULL;
    bool               found = false;
    struct model_head *h = calloc(1, sizeof *h);
    *head_out = NULL;
    if (!h) return ST_NOMEM;
    *h = (struct model_head){ .n_in = spec->hidden, .scale = 1, .pad_id = UINT32_MAX };
    enum status st = source_json(src, "config.json", &config, err, err_bytes);
    if (!st) st = read_kind(h, src, spec, config, wanted, &found, err, err_bytes);
    if (!st && found) st = read_act(h, src, config, err, err_bytes);
    if (!st && found) st = make_labels(h, config);
    json_decref(config);
    if (!st && found) {
        *head_out = h;
        return ST_OK;
    }
    if (st == ST_NOMEM) snprintf(err, err_bytes, "model: no memory for its labels");
    model_head_free(h);
    return st;
}

/* ---------------------------------------------------------------- weights */

/* The tensor whose rows are the head's: of classes, or of logits. */
static const struct st_tensor *tensor_of(const struct model_head *h, const struct model_spec *spec,
                                         const struct st_set *set)
{
    if (h->of == HEAD_CLASSES) return bind_find(spec, set, SLOT_SCORE);
    const struct st_tensor *t = spec->tied ? bind_find(spec, set, SLOT_EMBED) : NULL;
    return t ? t : bind_find(spec, set, SLOT_HEAD);
}

static enum status read_row(const struct st_set *set, const struct st_tensor *t, uint64_t row, unsigned char *raw,
                            float *out, uint32_t n)
{
    enum dtype  type = bind_dtype(t->dtype);
    size_t      bytes = n * dtype_bytes(type);
    enum status st = source_read(&set->file[t->file], t->offset + row * bytes, raw, bytes);
    for (uint32_t i = 0; i < n && !st; i++) out[i] = bind_float(raw, type, i);
    return st;
}

static enum status read_rows(struct model_head *h, const struct model_spec *spec, const struct st_set *set, char *err,
                             size_t err_bytes)
{
    const struct st_tensor *t = tensor_of(h, spec, set);
    const char             *what = h->of == HEAD_CLASSES ? "score.weight" : "lm_head.weight";
    uint64_t                rows = h->of == HEAD_CLASSES ? spec->n_label : spec->vocab;
    if (!t) return source_wrong(err, err_bytes, "checkpoint: missing tensors: %s, of which scores are made", what);
    enum dtype type = bind_dtype(t->dtype);
    if (type == DT_COUNT || type == DT_F8E4M3)
        return source_wrong(err, err_bytes, "%s: tensor %.120s has dtype %s, scores are made of BF16, F16 and F32",
                            set->file[t->file].name, t->name, t->dtype_text);
    if (t->rank != 2 || t->shape[0] < rows || t->shape[1] != h->n_in) {
        char have[64];
        return source_wrong(err, err_bytes, "%s: tensor %.120s has shape %s, config.json makes it [%llu, %u]",
                            set->file[t->file].name, t->name, st_shape_text(t, have, sizeof have),
                            (unsigned long long)rows, h->n_in);
    }
    unsigned char *raw = malloc(h->n_in * dtype_bytes(type));
    enum status    st = raw ? ST_OK : ST_NOMEM;
    for (uint32_t r = 0; r < h->n_row && !st; r++)
        st = read_row(set, t, h->of == HEAD_CLASSES ? r : h->token[r], raw, h->weight + (size_t)r * h->n_in, h->n_in);
    free(raw);
    if (st == ST_IO)
        snprintf(err, err_bytes, "%s: cannot read %.120s: %s", set->file[t->file].name, t->name, strerror(errno));
    return st;
}

/* A tensor of the head, rows of n numbers, each at out + row * pitch. more than eight: a tensor by its slot, its shape,
 * and where its rows go. */
static enum status read_part(const struct model_spec *spec, const struct st_set *set, enum slot slot, uint32_t rows,
                             uint32_t n, float *out, size_t pitch, char *err, size_t err_bytes)
{
    char                    name[128];
    const struct st_tensor *t = bind_find(spec, set, slot);
    if (!t)
        return source_wrong(err, err_bytes, "checkpoint: missing tensors: %s, of which scores are made",
                            names_of(spec->family->names, slot, 0, 0, false, name, sizeof name));
    enum dtype type = bind_dtype(t->dtype);
    if (type == DT_COUNT || type == DT_F8E4M3 || t->bytes != (uint64_t)rows * n * dtype_bytes(type))
        return source_wrong(err, err_bytes,
                            "%s: tensor %.120s has dtype %s and %llu bytes, needed are %u x %u BF16, F16 or F32",
                            set->file[t->file].name, t->name, t->dtype_text, (unsigned long long)t->bytes, rows, n);
    unsigned char *raw = malloc(n * dtype_bytes(type));
    enum status    st = raw ? ST_OK : ST_NOMEM;
    for (uint32_t r = 0; r < rows && !st; r++) st = read_row(set, t, r, raw, out + r * pitch, n);
    free(raw);
    if (st == ST_IO)
        snprintf(err, err_bytes, "%s: cannot read %.120s: %s", set->file[t->file].name, t->name, strerror(errno));
    return st;
}

/* Of encoders: the biases of the classes, and what their state goes through before. set NULL: zeros. */
static enum status load_dense(struct model_head *h, const struct model_spec *spec, const struct st_set *set, char *err,
                              size_t err_bytes)
{
    size_t n = h->n_in, pitch = n + 1;
    if (n > HEAD_DENSE_MAX)
        return source_wrong(err, err_bytes, "config.json: hidden_size is %zu, a head of this kind is served up to %d",
                            n, HEAD_DENSE_MAX);
    h->bias = calloc(h->n_row, sizeof *h->bias);
    h->dense = calloc(n * pitch, sizeof *h->dense);
    if (!h->bias || !h->dense) return ST_NOMEM;
    if (!set) return ST_OK;
    enum status st = read_part(spec, set, SLOT_SCORE_BIAS, 1, h->n_row, h->bias, 0, err, err_bytes);
    if (!st) st = read_part(spec, set, SLOT_SCORE_DENSE, h->n_in, h->n_in, h->dense, pitch, err, err_bytes);
    float *bias = st ? NULL : malloc(n * sizeof *bias);
    if (!st && !bias) return ST_NOMEM;
    if (!st) st = read_part(spec, set, SLOT_SCORE_DENSE_BIAS, 1, h->n_in, bias, 0, err, err_bytes);
    for (size_t i = 0; i < n && !st; i++) h->dense[i * pitch + n] = bias[i];
    free(bias);
    return st;
}

enum status model_head_load(struct model_head *h, const struct model_spec *spec, const struct source *src, char *err,
                            size_t err_bytes)
{
    struct st_set *set = NULL;
    enum status    st = ST_OK;
    h->scale = h->of == HEAD_CLASSES ? 1 : spec->logit_scale;
    h->cap = h->of == HEAD_CLASSES ? 0 : spec->logit_cap;
    if (!(h->weight = calloc((size_t)h->n_row * h->n_in, sizeof *h->weight))) st = ST_NOMEM;
    if (!st && !src->dummy) st = st_open(src, &set, err, err_bytes);
    if (!st && set) st = read_rows(h, spec, set, err, err_bytes);
    if (!st && h->of == HEAD_CLASSES && spec->family->dense_head) st = load_dense(h, spec, set, err, err_bytes);
    if (set) st_close(set);
    if (st == ST_NOMEM) snprintf(err, err_bytes, "model: no memory for %u rows of scores", h->n_row);
    return st;
}

/* ---------------------------------------------------------------- scores */

static double row_logit(const struct model_head *h, uint32_t row, const double *state)
{
    const float *w = h->weight + (size_t)row * h->n_in;
    double       sum = 0;
    for (uint32_t i = 0; i < h->n_in; i++) sum += (double)w[i] * state[i];
    sum *= (double)h->scale;
    if (h->bias) sum += (double)h->bias[row];
    return h->cap > 0 ? (double)h->cap * tanh(sum / (double)h->cap) : sum;
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static void softmax(double *x, uint32_t n)
{
    double most = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++) most = fmax(most, x[i]);
    for (uint32_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - most);
    for (uint32_t i = 0; i < n; i++) x[i] /= sum;
}

static void dense(const struct model_head *h, const double *state, double *out)
{
    const float *w = h->dense;
    for (uint32_t r = 0; r < h->n_in; r++, w += h->n_in + 1) {
        double sum = 0;
        for (uint32_t i = 0; i < h->n_in; i++) sum += (double)w[i] * state[i];
        out[r] = tanh(sum + (double)w[h->n_in]);
    }
}

void model_head_apply(const struct model_head *h, const double *state, bool act, double *out)
{
    double through[HEAD_DENSE_MAX];
    if (h->dense) {
        dense(h, state, through);
        state = through;
    }
    for (uint32_t i = 0; i < h->n_label; i++) out[i] = row_logit(h, i, state);
    if (h->of == HEAD_LOG_ODDS && h->n_row == 2) out[0] -= row_logit(h, 1, state);
    if (!act) return;
    for (uint32_t i = 0; i < h->n_label && h->act == HEAD_SIGMOID; i++) out[i] = sigmoid(out[i]);
    if (h->act == HEAD_SOFTMAX) softmax(out, h->n_label);
}

uint64_t model_head_cost(const struct model_head *h)
{
    return ((uint64_t)h->n_row + (h->dense ? h->n_in : 0)) * h->n_in;
}

void model_head_free(struct model_head *h)
{
    if (!h) return;
    for (uint32_t i = 0; h->label && i < h->n_label; i++) free(h->label[i]);
    for (uint32_t i = 0; i < HEAD_TOKENS_MAX; i++) free(h->word[i]);
    free(h->label);
    free(h->weight);
    free(h->bias);
    free(h->dense);
    free(h);
}
