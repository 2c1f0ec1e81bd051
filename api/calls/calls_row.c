#include "api/calls/calls_row.h"
#include <string.h>

/* One row a family. A step reads: in this state, this marker leads to that state, and on the way does this. Steps of a
 * state are tried in their order. */

/* U+FF5C and U+2581, which DeepSeek's tokens are spelled with */
#define BAR      "\xef\xbd\x9c"
#define GAP      "\xe2\x96\x81"
#define DS(name) "<" BAR name BAR ">"
#define DSML     BAR "DSML" BAR

#define ALL 0xffffu /* by_id: every marker of the row */

enum { A, B, C, D, E, F, G, H, I, J, K, L, M, N }; /* markers by their place in the row */

static const struct calls_row rows[] = {
    {
        .name = "hermes",
        .mark = { "<tool_call>", "</tool_call>" },
        .step = { { CS_TEXT, A, CS_CALL, 0 },
                  { CS_CALL, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, B, CS_TEXT, 0 },
                  { CS_AFTER, A, CS_CALL, 0 } },
    },
    {
        .name = "llama_json",
        .mark = { "<|python_tag|>", "{", ";" },
        .by_id = 1u << A,
        .needs_arguments = true,
        .step = { { CS_TEXT, A, CS_CALL, 0 },
                  { CS_TEXT, B, CS_CALL, CA_LINE | CA_REDO | CA_BARE },
                  { CS_CALL, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, C, CS_AFTER, 0 },
                  { CS_AFTER, B, CS_CALL, CA_REDO | CA_BARE },
                  { CS_AFTER, A, CS_CALL, 0 } },
    },
    {
        .name = "qwen_xml",
        .mark = { "<tool_call>", "<function=", ">", "<parameter=", "</parameter>", "</function>", "</tool_call>" },
        .typed = true,
        .cut = true,
        .step = { { CS_TEXT, A, CS_BETWEEN, 0 },
                  { CS_TEXT, B, CS_NAME, 0 },
                  { CS_BETWEEN, B, CS_NAME, 0 },
                  { CS_NAME, C, CS_PARAMS, CA_OPEN },
                  { CS_PARAMS, D, CS_KEY, 0 },
                  { CS_PARAMS, F, CS_AFTER, CA_CLOSE },
                  { CS_PARAMS, G, CS_TEXT, CA_CLOSE },
                  { CS_KEY, C, CS_VALUE, CA_KEY },
                  { CS_VALUE, E, CS_PARAMS, CA_VALUE },
                  { CS_VALUE, D, CS_KEY, CA_VALUE },
                  { CS_VALUE, F, CS_AFTER, CA_VALUE | CA_CLOSE },
                  { CS_AFTER, G, CS_TEXT, 0 },
                  { CS_AFTER, A, CS_BETWEEN, 0 },
                  { CS_AFTER, B, CS_NAME, 0 } },
    },
    {
        .name = "mistral_old",
        .mark = { "[TOOL_CALLS]" },
        .by_id = ALL,
        .ids = CALLS_ID_NINE,
        .step = { { CS_TEXT, A, CS_LIST, 0 }, { CS_LIST, CALLS_DONE, CS_AFTER, 0 }, { CS_AFTER, A, CS_LIST, 0 } },
    },
    {
        .name = "mistral",
        .mark = { "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]" },
        .by_id = ALL,
        .ids = CALLS_ID_NINE,
        .step = { { CS_TEXT, A, CS_NAME, 0 },
                  { CS_NAME, B, CS_JSON, CA_OPEN },
                  { CS_NAME, C, CS_LABEL, 0 },
                  { CS_LABEL, B, CS_JSON, CA_OPEN },
                  { CS_JSON, CALLS_DONE, CS_AFTER, 0 },
                  { CS_JSON, A, CS_NAME, CA_CLOSE },
                  { CS_AFTER, A, CS_NAME, 0 } },
    },
    {
        .name = "deepseek_v3",
        .mark = { DS("tool" GAP "calls" GAP "begin"), DS("tool" GAP "call" GAP "begin"), DS("tool" GAP "sep"),
                  DS("tool" GAP "call" GAP "end"), DS("tool" GAP "calls" GAP "end"), "\n", "```json", "```" },
        .by_id = 1u << A | 1u << B | 1u << C | 1u << D | 1u << E,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_TEXT, B, CS_LABEL, 0 },
                  { CS_SECTION, B, CS_LABEL, 0 },
                  { CS_SECTION, E, CS_TEXT, 0 },
                  { CS_LABEL, C, CS_NAME, 0 },
                  { CS_NAME, F, CS_FENCE, CA_OPEN },
                  { CS_FENCE, G, CS_JSON, 0 },
                  { CS_JSON, CALLS_DONE, CS_CLOSER, 0 },
                  { CS_JSON, D, CS_SECTION, CA_CLOSE },
                  { CS_CLOSER, H, CS_CLOSER, 0 },
                  { CS_CLOSER, D, CS_SECTION, 0 },
                  { CS_CLOSER, E, CS_TEXT, 0 } },
    },
    {
        .name = "deepseek_v31",
        .mark = { DS("tool" GAP "calls" GAP "begin"), DS("tool" GAP "call" GAP "begin"), DS("tool" GAP "sep"),
                  DS("tool" GAP "call" GAP "end"), DS("tool" GAP "calls" GAP "end") },
        .by_id = ALL,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_TEXT, B, CS_NAME, 0 },
                  { CS_SECTION, B, CS_NAME, 0 },
                  { CS_SECTION, E, CS_TEXT, 0 },
                  { CS_NAME, C, CS_JSON, CA_OPEN },
                  { CS_JSON, CALLS_DONE, CS_CLOSER, 0 },
                  { CS_JSON, D, CS_SECTION, CA_CLOSE },
                  { CS_CLOSER, D, CS_SECTION, 0 },
                  { CS_CLOSER, E, CS_TEXT, 0 } },
    },
    {
        .name = "deepseek_v32", /* and v4, which has another word around the section */
        .mark = { "<" DSML "function_calls>", "<" DSML "tool_calls>", "<" DSML "invoke name=\"", "\">",
                  "<" DSML "parameter name=\"", "\" string=\"true\">", "\" string=\"false\">", "</" DSML "parameter>",
                  "</" DSML "invoke>", "</" DSML "function_calls>", "</" DSML "tool_calls>" },
        .typed = true,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_TEXT, B, CS_SECTION, 0 },
                  { CS_SECTION, C, CS_NAME, 0 },
                  { CS_SECTION, J, CS_TEXT, 0 },
                  { CS_SECTION, K, CS_TEXT, 0 },
                  { CS_NAME, D, CS_PARAMS, CA_OPEN },
                  { CS_PARAMS, E, CS_KEY, 0 },
                  { CS_PARAMS, I, CS_SECTION, CA_CLOSE },
                  { CS_KEY, F, CS_VALUE, CA_KEY | CA_TEXT },
                  { CS_KEY, G, CS_VALUE, CA_KEY | CA_DATA },
                  { CS_KEY, D, CS_VALUE, CA_KEY },
                  { CS_VALUE, H, CS_PARAMS, CA_VALUE } },
    },
    {
        .name = "glm",
        .mark = { "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>" },
        .typed = true,
        .step = { { CS_TEXT, A, CS_NAME, 0 },
                  { CS_NAME, C, CS_KEY, CA_OPEN },
                  { CS_NAME, B, CS_TEXT, CA_OPEN | CA_CLOSE },
                  { CS_KEY, D, CS_KEYED, CA_KEY },
                  { CS_KEYED, E, CS_VALUE, 0 },
                  { CS_VALUE, F, CS_PARAMS, CA_VALUE },
                  { CS_PARAMS, C, CS_KEY, 0 },
                  { CS_PARAMS, B, CS_TEXT, CA_CLOSE } },
    },
    {
        .name = "kimi_k2",
        .mark = { "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                  "<|tool_call_end|>", "<|tool_calls_section_end|>" },
        .by_id = ALL,
        .ids = CALLS_ID_KIMI,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_TEXT, B, CS_NAME, 0 },
                  { CS_SECTION, B, CS_NAME, 0 },
                  { CS_SECTION, E, CS_TEXT, 0 },
                  { CS_NAME, C, CS_JSON, CA_OPEN },
                  { CS_JSON, CALLS_DONE, CS_CLOSER, 0 },
                  { CS_JSON, D, CS_SECTION, CA_CLOSE },
                  { CS_CLOSER, D, CS_SECTION, 0 },
                  { CS_CLOSER, E, CS_TEXT, 0 } },
    },
    {
        .name = "minimax_m2",
        .mark = { "<minimax:tool_call>", "<invoke name=\"", "\">", "<parameter name=\"", "</parameter>", "</invoke>",
                  "</minimax:tool_call>" },
        .typed = true,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_SECTION, B, CS_NAME, 0 },
                  { CS_SECTION, G, CS_TEXT, 0 },
                  { CS_NAME, C, CS_PARAMS, CA_OPEN },
                  { CS_PARAMS, D, CS_KEY, 0 },
                  { CS_PARAMS, F, CS_SECTION, CA_CLOSE },
                  { CS_KEY, C, CS_VALUE, CA_KEY },
                  { CS_VALUE, E, CS_PARAMS, CA_VALUE } },
    },
    {
        .name = "harmony",
        .mark = { "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>" },
        .by_id = ALL,
        .thinks = true,
        .step = { { CS_HEADER, C, CS_TEXT, CA_HEADER },
                  { CS_TEXT, E, CS_BETWEEN, CA_DROP },
                  { CS_TEXT, G, CS_BETWEEN, CA_DROP },
                  { CS_TEXT, F, CS_BETWEEN, CA_DROP },
                  { CS_REASON, E, CS_BETWEEN, CA_DROP },
                  { CS_REASON, G, CS_BETWEEN, CA_DROP },
                  { CS_REASON, F, CS_BETWEEN, CA_DROP },
                  { CS_BODY, F, CS_AFTER, CA_CLOSE },
                  { CS_BODY, E, CS_AFTER, CA_CLOSE },
                  { CS_BODY, G, CS_AFTER, CA_CLOSE },
                  { CS_BETWEEN, A, CS_HEADER, 0 },
                  { CS_AFTER, A, CS_HEADER, 0 },
                  { CS_TEXT, A, CS_HEADER, 0 },
                  { CS_TEXT, B, CS_HEADER, CA_REDO } },
    },
    {
        .name = "gemma4",
        .mark = { "<|tool_call>", "<tool_call|>", "<|\"|>" },
        .by_id = 1u << A | 1u << B,
        .quote = "<|\"|>",
        .step = { { CS_TEXT, A, CS_GEMMA, 0 },
                  { CS_GEMMA, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, B, CS_TEXT, 0 },
                  { CS_AFTER, A, CS_GEMMA, 0 } },
    },
    {
        .name = "functiongemma",
        .mark = { "<start_function_call>", "<end_function_call>", "<escape>" },
        .by_id = 1u << A | 1u << B,
        .quote = "<escape>",
        .step = { { CS_TEXT, A, CS_GEMMA, 0 },
                  { CS_GEMMA, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, B, CS_TEXT, 0 },
                  { CS_AFTER, A, CS_GEMMA, 0 } },
    },
    {
        .name = "pythonic",
        .mark = { "[", "<|python_start|>", "<|python_end|>" },
        .by_id = 1u << B | 1u << C,
        .step = { { CS_TEXT, B, CS_PYTHON, 0 },
                  { CS_TEXT, A, CS_PYTHON, CA_FIRST | CA_REDO },
                  { CS_PYTHON, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, C, CS_TEXT, 0 } },
    },
    {
        .name = "lfm2",
        .mark = { "<|tool_call_start|>", "<|tool_call_end|>" },
        .by_id = ALL,
        .step = { { CS_TEXT, A, CS_PYTHON, 0 }, { CS_PYTHON, CALLS_DONE, CS_AFTER, 0 }, { CS_AFTER, B, CS_TEXT, 0 } },
    },
    {
        .name = "olmo3",
        .mark = { "<function_calls>", "</function_calls>" },
        .lines = true,
        .step = { { CS_TEXT, A, CS_PYTHON, 0 }, { CS_PYTHON, CALLS_DONE, CS_AFTER, 0 }, { CS_AFTER, B, CS_TEXT, 0 } },
    },
    {
        /* An answer is messages, each with a header, and the prompt ends inside the first one's. */
        .name = "solar_open",
        .mark = { "<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>",
                  "<|tool_call:end|>", "<|calls|>", "<|content|>", "<|end|>", "<|begin|>assistant" },
        .by_id = ALL & ~(1u << I),
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_TEXT, B, CS_LABEL, 0 },
                  { CS_SECTION, B, CS_LABEL, 0 },
                  { CS_SECTION, F, CS_TEXT, 0 },
                  { CS_LABEL, C, CS_NAME, 0 },
                  { CS_NAME, D, CS_JSON, CA_OPEN },
                  { CS_JSON, CALLS_DONE, CS_CLOSER, 0 },
                  { CS_JSON, E, CS_SECTION, CA_CLOSE },
                  { CS_CLOSER, E, CS_SECTION, 0 },
                  { CS_CLOSER, F, CS_TEXT, 0 },
                  { CS_TEXT, G, CS_TEXT, 0 },
                  { CS_TEXT, H, CS_TEXT, 0 },
                  { CS_TEXT, I, CS_TEXT, 0 } },
    },
    {
        .name = "cohere",
        .mark = { "<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                  "<|END_TEXT|>" },
        .by_id = ALL,
        .step = { { CS_TEXT, A, CS_LIST, 0 },
                  { CS_LIST, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, B, CS_TEXT, 0 },
                  { CS_TEXT, C, CS_TEXT, 0 },
                  { CS_TEXT, D, CS_TEXT, 0 },
                  { CS_TEXT, E, CS_TEXT, 0 },
                  { CS_TEXT, F, CS_TEXT, 0 } },
    },
    {
        .name = "list_json",
        .mark = { "functools", "<|tool_call|>", "<|/tool_call|>", "<tool_call>", "<TOOLCALL>", "</TOOLCALL>",
                  "<tool_calls>", "</tool_calls>" },
        .step = { { CS_TEXT, A, CS_LIST, CA_FIRST },
                  { CS_TEXT, B, CS_LIST, 0 },
                  { CS_TEXT, D, CS_LIST, 0 },
                  { CS_TEXT, E, CS_LIST, 0 },
                  { CS_TEXT, G, CS_LIST, 0 },
                  { CS_LIST, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, C, CS_TEXT, 0 },
                  { CS_AFTER, F, CS_TEXT, 0 },
                  { CS_AFTER, H, CS_TEXT, 0 } },
    },
    {
        .name = "ernie",
        .mark = { "<tool_call>", "</tool_call>", "<response>", "</response>" },
        .step = { { CS_TEXT, A, CS_CALL, 0 },
                  { CS_CALL, CALLS_DONE, CS_AFTER, 0 },
                  { CS_AFTER, B, CS_TEXT, 0 },
                  { CS_AFTER, A, CS_CALL, 0 },
                  { CS_TEXT, C, CS_TEXT, CA_TRIM },
                  { CS_TEXT, D, CS_TEXT, 0 } },
    },
    {
        .name = "hy_v3",
        .mark = { "<tool_calls>", "<tool_call>", "<tool_sep>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                  "</tool_call>", "</tool_calls>" },
        .typed = true,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_SECTION, B, CS_NAME, 0 },
                  { CS_SECTION, I, CS_TEXT, 0 },
                  { CS_NAME, C, CS_PARAMS, CA_OPEN },
                  { CS_PARAMS, D, CS_KEY, 0 },
                  { CS_PARAMS, H, CS_SECTION, CA_CLOSE },
                  { CS_KEY, E, CS_KEYED, CA_KEY },
                  { CS_KEYED, F, CS_VALUE, 0 },
                  { CS_VALUE, G, CS_PARAMS, CA_VALUE } },
    },
    {
        .name = "step3",
        .mark = { DS("tool_calls_begin"), DS("tool_call_begin"), DS("tool_sep"), "<steptml:invoke name=\"", "\">",
                  "<steptml:parameter name=\"", "</steptml:parameter>", "</steptml:invoke>", DS("tool_call_end"),
                  DS("tool_calls_end") },
        .typed = true,
        .step = { { CS_TEXT, A, CS_SECTION, 0 },
                  { CS_SECTION, B, CS_LABEL, 0 },
                  { CS_SECTION, J, CS_TEXT, 0 },
                  { CS_LABEL, C, CS_FENCE, 0 },
                  { CS_FENCE, D, CS_NAME, 0 },
                  { CS_NAME, E, CS_PARAMS, CA_OPEN },
                  { CS_PARAMS, F, CS_KEY, 0 },
                  { CS_PARAMS, H, CS_CLOSER, CA_CLOSE },
                  { CS_KEY, E, CS_VALUE, CA_KEY },
                  { CS_VALUE, G, CS_PARAMS, CA_VALUE },
                  { CS_CLOSER, I, CS_SECTION, 0 },
                  { CS_CLOSER, J, CS_TEXT, 0 } },
    },
};

