#include "api/jinja/template.h"
#include <time.h>
#include "tests_root.h"
#include "test.h"

/* What Jinja2 made of the same templates lies in tests/data/templates (tools/golden/make_template_golden.py). */

static char *load(const char *path, size_t *n_out)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *s = malloc((size_t)n + 1);
    assert_non_null(s);
    assert_int_equal(fread(s, 1, (size_t)n, f), n);
    s[n] = 0;
    fclose(f);
    *n_out = (size_t)n;
    return s;
}

static json_t *load_json(const char *path)
{
    struct json_error e;
    size_t            n;
    char             *s = load(path, &n);
    json_t           *v = json_parse(s, n, 0, &e);
    if (!v) fail_msg("%s: %s at %zu", path, e.text, e.offset);
    free(s);
    return v;
}

static const char *str(const json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }

/* One rendering against {"out"}, {"raise"}, {"error"} or {"syntax"}. */
static void compare(const char *name, const struct tmpl *t, const json_t *vars, const json_t *want, int64_t now)
{
    struct buf  out;
    char        err[400];
    const char *text = str(want, "out"), *raise = str(want, "raise");
    buf_init(&out, 64 << 20);
    enum status st = tmpl_render(t, vars, NULL, now, &out, err, sizeof err);
    if (text) {
        if (st) fail_msg("%s: %s", name, err);
        size_t n = json_string_length(json_object_get(want, "out"));
        if (out.n != n || memcmp(out.data ? out.data : "", text, n))
            fail_msg("%s:\n--- wanted\n%s\n--- got\n%.*s", name, text, (int)out.n, out.data);
    } else {
        if (st == ST_OK) fail_msg("%s: an error was expected, got %.*s", name, (int)out.n, out.data ? out.data : "");
        assert_int_equal(out.n, 0);
        assert_true(*err);
        if (raise) assert_string_equal(err, raise);
    }
    buf_free(&out);
}

static void every_family_renders_as_jinja_does(void **state)
{
    (void)state;
    json_t     *g = load_json(TESTS_DATA "/templates/golden.json"), *cases, *want;
    const char *file, *name;
    int         n_case = 0;
    json_object_foreach(json_object_get(g, "templates"), file, cases)
    {
        char         path[512], err[300], label[600];
        size_t       n;
        struct tmpl *t;
        snprintf(path, sizeof path, "%s/%s", SOURCE_DIR, file);
        char *text = load(path, &n);
        if (tmpl_parse(text, n, &t, err, sizeof err)) fail_msg("%s: %s", file, err);
        json_object_foreach(cases, name, want)
        {
            json_t *vars = json_copy(json_object_get(g, "base"));
            json_object_update(vars, json_object_get(json_object_get(g, "conversations"), name));
            snprintf(label, sizeof label, "%s, %s", file, name);
            compare(label, t, vars, want, json_integer_value(json_object_get(g, "now")));
            json_decref(vars);
            n_case++;
        }
        tmpl_free(t);
        free(text);
    }
    assert_true(n_case >= 1100);
    json_decref(g);
}

static void every_small_template_renders_as_jinja_does(void **state)
{
    (void)state;
    json_t *g = load_json(TESTS_DATA "/templates/snippets.json"), *group, *c;
    size_t  i, k;
    json_array_foreach(json_object_get(g, "groups"), i, group)
    {
        json_array_foreach(json_object_get(group, "cases"), k, c)
        {
            char          err[300];
            struct tmpl  *t;
            const json_t *text = json_object_get(c, "t");
            enum status   st = tmpl_parse(json_string_value(text), json_string_length(text), &t, err, sizeof err);
            if (json_object_get(c, "syntax")) {
                if (st == ST_OK) fail_msg("%s: parsed", json_string_value(text));
                assert_int_equal(strncmp(err, "line ", 5), 0);
                continue;
            }
            if (st && json_object_get(c, "error")) continue; /* told at load already */
            if (st) fail_msg("%s: %s", json_string_value(text), err);
            compare(json_string_value(text), t, json_object_get(group, "vars"), c,
                    json_integer_value(json_object_get(g, "now")));
            tmpl_free(t);
        }
    }
    json_decref(g);
}

/* ---------------------------------------------------------------- hostile templates */

static enum status parse(const char *text, char *err)
{
    struct tmpl *t = NULL;
    enum status  st = tmpl_parse(text, strlen(text), &t, err, 300);
    tmpl_free(t);
    return st;
}

