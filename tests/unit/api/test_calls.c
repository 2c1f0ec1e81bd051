#include "calls_vector.h"
#include "size.h"

/* tests/data/tools: what models write, and what it is. Every vector runs whole, cut in two at every byte, byte by byte,
 * with its markers as tokens, and with neighbouring pieces fused. */

static struct arena              arena;
static const struct calls_tools *tools;

static int open_world(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 20);
    tools = world_tools(&arena);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* ---------------------------------------------------------------- one vector */

/* The length of the marker at s; 0: none is there. */
static size_t mark_at(const struct vector *v, size_t at, int *mark_out)
{
    size_t best = 0;
    for (uint32_t i = 0; i < v->model.n_mark; i++) {
        size_t n = v->model.mark[i].n;
        if (n < 3 || n > v->n - at || n < best || memcmp(v->text + at, v->model.mark[i].text, n)) continue;
        best = n;
        *mark_out = (int)i;
    }
    return best;
}

/* Markers as tokens, other text in pieces of `piece` bytes. */
static void run_tokens(struct vector *v, struct calls *p, size_t piece)
{
    int mark;
    for (size_t at = 0, n; at < v->n; at += n) {
        n = mark_at(v, at, &mark);
        if (n) {
            calls_mark(p, mark);
            continue;
        }
        int ignored;
        for (n = 1; n < piece && at + n < v->n && !mark_at(v, at + n, &ignored);) n++;
        calls_text(p, v->text + at, n);
    }
}

/* Vector 73: two choices of a request at once, the second half behind the first. */
static void run_two(struct vector *v, const json_t *x)
{
    struct calls  p[2];
    struct joined j[2];
    begin(v, &p[0], &j[0]);
    begin(v, &p[1], &j[1]);
    for (size_t at = 0; at < v->n + v->n / 2; at++) {
        if (at < v->n) calls_text(&p[0], v->text + at, 1);
        if (at >= v->n / 2) calls_text(&p[1], v->text + at - v->n / 2, 1);
    }
    finish(x, &p[0], &j[0], "beside another choice");
    finish(x, &p[1], &j[1], "behind another choice");
}

static void run_vector(const json_t *x)
{
    struct vector v;
    struct calls  p;
    struct joined j;
    vector_init(&v, x, tools, NULL);
    for (size_t cut = 0; cut <= v.n && !v.tokens; cut++) {
        begin(&v, &p, &j);
        calls_text(&p, v.text, cut);
        calls_text(&p, v.text + cut, v.n - cut);
        finish(x, &p, &j, "cut in two");
    }
    bool header = v.model.row->thinks; /* its bound counts tokens */
    if (!v.tokens && !header) run_two(&v, x);
    for (size_t piece = 1; piece <= 7 && !v.tokens; piece += 2) {
        begin(&v, &p, &j);
        for (size_t at = 0; at < v.n; at += piece) calls_text(&p, v.text + at, v.n - at < piece ? v.n - at : piece);
        if (!header || v.n < 64) finish(x, &p, &j, "in pieces");
        if (header && v.n >= 64) {
            calls_end(&p);
            calls_free(&p);
            joined_free(&j);
        }
    }
    for (size_t piece = 1; piece <= 9 && !v.plain; piece += 4) {
        begin(&v, &p, &j);
        run_tokens(&v, &p, piece);
        finish(x, &p, &j, "with markers as tokens");
    }
}

enum { VECTORS = 80 };

/* Those that are no single text: */
static bool is_elsewhere(uint32_t number)
{
    static const uint8_t elsewhere[] = {
        44, /* a_string_streams_while_it_is_written */
        72, /* every vector: cut in two at its beginning */
        73, /* run_two */
        76, /* every_answer_of_every_family_is_calls_that_the_schemas_accept, in test_callform.c */
        77, /* C20_a_hostile_megabyte_takes_linear_work_and_bounded_memory */
        78, /* tests/fuzz/fuzz_calls.c */
        79, /* a_stream_comes_to_the_same_as_the_whole, in tests/e2e/tools.py */
        80, /* each run above begins anew, behind those of other vectors */
    };
    return memchr(elsewhere, (int)number, sizeof elsewhere) != NULL;
}

static bool vector_there[VECTORS + 1];

static void note_and_run(const json_t *x)
{
    json_int_t number = json_integer_value(json_object_get(x, "n"));
    if (number > 0 && number <= VECTORS) vector_there[number] = true;
    run_vector(x);
}

static void every_vector_comes_out_the_same_wherever_it_is_cut(void **state)
{
    (void)state;
    assert_true(vectors_each(note_and_run) >= 100);
    for (uint32_t i = 1; i <= VECTORS; i++)
        if (!vector_there[i] && !is_elsewhere(i)) fail_msg("vector %u is in no file", i);
}

/* ---------------------------------------------------------------- what the vectors cannot say */

static void start(struct calls_model *m, struct calls *p, struct joined *j, const char *row)
{
    struct calls_cfg cfg = { .model = m, .tools = tools, .sink = join, .ctx = j };
    calls_model_init(m, calls_row_find(row), calls_think_find("think"), NULL);
    joined_init(j);
    calls_init(p, &cfg, false);
}