static const struct calls_think thinks[] = {
    { "think", "<think>", "</think>", NULL },
    { "mistral", "[THINK]", "[/THINK]", NULL },
    { "cohere", "<|START_THINKING|>", "<|END_THINKING|>", NULL },
    { "gemma4", "<|channel>thought\n", "<channel|>", NULL },
    { "minimax_m3", "<mm:think>", "</mm:think>", NULL },
    { "kimi_k1", "\xe2\x97\x81think\xe2\x96\xb7", "\xe2\x97\x81/think\xe2\x96\xb7", NULL },
    { "seed_oss", "<seed:think>", "</seed:think>", NULL },
    { "solar_open", "<|think|>", "<|end|>", "<|tool_call:args|>" },
};

/* ---------------------------------------------------------------- names */

struct alias {
    const char *name, *row;
};

/* As options of other servers spell them. */
static const struct alias row_alias[] = {
    { "qwen", "hermes" },
    { "qwen25", "hermes" },
    { "qwen3", "hermes" },
    { "granite4", "hermes" },
    { "exaone4", "hermes" },
    { "llama3_json", "llama_json" },
    { "llama4_json", "llama_json" },
    { "llama3", "llama_json" },
    { "qwen3_coder", "qwen_xml" },
    { "qwen3_xml", "qwen_xml" },
    { "step3p5", "qwen_xml" },
    { "nemotron_v3", "qwen_xml" },
    { "deepseek_v4", "deepseek_v32" },
    { "glm45", "glm" },
    { "glm47", "glm" },
    { "minimax", "minimax_m2" },
    { "openai", "harmony" },
    { "gpt-oss", "harmony" },
    { "llama4_pythonic", "pythonic" },
    { "phi4_mini_json", "list_json" },
    { "granite", "list_json" },
    { "hunyuan_a13b", "list_json" },
    { "ernie45", "ernie" },
    { "cohere_command3", "cohere" },
    { "cohere_command4", "cohere" },
};
static const struct alias think_alias[] = {
    { "deepseek_r1", "think" },
    { "deepseek_v3", "think" },
    { "deepseek_v4", "think" },
    { "qwen3", "think" },
    { "glm45", "think" },
    { "kimi_k2", "think" },
    { "minimax_m2", "think" },
    { "nemotron_v3", "think" },
    { "step3", "think" },
    { "step3p5", "think" },
    { "ernie45", "think" },
    { "hunyuan_a13b", "think" },
    { "olmo3", "think" },
    { "mimo", "think" },
    { "holo2", "think" },
    { "hy_v3", "think" },
    { "lfm2", "think" },
    { "cohere_command3", "cohere" },
    { "cohere_command4", "cohere" },
};

static const char *resolve(const struct alias *a, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(a[i].name, name)) return a[i].row;
    return name;
}

const struct calls_row   *calls_row_at(size_t i) { return i < sizeof rows / sizeof *rows ? &rows[i] : NULL; }
const struct calls_think *calls_think_at(size_t i) { return i < sizeof thinks / sizeof *thinks ? &thinks[i] : NULL; }

const struct calls_row *calls_row_find(const char *name)
{
    name = resolve(row_alias, sizeof row_alias / sizeof *row_alias, name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

const struct calls_think *calls_think_find(const char *name)
{
    name = resolve(think_alias, sizeof think_alias / sizeof *think_alias, name);
    for (size_t i = 0; i < sizeof thinks / sizeof *thinks; i++)
        if (!strcmp(thinks[i].name, name)) return &thinks[i];
    return NULL;
}
