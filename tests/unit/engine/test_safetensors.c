#include "engine/model/safetensors.h"
#include "base/log.h"
#include "base/rng.h"
#include "memory_source.h"
#include <fcntl.h>

static char err[512];

static enum status open_one(const char *header, size_t n_data, struct st_set **set)
{
    struct memory_source m = { .src.n_embed = 0 };
    memory_add_safetensors(&m, "model.safetensors", header, n_data);
    err[0] = 0;
    enum status st = st_open(&m.src, set, err, sizeof err);
    memory_free(&m);
    return st;
}

/* One header, the bytes after it, and what the one line must say. */
static void refused(const char *header, size_t n_data, const char *says)
{
    struct st_set *set = NULL;
    if (open_one(header, n_data, &set) != ST_CONFIG) fail_msg("taken: %s", header);
    assert_null(set);
    if (!strstr(err, says)) fail_msg("\"%s\" does not say \"%s\"", err, says);
    if (!strstr(err, "model.safetensors")) fail_msg("\"%s\" does not name the file", err);
    assert_null(strchr(err, '\n'));
}

static void a_file_gives_its_tensors_in_order(void **state)
{
    (void)state;
    struct st_set *set;
    char           shape[64];
    assert_int_equal(open_one("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                              "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                              "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28]},"
                              "\"none\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[8,8]},"
                              "\"packed\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[28,31]},"
                              "\"__metadata__\":{\"format\":\"pt\"}}    ",
                              31, &set),
                     ST_OK);
    static const struct {
        const char   *name;
        enum st_dtype dtype;
        uint64_t      offset, bytes;
    } want[] = { { "a", ST_DT_F32, 0, 8 },
                 { "none", ST_DT_F16, 8, 0 },
                 { "b", ST_DT_BF16, 8, 12 },
                 { "scalar", ST_DT_OTHER, 20, 8 },
                 { "packed", ST_DT_OTHER, 28, 3 } };
    assert_int_equal(set->n_tensor, ARRAY_N(want));
    uint64_t data = set->file[0].bytes - 31;
    for (uint32_t i = 0; i < ARRAY_N(want); i++) {
        assert_string_equal(set->tensor[i].name, want[i].name);
        assert_int_equal(set->tensor[i].dtype, want[i].dtype);
        assert_int_equal(set->tensor[i].offset, data + want[i].offset);
        assert_int_equal(set->tensor[i].bytes, want[i].bytes);
    }
    assert_string_equal(st_shape_text(&set->tensor[2], shape, sizeof shape), "[2, 3]");
    assert_string_equal(st_shape_text(&set->tensor[3], shape, sizeof shape), "[]");
    assert_string_equal(set->tensor[3].dtype_text, "I64");
    assert_string_equal(st_shape_text(&set->tensor[2], shape, 4), "[2,");
    st_close(set);
    assert_int_equal(open_one("{}", 0, &set), ST_OK);
    assert_int_equal(set->n_tensor, 0);
    st_close(set);
}

/* D1 */
static void a_header_length_out_of_bounds_is_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 0, 1, 100, 100000000, 100000001, 1ull << 63, UINT64_MAX, UINT64_MAX - 7 };
    for (size_t i = 0; i < ARRAY_N(lengths); i++) {
        struct memory_source m = { .src.n_embed = 0 };
        struct st_set       *set;
        unsigned char        b[64] = "";
        for (int k = 0; k < 8; k++) b[k] = (unsigned char)(lengths[i] >> 8 * k);
        memcpy(b + 8, "{}", 2);
        memory_add(&m, "model.safetensors", b, sizeof b);
        assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_CONFIG);
        assert_non_null(strstr(err, "model.safetensors: "));
        assert_non_null(strstr(err, "offset "));
        memory_free(&m);
    }
    for (size_t n = 0; n < 10; n++) { /* too short for the length itself, or for {} */
        struct memory_source m = { .src.n_embed = 0 };
        struct st_set       *set;
        memory_add(&m, "model.safetensors", "\2\0\0\0\0\0\0\0{", n < 9 ? n : 9);
        assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_CONFIG);
        memory_free(&m);
    }
}

