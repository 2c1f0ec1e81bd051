/* params: the fields of generation requests, one row each; row B12 of the fault table is this table times the types of JSON.   Thread: any.
 * A row says which endpoints know the field, its type and range, and where the value goes; what needs more has a check. Null is the
 * default everywhere. What no row names is ignored and counted. */
#pragma once
#include "api/call.h"
#include "base/json_scan.h"

enum param_type {
    PARAM_BOOL,   /* -> bool                                                     */
    PARAM_INT,    /* -> int64_t, lo..hi; integral doubles too                    */
    PARAM_NUM,    /* -> double, min..max                                         */
    PARAM_STRING, /* -> const json_t *                                           */
    PARAM_OBJECT,
    PARAM_ARRAY,
    PARAM_ANY,
    PARAM_LATER, /* refused unless null or what its check calls neutral         */
};
enum { ON_CHAT = 1, ON_COMPLETION = 2, ON_BOTH = 3 };

struct param;
/* After type and range; v is not null. Fills *e on error. */
typedef enum status param_check(struct call *c, const struct param *p, const json_t *v, struct api_error *e);
struct param {
    const char  *name;
    uint8_t      on, type;
    uint16_t     at;       /* offset in struct call; 0: nowhere */
    int64_t      lo, hi;   /* PARAM_INT */
    double       min, max; /* PARAM_NUM */
    param_check *check;
};
extern const struct param params[];
extern const uint32_t     n_params;

/* Whether the row of a field needs its value, its type alone (a row without a place and without a check), or there is no row.
 * ctx: struct call, of which the kind is read. */
enum json_want params_want(void *ctx, const char *name, size_t n_name);
/* Defaults, then every field of c->body that the table has. */
enum status params_read(struct call *c, struct api_error *e);
/* What one field alone cannot say; fills c->s. */
enum status params_finish(struct call *c, struct api_error *e);

/* Checks, one per row that has one (params_check.c). */
param_check check_model, check_n, check_logprobs_count, check_stop, check_bias, check_token_ids, check_bad_words, check_priority,
    check_salt, check_cache_key, check_retention, check_kv_priority, check_kv_pin, check_request_id, check_stream_options, check_format,
    check_tools, check_tool_choice, check_modalities, check_effort, check_side, check_template, check_kwargs, check_documents,
    check_ignored_object, check_one, check_best_of, check_budget, check_false;
