#include "server/routes.h"
#include "test.h"

static const struct route *find(const char *path)
{
    return route_find(routes_served(true), (struct slice){ path, strlen(path) });
}

static void exact_paths_and_nothing_near_them(void **state)
{
    (void)state;
    static const char *const good[] = { "/",
                                        "/health",
                                        "/ready",
                                        "/livez",
                                        "/ping",
                                        "/metrics",
                                        "/version",
                                        "/tokenize",
                                        "/detokenize",
                                        "/tokenizer_info",
                                        "/v1/models",
                                        "/v1/completions",
                                        "/v1/chat/completions" };
    static const char *const bad[] = { "",
                                       "/nope",
                                       "/v1",
                                       "/v1/",
                                       "/v1//models",
                                       "/V1/models",
                                       "/health/",
                                       "//health",
                                       "/v1/chat/completions/",
                                       "/v1/models?",
                                       "health",
                                       "/healthz",
                                       "/%68ealth",
                                       "/./health" };
    for (size_t i = 0; i < ARRAY_N(good); i++) assert_non_null(find(good[i]));
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_null(find(bad[i]));
    assert_non_null(find("/v1/models/a/b"));
    assert_true(find("/v1/models/a")->flags & ROUTE_PREFIX);
    assert_null(find("/v1/models/"));
}

static void J2_every_route_states_its_kind_of_authentication(void **state)
{
    (void)state;
    uint32_t            n = routes_served(true)->n;
    const struct route *r = routes_served(true)->row;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(r[i].auth != AUTH_UNSET && r[i].methods && r[i].handle);
        assert_int_equal(route_index(routes_served(true), &r[i]), i);
        bool open = r[i].auth == AUTH_OPEN, api = strncmp(r[i].path, "/v1", 3) == 0 || strstr(r[i].path, "tokenize");
        assert_false(open && api);
    }
    assert_true(find("/ping")->methods == (M_GET | M_HEAD | M_POST));
}

static void allow_names_every_method_that_a_row_has(void **state)
{
    (void)state;
    char out[ROUTE_ALLOW_BYTES];
    assert_string_equal(route_allow(find("/ping")->methods, out), "GET, HEAD, POST");
    assert_string_equal(route_allow(find("/v1/completions")->methods, out), "POST");
    assert_string_equal(route_allow(M_DELETE | M_PUT | M_PATCH, out), "PUT, PATCH, DELETE");
    assert_string_equal(route_allow(M_OTHER - 1, out), "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    uint32_t            n = routes_served(true)->n;
    const struct route *r = routes_served(true)->row;
    for (uint32_t i = 0; i < n; i++)
        assert_true((r[i].methods & route_methods(routes_served(true))) == r[i].methods &&
                    *route_allow(r[i].methods, out));
    assert_string_equal(route_allow(route_methods(routes_served(true)) & ~(unsigned)M_HEAD, out), "GET, POST, DELETE");
}

/* The path of route i continues that of one that generates. */
static bool is_below_one_that_generates(const struct routes *t, uint32_t i)
{
    for (uint32_t k = 0; k < t->n; k++) {
        size_t n = strlen(t->row[k].path);
        if (!(t->row[k].flags & ROUTE_GEN) || strncmp(t->row[i].path, t->row[k].path, n)) continue;
        if (t->row[i].path[n] == '/') return true;
    }
    return false;
}

/* A route below, as that which counts tokens, has a dialect for its errors. */
static void a_route_that_generates_has_a_dialect_and_else_only_routes_below_it(void **state)
{
    (void)state;
    const struct routes *t = routes_served(true);
    for (uint32_t i = 0; i < t->n; i++) {
        bool generates = t->row[i].flags & ROUTE_GEN;
        assert_true(!generates || t->row[i].dialect);
        assert_true(generates || !t->row[i].dialect || is_below_one_that_generates(t, i));
    }
}

static void a_route_is_named_by_one_method(void **state)
{
    (void)state;
    assert_string_equal(route_method(find("/ping")), "POST");
    assert_string_equal(route_method(find("/v1/models")), "GET");
    assert_string_equal(route_method(&(struct route){ .methods = M_DELETE }), "DELETE");
}

static void hint_is(const char *path, const char *want)
{
    const char *hint = route_hint(routes_served(true), (struct slice){ path, strlen(path) });
    if (!want && hint) fail_msg("%s: %s", path, hint);
    if (want && (!hint || strcmp(hint, want) != 0)) fail_msg("%s: %s", path, hint ? hint : "no hint");
}

static void the_404_of_a_misspelt_path_names_the_right_path(void **state)
{
    (void)state;
    hint_is("/chat/completions", "/v1/chat/completions");
    hint_is("/models", "/v1/models");
    hint_is("/v1/v1/chat/completions", "/v1/chat/completions");
    hint_is("/v1/v1/v1/models", "/v1/models");
    hint_is("/v1/chat/completions/", "/v1/chat/completions");
    hint_is("/api/v1/completions", "/v1/completions");
    hint_is("/V1/Models", "/v1/models");
    hint_is("//health", "/health");
    hint_is("/v1/tokenize", "/tokenize");
    hint_is("/v1", NULL);
    hint_is("/embeddings", "/v1/embeddings");
    hint_is("/v1/audio/speech", NULL);
    hint_is("", NULL);
    hint_is("/", NULL);
    hint_is("////", NULL);
    char list[400];
    route_list(routes_served(true), list, sizeof list);
    assert_non_null(strstr(list, "POST /v1/chat/completions, POST /v1/completions"));
    assert_non_null(strstr(list, "GET /v1/models"));
    assert_null(strstr(list, "/health")); /* probes are no client's business */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_paths_and_nothing_near_them),
        cmocka_unit_test(the_404_of_a_misspelt_path_names_the_right_path),
        cmocka_unit_test(allow_names_every_method_that_a_row_has),
        cmocka_unit_test(a_route_that_generates_has_a_dialect_and_else_only_routes_below_it),
        cmocka_unit_test(a_route_is_named_by_one_method),
        cmocka_unit_test(J2_every_route_states_its_kind_of_authentication),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