/* D2 */
static void a_header_that_is_no_strict_json_object_is_refused(void **state)
{
    (void)state;
    refused("[]", 0, "does not begin with {");
    refused(" {}", 0, "does not begin with {");
    refused("{\"a\":1", 0, "not valid JSON at offset");
    refused("{} x", 0, "not valid JSON at offset");
    refused("{\"a\":NaN}", 0, "not valid JSON");
    refused(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        4, "not valid JSON");
    refused("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON");
    refused("{\"a\":[[[[[[1]]]]]]}", 0, "nested too deeply");
    refused("{\"a\":1}", 0, "wants exactly dtype, shape and data_offsets");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "wants exactly");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "wants exactly");
    refused("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "wants exactly");
    refused("{\"__metadata__\":1}", 0, "__metadata__ is not an object");
    refused("{\"__metadata__\":{\"k\":1}}", 0, "__metadata__.k is not a string");
}

/* D3 */
static void offsets_that_do_not_cover_the_file_are_refused(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4, "begin <= end");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[-4,0]}}", 4, "data_offsets");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}", 4, "data_offsets");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4.0]}}", 4, "data_offsets");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,18446744073709551620]}}", 4,
            "data_offsets must be");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]}}", 4,
            "or too many");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1152921504606846976],\"data_offsets\":[0,1152921504606846976]}}", 4,
            "truncated");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[9223372036854775803,9223372036854775807]}}", 4,
            "truncated");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 3,
            "truncated: tensor a ends at data byte 4 of 3");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5, "1 bytes follow the last tensor");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, "gap");
    refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
        6, "overlapping");
    refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
        4, "overlapping");
    refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}",
        10, "gap that begins at 4");
    refused("{}", 3, "3 bytes follow");
}

/* D4 */
static void shapes_and_types_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4, "overflows");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[\"4\"],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
            "4 bytes by its offsets, 8 by its shape");
    refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "no whole number of bytes");
    refused("{\"a\":{\"dtype\":\"X8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "unknown dtype \"X8\"");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
            "9 dimensions, at most 8");
    struct st_set *set; /* a zero makes the product zero, whatever stands beside it */
    assert_int_equal(
        open_one("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
                 &set),
        ST_OK);
    st_close(set);
}

/* D6 */
static void a_git_lfs_pointer_is_named_as_such(void **state)
{
    (void)state;
    static const char        pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123456\n";
    static const char *const names[] = { "model.safetensors", "model.safetensors.index.json" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        struct memory_source m = { .src.n_embed = 0 };
        struct st_set       *set;
        memory_add_text(&m, names[i], pointer);
        assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_CONFIG);
        assert_non_null(strstr(err, names[i]));
        assert_non_null(strstr(err, "git-lfs pointer"));
        memory_free(&m);
    }
}

#define A4 "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define B4C2 \
    "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}}"

static enum status open_index(const char *index, struct st_set **set)
{
    struct memory_source m = { .src.n_embed = 0 };
    memory_add_text(&m, "model.safetensors.index.json", index);
    memory_add_safetensors(&m, "model-1.safetensors", A4, 4);
    memory_add_safetensors(&m, "model-2.safetensors", B4C2, 6);
    memory_add_safetensors(&m, "consolidated.safetensors", "{", 0); /* broken, and nobody opens it */
    memory_add_text(&m, "pytorch_model.bin", "never opened");
    err[0] = 0;
    enum status st = st_open(&m.src, set, err, sizeof err);
    memory_free(&m);
    return st;
}

static void only_the_shards_of_the_index_are_read(void **state)
{
    (void)state;
    struct st_set *set;
    assert_int_equal(
        open_index(
            "{\"metadata\":{\"total_size\":10},\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\",\"c\":\"model-2.safetensors\"}}",
            &set),
        ST_OK);
    assert_int_equal(set->n_file, 2);
    assert_int_equal(set->n_tensor, 3);
    assert_string_equal(set->tensor[2].name, "c");
    assert_int_equal(set->tensor[2].file, 1);
    st_close(set);
    /* a tensor that the index leaves out is left out */
    assert_int_equal(open_index("{\"weight_map\":{\"b\":\"model-2.safetensors\"}}", &set), ST_OK);
    assert_int_equal(set->n_file, 1);
    assert_int_equal(set->n_tensor, 1);
    st_close(set);
}

