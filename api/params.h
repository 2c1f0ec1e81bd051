/* params: reads a body's fields by the dialect's table, one row a field.   Thread: any.
 * A row gives the dialects that know the field, its type and range, and the place of the value; a row may have a check.
 * Null means the default. Fields without a row are ignored and counted. Row B12 of the fault table is these tables
 * times the types of JSON. */
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
    PARAM_LATER, /* refused unless null, or neutral by its check                */
};
struct param;
/* Called after type and range were checked; v is not null. Fills *e on error. */
typedef enum status param_check(struct call *c, const struct param *p, const json_t *v, struct api_error *e);
struct param {
    const char  *name;
    uint8_t      on;       /* bits of the dialects that share the table and know the field */
    uint8_t      type;     /* enum param_type */
    uint16_t     at;       /* offset in struct call; 0: not stored */
    int64_t      lo, hi;   /* PARAM_INT */
    double       min, max; /* PARAM_NUM */
    param_check *check;
};
/* A table. Rows are read in order, so a check may use values that earlier rows have stored. */
struct param_fields {
    const struct param *row;
    uint32_t            n_row;
};

/* Whether a field's value is needed, only its type (a row without place and check), or nothing (no row). ctx: a struct
 * call, for its dialect. */
enum json_want params_want(void *ctx, const char *name, size_t n_name);
/* Sets defaults, then reads every field of c->body that the dialect's table has, and those of its nested object. */
enum status params_read(struct call *c, struct api_error *e);
/* Checks combinations of fields and fills c->s. */
enum status params_finish(struct call *c, struct api_error *e);

/* The model or adapter of this name answers c. ST_INVALID: there is none; param: the field that the error names. */
enum status call_model(struct call *c, const char *param, const char *name, size_t n, struct api_error *e);
/* Checks, one per row that has one (params_check.c). */
param_check check_model, check_n, check_logprobs_n, check_logprobs_count, check_stop, check_bias, check_token_ids,
    check_bad_words, check_priority, check_salt, check_cache_key, check_retention, check_kv_priority, check_kv_pin,
    check_request_id, check_stream_options, check_format, check_tools, check_tool_choice, check_modalities,
    check_effort, check_side, check_template, check_kwargs, check_documents, check_ignored_object, check_one,
    check_best_of, check_budget, check_false;
param_check check_transfer; /* transfer.c */
