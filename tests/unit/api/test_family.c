#include "api/calls/calls_row.h"
#include "api/family.h"
#include "api_world.h"
#include "tests_root.h"

/* What is found out of the templates that models ship with (tests/data/templates). */

static struct tmpl *load(const char *name)
{
    static char text[1 << 17];
    char        path[600];
    snprintf(path, sizeof path, TESTS_DATA "/templates/%s.jinja", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s", path);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return world_tmpl(text);
}

static const struct want {
    const char *file, *row, *think;
    bool        tools, args_text, null_content, one_call;
    const char *header;
} wants[] = {
    { "chatml", "", "", 0, 0, 0, 0, "<|im_start|>assistant\n" },
    { "command_r", "", "", 1, 0, 0, 0, "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" },
    { "deepseek_r1", "deepseek_v3", "think", 0, 0, 1, 0,
      "<\xef\xbd\x9c"
      "Assistant\xef\xbd\x9c>" },
    { "gemma3", "", "", 0, 0, 0, 0, "<start_of_turn>model\n" },
    { "exaone4", "hermes", "think", 1, 0, 1, 0, "[|assistant|]\n" },
    { "glm4_5", "glm", "think", 1, 0, 0, 0, "<|assistant|>" },
    { "gpt_oss", "harmony", "", 1, 0, 1, 1, "<|start|>assistant" },
    { "granite3", "list_json", "", 1, 0, 0, 0, "<|start_of_role|>assistant<|end_of_role|>" },
    { "hermes3", "hermes", "", 1, 0, 1, 0, "<|im_start|>assistant\n" },
    { "kimi_k2", "kimi_k2", "", 1, 0, 1, 0, "<|im_assistant|>assistant<|im_middle|>" },
    { "llama2", "", "", 0, 0, 0, 0, "" },
    { "llama3_1", "llama_json", "", 1, 0, 1, 1, "<|start_header_id|>assistant<|end_header_id|>\n\n" },
    { "minimax_m2", "minimax_m2", "think", 1, 0, 1, 0, "]~b]ai\n" },
    { "mistral_v3", "mistral_old", "", 1, 0, 1, 0, "" },
    { "seed_oss", "seed_oss", "seed_oss", 1, 0, 0, 0, "<s>assistant" },
    { "olmo3", "olmo3", "think", 1, 0, 1, 0, "<|im_start|>assistant\n" },
    { "qwen2_5", "hermes", "", 1, 0, 1, 0, "<|im_start|>assistant\n" },
    { "qwen3", "hermes", "think", 1, 0, 1, 0, "<|im_start|>assistant\n" },
};

static void families_are_known_by_their_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        const struct want *w = &wants[i];
        struct tmpl       *t = load(w->file);
        struct family      f;
        family_init(&f, t, world.tok, "auto", "auto");
        const char *row = f.calls.row ? f.calls.row->name : "", *think = f.calls.think ? f.calls.think->name : "";
        bool        same = !strcmp(row, w->row) && !strcmp(think, w->think) && f.tools == w->tools &&
                    f.args_text == w->args_text && f.null_content == w->null_content && f.one_call == w->one_call &&
                    !strcmp(f.header, w->header);
        if (!same)
            fail_msg("{ \"%s\", \"%s\", \"%s\", %d, %d, %d, %d, \"%s\" },\n", w->file, row, think, f.tools, f.args_text,
                     f.null_content, f.one_call, f.header);
        tmpl_free(t);
    }
}

#define TURNS "{% for m in messages %}{{ m.role }}:{{ m.content }};{% for c in m.tool_calls or [] %}"
#define END   "{% endfor %}{% endfor %}"

static void family_of(struct family *f, const char *text)
{
    struct tmpl *t = world_tmpl(text);
    family_init(f, t, world.tok, "auto", "auto");
    tmpl_free(t);
}

static void arguments_have_the_form_that_the_template_takes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool        args_text, null_content;
    } cases[] = {
        { TURNS "{{ c.function.arguments | tojson }}" END, false, false }, /* prints "None" */
        { TURNS "{{ 'x' + c.function.arguments }}" END, true, false },     /* an object raises */
        { TURNS "{{ c.function.arguments }}" END, true, false },           /* an object prints in Python's notation */
        { TURNS "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}" END, false, false },
    };
    for (size_t i = 0; i < 4; i++) {
        struct family f;
        family_of(&f, cases[i].text);
        if (f.args_text != cases[i].args_text || f.null_content != cases[i].null_content) fail_msg("%s", cases[i].text);
    }
    struct family f;
    family_of(
        &f,
        "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}{{ 'x' + c.function.arguments }}"
        "{% endfor %}{% endif %}{% endfor %}");
    assert_true(f.args_text && f.null_content);
}