static const struct tmpl_limits *limits;

static enum status render(const char *text, const char *vars, struct buf *out, char *err)
{
    struct json_error e;
    struct tmpl      *t;
    if (tmpl_parse(text, strlen(text), &t, err, 300)) fail_msg("%s: %s", text, err);
    json_t     *v = json_parse(vars, strlen(vars), 0, &e);
    enum status st = tmpl_render(t, v, limits, 0, out, err, 300);
    json_decref(v);
    tmpl_free(t);
    return st;
}

static void renders_to(const char *text, const char *vars, const char *want)
{
    char       err[300];
    struct buf b;
    buf_init(&b, 1 << 20);
    if (render(text, vars, &b, err)) fail_msg("%s: %s", text, err);
    assert_string_equal(buf_cstr(&b), want);
    buf_free(&b);
}

static void is_too_much(const char *text)
{
    char       err[300];
    struct buf b;
    buf_init(&b, 1 << 30);
    enum status st = render(text, "{}", &b, err);
    if (st != ST_TOO_LARGE) fail_msg("%s: %d %s", text, st, err);
    assert_int_equal(b.n, 0);
    buf_free(&b);
}

static void C9_endless_loops_run_out_of_steps(void **state)
{
    (void)state;
    static const struct tmpl_limits small = {
        .steps_max = 50000, .depth_max = 128, .output_bytes_max = 1 << 20, .memory_bytes_max = 4 << 20
    };
    clock_t t = clock();
    is_too_much(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"); /* by the default limits */
    limits = &small;
    is_too_much(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}");
    is_too_much(
        "{% for a in range(100000) %}{% for b in range(100000) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}");
    is_too_much("{{ 'a' * 1000000000 }}");
    is_too_much("{{ 'a' * 16000000 * 16 }}");
    is_too_much("{{ [1] * 100000000 }}");
    is_too_much("{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
    is_too_much("{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}");
    is_too_much(
        "{% set ns = namespace(s='ab' * 100000) %}{% for i in range(100000) %}{{ ns.s | upper | length }}{% endfor %}");
    is_too_much(
        "{% set ns = namespace(s='ab' * 1000000) %}{% for i in range(100000) %}{% if 'x' in ns.s %}{% endif %}{% endfor %}");
    is_too_much(
        "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append(i) %}{% if l | sort | first %}{% endif %}{% endfor %}");
    is_too_much("{% set d = {} %}{% for i in range(100000) %}{% set _ = d.update({i ~ '': 1}) %}{% endfor %}");
    is_too_much("{{ range(100001) }}");
    is_too_much("{{ 'x' | indent(100000000) }}");
    is_too_much("{{ 'x'.ljust(1000000000) }}");
    is_too_much("{{ '%999999999d' % 1 }}");
    is_too_much("{{ [1] | batch(1000000000, 0) | list }}");
    is_too_much("{{ [1] | slice(1000000000) | list }}");
    is_too_much("{{ '{:999999999}'.format(1) }}");
    is_too_much("{{ '{:.999999999f}'.format(1.0) }}");
    is_too_much("{{ '%.*f' % (999999999, 1.0) }}");
    is_too_much("{{ 'x' | center(1000000000) }}");
    is_too_much("{{ ('a-b ' * 200000) | wordwrap(1) }}");
    is_too_much(
        "{% set ns = namespace(i=2) %}{% for i in range(100000) %}{% set ns.i = (3 ** 8000) * (5 ** 1000) // (7 ** 999) %}{% endfor %}");
    is_too_much("{% set ns = namespace(i=2) %}{% for i in range(100000) %}{{ (3 ** 9000)|string|length }}{% endfor %}");
    is_too_much("{% for i in range(100000) %}{{ range(1000)|list|pprint|length }}{% endfor %}");
    is_too_much("{% for i in range(100000) %}{{ ('<a&amp;>' * 20000)|striptags|length }}{% endfor %}");
    limits = NULL;
    double seconds = (double)(clock() - t) / CLOCKS_PER_SEC;
#ifdef __SANITIZE_THREAD__
    (void)seconds; /* it looks at every byte that is read: there it only must end */
#else
    assert_true(seconds < 20); /* 0.3 s, and some of them never end where a step is not counted */
#endif
}

static void is_refused(const char *text, const char *why)
{
    char       err[300];
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(render(text, "{}", &b, err), ST_INVALID);
    assert_string_equal(err, why);
    buf_free(&b);
}

static void whole_numbers_are_exact_up_to_a_bound_that_is_told(void **state)
{
    (void)state;
    renders_to("{{ 2 ** 16383 // 2 ** 16382 }}", "{}", "2");
    renders_to("{{ (2 ** 8191 - 1) % 127 }} {{ (2 ** 8191 - 1) * (2 ** 8191 - 1) == 2 ** 16382 - 2 ** 8192 + 1 }}",
               "{}", "1 True");
    is_refused("{{ 2 ** 16384 }}", "line 1: integer too large: more than 16384 bits");
    is_refused("{{ 2 ** (2 ** 70) }}", "line 1: integer too large: more than 16384 bits");
    is_refused("{{ 10 ** 4300 }}", "line 1: an integer of more than 4300 digits as text");
    renders_to("{{ (10 ** 4299)|string|length }}", "{}", "4300");
    char       err[300];
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_puts(&text, "{{ ");
    for (int i = 0; i < 4301; i++) buf_putc(&text, '9');
    buf_puts(&text, " }}");
    assert_int_equal(parse(buf_cstr(&text), err), ST_CONFIG);
    assert_string_equal(err, "line 1: an integer that is too large: at most 16384 bits, 4300 digits");
    buf_free(&text);
}

static void C10_depth_is_bounded_at_load(void **state)
{
    (void)state;
    static const struct {
        const char *open, *close, *tail;
        int         n;
    } deep[] = {
        { "(", ")", " }}", 100000 },          { "[", "]", " }}", 100000 },
        { "{1:", "}", " }}", 100000 },        { "-", "", "1 }}", 100000 },
        { "a(", ")", " }}", 100000 },         { "a[", "]", " }}", 100000 },
        { "not ", "", "1 }}", 200000 },       { "1 if 1 else ", "", "1 }}", 100000 },
        { "{% if 1 %}", "", "", 10000 },      { "{% for a in b %}", "", "", 10000 },
        { "{% set x %}", "", "", 10000 },     { "{% filter upper %}", "", "", 10000 },
        { "{% macro a() %}", "", "", 10000 }, { "{% set ((((((((", "", "", 10000 },
    };
    char       err[300];
    struct buf text;
    buf_init(&text, 8 << 20);
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        buf_clear(&text);
        if (deep[i].open[0] != '{' || deep[i].open[1] != '%') buf_puts(&text, "{{ ");
        for (int k = 0; k < deep[i].n && text.n < 2 << 20; k++) buf_puts(&text, deep[i].open);
        for (int k = 0; k < deep[i].n && text.n < 3 << 20; k++) buf_puts(&text, deep[i].close);
        buf_puts(&text, deep[i].tail);
        bool only_parity = !strcmp(deep[i].open, "not "); /* a run of "not" is one level */
        if (parse(buf_cstr(&text), err) != (only_parity ? ST_OK : ST_CONFIG))
            fail_msg("%s is not refused", deep[i].open);
    }
    buf_free(&text);
    assert_int_equal(parse("{{ ((((((((((((((((((((1)))))))))))))))))))) }}", err), ST_OK);
}

static void C10_long_chains_need_no_stack(void **state)
{
    (void)state;
    const int  n_link = test_size(100000, 40000);
    char       err[300];
    struct buf text;
    buf_init(&text, 8 << 20);
    for (int kind = 0; kind < 6; kind++) {
        static const char *const link[] = { " + 1", " ~ 'a'", " and 1", " == 1", "|trim", ".a" };
        buf_clear(&text);
        buf_puts(&text, "{{ a");
        for (int i = 0; i < n_link; i++) buf_puts(&text, link[kind]);
        buf_puts(&text, " }}");
        enum status st = parse(buf_cstr(&text), err);
        assert_int_equal(st, kind < 4 ? ST_OK : ST_CONFIG); /* filters and attributes make a tree: too high */
    }
    buf_free(&text);
    is_too_much("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    is_too_much(
        "{% macro f(a) %}{% if 1 %}{% for x in [1] %}{{ [f((a + 1))] }}{% endfor %}{% endif %}{% endmacro %}{{ f(0) }}");
    is_too_much("{% macro f(a=f()) %}{% endmacro %}{{ f() }}");
    is_too_much("{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ g() }}");
    is_too_much(
        "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}");
    is_too_much("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
    is_too_much("{% block a %}{{ self.a() }}{% endblock %}");
    is_too_much("{% macro f() %}{{ f(*[1], **{'a': 2}) }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f() }}");
    is_too_much("{% set l = [] %}{% set _ = l.append(l) %}{{ l|pprint }}");
    is_too_much("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}");
    is_too_much("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}");
    is_too_much("{% set l = [] %}{% set _ = l.append(l) %}{% set m = [] %}{% set _ = m.append(m) %}{{ l == m }}");
}

static void C11_there_is_nothing_to_break_out_to(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ messages.__init__.__globals__ }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ lipsum() }}",
        "{{ open('/etc/passwd') }}",
        "{{ eval('1') }}",
        "{% import 'os' as os %}",
        "{% from 'a' import b %}",
        "{% include 'a' %}",
        "{% extends 'a' %}",
        "{% do x %}",
        "{% autoescape true %}{% endautoescape %}",
        "{{ x is undefinedtest }}",
        "{{ namespace(__class__=1) }}",
    };
    char err[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse(bad[i], err) != ST_CONFIG) fail_msg("%s is accepted", bad[i]);
        assert_int_equal(strncmp(err, "line 1: ", 8), 0);
    }
    renders_to("[{{ ''|attr(a) }}{{ '{0.__class__}{0[__class__]}'.format('') }}{{ [{}]|map(attribute=a)|join }}]",
               "{\"a\":\"__class__\"}", "[]");
    renders_to("[{{ ''[a] }}{{ {}[a] }}{{ self }}{{ config }}]", "{\"a\":\"__class__\"}", "[]");
}

