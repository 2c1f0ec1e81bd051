#include "base/json.h"
#include "engine/model/dense.h"
#include "tests/memory_source.h"
#include "tests_root.h"
#include <math.h>

#define LINEAR(in, out, more) "{\"in_features\":" #in ",\"out_features\":" #out more "}"
#define ACT(name)             ",\"activation_function\":\"" name "\""
#define PLAIN                 ",\"bias\":false" ACT("torch.nn.modules.linear.Identity")

static void add_weights(struct memory_source *m, const char *name, const char *header, const float *x, size_t n)
{
    size_t         n_header = strlen(header), bytes = n * sizeof *x;
    unsigned char *b = calloc(1, 8 + n_header + bytes);
    assert_non_null(b);
    b[0] = (unsigned char)n_header;
    b[1] = (unsigned char)(n_header >> 8);
    memcpy(b + 8, header, n_header);
    memcpy(b + 8 + n_header, x, bytes);
    memory_add(m, name, b, 8 + n_header + bytes);
    free(b);
}

#define WEIGHT_3_2 "\"linear.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}"
#define BIAS_3     "\"linear.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}"
static const float weights[] = { 1, 2, 3, 4, -5, 6, 0.5f, -0.25f, 1000 };

/* One layer of state_dim numbers; header NULL: it has no weights. */
static enum status load(const char *config, const char *header, size_t n, struct model_dense **d, char err[512])
{
    struct memory_source m = { .src.n_embed = 0 };
    if (config) memory_add_text(&m, "2_Dense/config.json", config);
    if (header) add_weights(&m, "2_Dense/model.safetensors", header, weights, n);
    *d = NULL;
    err[0] = 0;
    enum status st = model_dense_read(d, &m.src, "2_Dense", 2, err, 512);
    if (!st) st = model_dense_load(*d, &m.src, err, 512);
    memory_free(&m);
    return st;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fabs(b))) fail_msg("found %.17g, needed is %.17g", a, b);
}

static void a_layer_is_a_product_a_bias_and_an_activation(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double      want[3]; /* of 1 * 1 + 2 * -1 + 0.5 = -0.5, 3 - 4 - 0.25 = -1.25, -5 - 6 + 1000 = 989 */
    } cases[] = {
        { LINEAR(2, 3, ACT("torch.nn.modules.linear.Identity")), { -0.5, -1.25, 989 } },
        { LINEAR(2, 3, ",\"activation_function\":null,\"bias\":true"), { -0.5, -1.25, 989 } },
        { LINEAR(2, 3, ACT("torch.nn.modules.activation.Tanh")), { -0.46211715726000975, -0.84828363995751288, 1 } },
        { LINEAR(2, 3, ""), { -0.46211715726000975, -0.84828363995751288, 1 } },
        { LINEAR(2, 3, ACT("torch.nn.ReLU")), { 0, 0, 989 } },
        { LINEAR(2, 3, ACT("torch.nn.modules.activation.Sigmoid")), { 0.37754066879814541, 0.22270013882530884, 1 } },
        { LINEAR(2, 3, ACT("torch.nn.modules.activation.SiLU")), { -0.18877033439907270, -0.27837517353163605, 989 } },
        { LINEAR(2, 3, ACT("torch.nn.modules.activation.GELU")), { -0.15426876936299344, -0.13206221708356906, 989 } },
    };
    const double x[2] = { 1, -1 };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_dense *d;
        double              out[3];
        char                err[512];
        if (load(cases[i].config, "{" WEIGHT_3_2 "," BIAS_3 "}", 9, &d, err)) fail_msg("case %zu: %s", i, err);
        assert_int_equal(model_dense_width(d), 3);
        model_dense_apply(d, x, out);
        for (int k = 0; k < 3; k++) near(out[k], cases[i].want[k]);
        model_dense_free(d);
    }
}

static size_t from_hex(const char *hex, unsigned char *out, size_t max)
{
    size_t n = strlen(hex) / 2;
    assert_true(n <= max);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (unsigned char)byte;
    }
    return n;
}

static uint32_t numbers(const json_t *list, double *out, size_t max)
{
    size_t n = json_array_size(list);
    assert_in_range(n, 1, max);
    for (size_t i = 0; i < n; i++) out[i] = json_number_value(json_array_get(list, i));
    return (uint32_t)n;
}

