#include "api/lmi/lmi.h"
#include "api/param_rows.h"

/* The fields of a body with "inputs": the generation parameters of LMI and TGI by their names there, and this server's
 * own. Of what is not served only the value that asks for nothing is accepted. */

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
    ROW_JSON("model", ON_BODY, PARAM_ANY, ask.model, check_model),
    ROW_JSON("inputs", ON_BODY, PARAM_ANY, ask.prompt, NULL),
    ROW_BOOL("stream", ON_BODY, stream, check_scored),
    ROW_JSON("request_id", ON_BODY, PARAM_STRING, ask.request_id, check_request_id),
    /* how much */
    ROW_INT("max_new_tokens", ON_PARAMETERS, ask.max_tokens, 1, INT32_MAX, NULL),
    ROW_INT("min_new_tokens", ON_PARAMETERS, ask.min_tokens, 0, INT32_MAX, NULL),
    ROW_INT("min_length", ON_PARAMETERS, ask.min_tokens, 0, INT32_MAX, NULL),
    ROW_READ("n", ON_PARAMETERS, PARAM_LATER, check_neutral),
    ROW_READ("best_of", ON_PARAMETERS, PARAM_LATER, check_neutral),
    ROW_READ("num_beams", ON_PARAMETERS, PARAM_LATER, check_neutral),
    /* sampling: lmi_parse says when there is none */
    ROW_READ("do_sample", ON_PARAMETERS, PARAM_BOOL, NULL),
    ROW_NUM("temperature", ON_PARAMETERS, ask.temperature, 0, TEMPERATURE_MAX),
    ROW_NUM("top_p", ON_PARAMETERS, ask.top_p, TOP_P_MIN, 1),
    ROW_INT("top_k", ON_PARAMETERS, ask.top_k, -1, INT32_MAX, NULL),
    ROW_NUM("min_p", ON_PARAMETERS, ask.min_p, 0, 1),
    ROW_READ("typical_p", ON_PARAMETERS, PARAM_LATER, check_neutral),
    ROW_NUM("repetition_penalty", ON_PARAMETERS, ask.repetition, REPETITION_MIN, REPETITION_MAX),
    ROW_NUM("presence_penalty", ON_PARAMETERS, ask.presence, -2, 2),
    ROW_NUM("frequency_penalty", ON_PARAMETERS, ask.frequency, -2, 2),
    ROW_INT("seed", ON_PARAMETERS, ask.seed, INT64_MIN, INT64_MAX, NULL),
    ROW_JSON("logit_bias", ON_PARAMETERS, PARAM_OBJECT, ask.bias, check_bias),
    /* where it ends */
    ROW_JSON("stop", ON_PARAMETERS, PARAM_ANY, ask.stop, check_stop),
    ROW_JSON("stop_sequences", ON_PARAMETERS, PARAM_ANY, ask.stop, check_stop),
    ROW_JSON("stop_token_ids", ON_PARAMETERS, PARAM_ARRAY, ask.stop_ids, check_token_ids),
    ROW_BOOL("include_stop_str_in_output", ON_PARAMETERS, ask.include_stop, NULL),
    ROW_BOOL("ignore_eos", ON_PARAMETERS, s.ignore_eos, NULL),
    ROW_BOOL("ignore_eos_token", ON_PARAMETERS, s.ignore_eos, NULL),
    /* what comes back */
    ROW_READ("details", ON_PARAMETERS, PARAM_BOOL, check_scored),
    ROW_BOOL("return_full_text", ON_PARAMETERS, echo, NULL),
    ROW_BOOL("skip_special_tokens", ON_PARAMETERS, ask.skip_special, NULL),
    ROW_BOOL("spaces_between_special_tokens", ON_PARAMETERS, ask.spaces_between, NULL),
    ROW_READ("decoder_input_details", ON_PARAMETERS, PARAM_LATER, check_false),
    ROW_READ("top_n_tokens", ON_PARAMETERS, PARAM_LATER, NULL),
    /* the prompt */
    ROW_BOOL("add_special_tokens", ON_PARAMETERS, add_special, NULL),
    ROW_INT("truncate", ON_PARAMETERS, ask.truncate, 1, INT32_MAX, NULL),
    /* who asks, and what its prefix is worth */
    ROW_INT("priority", ON_ANY, ask.priority, -1000, 1000, check_priority),
    ROW_JSON("cache_salt", ON_ANY, PARAM_STRING, ask.salt, check_salt),
    ROW_JSON("prompt_cache_key", ON_ANY, PARAM_STRING, ask.cache_key, check_cache_key),
    ROW_READ("prompt_cache_retention", ON_ANY, PARAM_STRING, check_retention),
    ROW_INT("kv_priority", ON_ANY, ask.kv_priority, 0, KV_PRIORITY_MAX - KV_PRIORITY_MIN, check_kv_priority),
    ROW_READ("kv_pin", ON_ANY, PARAM_ANY, check_kv_pin),
    /* not supported yet: neutral values pass */
    ROW_READ("watermark", ON_PARAMETERS, PARAM_LATER, check_false),
    ROW_READ("grammar", ON_PARAMETERS, PARAM_LATER, NULL),
    ROW_READ("adapter_id", ON_ANY, PARAM_LATER, NULL),
    ROW_READ("adapters", ON_ANY, PARAM_LATER, NULL),
    /* known, without effect */
    ROW_IGNORED("length_penalty", ON_PARAMETERS, PARAM_NUM),
    ROW_IGNORED("early_stopping", ON_PARAMETERS, PARAM_ANY),
    ROW_IGNORED("logprobs", ON_PARAMETERS, PARAM_ANY),
};
const struct param_fields lmi_fields = { rows, sizeof rows / sizeof *rows };
