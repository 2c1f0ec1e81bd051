/* template: chat template interpreter for the Jinja subset that chat templates use.
 * tmpl_parse once -> tmpl_render per request -> tmpl_free.   Thread: parse: one; render: any, the template is const.
 * A template is data from a model folder, so hostile: no attribute, import or host access exists; steps, depth and
 * output are bounded; parsing and rendering use bounded stack. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

struct tmpl;
struct tmpl_limits {
    uint64_t steps_max;
    uint32_t depth_max;
    size_t   output_bytes_max, memory_bytes_max;
};
extern const struct tmpl_limits tmpl_limits_default; /* 10^6 steps, depth 128, 16 MiB, 64 MiB */

/* err: "line 3: ..." one line. ST_CONFIG. */
enum status tmpl_parse(const char *text, size_t n, struct tmpl **t_out, char *err, size_t err_bytes);
/* vars: an object; its members are the template's variables (insertion order of objects is kept). now_s: for
 * strftime_now. ST_INVALID: raise_exception or a type error (err has the message); ST_TOO_LARGE: a limit. */
enum status tmpl_render(const struct tmpl *t, const json_t *vars, const struct tmpl_limits *lim, int64_t now_s,
                        struct buf *out, char *err, size_t err_bytes);
bool tmpl_wants_parts(const struct tmpl *t); /* it loops over message content: give lists of parts ("openai" format) */
bool tmpl_mentions(const struct tmpl *t, const char *name); /* a variable of that name is read */
bool tmpl_has_text(const struct tmpl *t, const char *text); /* its source holds these bytes ("developer") */
const char *tmpl_text(const struct tmpl *t, size_t *n_out); /* its source, line ends as \\n, none at the end */
void        tmpl_free(struct tmpl *t);