/* Saved by sentence-transformers, and computed by it in double (tools/golden/make_dense_golden.py). */
static void modules_of_sentence_transformers_give_its_vectors(void **state)
{
    (void)state;
    struct source data = { .dir = TESTS_DATA };
    char         *text, err[512] = "";
    size_t        n, i, k;
    assert_int_equal(source_text(&data, "dense.json", 1 << 20, &text, &n), ST_OK);
    json_t *rows = json_parse(text, n, 0, NULL), *row, *x;
    free(text);
    assert_int_equal(json_array_size(rows), 7);
    json_array_foreach(rows, i, row)
    {
        unsigned char        file[4096];
        double               in[8], want[8], out[DENSE_WIDTH_MAX];
        struct memory_source m = { .src.n_embed = 0 };
        struct model_dense  *d = NULL;
        memory_add_text(&m, "2_Dense/config.json", json_string_value(json_object_get(row, "config")));
        n = from_hex(json_string_value(json_object_get(row, "weights")), file, sizeof file);
        memory_add(&m, "2_Dense/model.safetensors", file, n);
        if (model_dense_read(&d, &m.src, "2_Dense", 6, err, sizeof err) || model_dense_load(d, &m.src, err, sizeof err))
            fail_msg("module %zu: %s", i, err);
        json_array_foreach(json_object_get(row, "x"), k, x)
        {
            assert_int_equal(numbers(x, in, ARRAY_N(in)), 6);
            assert_int_equal(numbers(json_array_get(json_object_get(row, "y"), k), want, ARRAY_N(want)), 4);
            model_dense_apply(d, in, out);
            for (int o = 0; o < 4; o++)
                if (!(fabs(out[o] - want[o]) <= 1e-13 * (1 + fabs(want[o]))))
                    fail_msg("module %zu, state %zu: found %.17g, needed is %.17g", i, k, out[o], want[o]);
        }
        model_dense_free(d);
        memory_free(&m);
    }
    json_decref(rows);
}

static void layers_follow_each_other_and_a_state_becomes_its_vector_where_it_lies(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct model_dense  *d = NULL;
    char                 err[512] = "", folder[20];
    static const char   *one = "{\"linear.weight\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]}}";
    const float          sum[3] = { 1, 10, 100 };
    double               x[3] = { 1, -1, 7 };
    memory_add_text(&m, "2_Dense/config.json", LINEAR(2, 3, PLAIN));
    memory_add_text(&m, "3_Dense/config.json", LINEAR(3, 1, PLAIN));
    add_weights(&m, "2_Dense/model.safetensors", "{" WEIGHT_3_2 "}", weights, 6);
    add_weights(&m, "3_Dense/model.safetensors", one, sum, 3);
    for (int i = 2; i < 4; i++) {
        snprintf(folder, sizeof folder, "%d_Dense", i);
        assert_int_equal(model_dense_read(&d, &m.src, folder, 2, err, sizeof err), ST_OK);
    }
    assert_int_equal(model_dense_load(d, &m.src, err, sizeof err), ST_OK);
    assert_int_equal(model_dense_width(d), 1);
    model_dense_apply(d, x, x);
    near(x[0], 1 * (1 - 2) + 10 * (3 - 4) + 100 * (-5 - 6));
    near(x[1], -1);
    near(x[2], 7);
    model_dense_free(d);
    /* without weights, as --load-format dummy has it */
    d = NULL;
    m.src.dummy = true;
    assert_int_equal(model_dense_read(&d, &m.src, "2_Dense", 2, err, sizeof err), ST_OK);
    assert_int_equal(model_dense_load(d, &m.src, err, sizeof err), ST_OK);
    model_dense_apply(d, x, x);
    near(x[2], 0);
    model_dense_free(d);
    memory_free(&m);
}