/* D5, and paths that would leave the folder */
static void an_index_that_does_not_fit_its_shards_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *index, *says;
    } cases[] = {
        { "{\"weight_map\":{\"a\":\"model-3.safetensors\"}}", "model-3.safetensors: no such file" },
        { "{\"weight_map\":{\"a\":\"model-2.safetensors\"}}",
          "model-2.safetensors: model.safetensors.index.json says that tensor a is here, it is not" },
        { "{\"weight_map\":{\"a\":\"consolidated.safetensors\"}}", "consolidated.safetensors: header" },
        { "{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"/etc/model-1.safetensors\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"sub/model-1.safetensors\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"model-1.safetensors\\u0000.bin\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"pytorch_model.bin\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\".safetensors\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":7}}", "plain name" },
        { "{\"weight_map\":{}}", "weight_map is empty" },
        { "{\"weight_map\":[]}", "weight_map is missing or not an object" },
        { "{}", "weight_map is missing or not an object" },
        { "[]", "weight_map is missing or not an object" },
        { "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"a\":\"model-2.safetensors\"}}", "not valid JSON" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct st_set *set;
        if (open_index(cases[i].index, &set) != ST_CONFIG) fail_msg("taken: %s", cases[i].index);
        if (!strstr(err, cases[i].says)) fail_msg("\"%s\" does not say \"%s\"", err, cases[i].says);
    }
}

static void a_folder_without_weights_says_what_it_looked_for(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct st_set       *set;
    memory_add_text(&m, "pytorch_model.bin", "x");
    assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "neither model.safetensors nor model.safetensors.index.json"));
    memory_free(&m);
}

/* D16: a mutated header is refused, or what it says lies within the file */
static void twenty_thousand_mutations_are_refused_or_lie_within_the_file(void **state)
{
    (void)state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"__metadata__\":{\"format\":\"pt\"}}";
    static const char interesting[] = "\0\1\x7f\x80\xff{}[]\",:019-e.aF\\u ";
    enum { N = 8 + sizeof header - 1 + 20, ROUNDS = 20000 };
    unsigned char clean[N];
    memset(clean, 0, sizeof clean);
    clean[0] = (unsigned char)(sizeof header - 1);
    memcpy(clean + 8, header, sizeof header - 1);
    uint32_t n_taken = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        unsigned char    b[N];
        struct rng_block r = rng_philox(42, 0, i);
        memcpy(b, clean, N);
        uint32_t n_change = 1 + r.x[0] % 4;
        for (uint32_t k = 0; k < n_change; k++) {
            struct rng_block q = rng_philox(42, 1 + k, i);
            b[q.x[0] % (N - 20)] =
                q.x[1] & 1 ? (unsigned char)q.x[2] : (unsigned char)interesting[q.x[2] % (sizeof interesting - 1)];
        }
        size_t              n = r.x[1] % 8 ? N : r.x[2] % (N + 1); /* sometimes cut short */
        struct source_embed file = { "model.safetensors", b, n };
        struct source       src = { .embed = &file, .n_embed = 1 };
        struct st_set      *set;
        if (st_open(&src, &set, err, sizeof err)) continue;
        n_taken++;
        for (uint32_t t = 0; t < set->n_tensor; t++)
            assert_true(set->tensor[t].offset <= n && set->tensor[t].bytes <= n - set->tensor[t].offset);
        st_close(set);
    }
    assert_in_range(n_taken, 1, ROUNDS - 1);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_gives_its_tensors_in_order),
        cmocka_unit_test(a_header_length_out_of_bounds_is_refused),
        cmocka_unit_test(a_header_that_is_no_strict_json_object_is_refused),
        cmocka_unit_test(offsets_that_do_not_cover_the_file_are_refused),
        cmocka_unit_test(shapes_and_types_that_do_not_fit_are_refused),
        cmocka_unit_test(a_git_lfs_pointer_is_named_as_such),
        cmocka_unit_test(only_the_shards_of_the_index_are_read),
        cmocka_unit_test(an_index_that_does_not_fit_its_shards_is_refused),
        cmocka_unit_test(a_folder_without_weights_says_what_it_looked_for),
        cmocka_unit_test(twenty_thousand_mutations_are_refused_or_lie_within_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
