#include "api/chat_prompt.h"
#include "api/responses/responses.h"

/* POST /v1/responses and /v1/responses/input_tokens. */

static enum status parse(struct call *c, struct api_error *e)
{
    enum status st = responses_open(c);
    if (!st) st = responses_skeleton(c);
    if (!st) st = responses_input(c, e);
    if (!st) st = responses_tools(c, e);
    return st ? st : chat_prompt_parse(c, e);
}

/* clang-format off */
#define ROW                                                                                                         \
    .id_prefix = "resp_", .draws_id = true, .recalls = true, .overflows_in_stream = true, .fields = &responses_fields, .fields_on = 1,            \
    .prompt_param = "input", .max_tokens_param = "max_output_tokens", .top_logprobs_param = "top_logprobs",          \
    .max_tokens_default = -1, .clamps = true, .parse = parse, .prepare = responses_prepare,                        \
    .error = api_error_json, .error_stream = responses_failed
/* clang-format on */

const struct dialect dialect_responses = {
    ROW,
    .stream = { .begin = responses_begin,
                .text = responses_text,
                .reason = responses_reason,
                .tool = responses_tool,
                .finish = responses_finish,
                .usage = responses_usage },
    .whole = { .text = responses_text,
               .reason = responses_reason,
               .tool = responses_tool,
               .finish = responses_finish,
               .usage = responses_usage },
};
/* A request whose tokens are only counted. */
const struct dialect dialect_responses_count = { ROW };