static void what_is_not_served_is_named_with_its_file(void **state)
{
    (void)state;
    static const struct {
        const char *config, *header;
        size_t      n;
        const char *says[2];
    } cases[] = {
        { NULL, NULL, 0, { "2_Dense/config.json", "no such file" } },
        { "[]", NULL, 0, { "in_features", "1 to 8192" } },
        { "{\"in_features\":2,\"out_features\":0}", NULL, 0, { "out_features", "1 to 8192" } },
        { "{\"in_features\":2,\"out_features\":8193}", NULL, 0, { "out_features", "1 to 8192" } },
        { LINEAR(3, 3, ""), NULL, 0, { "in_features is 3", "has 2 numbers" } },
        { LINEAR(2, 3, ",\"bias\":1"), NULL, 0, { "bias", "true or false" } },
        { LINEAR(2, 3, ACT("torch.nn.modules.activation.Softmax")), NULL, 0, { "Softmax", "served are torch.nn's" } },
        { LINEAR(2, 3, ACT("mine.Tanh")), NULL, 0, { "'mine.Tanh'", "activation_function" } },
        { LINEAR(2, 3, ",\"activation_function\":1"), NULL, 0, { "no name", "activation_function" } },
        { LINEAR(2, 3, ",\"module_input_name\":\"token_embeddings\""), NULL, 0, { "module_input_name", "token_emb" } },
        { LINEAR(2, 3, ",\"module_output_name\":\"x\""), NULL, 0, { "module_output_name", "'x'" } },
        { LINEAR(2, 3, ""), NULL, 0, { "2_Dense/model.safetensors", "(.bin) are not read" } },
        { LINEAR(2, 3, ""), "{" WEIGHT_3_2 "}", 6, { "2_Dense/model.safetensors", "missing tensor linear.bias" } },
        { LINEAR(2, 3, ",\"bias\":false"), "{" WEIGHT_3_2 "," BIAS_3 "}", 9, { "linear.bias", "bias is false" } },
        { LINEAR(2, 4, ""), "{" WEIGHT_3_2 "," BIAS_3 "}", 9, { "shape [3, 2]", "makes it [4, 2]" } },
        { LINEAR(2, 3, ""),
          "{" WEIGHT_3_2 ",\"linear.bias\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[24,36]}}",
          9,
          { "linear.bias has shape [1, 3]", "makes it [3]" } },
        { LINEAR(2, 3, PLAIN),
          "{\"linear.weight\":{\"dtype\":\"I32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}",
          6,
          { "dtype I32", "F32" } },
        { LINEAR(2, 3, PLAIN),
          "{\"weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}",
          6,
          { "found tensor weight", "needed are linear.weight" } },
        { LINEAR(2, 3, PLAIN), "{" WEIGHT_3_2 "}", 5, { "2_Dense/model.safetensors", "" } },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_dense *d;
        char                err[512];
        if (load(cases[i].config, cases[i].header, cases[i].n, &d, err) != ST_CONFIG) fail_msg("case %zu is taken", i);
        for (int k = 0; k < 2; k++)
            if (!strstr(err, cases[i].says[k]))
                fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err, cases[i].says[k]);
        assert_null(strchr(err, '\n'));
        model_dense_free(d);
    }
}

static void a_file_that_is_too_large_or_not_finite_is_refused(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct model_dense  *d = NULL;
    char                 err[512] = "";
    const float          bad[] = { 1, 2, NAN, 4, 5, 6 };
    size_t               n = (2 << 20) + 100;
    char                *large = calloc(1, n);
    assert_non_null(large);
    memory_add_text(&m, "2_Dense/config.json", LINEAR(2, 3, PLAIN));
    memory_add_text(&m, "3_Dense/config.json", LINEAR(3, 3, PLAIN));
    add_weights(&m, "2_Dense/model.safetensors", "{" WEIGHT_3_2 "}", bad, 6);
    memory_add(&m, "3_Dense/model.safetensors", large, n);
    free(large);
    assert_int_equal(model_dense_read(&d, &m.src, "2_Dense", 2, err, sizeof err), ST_OK);
    assert_int_equal(model_dense_load(d, &m.src, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "not finite"));
    model_dense_free(d);
    d = NULL;
    assert_int_equal(model_dense_read(&d, &m.src, "3_Dense", 3, err, sizeof err), ST_OK);
    assert_int_equal(model_dense_load(d, &m.src, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "at most"));
    for (int i = 1; i < DENSE_LAYERS_MAX; i++)
        assert_int_equal(model_dense_read(&d, &m.src, "3_Dense", 3, err, sizeof err), ST_OK);
    assert_int_equal(model_dense_read(&d, &m.src, "3_Dense", 3, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "more than 4"));
    model_dense_free(d);
    memory_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_is_a_product_a_bias_and_an_activation),
        cmocka_unit_test(modules_of_sentence_transformers_give_its_vectors),
        cmocka_unit_test(layers_follow_each_other_and_a_state_becomes_its_vector_where_it_lies),
        cmocka_unit_test(what_is_not_served_is_named_with_its_file),
        cmocka_unit_test(a_file_that_is_too_large_or_not_finite_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
