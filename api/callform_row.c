#include "api/callform_row.h"
#include <string.h>

/* U+FF5C and U+2581, which DeepSeek's tokens are spelled with */
#define BAR      "\xef\xbd\x9c"
#define GAP      "\xe2\x96\x81"
#define DS(name) "<" BAR name BAR ">"

#define ARGUMENTS  "{\"name\": \"" CF_NAME "\", \"arguments\": " CF_ARGS "}"
#define PARAMETERS "{\"name\": \"" CF_NAME "\", \"parameters\": " CF_ARGS "}"
#define TAGGED     "<tool_call>\n" ARGUMENTS "\n</tool_call>"

#define DSML BAR "DSML" BAR
/* V3.2 and V4 have another word around the calls. */
#define DSML_ROW(word)                                                                                    \
    .row = "deepseek_v32", .begin = "<" DSML word ">\n",                                                  \
    .call = "<" DSML "invoke name=\"" CF_NAME "\">\n" CF_ARGS "</" DSML "invoke>\n", .between = "",       \
    .end = "</" DSML word ">", .values = CF_TYPED,                                                        \
    .value = "<" DSML "parameter name=\"" CF_KEY "\" string=\"true\">" CF_VALUE "</" DSML "parameter>\n", \
    .data = "<" DSML "parameter name=\"" CF_KEY "\" string=\"false\">" CF_VALUE "</" DSML "parameter>\n"
#define PYTHON_ROW(name, open, close)                                                                                \
    .row = name, .begin = open, .call = CF_NAME "(" CF_ARGS ")", .between = ", ", .end = close, .values = CF_PYTHON, \
    .value = CF_KEY "=" CF_VALUE, .join = ", ", .rest = CF_ARGS ")", .behind = { "]", ",", ", " }
#define BARE_ROW(name, open, quote, close)                                                                  \
    .row = name, .begin = "", .call = open "call:" CF_NAME "{" CF_ARGS "}" close, .between = "", .end = "", \
    .values = CF_BARE, .value = CF_KEY ":" quote CF_VALUE quote, .data = CF_KEY ":" CF_VALUE, .join = ",",  \
    .stop = quote

static const struct callform_row rows[] = {
    { .row = "hermes", .begin = "", .call = TAGGED, .between = "\n", .end = "" },
    { .row = "ernie", .begin = "", .call = TAGGED "\n", .between = "", .end = "" },
    { .row = "llama_json",
      .begin = "",
      .call = PARAMETERS,
      .between = "; ",
      .end = "",
      .rest = CF_SPACE ":" CF_SPACE CF_ARGS CF_SPACE "}",
      .behind = { ";", "; " } },
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
        .rest = CF_ARGS,
        .behind = { "<|end|>", "<|call|>", "<|return|>" },
    },
    {
        .row = "solar_open",
        .begin = "<|tool_calls|>",
        .call = "<|tool_call:begin|>" CF_NUMBER "<|tool_call:name|>" CF_NAME "<|tool_call:args|>" CF_ARGS
                "<|tool_call:end|>",
        .between = "",
        .end = "<|calls|>",
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
    { .row = "granite", .begin = "<|tool_call|>[", .call = ARGUMENTS, .between = ", ", .end = "]" },
    {
        .row = "qwen_xml",
        .begin = "",
        .call = "<tool_call>\n<function=" CF_NAME ">\n" CF_ARGS "</function>\n</tool_call>",
        .between = "\n",
        .end = "",
        .values = CF_TYPED,
        .value = "<parameter=" CF_KEY ">\n" CF_VALUE "\n</parameter>\n",
    },
    {
        .row = "seed_oss",
        .begin = "",
        .call = "<seed:tool_call>\n<function=" CF_NAME ">\n" CF_ARGS "</function>\n</seed:tool_call>",
        .between = "\n",
        .end = "",
        .values = CF_TYPED,
        .value = "<parameter=" CF_KEY ">" CF_VALUE "</parameter>\n",
    },
    {
        .row = "hunyuan",
        .sign = "```json",
        .begin = "<tool_calls>",
        .call = "<tool_call>" CF_NAME "\n```json\n" CF_ARGS "\n```</tool_call>",
        .between = "\n",
        .end = "</tool_calls>",
    },
    { .row = "hunyuan", .begin = "<tool_calls>[", .call = ARGUMENTS, .between = ", ", .end = "]</tool_calls>" },
    {
        .row = "glm",
        .begin = "",
        .call = "<tool_call>" CF_NAME CF_LINE CF_ARGS "</tool_call>",
        .between = "\n",
        .end = "",
        .values = CF_TYPED,
        .value = "<arg_key>" CF_KEY "</arg_key>" CF_LINE "<arg_value>" CF_VALUE "</arg_value>" CF_LINE,
    },
    { DSML_ROW("function_calls"), .sign = "<" DSML "function_calls>" },
    { DSML_ROW("tool_calls") },
    {
        .row = "minimax_m2",
        .begin = "<minimax:tool_call>\n",
        .call = "<invoke name=\"" CF_NAME "\">\n" CF_ARGS "</invoke>\n",
        .between = "",
        .end = "</minimax:tool_call>",
        .values = CF_TYPED,
        .value = "<parameter name=\"" CF_KEY "\">" CF_VALUE "</parameter>\n",
    },
    {
        .row = "hy_v3",
        .begin = "<tool_calls>",
        .call = "<tool_call>" CF_NAME "<tool_sep>" CF_ARGS "</tool_call>",
        .between = "",
        .end = "</tool_calls>",
        .values = CF_TYPED,
        .value = "<arg_key>" CF_KEY "</arg_key><arg_value>" CF_VALUE "</arg_value>",
    },
    {
        .row = "step3",
        .begin = DS("tool_calls_begin"),
        .call = DS("tool_call_begin") "function" DS("tool_sep") "<steptml:invoke name=\"" CF_NAME "\">" CF_ARGS
                                                                "</steptml:invoke>" DS("tool_call_end"),
        .between = "",
        .end = DS("tool_calls_end"),
        .values = CF_TYPED,
        .value = "<steptml:parameter name=\"" CF_KEY "\">" CF_VALUE "</steptml:parameter>",
    },
    { PYTHON_ROW("pythonic", "<|python_start|>[", "]<|python_end|>"), .sign = "<|python_start|>" },
    { PYTHON_ROW("pythonic", "[", "]") },
    { PYTHON_ROW("lfm2", "<|tool_call_start|>[", "]<|tool_call_end|>") },
    {
        .row = "olmo3",
        .begin = "<function_calls>",
        .call = CF_NAME "(" CF_ARGS ")",
        .between = "\n",
        .end = "</function_calls>",
        .values = CF_PYTHON,
        .value = CF_KEY "=" CF_VALUE,
        .join = ", ",
    },
    { BARE_ROW("gemma4", "<|tool_call>", "<|\"|>", "<tool_call|>") },
    { BARE_ROW("functiongemma", "<start_function_call>", "<escape>", "<end_function_call>") },
};

const struct callform_row *callform_row_of(const char *name, size_t i)
{
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (!strcmp(rows[k].row, name) && i-- == 0) return &rows[k];
    return NULL;
}
