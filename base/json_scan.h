/* json_scan: one pass over JSON text that checks it and builds no tree.   Thread: any.
 * It returns the memory that a tree would take, and the places of an object's fields. So the caller can build a tree of
 * the fields that it reads and skip the others. The pass is linear, takes no memory, and accepts at most JSON_DEPTH_MAX
 * levels. It is as strict as json_parse, except that numbers may have any size. */
#pragma once
#include "base/json.h"

/* Bytes of memory per part of a tree with jansson 2.14 and glibc, measured and rounded up. The bytes of strings come on
 * top. */
enum {
    JSON_BYTES_OBJECT = 256,
    JSON_BYTES_MEMBER = 112,
    JSON_BYTES_ARRAY = 144,
    JSON_BYTES_ITEM = 16,
    JSON_BYTES_NUMBER = 32,
    JSON_BYTES_STRING = 80,
};

/* Bounds of a tree. */
struct json_bounds {
    uint32_t depth_max; /* at most JSON_DEPTH_MAX */
    uint64_t members_max, tree_bytes_max;
};
struct json_cost {
    uint64_t n_member;     /* of objects, all levels */
    uint64_t tree_bytes;   /* without the bytes of strings */
    uint64_t string_bytes; /* of strings and of members' names */
};

/* Checks one value. False: *err has the reason: no JSON, or over a bound (then with the bound and the value that was
 * found). */
bool json_scan(const char *text, size_t n, const struct json_bounds *bounds, struct json_cost *cost_out,
               struct json_error *err);

/* As json_parse, within these bounds. */
json_t *json_parse_bounded(const char *text, size_t n, const struct json_bounds *bounds, struct json_error *err);

/* How a field of the outermost object is treated. */
enum json_want {
    JSON_SKIP, /* checked, counted, not built */
    /* the caller needs its type only: built as an empty string, array or object, or as the number or literal itself */
    JSON_TYPE,
    JSON_SCALAR, /* a string, a number or a literal is built; an object or an array is built empty */
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

/* Checks the text of an object. The bounds apply to the wanted fields. A name that appears twice is an error in the
 * outermost object and in every object that is built. False: *err has the reason. */
bool json_fields_scan(const char *text, size_t n, const struct json_bounds *bounds, json_want_fn *want, void *ctx,
                      struct json_fields *out, struct json_error *err);
/* A member that json_fields_build adds where whole numbers beyond 64 bits are in what it builds, which become floats in
 * the tree: their digits, a list of strings in no order. It begins with a noncharacter; no field is called so. */
#define JSON_BIG   \
    "\xef\xbf\xbf" \
    "big"
/* The same list for any strict JSON, the caller's. NULL: it has no such numbers, or there is no memory. */
json_t *json_big_numbers(const char *text, size_t n);
/* Builds the tree of the wanted fields. NULL: *err has the reason. Free with json_decref. */
json_t *json_fields_build(const char *text, const struct json_fields *f, struct json_error *err);