static void text_of_calls(struct calls *p, const char *s) { calls_text(p, s, strlen(s)); }

static void a_string_streams_while_it_is_written(void **state)
{
    (void)state;
    static const char *const heads[][2] = {
        { "qwen_xml", "<tool_call>\n<function=w>\n<parameter=city>\n" },
        { "hermes", "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"" },
        { "glm", "<tool_call>w\n<arg_key>city</arg_key>\n<arg_value>" },
        { "pythonic", "[w(city='" },
        { "gemma4", "<|tool_call>call:w{city:<|\"|>" },
    };
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        struct calls_model m;
        struct calls       p;
        struct joined      j;
        start(&m, &p, &j, heads[h][0]);
        text_of_calls(&p, heads[h][1]);
        for (unsigned i = 0; i < 2500; i++) {
            uint32_t before = j.n_event;
            text_of_calls(&p, "abcd");
            assert_int_equal(j.n_event, before + 1);
        }
        calls_end(&p);
        assert_true(j.calls.n >= 10000);
        calls_free(&p);
        joined_free(&j);
    }
}

static void ids_have_the_form_of_their_family_and_differ(void **state)
{
    (void)state;
    static const struct {
        const char *row, *text;
        size_t      n;
    } row[] = { { "hermes", "<tool_call>{\"name\":\"now\"}</tool_call>", 29 },
                { "mistral", "[TOOL_CALLS]now[ARGS]{}", 9 } };
    for (size_t r = 0; r < 2; r++) {
        struct calls_model m;
        struct calls       p;
        struct joined      j;
        start(&m, &p, &j, row[r].row);
        text_of_calls(&p, row[r].text);
        text_of_calls(&p, row[r].text);
        calls_end(&p);
        const char *s = buf_cstr(&j.ids), *end = strchr(s, '\n');
        assert_int_equal(end - s, row[r].n);
        assert_int_equal(strlen(s), 2 * row[r].n + 2);
        assert_memory_not_equal(s, end + 1, row[r].n);
        if (!r) assert_memory_equal(s, "call_", 5);
        for (const char *c = s + (r ? 0 : 5); c < end; c++) assert_true(strchr("_-", *c) == NULL);
        calls_free(&p);
        joined_free(&j);
    }
}

/* The work on `bytes` of text, and the memory that the automaton has then. */
static uint64_t work_on(const char *row, const char *head, const char *unit, size_t bytes, size_t *kept_out)
{
    struct calls_model m;
    struct calls       p;
    struct joined      j;
    start(&m, &p, &j, row);
    text_of_calls(&p, head);
    size_t n = strlen(unit);
    for (size_t at = 0; at < bytes; at += n) calls_text(&p, unit, n);
    *kept_out = p.raw.cap + p.args.cap + p.value.cap + p.keys.cap;
    calls_end(&p);
    uint64_t work = p.n_look;
    calls_free(&p);
    joined_free(&j);
    return work;
}

static void C20_a_hostile_megabyte_takes_linear_work_and_bounded_memory(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "hermes", "<tool_call>{\"name\":\"w\",\"arguments\":{\"city\":\"", "a</tool_call><tool_call>" },
        { "hermes", "<tool_call>{\"arguments\":{\"city\":\"", "<tool_call" },
        { "hermes", "", "<tool_call>{" },
        { "hermes", "<tool_call>", "{\"name\":" },
        { "hermes", "<think>", "<tool_call>{\"a\":" },
        { "hermes", "", "\n" },
        { "qwen_xml", "<function=w><parameter=city>", "</parameter</function<parameter" },
        { "qwen_xml", "<function=s><parameter=o>", "[[" },
        { "qwen_xml", "<function=s>", "<parameter=n>1</parameter>" },
        { "llama_json", "", "{\"name\":\"w\",\"x\":[" },
        { "pythonic", "[w(city=", "[[[" },
        { "pythonic", "[w(city='", "\\u0041" },
        { "mistral", "", "[TOOL_CALLS][ARGS]{" },
        { "gemma4", "<|tool_call>call:w{city:<|\"|>", "<|\"|<|\"" },
        { "harmony", "", "<|channel|><|start|>" },
        { "kimi_k2", "", "<|tool_call_begin|><|tool_call_argument_begin|>" },
        { "deepseek_v32", "",
          "<\xef\xbd\x9c"
          "DSML\xef\xbd\x9c" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum { LOOKS = 4 };
        size_t kept,
            bytes = i < 2 ? 2 << 20 : (size_t)test_size(2 << 20, 48 << 10); /* two cases fill all that is kept */
        uint64_t work = work_on(cases[i][0], cases[i][1], cases[i][2], bytes, &kept);
        /* keys are compared with all keys before them, of which there are at most CALLS_KEYS_MAX */
        if (work > LOOKS * (uint64_t)bytes + CALLS_KEYS_MAX * (uint64_t)CALLS_KEYS_MAX)
            fail_msg("%s %s: %d", cases[i][0], cases[i][2], (int)work);
        assert_true(kept <= 8u << 20);
    }
}

