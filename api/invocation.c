/* invocation: which dialect a body of POST /invocations is in. The fields that it has decide, in the order of the
 * table, and what the model does with prompts. */
#include "api/dialect.h"
#include <string.h>

static const struct form {
    const char           *field;
    const struct dialect *d[LMI_FORMS]; /* by enum lmi_form; NULL: refused */
    bool                  is_texts;     /* a model that does not generate takes it as texts to judge */
    const char           *refused;
} forms[] = {
    { "messages", { &dialect_chat, &dialect_chat, &dialect_chat }, true, NULL },
    { "prompt", { &dialect_completion, &dialect_completion, &dialect_completion }, false, NULL },
    { "inputs", { &dialect_lmi, &dialect_lmi_events, &dialect_tgi }, false, NULL },
    { "input", { &dialect_responses, &dialect_responses, &dialect_responses }, true, NULL },
    { "query", { &dialect_rerank, &dialect_rerank, &dialect_rerank }, false, NULL },
    { "queries", { &dialect_score, &dialect_score, &dialect_score }, false, NULL },
    { "data_1", { &dialect_score, &dialect_score, &dialect_score }, false, NULL },
    { "text_1", { &dialect_score, &dialect_score, &dialect_score }, false, NULL },
    { "requestType", { NULL }, false, "'requestType' must be the only field of its body" },
};
enum { FORMS = sizeof forms / sizeof *forms };

static enum json_want want_form(void *ctx, const char *name, size_t n_name)
{
    bool *seen = ctx;
    for (size_t i = 0; i < FORMS; i++)
        if (strlen(forms[i].field) == n_name && !memcmp(forms[i].field, name, n_name)) seen[i] = true;
    return JSON_SKIP;
}

static enum status pick(const struct call_shape *s, const struct dialect **d_out, struct api_error *e)
{
    struct json_fields f;
    struct json_error  je;
    bool               seen[FORMS] = { 0 };
    if (!json_fields_scan(s->body, s->n_body, &call_bounds, want_form, seen, &f, &je)) return call_body_wrong(&je, e);
    for (size_t i = 0; i < FORMS; i++) {
        const struct dialect *d = forms[i].d[s->form];
        if (!seen[i]) continue;
        if (s->model->task == TASK_EMBED && forms[i].is_texts) d = &dialect_embedding;
        if (s->model->task == TASK_CLASSIFY && forms[i].is_texts) d = &dialect_classify;
        if (!d)
            return api_fail(e, 400, forms[i].field, "%s; send 'messages', 'prompt', 'input' or 'inputs'",
                            forms[i].refused);
        *d_out = d;
        return ST_OK;
    }
    return api_fail(e, 400, "", "the body has none of 'messages', 'prompt', 'input' and 'inputs'");
}

static void error_event(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    buf_puts(out, "data: ");
    api_error_json(out, e);
    buf_puts(out, "\n\n");
}

const struct dialect dialect_invocation = { .pick = pick, .error = api_error_json, .error_stream = error_event };
