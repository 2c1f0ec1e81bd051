/* head: what makes scores of a prompt's state: the classes of a ...ForSequenceClassification, or the logits of a few
 * tokens. model_head_read (the folder's files) -> ids of the words -> model_head_load (weights) -> model_head_apply* ->
 * model_head_free.   Thread: one while loading; then constant, any.
 * A state is on the host already, and a head is a few rows: the product is made there, in double and in one order, so
 * it is the same on every device and for every number of ranks, and a prompt's scores depend on its state alone. */
#pragma once
#include "engine/model/model.h"

enum head_of {
    HEAD_CLASSES,  /* a label is a row of score.weight */
    HEAD_TOKENS,   /* a label is a token, with its logit */
    HEAD_LOG_ODDS, /* one label: the logit of the first token less that of the second, if there is one */
};
enum head_act { HEAD_SOFTMAX, HEAD_SIGMOID, HEAD_PLAIN };
enum { HEAD_TOKENS_MAX = 64, HEAD_LABELS_MAX = 4096, HEAD_DENSE_MAX = 4096 };

struct model_head {
    enum head_of  of;
    enum head_act act;
    uint32_t      n_label, n_row, n_in;
    char        **label;  /* [n_label], id2label */
    float        *weight; /* [n_row, n_in]; NULL before model_head_load */
    float        *bias;   /* [n_row]; NULL: none */
    float
         *dense; /* [n_in, n_in + 1] or NULL: the state becomes tanh of the product, each row with its bias behind it */
    float scale, cap;                /* of each logit, as op cap has them; cap 0: none */
    uint32_t pad_id;                 /* transformers takes the last token that is not this one; UINT32_MAX: the last */
    char    *word[HEAD_TOKENS_MAX];  /* tokens by their text; NULL: token[] has the id */
    uint32_t token[HEAD_TOKENS_MAX]; /* [n_row] of HEAD_TOKENS and HEAD_LOG_ODDS */
};

/* What config.json, modules.json (LogitScore) and config_sentence_transformers.json say of scores. *head_out NULL: the
 * folder has no head but that of a model that generates. wanted: pairs are to be scored all the same, by the tokens
 * "yes" and "no" (Qwen3-Reranker). ST_CONFIG: a value that is not served, with one line in err; ST_IO, ST_NOMEM. */
enum status model_head_read(const struct source *src, const struct model_spec *spec, bool wanted,
                            struct model_head **head_out, char *err, size_t err_bytes);
/* Reads the weights; token[] is filled in. A source without weights gives zeros. ST_CONFIG, ST_IO, ST_NOMEM with
 * err. */
enum status model_head_load(struct model_head *h, const struct model_spec *spec, const struct source *src, char *err,
                            size_t err_bytes);
/* state [n_in] -> out [n_label]: logits, or with act what the model's activation makes of them. */
void     model_head_apply(const struct model_head *h, const double *state, bool act, double *out);
uint64_t model_head_cost(const struct model_head *h); /* multiplications that a state takes */
void     model_head_free(struct model_head *h);       /* or NULL */
