#include "server/config.h"
#include "server/config_translate.h"
#include "server/options.h"
#include "test.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config C;
static char          err[400];
static char          folder[400]; /* as /opt/ml */

static const char *in_folder(const char *name)
{
    static char path[4][600];
    static int  at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}
static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* As the platform starts it, with these variables; words behind "serve" follow a NULL. */
static int start(const char *first, ...)
{
    char       *argv[16] = { "spillway", "serve" }, *env[32] = { "SPILLWAY_SAGEMAKER=on" };
    static char where[500];
    int         argc = 2, n = 2;
    va_list     ap;
    snprintf(where, sizeof where, "SPILLWAY_SAGEMAKER_FOLDER=%s", folder);
    env[1] = where;
    va_start(ap, first);
    for (const char *v = first; v; v = va_arg(ap, const char *)) env[n++] = (char *)(uintptr_t)v;
    if (first)
        for (char *w; (w = va_arg(ap, char *));) argv[argc++] = w;
    va_end(ap);
    err[0] = 0;
    config_free(&C);
    int code = config_parse(&C, argc, argv, env, err, sizeof err);
    return code ? code : config_check(&C, err, sizeof err);
}
#define WITH(...)       start(__VA_ARGS__, NULL, NULL)
#define WORDS(env, ...) start(env, NULL, __VA_ARGS__, NULL)

static bool told(const char *what)
{
    for (uint32_t i = 0; i < C.told.n; i++)
        if (strstr(C.told.s[i], what)) return true;
    return false;
}

static int up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/spillway-ml-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int down(void **state)
{
    (void)state;
    config_free(&C);
    return 0;
}

/* ---- the rules of translation ---- */

static const char *translated(const char *name, const char *value)
{
    static char  text[2000];
    const char  *word[TRANSLATE_WORDS_MAX];
    struct arena a;
    size_t       at = 0;
    arena_init(&a, 1 << 20);
    int n = config_translate(&a, name, strlen(name), value, word);
    *text = 0;
    for (int i = 0; i < n; i++) at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? "|" : "", word[i]);
    arena_free(&a);
    return n < 0 ? "too many" : text;
}