static void an_unknown_name_in_a_template_is_reported_with_its_line(void **state)
{
    (void)state;
    char err[300];
    parse("a\nb\n{{ x | nosuch }}", err);
    assert_string_equal(err, "line 3: no filter named 'nosuch'");
    parse("\n{{ x is nosuch }}", err);
    assert_string_equal(err, "line 2: no test named 'nosuch'");
    parse("\n\n{{ nosuch(1) }}", err);
    assert_string_equal(err, "line 3: no function named 'nosuch'");
    parse("{% nosuch %}", err);
    assert_string_equal(err, "line 1: no tag named 'nosuch' here");
    parse("{{ x | map('nosuch') }}", err);
    assert_string_equal(err, "line 1: no filter named 'nosuch'");
    parse("{{ x | selectattr('a', 'nosuch') }}", err);
    assert_string_equal(err, "line 1: no test named 'nosuch'");
    parse("x\n{% if a %}\nb", err);
    assert_string_equal(err, "line 2: a block that begins here is not ended: 'endif' is missing");
}

static void C12_raise_exception_gives_its_message_and_no_more(void **state)
{
    (void)state;
    char       err[300], small[16];
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(render("abc{{ raise_exception('Roles must ' ~ 'alternate') }}def", "{}", &b, err), ST_INVALID);
    assert_string_equal(err, "Roles must alternate");
    assert_int_equal(b.n, 0);
    assert_int_equal(render("{{ raise_exception('x' * 10000) }}", "{}", &b, err), ST_INVALID);
    assert_int_equal(strlen(err), 299);
    struct tmpl *t;
    assert_int_equal(tmpl_parse("{{ raise_exception('é' * 100) }}", 33, &t, err, sizeof err), ST_OK);
    json_t *v = json_object();
    assert_int_equal(tmpl_render(t, v, NULL, 0, &b, small, sizeof small), ST_INVALID);
    assert_string_equal(small, "ééééééé"); /* no half character */
    json_decref(v);
    tmpl_free(t);
    buf_free(&b);
}

