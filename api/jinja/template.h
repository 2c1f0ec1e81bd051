/* template: an interpreter for the part of Jinja that chat templates use.
 * tmpl_parse once -> tmpl_render per request -> tmpl_free.   Thread: parse: one; render: any, the template is const.
 * A template comes from a model folder and may be hostile. It has no import and no access to the host or to attributes
 * of Python objects. Steps, depth, output and memory are bounded, and parsing and rendering use bounded stack. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

struct tmpl;
struct tmpl_limits {
    uint64_t steps_max;
    uint32_t depth_max; /* of calls inside each other: macros, blocks, recursive loops */
    size_t   output_bytes_max, memory_bytes_max;
};
extern const struct tmpl_limits tmpl_limits_default; /* 10^6 steps, depth 128, 16 MiB, 64 MiB */

/* ST_CONFIG: err has one line, "line 3: ...". ST_NOMEM. */
enum status tmpl_parse(const char *text, size_t n, struct tmpl **t_out, char *err, size_t err_bytes);
/* Appends the rendered text to out. vars: an object, whose members are the template's variables; objects keep their
 * order of insertion. lim NULL: the default limits. now_s: Unix time for strftime_now. ST_INVALID: raise_exception or a
 * type error; ST_TOO_LARGE: a limit was reached, or out is full. Both: err has one line, and out gets no text. */
enum status tmpl_render(const struct tmpl *t, const json_t *vars, const struct tmpl_limits *lim, int64_t now_s,
                        struct buf *out, char *err, size_t err_bytes);
/* Whether the template loops over the content of a message, so that content must be a list of parts ("openai"
 * format). */
bool tmpl_wants_parts(const struct tmpl *t);
bool tmpl_mentions(const struct tmpl *t, const char *name); /* whether it reads a variable of that name */
bool tmpl_has_text(const struct tmpl *t, const char *text); /* whether its source contains text ("developer") */
/* The source, borrowed. Its line ends are \n, and the line end at the very end is removed. */
const char *tmpl_text(const struct tmpl *t, size_t *n_out);
void        tmpl_free(struct tmpl *t);
