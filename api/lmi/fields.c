#include "api/lmi/lmi.h"
#include <math.h>
#include <stddef.h>

/* The fields of a body with "inputs": the generation parameters of LMI and TGI by their names there, and this server's
 * own. Of what is not served only the value that asks for nothing is accepted. */

#define AT(field) offsetof(struct call, field)
#define BOOL(name, on, field, check)                       \
    {                                                      \
        name, on, PARAM_BOOL, AT(field), 0, 0, 0, 0, check \
    }
#define INT(name, on, field, lo, hi, check)                 \
    {                                                       \
        name, on, PARAM_INT, AT(field), lo, hi, 0, 0, check \
    }
#define NUM(name, field, min, max)                                      \
    {                                                                   \
        name, ON_PARAMETERS, PARAM_NUM, AT(field), 0, 0, min, max, NULL \
    }
#define JSON(name, on, type, field, check)           \
    {                                                \
        name, on, type, AT(field), 0, 0, 0, 0, check \
    }
#define CHECKED(name, on, type, check)       \
    {                                        \
        name, on, type, 0, 0, 0, 0, 0, check \
    }
#define IGNORED(name, type)                                                           \
    {                                                                                 \
        name, ON_PARAMETERS, type, 0, INT64_MIN, INT64_MAX, -INFINITY, INFINITY, NULL \
    }
/* Smallest positive values that a float of the engine can divide by. */
#define TOP_P_MIN       1e-30
#define REPETITION_MIN  0.01
#define REPETITION_MAX  100.0
#define TEMPERATURE_MAX 100.0
#define ON_ANY          (ON_BODY | ON_PARAMETERS)

/* A stream tells the log probability of each token, and so do details. */
static enum status check_scored(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)p;
    (void)e;
    c->ask.logprobs = c->ask.logprobs || json_is_true(v);
    return ST_OK;
}

static enum status check_neutral(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    if (json_is_number(v) && fabs(json_number_value(v) - 1) < 1e-9) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' is not supported yet, and must be 1", p->name);
}

static const struct param rows[] = {
    JSON("model", ON_BODY, PARAM_ANY, ask.model, check_model),
    JSON("inputs", ON_BODY, PARAM_ANY, ask.prompt, NULL),
    BOOL("stream", ON_BODY, stream, check_scored),
    JSON("request_id", ON_BODY, PARAM_STRING, ask.request_id, check_request_id),
    /* how much */
    INT("max_new_tokens", ON_PARAMETERS, ask.max_tokens, 1, INT32_MAX, NULL),
    INT("min_new_tokens", ON_PARAMETERS, ask.min_tokens, 0, INT32_MAX, NULL),
    INT("min_length", ON_PARAMETERS, ask.min_tokens, 0, INT32_MAX, NULL),
    CHECKED("n", ON_PARAMETERS, PARAM_LATER, check_neutral),
    CHECKED("best_of", ON_PARAMETERS, PARAM_LATER, check_neutral),
    CHECKED("num_beams", ON_PARAMETERS, PARAM_LATER, check_neutral),
    /* sampling: lmi_parse says when there is none */
    CHECKED("do_sample", ON_PARAMETERS, PARAM_BOOL, NULL),
    NUM("temperature", ask.temperature, 0, TEMPERATURE_MAX),
    NUM("top_p", ask.top_p, TOP_P_MIN, 1),
    INT("top_k", ON_PARAMETERS, ask.top_k, -1, INT32_MAX, NULL),
    NUM("min_p", ask.min_p, 0, 1),
    CHECKED("typical_p", ON_PARAMETERS, PARAM_LATER, check_neutral),
    NUM("repetition_penalty", ask.repetition, REPETITION_MIN, REPETITION_MAX),
    NUM("presence_penalty", ask.presence, -2, 2),
    NUM("frequency_penalty", ask.frequency, -2, 2),
    INT("seed", ON_PARAMETERS, ask.seed, INT64_MIN, INT64_MAX, NULL),
    JSON("logit_bias", ON_PARAMETERS, PARAM_OBJECT, ask.bias, check_bias),
    /* where it ends */
    JSON("stop", ON_PARAMETERS, PARAM_ANY, ask.stop, check_stop),
    JSON("stop_sequences", ON_PARAMETERS, PARAM_ANY, ask.stop, check_stop),
    JSON("stop_token_ids", ON_PARAMETERS, PARAM_ARRAY, ask.stop_ids, check_token_ids),
    BOOL("include_stop_str_in_output", ON_PARAMETERS, ask.include_stop, NULL),
    BOOL("ignore_eos", ON_PARAMETERS, s.ignore_eos, NULL),
    BOOL("ignore_eos_token", ON_PARAMETERS, s.ignore_eos, NULL),
    /* what comes back */
    CHECKED("details", ON_PARAMETERS, PARAM_BOOL, check_scored),
    BOOL("return_full_text", ON_PARAMETERS, echo, NULL),
    BOOL("skip_special_tokens", ON_PARAMETERS, ask.skip_special, NULL),
    BOOL("spaces_between_special_tokens", ON_PARAMETERS, ask.spaces_between, NULL),
    CHECKED("decoder_input_details", ON_PARAMETERS, PARAM_LATER, check_false),
    CHECKED("top_n_tokens", ON_PARAMETERS, PARAM_LATER, NULL),
    /* the prompt */
    BOOL("add_special_tokens", ON_PARAMETERS, add_special, NULL),
    INT("truncate", ON_PARAMETERS, ask.truncate, 1, INT32_MAX, NULL),
    /* who asks, and what its prefix is worth */
    INT("priority", ON_ANY, ask.priority, -1000, 1000, check_priority),
    JSON("cache_salt", ON_ANY, PARAM_STRING, ask.salt, check_salt),
    JSON("prompt_cache_key", ON_ANY, PARAM_STRING, ask.cache_key, check_cache_key),
    CHECKED("prompt_cache_retention", ON_ANY, PARAM_STRING, check_retention),
    INT("kv_priority", ON_ANY, ask.kv_priority, 0, KV_PRIORITY_MAX - KV_PRIORITY_MIN, check_kv_priority),
    CHECKED("kv_pin", ON_ANY, PARAM_ANY, check_kv_pin),
    /* not supported yet: neutral values pass */
    CHECKED("watermark", ON_PARAMETERS, PARAM_LATER, check_false),
    CHECKED("grammar", ON_PARAMETERS, PARAM_LATER, NULL),
    CHECKED("adapter_id", ON_ANY, PARAM_LATER, NULL),
    CHECKED("adapters", ON_ANY, PARAM_LATER, NULL),
    /* known, without effect */
    IGNORED("length_penalty", PARAM_NUM),
    IGNORED("early_stopping", PARAM_ANY),
    IGNORED("logprobs", PARAM_ANY),
};
const struct param_fields lmi_fields = { rows, sizeof rows / sizeof *rows };