static void C13_markup_in_content_is_data(void **state)
{
    (void)state;
    renders_to("{% for m in messages %}{{ m.content }}{% endfor %}",
               "{\"messages\":[{\"content\":\"{{ 7*7 }}{% raw %}{# x #}\"}]}", "{{ 7*7 }}{% raw %}{# x #}");
}

static void the_callers_data_is_not_changed(void **state)
{
    (void)state;
    char       err[300];
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(render("{% set _ = a.append(1) %}", "{\"a\":[]}", &b, err), ST_INVALID);
    assert_int_equal(render("{% set _ = a.update({'x': 1}) %}", "{\"a\":{}}", &b, err), ST_INVALID);
    assert_int_equal(render("{% set _ = a[0].pop('x') %}", "{\"a\":[{\"x\":1}]}", &b, err), ST_INVALID);
    renders_to("{% set l = a | list %}{% set _ = l.append(4) %}{{ l }}{{ a }}", "{\"a\":[3]}", "[3, 4][3]");
    renders_to(
        "{% set l = [] %}{% for i in [1, 2, 3] %}{% set _ = l.append(i) %}{% endfor %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}",
        "{}", "31[2]");
    buf_free(&b);
}

static void json_inside_templates_is_read(void **state)
{
    (void)state;
    renders_to("{% set d = s | from_json %}{{ d.a[1].b }}{{ d | tojson }}",
               "{\"s\":\"{\\\"a\\\": [1, {\\\"b\\\": \\\"x\\\"}]}\"}", "x{\"a\": [1, {\"b\": \"x\"}]}");
    char       err[300];
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(render("{{ '{bad' | fromjson }}", "{}", &b, err), ST_INVALID);
    buf_free(&b);
}