static void a_prompt_leaves_reasoning_open_or_not(void **state)
{
    (void)state;
    struct family f;
    family_of(
        &f,
        "{% for m in messages %}U{{ m.content }}{% endfor %}{% if add_generation_prompt %}A:<think>{% endif %}{# </think> #}");
    static const struct {
        const char          *prompt;
        enum family_thinking thinking;
    } cases[] = { { "UxA:<think>", FAMILY_THINKS },          { "UxA:<think>\n", FAMILY_THINKS },
                  { "UxA:<think></think>", FAMILY_THOUGHT }, { "UxA:", FAMILY_NO_THOUGHT },
                  { "U<think>A:", FAMILY_NO_THOUGHT },       { "UxA:<think>a</think><think>b", FAMILY_THINKS },
                  { "U A:<think>A:done", FAMILY_NO_THOUGHT } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (family_thinking(&f, cases[i].prompt, strlen(cases[i].prompt)) != cases[i].thinking)
            fail_msg("%s", cases[i].prompt);
}

#define CUTS "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}{% if add_generation_prompt %}"

/* Of R1 the template says only that it cuts reasoning. So do templates of models that may answer at once. */
static void an_answer_begins_inside_reasoning_where_the_family_always_thinks(void **state)
{
    (void)state;
    static const char r1[] = "x<\xef\xbd\x9c"
                             "Assistant\xef\xbd\x9c>",
                      gemma[] = "<bos><|turn>user\nx<turn|>\n<|turn>model\n";
    struct family f;
    family_of(&f, CUTS "<\xef\xbd\x9c"
                       "Assistant\xef\xbd\x9c>{% endif %}");
    assert_true(f.calls.thinks_first && family_thinking(&f, r1, sizeof r1 - 1) == FAMILY_THINKS);
    family_of(&f, CUTS "A:{% endif %}");
    assert_true(f.calls.think && family_thinking(&f, "xA:", 3) == FAMILY_NO_THOUGHT);
    struct tmpl *t = load("gemma4");
    family_init(&f, t, world.tok, "auto", "auto");
    tmpl_free(t);
    assert_string_equal(f.calls.think->name, "gemma4");
    assert_true(family_thinking(&f, gemma, sizeof gemma - 1) == FAMILY_NO_THOUGHT);
}

static void a_template_that_refuses_a_text_beside_a_thought_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        bool        refuses;
    } cases[] = { { "gpt_oss", true }, { "qwen3", false }, { "llama3_1", false }, { "gemma3", false } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tmpl  *t = load(cases[i].file);
        struct family f;
        family_init(&f, t, world.tok, "auto", "auto");
        tmpl_free(t);
        if (f.text_or_thought != cases[i].refuses) fail_msg("%s", cases[i].file);
    }
}

/* Phi's turns end with the text that ends Solar Open's reasoning. */
static void families_that_share_a_marker_are_told_apart(void **state)
{
    (void)state;
    struct family f;
    family_of(&f, TURNS "<|tool_call:args|>" END "{% if add_generation_prompt %}<|begin|>assistant{% endif %}<|end|>");
    assert_string_equal(f.calls.row->name, "solar_open");
    assert_string_equal(f.calls.think->name, "solar_open");
    family_of(&f, TURNS "<|end|>" END);
    assert_null(f.calls.think);
    family_of(&f, TURNS "<answer><tool_calls>" END);
    assert_string_equal(f.calls.row->name, "hunyuan");
    family_of(&f, TURNS "<tool_calls>" END);
    assert_string_equal(f.calls.row->name, "list_json");
    family_of(&f, TURNS "<|tool_call|> between <response></response>" END "</think>");
    assert_string_equal(f.calls.row->name, "granite");
    assert_string_equal(f.calls.think->name, "think");
    family_of(&f, TURNS "<|tool_call|>" END "Here is my thought process: and Here is my response:");
    assert_string_equal(f.calls.row->name, "list_json");
    assert_string_equal(f.calls.think->name, "granite");
}

static void a_row_can_be_named(void **state)
{
    (void)state;
    struct family f;
    struct tmpl  *t = world_tmpl("{{ messages[0].content }}");
    family_init(&f, t, world.tok, "llama3_json", "qwen3");
    assert_string_equal(f.calls.row->name, "llama_json");
    assert_string_equal(f.calls.think->start, "<think>");
    assert_false(f.tools);
    tmpl_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_known_by_their_templates),
        cmocka_unit_test(arguments_have_the_form_that_the_template_takes),
        cmocka_unit_test(a_prompt_leaves_reasoning_open_or_not),
        cmocka_unit_test(an_answer_begins_inside_reasoning_where_the_family_always_thinks),
        cmocka_unit_test(a_template_that_refuses_a_text_beside_a_thought_is_known),
        cmocka_unit_test(families_that_share_a_marker_are_told_apart),
        cmocka_unit_test(a_row_can_be_named),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
