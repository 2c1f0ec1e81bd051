/* param_rows: macros for the rows of a dialect's table of fields (params.h).   Thread: none, they make constants.
 * on: the bits of the dialects that know the field. field: a member of struct call, or of its `ask`. */
#pragma once
#include "api/params.h"
#include <math.h>
#include <stddef.h>

/* clang-format off */
#define ROW_BOOL(name, on, field, check) { name, on, PARAM_BOOL, offsetof(struct call, field), 0, 0, 0, 0, check }
#define ROW_INT(name, on, field, lo, hi, check) { name, on, PARAM_INT, offsetof(struct call, field), lo, hi, 0, 0, check }
#define ROW_NUM(name, on, field, min, max) { name, on, PARAM_NUM, offsetof(struct call, field), 0, 0, min, max, NULL }
/* The value as JSON: a string, an object, an array, or any. */
#define ROW_JSON(name, on, type, field, check) { name, on, type, offsetof(struct call, field), 0, 0, 0, 0, check }
/* Read by its check alone. */
#define ROW_READ(name, on, type, check) { name, on, type, 0, 0, 0, 0, 0, check }
/* Known, without effect; only its type is checked. */
#define ROW_IGNORED(name, on, type) { name, on, type, 0, INT64_MIN, INT64_MAX, -INFINITY, INFINITY, NULL }
/* Refused, unless its check finds it neutral. */
#define ROW_LATER(name, on, check) { name, on, PARAM_LATER, 0, 0, 0, 0, 0, check }
/* clang-format on */