static void the_sort_of_content_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool        parts;
    } kinds[] = {
        { "{% for m in messages %}{{ m.content }}{% endfor %}", false },
        { "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}", true },
        { "{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}", true },
        { "{% macro f(content) %}{% for p in content %}{{ p.text }}{% endfor %}{% endmacro %}", true },
        { "{% for m in messages %}{% for p in m.content | selectattr('type') %}{% endfor %}{% endfor %}", true },
        { "{% for m in messages %}{% for p in m.content.split('a') %}{{ p }}{% endfor %}{% endfor %}", false },
        { "{% for m in messages %}{% for p in m.tool_calls %}{{ p }}{% endfor %}{% endfor %}", false },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char         err[300];
        struct tmpl *t;
        assert_int_equal(tmpl_parse(kinds[i].text, strlen(kinds[i].text), &t, err, sizeof err), ST_OK);
        assert_int_equal(tmpl_wants_parts(t), kinds[i].parts);
        tmpl_free(t);
    }
}

static void names_and_words_of_a_template_can_be_asked_for(void **state)
{
    (void)state;
    char         err[300];
    struct tmpl *t;
    const char  *text = "{% if enable_thinking %}{% set x = 1 %}{% endif %}{# tools #}{{ m.role == 'developer' }}";
    assert_int_equal(tmpl_parse(text, strlen(text), &t, err, sizeof err), ST_OK);
    assert_true(tmpl_mentions(t, "enable_thinking"));
    assert_true(tmpl_mentions(t, "m"));
    assert_false(tmpl_mentions(t, "x")); /* only written */
    assert_false(tmpl_mentions(t, "tools"));
    assert_false(tmpl_mentions(t, "role"));
    assert_true(tmpl_has_text(t, "developer"));
    assert_false(tmpl_has_text(t, "critic"));
    tmpl_free(t);
}

static void bytes_that_are_not_utf8_are_no_template(void **state)
{
    (void)state;
    char         err[300];
    struct tmpl *t = NULL;
    assert_int_equal(tmpl_parse("a\xff", 2, &t, err, sizeof err), ST_CONFIG);
    assert_int_equal(tmpl_parse("a\0b", 3, &t, err, sizeof err), ST_CONFIG);
    assert_int_equal(tmpl_parse("", 0, &t, err, sizeof err), ST_OK);
    tmpl_free(t);
}

int main(void)
{
    setenv("TZ", "UTC0", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_renders_as_jinja_does),
        cmocka_unit_test(every_small_template_renders_as_jinja_does),
        cmocka_unit_test(C9_endless_loops_run_out_of_steps),
        cmocka_unit_test(whole_numbers_are_exact_up_to_a_bound_that_is_told),
        cmocka_unit_test(C10_depth_is_bounded_at_load),
        cmocka_unit_test(C10_long_chains_need_no_stack),
        cmocka_unit_test(C11_there_is_nothing_to_break_out_to),
        cmocka_unit_test(an_unknown_name_in_a_template_is_reported_with_its_line),
        cmocka_unit_test(C12_raise_exception_gives_its_message_and_no_more),
        cmocka_unit_test(C13_markup_in_content_is_data),
        cmocka_unit_test(the_callers_data_is_not_changed),
        cmocka_unit_test(json_inside_templates_is_read),
        cmocka_unit_test(the_sort_of_content_is_found),
        cmocka_unit_test(names_and_words_of_a_template_can_be_asked_for),
        cmocka_unit_test(bytes_that_are_not_utf8_are_no_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