static void bounds_hold_and_what_is_over_them_is_text(void **state)
{
    (void)state;
    struct calls_model m;
    struct calls       p;
    struct joined      j;
    start(&m, &p, &j, "hermes");
    for (unsigned i = 0; i < CALLS_MAX + 2; i++) text_of_calls(&p, "<tool_call>{\"name\":\"now\"}</tool_call>");
    calls_end(&p);
    assert_int_equal(j.n_call, CALLS_MAX);
    assert_string_equal(buf_cstr(&j.text),
                        "<tool_call>{\"name\":\"now\"}</tool_call><tool_call>{\"name\":\"now\"}</tool_call>");
    calls_free(&p);
    joined_free(&j);
    start(&m, &p, &j, "hermes");
    text_of_calls(&p, "<tool_call>{\"name\":\"w\",\"arguments\":{\"city\":\"");
    for (unsigned i = 0; i < (CALLS_ARGS_MAX >> 10) + 3; i++) {
        char block[1025];
        memset(block, 'x', sizeof block - 1);
        block[sizeof block - 1] = 0;
        text_of_calls(&p, block);
    }
    calls_end(&p);
    assert_int_equal(j.calls.n, CALLS_ARGS_MAX + 3);
    assert_int_equal(j.calls.n - 3 + j.text.n, ((CALLS_ARGS_MAX >> 10) + 3) * 1024 + 9);
    calls_free(&p);
    joined_free(&j);
}

static void a_name_outside_the_allowed_ones_is_text(void **state)
{
    (void)state;
    struct calls_tools some = *tools;
    struct calls_model m;
    struct calls       p;
    struct joined      j;
    some.tool = arena_alloc(&arena, some.n * sizeof *some.tool);
    memcpy(some.tool, tools->tool, some.n * sizeof *some.tool);
    some.tool[2].allowed = true;
    some.limited = true;
    struct calls_cfg cfg = { .model = &m, .tools = &some, .sink = join, .ctx = &j };
    calls_model_init(&m, calls_row_find("hermes"), NULL, NULL);
    joined_init(&j);
    calls_init(&p, &cfg, false);
    text_of_calls(&p, "<tool_call>{\"name\":\"now\"}</tool_call><tool_call>{\"name\":\"w\"}</tool_call>");
    calls_end(&p);
    assert_string_equal(buf_cstr(&j.calls), "now {}\n");
    assert_string_equal(buf_cstr(&j.text), "<tool_call>{\"name\":\"w\"}</tool_call>");
    calls_free(&p);
    joined_free(&j);
}

/* The first marker that is whole counts, so none of a state may begin with another of the same state. */
static void no_marker_of_a_state_is_the_beginning_of_another(void **state)
{
    (void)state;
    for (size_t r = 0; calls_row_at(r); r++)
        for (size_t t = 0; calls_think_at(t); t++) {
            struct calls_model m;
            const char        *row = calls_row_at(r)->name;
            if (!strcmp(row, "pythonic") && *calls_think_at(t)->start == '[') continue; /* no model has both */
            calls_model_init(&m, calls_row_at(r), calls_think_at(t), NULL);
            for (uint32_t a = 0; a < m.n_step; a++)
                for (uint32_t b = 0; b < m.n_step; b++) {
                    const struct calls_step *x = &m.step[a], *y = &m.step[b];
                    if (x->from != y->from || x->mark == y->mark) continue;
                    if (x->mark == CALLS_DONE || y->mark == CALLS_DONE) continue;
                    if (!strncmp(m.mark[x->mark].text, m.mark[y->mark].text, m.mark[x->mark].n))
                        fail_msg("%s: %s, %s", m.row->name, m.mark[x->mark].text, m.mark[y->mark].text);
                }
        }
}

static void names_of_other_servers_find_their_rows(void **state)
{
    (void)state;
    assert_string_equal(calls_row_find("qwen3_coder")->name, "qwen_xml");
    assert_string_equal(calls_row_find("llama3_json")->name, "llama_json");
    assert_string_equal(calls_row_find("openai")->name, "harmony");
    assert_string_equal(calls_think_find("deepseek_r1")->start, "<think>");
    assert_null(calls_row_find("nonsense"));
    assert_null(calls_think_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vector_comes_out_the_same_wherever_it_is_cut),
        cmocka_unit_test(a_string_streams_while_it_is_written),
        cmocka_unit_test(ids_have_the_form_of_their_family_and_differ),
        cmocka_unit_test(C20_a_hostile_megabyte_takes_linear_work_and_bounded_memory),
        cmocka_unit_test(bounds_hold_and_what_is_over_them_is_text),
        cmocka_unit_test(a_name_outside_the_allowed_ones_is_text),
        cmocka_unit_test(no_marker_of_a_state_is_the_beginning_of_another),
        cmocka_unit_test(names_of_other_servers_find_their_rows),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
