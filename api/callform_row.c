#include "api/callform_row.h"
#include <string.h>

/* U+FF5C and U+2581, which DeepSeek's tokens are spelled with */
#define BAR      "\xef\xbd\x9c"
#define GAP      "\xe2\x96\x81"
#define DS(name) "<" BAR name BAR ">"

#define ARGUMENTS  "{\"name\": \"" CF_NAME "\", \"arguments\": " CF_ARGS "}"
#define PARAMETERS "{\"name\": \"" CF_NAME "\", \"parameters\": " CF_ARGS "}"
#define TAGGED     "<tool_call>\n" ARGUMENTS "\n</tool_call>"

static const struct callform_row rows[] = {
    { .row = "hermes", .begin = "", .call = TAGGED, .between = "\n", .end = "" },
    { .row = "ernie", .begin = "", .call = TAGGED "\n", .between = "", .end = "" },
    { .row = "llama_json", .begin = "", .call = PARAMETERS, .between = "; ", .end = "" },
    { .row = "mistral", .begin = "", .call = "[TOOL_CALLS]" CF_NAME "[ARGS]" CF_ARGS, .between = "", .end = "" },
    { .row = "mistral_old", .begin = "[TOOL_CALLS][", .call = ARGUMENTS, .between = ", ", .end = "]" },
    {
        .row = "deepseek_v3",
        .begin = DS("tool" GAP "calls" GAP "begin"),
        .call = DS("tool" GAP "call" GAP "begin") "function" DS("tool" GAP "sep") CF_NAME
        "\n```json\n" CF_ARGS "\n```" DS("tool" GAP "call" GAP "end"),
        .between = "\n",
        .end = DS("tool" GAP "calls" GAP "end"),
    },
    {
        .row = "deepseek_v31",
        .begin = DS("tool" GAP "calls" GAP "begin"),
        .call = DS("tool" GAP "call" GAP "begin") CF_NAME DS("tool" GAP "sep") CF_ARGS DS("tool" GAP "call" GAP "end"),
        .between = "",
        .end = DS("tool" GAP "calls" GAP "end"),
    },
    {
        .row = "kimi_k2",
        .begin = "<|tool_calls_section_begin|>",
        .call = "<|tool_call_begin|>functions." CF_NAME ":" CF_NUMBER "<|tool_call_argument_begin|>" CF_ARGS
                "<|tool_call_end|>",
        .between = "",
        .end = "<|tool_calls_section_end|>",
    },
    {
        .row = "harmony",
        .begin = "",
        .call = "<|channel|>commentary to=functions." CF_NAME " <|constrain|>json<|message|>" CF_ARGS,
        .between = "",
        .end = "",
        .one = true,
    },
    {
        .row = "cohere",
        .begin = "<|START_ACTION|>[\n    ",
        .call = "{\"tool_call_id\": \"" CF_NUMBER "\", \"tool_name\": \"" CF_NAME "\", \"parameters\": " CF_ARGS "}",
        .between = ",\n    ",
        .end = "\n]<|END_ACTION|>",
    },
    { .row = "list_json",
      .sign = "<TOOLCALL>",
      .begin = "<TOOLCALL>[",
      .call = ARGUMENTS,
      .between = ", ",
      .end = "]</TOOLCALL>" },
    { .row = "list_json", .sign = "functools", .begin = "functools[", .call = ARGUMENTS, .between = ", ", .end = "]" },
    { .row = "list_json",
      .sign = "<|/tool_call|>",
      .begin = "<|tool_call|>[",
      .call = ARGUMENTS,
      .between = ", ",
      .end = "]<|/tool_call|>" },
    { .row = "list_json",
      .sign = "<|tool_call|>",
      .begin = "<|tool_call|>[",
      .call = ARGUMENTS,
      .between = ", ",
      .end = "]" },
    { .row = "list_json",
      .sign = "<tool_calls>",
      .begin = "<tool_calls>[",
      .call = ARGUMENTS,
      .between = ", ",
      .end = "]</tool_calls>" },
    { .row = "list_json", .begin = "<tool_call>[", .call = ARGUMENTS, .between = ", ", .end = "]" },
};

const struct callform_row *callform_row_of(const char *name, size_t i)
{
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (!strcmp(rows[k].row, name) && i-- == 0) return &rows[k];
    return NULL;
}