static void a_variable_becomes_words_by_the_rules_of_the_image_it_comes_from(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *words;
    } row[] = {
        { "MAX_MODEL_LEN", "4096", "--max-model-len|4096" },
        { "ENABLE_X", "true", "--enable-x" },
        { "ENABLE_X", "True", "--enable-x" },
        { "ENABLE_X", "", "--enable-x" },
        { "ENABLE_X", "false", "" },
        { "ENABLE_X", "FALSE", "" },
        { "ENABLE_X", "truest", "--enable-x|truest" },
        { "NAMES", "[\"a\",\"b c\",1,null,{\"k\": [1, 2]},true]", "--names|a|b c|1||{\"k\":[1,2]}|true" },
        { "NAMES", "[]", "" },
        { "NAMES", "[broken", "--names|[broken" },
        { "CONF", "{\"a\": \"} {\"}", "--conf|{\"a\": \"} {\"}" },
        { "CONF", "{\"a\":1} {\"b\":2}", "--conf|{\"a\":1}|{\"b\":2}" },
        { "CONF", "{\"a\":1} x", "--conf|{\"a\":1} x" },
        { "CONF", "{a}", "--conf|{a}" },
        { "ALLOWED_ORIGINS", "[\"*\"]", "--allowed-origins|[\"*\"]" },
        { "MIDDLEWARE", "[\"x.y\"]", "--middleware|[\"x.y\"]" },
        { "NAME", "a b", "--name|a b" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_string_equal(translated(row[i].name, row[i].value), row[i].words);
    char many[TRANSLATE_WORDS_MAX * 2 + 2] = "[1";
    for (size_t i = 2; i < sizeof many - 2; i++) many[i] = i % 2 ? '1' : ',';
    many[sizeof many - 2] = ']';
    assert_string_equal(translated("N", many), "too many");
}

/* ---- what holds on the platform ---- */

static void a_container_listens_for_everybody_on_8080_unless_told_otherwise(void **state)
{
    (void)state;
    assert_int_equal(WITH("X=1"), 0);
    assert_string_equal(C.host, "0.0.0.0");
    assert_int_equal(C.port, 8080);
    assert_true(C.on_sagemaker && C.allow_anonymous && C.open_metrics);
    assert_true(C.drain_s + C.flush_s + 3 <= 30);
    assert_true(told("the embedded one is served"));
    assert_int_equal(WITH("SAGEMAKER_BIND_TO_PORT=9000", "SM_VLLM_PORT=9100"), 0);
    assert_int_equal(C.port, 9000);
    assert_int_equal(WITH("SAGEMAKER_BIND_TO_PORT=9000", "SPILLWAY_PORT=9200"), 0);
    assert_int_equal(C.port, 9200);
    assert_int_equal(WORDS("SPILLWAY_PORT=9200", "--port", "9300", "--host", "127.0.0.1", "--protect-metrics"), 0);
    assert_int_equal(C.port, 9300);
    assert_string_equal(C.host, "127.0.0.1");
    assert_false(C.open_metrics);
    assert_int_equal(WITH("SAGEMAKER_BIND_TO_PORT=eighty"), 64);
    assert_non_null(strstr(err, "SAGEMAKER_BIND_TO_PORT: found 'eighty'"));
    assert_int_equal(WITH("SPILLWAY_API_KEY=0123456789abcdef"), 0);
    assert_true(told("SageMaker sends none"));
}

static void without_the_platform_its_variables_mean_nothing(void **state)
{
    (void)state;
    char *argv[] = { "spillway", "serve", NULL };
    char *env[] = { "SM_VLLM_PORT=9100", "OPTION_DTYPE=nonsense", "SAGEMAKER_BIND_TO_PORT=1", NULL };
    config_free(&C);
    assert_int_equal(config_parse(&C, 2, argv, env, err, sizeof err), 0); /* a test is not process 1 */
    assert_false(C.on_sagemaker);
    assert_int_equal(C.port, 8080);
    assert_string_equal(C.host, "127.0.0.1");
}

/* ---- one precedence ---- */

static void sources_win_in_the_order_that_is_documented(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "SPILLWAY_CONFIG=%s", in_folder("c"));
    put("c", "max-model-len = 5\n");
    mkdir(in_folder("model"), 0700);
    put("model/serving.properties", "engine=Python\noption.max_model_len = 1\noption.dtype=fp16\n#option.port=3\n");
    assert_int_equal(WITH("X=1"), 0);
    assert_int_equal(C.max_model_len, 1);
    assert_int_equal(C.dtype, DT_F16);
    assert_int_equal(WITH("OPTION_MAX_MODEL_LEN=2"), 0);
    assert_int_equal(C.max_model_len, 2);
    assert_int_equal(WITH("OPTION_MAX_MODEL_LEN=2", "SM_VLLM_MAX_MODEL_LEN=3"), 0);
    assert_int_equal(C.max_model_len, 3);
    assert_int_equal(WITH("SM_SPILLWAY_MAX_MODEL_LEN=4", "OPTION_MAX_MODEL_LEN=2", "SM_VLLM_MAX_MODEL_LEN=3"), 0);
    assert_int_equal(C.max_model_len, 4);
    assert_int_equal(WITH("SM_SPILLWAY_MAX_MODEL_LEN=4", path), 0);
    assert_int_equal(C.max_model_len, 5);
    assert_int_equal(WITH("SPILLWAY_MAX_MODEL_LEN=6", "SM_SPILLWAY_MAX_MODEL_LEN=4", path), 0);
    assert_int_equal(C.max_model_len, 6);
    assert_int_equal(WORDS("SPILLWAY_MAX_MODEL_LEN=6", "--max-model-len", "7"), 0);
    assert_int_equal(C.max_model_len, 7);
}

static void the_model_is_what_is_named_or_what_was_unpacked(void **state)
{
    (void)state;
    assert_int_equal(WITH("HF_MODEL_ID=/mnt/a"), 0);
    assert_string_equal(C.model, "/mnt/a");
    assert_int_equal(WITH("HF_MODEL_ID=/mnt/a", "OPTION_MODEL_ID=/mnt/b"), 0);
    assert_string_equal(C.model, "/mnt/b");
    mkdir(in_folder("model"), 0700);
    assert_int_equal(WITH("HF_MODEL_ID=/mnt/a"), 0); /* an empty folder is none */
    assert_string_equal(C.model, "/mnt/a");
    put("model/model.safetensors", "");
    assert_int_equal(WITH("HF_MODEL_ID=/mnt/a", "OPTION_MODEL_ID=/mnt/b"), 0);
    assert_string_equal(C.model, in_folder("model"));
    assert_int_equal(WITH("SM_VLLM_MODEL=/mnt/c"), 0);
    assert_string_equal(C.model, "/mnt/c");
    assert_int_equal(WITH("SM_VLLM_MODEL=/mnt/c", "SPILLWAY_MODEL=/mnt/d"), 0);
    assert_string_equal(C.model, "/mnt/d");
    assert_int_equal(WORDS("SPILLWAY_MODEL=/mnt/d", "/mnt/e"), 0);
    assert_string_equal(C.model, "/mnt/e");
}

