/* callform: the grammar of the tool calls that a request demands, in the notation of the model's family. What the
 * grammar allows is what the reader of answers (api/calls) takes for calls: of allowed tools, with arguments that the
 * tools' schemas accept.   Thread: the one that makes the rules. */
#pragma once
#include "api/jinja/template.h"
#include "api/calls/calls.h"
#include "engine/grammar/grammar.h"
#include <jansson.h>

enum { CALLFORM_ERR = 600 };

struct callform {
    const struct calls_model *calls; /* with a row */
    const struct tmpl        *tmpl;
    const struct calls_tools *tools; /* those that are allowed may be called */
    const json_t             *shown; /* [tools->n] as templates see them: {"function": {"parameters": ..}} */
    const json_t             *big;   /* as struct schema_form.big */
    bool                      one;   /* one call alone */
    /* The text ends where a call, or a section of calls, has ended, and markers may be spelled. Where calls have no
     * marker it is one call, from the name of the tool and a bracket, in place of what comes before its arguments.
     * Arguments that are JSON are any object where their tool is not strict. */
    bool again;
    bool lenient; /* where a schema cannot be enforced, and is not strict, any object will do */
};

/* Whether `again` can be served: calls have a marker, or the place at which their arguments begin can be told. */
bool callform_binds_again(const struct calls_model *m);
/* With `again`, and no marker: whether the arguments of this tool are bound. */
bool callform_binds(const struct calls_model *m, const struct calls_tool *t);
/* Adds rules to r; *symbol_out: one call, or several in a row. ST_INVALID: err says why, *tool_out is the tool it is
 * about (UINT32_MAX: none). A bound of the rules shows in gr_rules_status. */
enum status callform_rules(struct gr_rules *r, const struct callform *f, uint32_t *symbol_out, uint32_t *tool_out,
                           char err[CALLFORM_ERR]);
