/* hf: reading config.json and generation_config.json.   Private to engine/model/. Thread: any, one per struct hf.
 * The first failure writes its line to err and stays; all later reads are skipped or return harmless values. */
#pragma once
#include "base/json.h"
#include "engine/model/model.h"

struct hf {
    const char          *file;
    const json_t        *top;  /* the file      */
    const json_t        *text; /* its text part: text_config of a wrapper, else top */
    const struct source *src;
    struct model_spec   *spec;
    char                *err;
    size_t               err_bytes;
    enum status          st; /* the first failure, so that one check suffices after many reads */
};

/* Writes "FILE: fmt" to err, unless there was a failure before. */
__attribute__((format(printf, 2, 3))) void hf_fail(struct hf *c, const char *fmt, ...);

/* A value as the file has it, shortened for a message. */
struct hf_shown {
    char text[72];
};
struct hf_shown hf_show(const json_t *v);

const json_t *hf_value(const json_t *obj, const char *key); /* null counts as absent, like Python's None */
const json_t *hf_value_or_top(const struct hf *c,
                              const char      *key);           /* the key in the text part, else at the top level */
const char   *hf_str(const json_t *obj, const char *key); /* NULL: absent, or not a string */

/* A number from min to max; `absent` if v is NULL. key: for the message. */
double hf_num_of(struct hf *c, const json_t *v, const char *key, double min, double max, double absent);
double hf_num(struct hf *c, const json_t *obj, const char *key, double min, double max, double absent);
#define HF_REQUIRED INT64_MIN /* value of `absent`: the key is required */
int64_t  hf_int(struct hf *c, const json_t *obj, const char *key, int64_t min, int64_t max, int64_t absent);
uint32_t hf_size(struct hf *c, const char *key, uint32_t min, uint32_t max, int64_t absent); /* of the text part */
bool     hf_flag(struct hf *c, const json_t *v, const char *key, bool absent);               /* v NULL: absent */

/* Reads c->file as a JSON object. ST_NOT_FOUND changes neither c nor err. */
enum status hf_read(struct hf *c, const struct source *src, json_t **root_out);

enum { LAYERS_MAX = 4096 };

void hf_moe(struct hf *c);    /* hf_moe.c: experts */
void hf_gemma4(struct hf *c); /* hf_gemma4.c: layers that differ in heads, KV and width, and their own inputs */
void hf_quant(struct hf *c);  /* hf_quant.c: how weights are stored */
void hf_rope(struct hf *c);   /* hf_rope.c: rotary embedding */
/* The factor of an embedding, as the checkpoint's type has it; once that type is known. */
void hf_embed_round(struct model_spec *spec);
void hf_encoder(struct hf *c); /* hf_encoder.c: positions and types of encoders */
void hf_scale(struct hf *c);   /* hf_scale.c: factors of embedding, scores, residuals and logits */