static void an_archive_may_have_one_folder_at_its_top(void **state)
{
    (void)state;
    mkdir(in_folder("model"), 0700);
    mkdir(in_folder("model/qwen"), 0700);
    put("model/qwen/config.json", "{}");
    assert_int_equal(WITH("X=1"), 0);
    assert_string_equal(C.model, in_folder("model/qwen"));
    mkdir(in_folder("model/other"), 0700);
    put("model/other/config.json", "{}"); /* which of the two is not ours to guess */
    assert_int_equal(WITH("X=1"), 0);
    assert_string_equal(C.model, in_folder("model"));
    put("model/config.json", "{}");
    assert_int_equal(WITH("X=1"), 0);
    assert_string_equal(C.model, in_folder("model"));
}

static void additional_sources_are_told(void **state)
{
    (void)state;
    mkdir(in_folder("additional-model-data-sources"), 0700);
    mkdir(in_folder("additional-model-data-sources/draft"), 0700);
    assert_int_equal(WITH("X=1"), 0);
    assert_true(told("additional-model-data-sources has draft"));
}

static void a_long_value_of_the_file_is_not_cut(void **state)
{
    char text[3000], path[2500];
    (void)state;
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    mkdir(in_folder("model"), 0700);
    snprintf(text, sizeof text, "option.chat_template=%s\n", path);
    put("model/serving.properties", text);
    (void)WITH("X=1"); /* the check finds no such file */
    assert_string_equal(C.chat_template, path);
}

static void a_file_that_cannot_be_read_whole_is_refused(void **state)
{
    (void)state;
    mkdir(in_folder("model"), 0700);
    FILE *f = fopen(in_folder("model/serving.properties"), "w");
    assert_non_null(f);
    for (int i = 0; i < 4000; i++) fputs("# a comment of 20 by\n", f);
    fputs("option.max_model_len=512\n", f);
    fclose(f);
    assert_int_equal(WITH("X=1"), 64);
    assert_non_null(strstr(err, "serving.properties: larger than 64 KiB"));
    f = fopen(in_folder("model/serving.properties"), "w");
    assert_non_null(f);
    fwrite("option.dtype=auto\0\noption.max_model_len=512\n", 1, 44, f);
    fclose(f);
    assert_int_equal(WITH("X=1"), 64);
    assert_non_null(strstr(err, "a byte 0"));
}

static void more_values_than_there_may_be_are_refused_and_not_left_out(void **state)
{
    char   text[2000];
    size_t at = (size_t)snprintf(text, sizeof text, "SM_VLLM_ALLOWED_ORIGINS=[\"http://a\"");
    (void)state;
    for (int i = 0; i < 70; i++) at += (size_t)snprintf(text + at, sizeof text - at, ",\"http://a\"");
    snprintf(text + at, sizeof text - at, "]");
    assert_int_equal(WITH(text), 64);
    assert_non_null(strstr(err, "SM_VLLM_ALLOWED_ORIGINS: too many values"));
    assert_int_equal(WITH("SM_VLLM_ALLOWED_ORIGINS=[\"http://a\",\"http://b\"]"), 0);
    assert_int_equal(C.cors_origin.n, 2);
}

static void an_error_is_one_line_whatever_the_value_has(void **state)
{
    (void)state;
    assert_int_equal(WITH("SM_VLLM_MAX_NUM_SEQS=a\nb\r\033[31mc\177"), 64);
    assert_non_null(strstr(err, "found 'a?b??[31mc?'"));
}

/* ---- names of other images ---- */

