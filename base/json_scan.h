/* json_scan: one pass over JSON text that checks it and builds nothing: what a tree of it would cost, and where the fields of an object
 * lie, so that a tree is built of those alone that somebody wants.   Thread: any.
 * The pass is linear, takes no memory of its own and no more than JSON_DEPTH_MAX levels. The same strictness as json_parse, but that
 * numbers of any size are numbers. */
#pragma once
#include "base/json.h"

/* What a tree costs with jansson 2.14 and glibc, measured and rounded up; strings cost their bytes besides. */
enum {
    JSON_BYTES_OBJECT = 256,
    JSON_BYTES_MEMBER = 112,
    JSON_BYTES_ARRAY = 144,
    JSON_BYTES_ITEM = 16,
    JSON_BYTES_NUMBER = 32,
    JSON_BYTES_STRING = 80,
};

/* Bounds of what a tree is built of. */
struct json_bounds {
    uint32_t depth_max; /* at most JSON_DEPTH_MAX */
    uint64_t members_max, tree_bytes_max;
};
struct json_cost {
    uint64_t n_member;     /* of objects, all levels */
    uint64_t tree_bytes;   /* without the bytes of strings */
    uint64_t string_bytes; /* of strings and of members' names */
};

/* Checks one value. False: *err says why: it is no JSON, or over a bound, which is then named with what was found. */
bool json_scan(const char *text, size_t n, const struct json_bounds *bounds, struct json_cost *cost_out, struct json_error *err);

/* As json_parse, within these bounds. */
json_t *json_parse_bounded(const char *text, size_t n, const struct json_bounds *bounds, struct json_error *err);

/* What is to be done with a field of the outermost object. */
enum json_want {
    JSON_SKIP,   /* checked, counted, not built */
    JSON_TYPE,   /* known by its type alone: an empty value of that type is built, a number and a literal as they are */
    JSON_SCALAR, /* a string, a number or a literal is built; of an object or an array the type alone */
    JSON_BUILD,  /* built */
};
typedef enum json_want json_want_fn(void *ctx, const char *name, size_t n_name);

enum {
    JSON_FIELDS_MAX = 1024, /* of the outermost object: more is refused, whether they are wanted or not */
    JSON_WANTED_MAX = 160,
};
struct json_field {
    size_t         name, n_name, value, n_value; /* places in the text; the name's is inside its quotes */
    enum json_want want;                         /* JSON_TYPE or JSON_BUILD */
};
struct json_fields {
    struct json_field field[JSON_WANTED_MAX];
    uint32_t          n_field;
    uint64_t          n_skipped;
    struct json_cost  cost; /* of what would be built */
};

/* Checks the text of an object. Bounds hold for the fields that are wanted. Names may come twice in no object that is built, and not in
 * the outermost one. False: *err. */
bool json_fields_scan(const char *text, size_t n, const struct json_bounds *bounds, json_want_fn *want, void *ctx, struct json_fields *out,
                      struct json_error *err);
/* The tree of what is wanted; NULL: *err. Free with json_decref. */
json_t *json_fields_build(const char *text, const struct json_fields *f, struct json_error *err);