static void names_of_lmi_are_understood(void **state)
{
    (void)state;
    assert_int_equal(WITH("OPTION_TENSOR_PARALLEL_DEGREE=2", "OPTION_MAX_ROLLING_BATCH_SIZE=12", "OPTION_DTYPE=bf16",
                          "OPTION_QUANTIZE=awq", "OPTION_GPU_MEMORY_UTILIZATION=0.5", "SERVING_JOB_QUEUE_SIZE=9",
                          "OPTION_ROLLING_BATCH=vllm", "OPTION_TRUST_REMOTE_CODE=true", "OPTION_ENABLE_LORA=false",
                          "OPTION_MODEL_LOADING_TIMEOUT=100", "SERVING_LOAD_MODELS=x",
                          "OPTION_ENABLE_PREFIX_CACHING=false"),
                     0);
    assert_int_equal(C.tensor_parallel, 2);
    assert_int_equal(C.max_num_seqs, 12);
    assert_int_equal(C.dtype, DT_BF16);
    assert_true(C.gpu_memory_utilization > 0.49 && C.gpu_memory_utilization < 0.51);
    assert_int_equal(C.queue_requests, 9);
    assert_false(C.prefix_caching);
    assert_true(told("OPTION_ROLLING_BATCH has no effect"));
    assert_true(told("--trust-remote-code has no effect"));
    assert_true(told("OPTION_MODEL_LOADING_TIMEOUT has no effect"));
    assert_true(told("SERVING_LOAD_MODELS has no effect"));
    assert_int_equal(WITH("TENSOR_PARALLEL_DEGREE=3", "OPTION_TGI_COMPAT=true"), 0);
    assert_int_equal(C.tensor_parallel, 3);
    assert_int_equal(C.lmi_form, LMI_TGI);
    assert_int_equal(WITH("OPTION_TENSOR_PARALLEL_DEGREE=max", "OPTION_OUTPUT_FORMATTER=sse"), 0);
    assert_in_range(C.tensor_parallel, 1, 64);
    assert_int_equal(C.lmi_form, LMI_EVENTS);
    assert_int_equal(WITH("OPTION_DTYPE=int3"), 64);
    assert_non_null(strstr(err, "OPTION_DTYPE: "));
    assert_non_null(strstr(err, "found 'int3'"));
    assert_int_equal(WITH("OPTION_ENABLE_LORA=true", "OPTION_MAX_LORAS=7"), 0);
    assert_true(C.lora);
    assert_int_equal(C.lora_slots, 7);
}

static void words_of_the_vllm_image_are_understood(void **state)
{
    (void)state;
    assert_int_equal(WITH("SM_VLLM_SERVED_MODEL_NAME=[\"a\",\"b\"]", "SM_VLLM_ENFORCE_EAGER=true", "SM_VLLM_DTYPE=half",
                          "SM_VLLM_ALLOWED_ORIGINS=[\"http://x\",\"http://y\"]",
                          "SM_VLLM_NO_ENABLE_PREFIX_CACHING=true", "SM_SGLANG_CONTEXT_LENGTH=77",
                          "SM_LLAMA_CPP_CTX_SIZE=66", "SM_VLLM_SWAP_SPACE=4"),
                     0);
    assert_int_equal(C.served_name.n, 2);
    assert_string_equal(C.served_name.s[1], "b");
    assert_int_equal(C.cors_origin.n, 2);
    assert_string_equal(C.cors_origin.s[0], "http://x");
    assert_true(C.enforce_eager);
    assert_false(C.prefix_caching);
    assert_int_equal(C.dtype, DT_F16);
    assert_int_equal(C.max_model_len, 77);
    assert_true(told("--swap-space has no effect"));
    assert_int_equal(WITH("SM_VLLM_ENABLE_PREFIX_CACHING=false"), 0); /* the rule: left out, so the default stays */
    assert_true(C.prefix_caching);
    assert_int_equal(WITH("SM_VLLM_MAX_NUM_SEQS=many"), 64);
    assert_non_null(strstr(err, "SM_VLLM_MAX_NUM_SEQS: --max-num-seqs: found 'many'"));
    assert_int_equal(WITH("SM_VLLM_MAX_NUM_SEQS=true"), 64);
    assert_non_null(strstr(err, "the value is missing"));
    assert_int_equal(WITH("SM_VLLM_MAX_NUM_SEQS=[1,2]"), 64);
    assert_int_equal(WITH("SM_VLLM_TOKENIZER=x"), 64);
}

static void an_unknown_variable_is_told_once_with_what_to_use(void **state)
{
    (void)state;
    assert_int_equal(WITH("SM_VLLM_MAX_MODEL_LENGTH=1", "OPTION_MAX_MODEL_LENN=1", "SM_VLLM_ZZZZZZZZZZZ=1",
                          "SM_NUM_GPUS=8", "SAGEMAKER_SAFE_PORT_RANGE=21000-22000", "SM_VLLM_EMPTY=[]"),
                     0);
    assert_true(told(
        "SM_VLLM_MAX_MODEL_LENGTH has no effect: there is no option --max-model-length; did you mean --max-model-len"));
    assert_true(told("OPTION_MAX_MODEL_LENN has no effect"));
    assert_true(
        told("SM_VLLM_ZZZZZZZZZZZ has no effect: there is no option --zzzzzzzzzzz; spillway --help lists them"));
    assert_true(told("SM_VLLM_EMPTY has no effect: the list is empty"));
    assert_false(told("SM_NUM_GPUS"));
    assert_false(told("SAFE_PORT"));
}

static void sessions_are_turned_on_by_the_platforms_variables(void **state)
{
    (void)state;
    assert_int_equal(WITH("X=1"), 0);
    assert_false(C.stateful_sessions);
    assert_int_equal(WITH("SAGEMAKER_ENABLE_STATEFUL_SESSIONS=true", "SAGEMAKER_SESSIONS_EXPIRATION=60",
                          "SAGEMAKER_SESSIONS_PATH=/dev/shm/x"),
                     0);
    assert_true(C.stateful_sessions);
    assert_int_equal(C.session_s, 60);
    assert_true(told("SAGEMAKER_SESSIONS_PATH has no effect"));
    assert_int_equal(WITH("SAGEMAKER_SESSIONS_EXPIRATION=soon"), 64);
}

static void levels_of_the_log_have_other_names_there(void **state)
{
    (void)state;
    assert_int_equal(WITH("SAGEMAKER_CONTAINER_LOG_LEVEL=30"), 0);
    assert_int_equal(C.log_level, LOG_LEVEL_WARN);
    assert_int_equal(WITH("SAGEMAKER_CONTAINER_LOG_LEVEL=DEBUG"), 0);
    assert_int_equal(C.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(WITH("SAGEMAKER_CONTAINER_LOG_LEVEL=loud"), 64);
}

static void an_option_of_json_comes_whole(void **state)
{
    (void)state;
    static const char json[] = "{\"enable_kv_cache_events\": true, \"topic\": \"kv@a b@{m}\"}";
    char              var[200];
    for (int i = 0; i < 2; i++) {
        snprintf(var, sizeof var, "%s_KV_EVENTS_CONFIG=%s", i ? "SM_SPILLWAY" : "SM_VLLM", json);
        assert_int_equal(WITH(var), 0);
        assert_string_equal(C.kv_events_config, json);
    }
    assert_int_not_equal(WITH("SM_VLLM_KV_EVENTS_CONFIG={\"hwm\": -1}"), 0);
    assert_non_null(strstr(err, "\"hwm\": found -1"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, up, down)
    const struct CMUnitTest tests[] = {
        TEST(a_variable_becomes_words_by_the_rules_of_the_image_it_comes_from),
        TEST(a_container_listens_for_everybody_on_8080_unless_told_otherwise),
        TEST(without_the_platform_its_variables_mean_nothing),
        TEST(sources_win_in_the_order_that_is_documented),
        TEST(the_model_is_what_is_named_or_what_was_unpacked),
        TEST(an_archive_may_have_one_folder_at_its_top),
        TEST(additional_sources_are_told),
        TEST(a_long_value_of_the_file_is_not_cut),
        TEST(a_file_that_cannot_be_read_whole_is_refused),
        TEST(more_values_than_there_may_be_are_refused_and_not_left_out),
        TEST(an_error_is_one_line_whatever_the_value_has),
        TEST(names_of_lmi_are_understood),
        TEST(words_of_the_vllm_image_are_understood),
        TEST(an_unknown_variable_is_told_once_with_what_to_use),
        TEST(sessions_are_turned_on_by_the_platforms_variables),
        TEST(levels_of_the_log_have_other_names_there),
        TEST(an_option_of_json_comes_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
