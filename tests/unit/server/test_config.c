/* Over 500 lines: a list of tests. */
#include "server/config.h"
#include "server/options.h"
#include "server/config_alias.h"
#include "engine/model/model.h"
#include "test.h"

static struct config C;
static char          err[400];

static int parse(char *const *env, ...)
{
    char   *argv[32] = { "spillway" };
    int     argc = 1;
    va_list ap;
    va_start(ap, env);
    for (char *a; (a = va_arg(ap, char *));) argv[argc++] = a;
    va_end(ap);
    err[0] = 0;
    config_free(&C);
    int code = config_parse(&C, argc, argv, env, err, sizeof err);
    return code ? code : config_check(&C, err, sizeof err);
}
#define PARSE(...) parse(NULL, __VA_ARGS__, NULL)

static void defaults_hold(void **state)
{
    (void)state;
    assert_int_equal(parse(NULL, NULL), 0);
    assert_string_equal(C.host, "127.0.0.1");
    assert_int_equal(C.port, 8080);
    assert_int_equal(C.max_num_seqs, 0);
    assert_int_equal(C.block_size, 16);
    assert_true(C.prefix_caching && !C.allow_anonymous && !C.api_key.n);
}

static void sizes_are_the_devices_own_unless_they_are_given(void **state)
{
    (void)state;
    static const struct {
        const char *seqs, *rows;
        bool        gpu;
        uint32_t    n_seq, n_row;
    } row[] = { { "auto", "auto", false, 64, 512 }, { "auto", "auto", true, 256, 8192 },
                { "9", "auto", true, 9, 8192 },     { "auto", "40", true, 40, 40 },
                { "auto", "40", false, 40, 40 },    { "700", "auto", false, 700, 700 },
                { "8", "2048", true, 8, 2048 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint32_t n_seq, n_row;
        assert_int_equal(PARSE("--max-num-seqs", row[i].seqs, "--max-num-batched-tokens", row[i].rows), 0);
        config_sizes(&C, row[i].gpu, &n_seq, &n_row);
        assert_int_equal(n_seq, row[i].n_seq);
        assert_int_equal(n_row, row[i].n_row);
    }
    assert_int_equal(PARSE("--max-num-seqs", "0"), 64);
    assert_non_null(strstr(err, "auto or a whole number from 1"));
    assert_int_equal(PARSE("--max-num-seqs", "9", "--max-num-batched-tokens", "8"), 64);
    assert_int_equal(PARSE("--block-size", "auto"), 64);
}

static void flags_come_in_all_forms(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--port", "9000", "--host=localhost", "--no-enable-prefix-caching", "--log-json",
                           "--api-key", "a", "--api-key=b", "--kv-cache-bytes", "512MiB"),
                     0);
    assert_int_equal(C.port, 9000);
    assert_string_equal(C.host, "localhost");
    assert_true(!C.prefix_caching && C.log_json && C.api_key.n == 2);
    assert_string_equal(C.api_key.s[1], "b");
    assert_int_equal(C.kv_bytes, 512u << 20);
    assert_int_equal(PARSE("serve", "--max_num_seqs", "8"), 0);
    assert_int_equal(C.max_num_seqs, 8);
    assert_int_equal(PARSE("serve", "/model", "--port", "1"), 0);
    assert_string_equal(C.model, "/model");
}

static void gpus_are_listed_by_number(void **state)
{
    (void)state;
    int n[4];
    assert_int_equal(PARSE("--cuda-device", "0,3", "--cuda-device", "11"), 0);
    assert_int_equal(config_cuda_ordinals(&C, n, 4, err, sizeof err), 3);
    assert_int_equal(n[0], 0);
    assert_int_equal(n[1], 3);
    assert_int_equal(n[2], 11);
    assert_int_equal(config_cuda_ordinals(&C, n, 2, err, sizeof err), -1);
    assert_int_equal(PARSE("--port", "1"), 0);
    assert_int_equal(config_cuda_ordinals(&C, n, 4, err, sizeof err), 0);
    static const char *const bad[][2] = { { "0,", "commas between" },  { "a", "commas between" },
                                          { ",1", "commas between" },  { "-1", "commas between" },
                                          { "1,1", "is named twice" }, { "0,1 ", "commas between" },
                                          { "1000", "commas between" } };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        assert_int_equal(PARSE("--cuda-device", (char *)bad[i][0]), 64);
        assert_non_null(strstr(err, bad[i][1]));
    }
    assert_int_equal(PARSE("--cuda-device", "0", "--tensor-parallel-size", "2"), 64);
    assert_non_null(strstr(err, "found 1 GPU, --tensor-parallel-size 2 needs 2"));
}

static void options_that_a_gpu_does_not_support_are_refused(void **state)
{
    (void)state;
    assert_int_equal(
        PARSE("--device", "cuda", "--deterministic", "--enforce-eager", "--gpu-memory-utilization", "0.85"), 0);
    assert_false(C.pdl);
    assert_true(C.deterministic && C.enforce_eager && C.gpu_memory_utilization > 0.849 &&
                C.gpu_memory_utilization < 0.851);
    assert_int_equal(PARSE("--device", "cuda", "--pdl"), 0);
    assert_true(C.pdl && !C.wgmma);
    assert_int_equal(PARSE("--device", "cuda", "--wgmma"), 0);
    assert_true(C.wgmma && !C.pdl && !C.fp8_prefill);
    assert_int_equal(PARSE("--device", "cuda", "--fp8-prefill"), 0);
    assert_true(C.fp8_prefill && !C.wgmma);
    assert_int_equal(PARSE("--device", "cuda", "--kv-cache-dtype", "fp8"), 0);
    assert_int_equal(C.kv_dtype, DT_F8E4M3);
    assert_int_equal(PARSE("--device", "cuda", "--kv-cache-dtype", "float32"), 64);
    assert_non_null(
        strstr(err, "--kv-cache-dtype: found 'float32', allowed with --device cuda are auto, bfloat16, fp8"));
    assert_int_equal(PARSE("--device", "cpu", "--kv-cache-dtype", "fp8_e4m3"), 0);
    assert_int_equal(C.kv_dtype, DT_F8E4M3);
    assert_int_equal(PARSE("--kv-cache-dtype", "fp8_e5m2"), 64);
    assert_non_null(strstr(err, "--kv-cache-dtype: found 'fp8_e5m2', allowed are auto|bfloat16|float16|float32|fp8"));
    assert_int_equal(PARSE("--dtype", "fp8"), 64); /* of weights that is --quantization */
    assert_int_equal(PARSE("--device", "cuda", "--dtype", "bfloat16", "--kv-cache-dtype", "float16"), 64);
    assert_non_null(strstr(err, "--kv-cache-dtype: found 'float16', allowed"));
    assert_int_equal(PARSE("--device", "cuda", "--dtype", "float16", "--kv-cache-dtype", "float16"), 0);
    assert_int_equal(PARSE("--cpu-isa", "scalar"), 0);
    assert_int_equal(PARSE("--cpu-isa", "sse"), 64);
    assert_non_null(strstr(err, "--cpu-isa"));
    assert_int_equal(PARSE("--device", "ref", "--cpu-isa", "scalar"), 64);
    assert_non_null(strstr(err, "--cpu-isa: found 'scalar', allowed with --device ref is auto"));
    assert_int_equal(PARSE("--device", "cuda", "--dtype", "float32"), 64);
    assert_non_null(strstr(err, "--dtype: found 'float32', allowed"));
    assert_int_equal(PARSE("--gpu-memory-utilization", "0"), 64);
    assert_int_equal(PARSE("--gpu-memory-utilization", "1.1"), 64);
}

static void a_bad_value_names_option_found_and_allowed(void **state)
{
    (void)state;
    static const char *const bad[][3] = {
        { "--port", "99999", "from 0 to 65535" },     { "--port", "x", "whole number" },
        { "--port", "-1", "whole number" },           { "--port", "80.5", "whole number" },
        { "--device", "gpu", "auto|cuda|cpu|ref" },   { "--device", "au", "auto|cuda|cpu|ref" },
        { "--block-size", "17", "16, 32 and 64" },    { "--kv-cache-bytes", "1 PiB", "a size" },
        { "--log-json=maybe", "", "true and false" },
    };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        assert_int_equal(*bad[i][1] ? PARSE((char *)bad[i][0], (char *)bad[i][1]) : PARSE((char *)bad[i][0]), 64);
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(bad[i][0], "="), bad[i][0]);
        assert_non_null(strstr(err, name));
        assert_non_null(strstr(err, bad[i][2]));
        assert_null(strchr(err, '\n'));
    }
    assert_int_equal(PARSE("--port"), 64);
    assert_non_null(strstr(err, "missing"));
}

static void an_unknown_option_is_hinted(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--prot", "1"), 64);
    assert_non_null(strstr(err, "did you mean '--port'"));
    assert_int_equal(PARSE("--max-num-seq", "1"), 64);
    assert_non_null(strstr(err, "'--max-num-seqs'"));
    assert_int_equal(PARSE("--served-name", "x"), 64);
    assert_non_null(strstr(err, "'--served-model-name'"));
    assert_int_equal(PARSE("--no-port"), 64);
    assert_int_equal(PARSE("word"), 64);
    assert_int_equal(PARSE("-x"), 64);
}

static void options_of_other_servers_are_understood(void **state)
{
    (void)state;
    assert_int_equal(PARSE("-m", "/a/b", "--dtype", "fp16", "--quantization", "awq", "-tp", "2", "--trust-remote-code",
                           "--swap-space", "4", "--disable-log-requests", "--pipeline-parallel-size=1",
                           "--gpu_memory_utilization", "0.8", "--max-num-seqs", "7"),
                     0);
    assert_string_equal(C.model, "/a/b");
    assert_int_equal(C.dtype, DT_F16);
    assert_int_equal(C.quantization, MODEL_FORMAT_AUTO);
    assert_string_equal(C.codes_named, "awq"); /* which the checkpoint must then have */
    assert_int_equal(C.tensor_parallel, 2);
    assert_int_equal(C.max_num_seqs, 7);
    assert_int_equal(C.told.n, 4);
    assert_string_equal(
        C.told.s[1],
        "--swap-space has no effect here: KV goes to host memory with --kv-host-gib, and to a disk with --kv-nvme");
    assert_false(C.expert_parallel);
    assert_int_equal(PARSE("-tp", "2", "-ep", "--ep-size", "1"), 0);
    assert_true(C.expert_parallel && C.tensor_parallel == 2);
    assert_int_equal(PARSE("--enable-expert-parallel", "--no-enable-expert-parallel"), 0);
    assert_false(C.expert_parallel);
    assert_int_equal(PARSE("--served-model-name", "a", "b", "--port", "1"), 0);
    assert_int_equal(C.served_name.n, 2);
    assert_string_equal(C.served_name.s[1], "b");
    static const char *const refused[][3] = {
        { "--tool-parser-plugin", "x.py", "no code is loaded" },
        { "--tool-call-parser", "nonsense", "allowed are auto, none, hermes, llama_json" },
        { "--reasoning-parser", "nonsense", "allowed are auto, none, think, mistral" },
        { "--pipeline-parallel-size", "2", "allowed is 1" },
        { "--expert-parallel-size", "2", "with --enable-expert-parallel" },
        { "--enable-eplb", NULL, "leave it out" },
        { "--lora-modules", "a=/x", "needs --enable-lora" },
        { "--max-lora-rank", "1000", "512" },
        { "--revision", "main", "nothing is downloaded" },
        { "--quantization", "bitsandbytes", "auto|int8" },
        { "--swap-space", NULL, "the value is missing" },
    };
    for (size_t i = 0; i < ARRAY_N(refused); i++) {
        assert_int_equal(
            refused[i][1] ? PARSE((char *)refused[i][0], (char *)refused[i][1]) : PARSE((char *)refused[i][0]), 64);
        assert_non_null(strstr(err, refused[i][0]));
        if (!strstr(err, refused[i][2])) fail_msg("%s", err);
    }
}

static void adapters_are_named_as_vllm_names_them(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--enable-lora", "--lora-modules", "a=/x", "b=/y", "--max-loras", "2", "--port", "1"), 0);
    assert_true(C.lora);
    assert_int_equal(C.lora_modules.n, 2);
    assert_string_equal(C.lora_modules.s[1], "b=/y");
    assert_int_equal(C.lora_slots, 2);
    assert_int_equal(C.lora_rank, 16);
    assert_int_equal(PARSE("--enable-lora", "--device", "cuda"), 0);
    assert_int_equal(PARSE("--enable-lora", "--lora-modules", "a=/x", "b=/y", "--max-cpu-loras", "1"), 64);
    assert_non_null(strstr(err, "--max-cpu-loras: found 1"));
}

static void a_model_may_be_a_word_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(PARSE("/some/folder", "--port", "1"), 0);
    assert_string_equal(C.model, "/some/folder");
    assert_int_equal(PARSE("serve", "owner/model", "--port", "1"), 0);
    assert_string_equal(C.model, "owner/model");
    assert_int_equal(PARSE("--port", "1", "."), 0);
    assert_string_equal(C.model, ".");
    assert_int_equal(PARSE("help"), 0);
    assert_true(C.help);
    assert_int_equal(PARSE("--quantization", "awq", "--quantization", "None"), 0);
    assert_null(C.codes_named);
    assert_int_equal(PARSE("--quantization", "modelopt_fp4"), 0);
    assert_string_equal(C.codes_named, "modelopt_fp4");
    assert_int_equal(PARSE("serv"), 64);
    assert_non_null(strstr(err, "did you mean 'serve'?"));
    assert_int_equal(PARSE("--port", "1", "serve"), 64);
    assert_non_null(strstr(err, "'serve' comes before everything else"));
    assert_int_equal(PARSE("nofolder"), 64);
    assert_non_null(strstr(err, "--model DIR"));
    assert_int_equal(PARSE("/a", "/b"), 64);
    assert_true(config_is_hub_name("Qwen/Qwen3-0.6B") && config_is_hub_name("a_b/c.d"));
    assert_false(config_is_hub_name("/a/b") || config_is_hub_name("./a") || config_is_hub_name("a/b/c") ||
                 config_is_hub_name("a") || config_is_hub_name("../a") || config_is_hub_name("a/") ||
                 config_is_hub_name("") || config_is_hub_name("~/a"));
}

static void sizes_may_have_units(void **state)
{
    (void)state;
    assert_int_equal(
        PARSE("--max-model-len", "32k", "--kv-cache-gib", "512MiB", "--kv-host-gib", "4GiB", "--max-body-mib", "1GiB"),
        0);
    assert_int_equal(C.max_model_len, 32000);
    assert_true(C.kv_gib == 0.5 && C.kv_host_gib == 4);
    assert_int_equal(C.max_body_mib, 1024);
    assert_int_equal(PARSE("--max-model-len", "32K", "--kv-cache-gib", "1.5"), 0);
    assert_int_equal(C.max_model_len, 32768);
    assert_int_equal(PARSE("--max-model-len", "1.5k"), 0);
    assert_int_equal(C.max_model_len, 1500);
    char     dir[20];
    uint64_t bytes = 0;
    assert_true(config_dir_gib("/a:512MiB", dir, sizeof dir, &bytes));
    assert_true(bytes == (512ull << 20) && !strcmp(dir, "/a"));
    static const char *const bad[][2] = { { "--max-model-len", "32kk" },     { "--max-model-len", "1.0005k" },
                                          { "--max-model-len", "4GiB" },     { "--kv-cache-gib", "4 GiBs" },
                                          { "--max-body-mib", "1000001 B" }, { "--port", "8k" } };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        if (PARSE((char *)bad[i][0], (char *)bad[i][1]) != 64) fail_msg("%s %s", bad[i][0], bad[i][1]);
        assert_non_null(strstr(err, bad[i][0]));
    }
}

static void the_environment_is_read_and_checked(void **state)
{
    (void)state;
    char *env[] = { "PATH=/bin", "SPILLWAY_PORT=9001", "SPILLWAY_API_KEY=k1,k2", "SPILLWAY_LOG_JSON=1", NULL };
    assert_int_equal(parse(env, NULL), 0);
    assert_true(C.port == 9001 && C.api_key.n == 2 && C.log_json);
    assert_int_equal(parse(env, "--port", "9002", "--api-key", "k3", NULL), 0);
    assert_true(C.port == 9002 && C.api_key.n == 1);
    char *odd[] = { "SPILLWAY_PROT=1", NULL };
    assert_int_equal(parse(odd, NULL), 64);
    assert_non_null(strstr(err, "SPILLWAY_PORT"));
    char *k8s[] = { "SPILLWAY_PORT=tcp://10.0.0.1:8080", "SPILLWAY_SERVICE_HOST=10.0.0.1",
                    "SPILLWAY_PORT_8080_TCP_ADDR=10.0.0.1", NULL };
    assert_int_equal(parse(k8s, NULL), 0);
    assert_int_equal(C.port, 8080);
    assert_true(C.port_from_env_ignored);
}

static char path[] = "/tmp/spillway-test-config-XXXXXX";
static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_config_file_loses_against_flags_and_environment(void **state)
{
    (void)state;
    char *env[] = { "SPILLWAY_MAX_NUM_SEQS=3", NULL };
    write_file("# ours\n port = 7000 \nmax_num_seqs = 9\ndrain-seconds=4\n\napi-key = one\napi-key = two\n");
    assert_int_equal(parse(env, "--config", path, "--port", "7001", NULL), 0);
    assert_true(C.port == 7001 && C.max_num_seqs == 3 && C.drain_s == 4 && C.api_key.n == 2);
    write_file("port = 7000\nprot = 1\n");
    assert_int_equal(PARSE("--config", path), 64);
    assert_non_null(strstr(err, "line 2"));
    assert_non_null(strstr(err, "'port'"));
    write_file("port\n");
    assert_int_equal(PARSE("--config", path), 64);
    char line[5000];
    memset(line, 'x', sizeof line - 1);
    memcpy(line, "model = ", 8);
    line[sizeof line - 1] = 0;
    write_file(line);
    assert_int_equal(PARSE("--config", path), 64);
    assert_non_null(strstr(err, "line 1: longer than 4094 bytes"));
    assert_int_equal(PARSE("--config", "/nonexistent/x"), 64);
}

static void J8_a_public_address_needs_a_key(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--host", "0.0.0.0"), 64);
    assert_non_null(strstr(err, "--api-key"));
    assert_int_equal(PARSE("--host", "0.0.0.0", "--api-key", "0123456789abcdef"), 0);
    assert_int_equal(PARSE("--host", "0.0.0.0", "--api-key", "0123456789abcdef", "--api-key", "0123456789abcde"), 64);
    assert_non_null(strstr(err, "value 2 has 15 bytes"));
    assert_int_equal(PARSE("--api-key", "short"), 0); /* on loopback */
    assert_int_equal(PARSE("--protect-metrics", "--open-metrics"), 64);
    assert_int_equal(PARSE("--host", "0.0.0.0", "--allow-anonymous"), 0);
    assert_int_equal(PARSE("--host", "::1"), 0);
    assert_int_equal(PARSE("--host", "127.1.2.3"), 0);
    assert_int_equal(PARSE("--host", "example.org"), 64);
    assert_int_equal(PARSE("--kv-cache-bytes", "1GiB", "--kv-cache-gib", "1"), 64);
}

static void every_option_is_in_the_help_once(void **state)
{
    (void)state;
    struct buf        b;
    uint32_t          n;
    const struct opt *o = options_table(&n);
    buf_init(&b, 1 << 20);
    options_help(&b);
    const char *text = buf_cstr(&b);
    for (uint32_t i = 0; i < n; i++) {
        char want[80];
        bool valued = o[i].type != OPT_BOOL;
        snprintf(want, sizeof want, "\n  --%s%s", o[i].name, valued ? " " : "");
        const char *at = strstr(text, want);
        assert_non_null(at);
        assert_null(valued ? strstr(at + 1, want) : NULL);
        char words[OPT_WORDS_MAX];
        if (o[i].n_word) assert_non_null(strstr(text, option_words(&o[i], words)));
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(o[i].name, o[k].name);
    }
    buf_free(&b);
}

/* The words of an example, which end where its explanation begins: behind two spaces or more. */
static void the_examples_of_the_help_are_options_that_are_taken(void **state)
{
    (void)state;
    static const char begin[] = "\nexamples:\n";
    struct buf        b;
    uint32_t          n_example = 0;
    buf_init(&b, 1 << 20);
    options_help(&b);
    buf_cstr(&b);
    char *line = strstr(b.data, begin);
    assert_non_null(line);
    for (line += strlen(begin); !strncmp(line, "  spillway ", 11); n_example++) {
        enum { WORDS_MAX = 32 };
        char         *word[WORDS_MAX] = { NULL }, *next = strchr(line, '\n');
        int           n_word = 0;
        struct config c;
        char          why[400] = "";
        assert_non_null(next);
        *next = 0;
        for (char *at = line + 2; at;) {
            assert_true(n_word < WORDS_MAX - 1);
            word[n_word++] = at;
            at = strchr(at, ' ');
            if (at) *at++ = 0;
            if (at && *at == ' ') at = NULL; /* what it is for */
        }
        int code = config_parse(&c, n_word, word, NULL, why, sizeof why);
        if (code) fail_msg("%s", why);
        config_free(&c);
        line = next + 1;
    }
    assert_int_equal(n_example, 3);
    buf_free(&b);
}

static void each_word_of_an_option_is_stored_as_a_value_of_its_own(void **state)
{
    (void)state;
    uint32_t          n;
    const struct opt *o = options_table(&n);
    for (const struct opt *end = o + n; o < end; o++) {
        for (uint32_t i = 0; i < o->n_word; i++) {
            char flag[80];
            snprintf(flag, sizeof flag, "--%s=%s", o->name, o->word[i].word);
            (void)PARSE(flag); /* what it goes with is another matter */
            unsigned value = *(const unsigned *)(const void *)((const char *)&C + o->at);
            assert_string_equal(option_word(o->name, value), o->word[i].word);
        }
    }
    assert_int_equal(PARSE("--log-level", "trace"), 0);
    assert_int_equal(C.log_level, LOG_LEVEL_TRACE);
    assert_int_equal(PARSE("--log-level", "loud"), 64);
    assert_int_equal(PARSE("--log-level", ""), 64);
}

/* Tools and tests ask for a format by its word, the server by the option's value. */
static void every_word_of_quantization_is_a_format(void **state)
{
    (void)state;
    const struct opt *o = option_find("quantization", strlen("quantization"));
    struct dev_quant  q, same;
    bool              head, same_head;
    assert_true(o->n_word > 1);
    for (uint32_t i = 0; i < o->n_word; i++) {
        assert_true(model_quant_named(o->word[i].word, &q, &head));
        model_quant_of((enum model_format)o->word[i].value, &same, &same_head);
        assert_true(q.code == same.code && q.group == same.group && q.act8 == same.act8 && head == same_head);
    }
    assert_false(model_quant_named("int5", &q, &head));
}

static void a_packed_cache_that_is_no_folder_is_refused_before_anything_is_loaded(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--packed-cache", "/var/cache/spillway:100"), 0);
    assert_int_equal(PARSE("--packed-cache", "/var/cache/spillway:0"), 78);
    assert_non_null(strstr(err, "--packed-cache: '/var/cache/spillway:0' is not DIR or DIR:GIB"));
}

static void keys_are_wiped_from_the_command_line(void **state)
{
    (void)state;
    char a[] = "--api-key", k[] = "secret1", e[] = "--api-key=secret2", v[] = "SPILLWAY_API_KEY=secret3",
         w[] = "SM_SPILLWAY_API_KEY=secret4", x[] = "OTHER_API_KEY=theirs";
    char *argv[] = { "spillway", a, k, e, NULL }, *env[] = { v, w, x, NULL };
    config_wipe_keys(4, argv, env);
    assert_string_equal(k, "*******");
    assert_string_equal(e, "--api-key=*******");
    assert_string_equal(v, "SPILLWAY_API_KEY=*******");
    assert_string_equal(w, "SM_SPILLWAY_API_KEY=*******");
    assert_string_equal(x, "OTHER_API_KEY=theirs");
}

/* Wrong in themselves, so that nobody waits for weights to hear of them. */
static void F31_wrong_kv_options_are_refused_before_anything_is_loaded(void **state)
{
    (void)state;
#define HOST "--kv-host-gib", "0.1"
#define SAYS(words, ...)                          \
    do {                                          \
        assert_int_equal(PARSE(__VA_ARGS__), 64); \
        assert_non_null(strstr(err, words));      \
    } while (0)
    SAYS("--kv-nvme needs --kv-host-gib", "--kv-nvme", "/kv:1");
    SAYS("--kv-host-in-place on needs --kv-host-gib", "--kv-host-in-place", "on");
    SAYS("--kv-shared needs --kv-host-gib", "--kv-shared", "/kv:1", "--kv-mac-key-file", "k");
    SAYS("needs prefix caching", HOST, "--no-enable-prefix-caching");
    SAYS("need --kv-nvme or --kv-shared", HOST, "--kv-encrypt");
    SAYS("need --kv-nvme or --kv-shared", HOST, "--kv-encrypt-key-file", "k");
    SAYS("one of them", HOST, "--kv-shared", "/kv:1", "--kv-nvme", "/other:1", "--kv-mac-key-file", "k");
    SAYS("--kv-shared needs --kv-mac-key-file", HOST, "--kv-shared", "/kv:1");
    SAYS("instead of --kv-encrypt", HOST, "--kv-shared", "/kv:1", "--kv-mac-key-file", "k", "--kv-encrypt");
    SAYS("is not DIR or DIR:GIB", HOST, "--kv-shared", "/kv:-1", "--kv-mac-key-file", "k");
    SAYS("found 5 folders, allowed are 4", HOST, "--kv-nvme", "/a:1", "--kv-nvme", "/b:1", "--kv-nvme", "/c:1",
         "--kv-nvme", "/d:1", "--kv-nvme", "/e:1");
    SAYS("is not DIR:GIB", HOST, "--kv-nvme", "/kv");
    SAYS("is not DIR:GIB", HOST, "--kv-nvme", "/kv:0");
    SAYS("is named twice", HOST, "--kv-nvme", "/kv:1", "--kv-nvme", "/kv/:2");
    assert_int_equal(PARSE(HOST, "--kv-nvme", "/a:1", "--kv-nvme", "/ab:1", "--kv-encrypt"), 0);
    assert_int_equal(PARSE(HOST, "--kv-shared", "/a", "--kv-mac-key-file", "k", "--kv-encrypt-key-file", "k"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(F31_wrong_kv_options_are_refused_before_anything_is_loaded),
        cmocka_unit_test(sizes_are_the_devices_own_unless_they_are_given),
        cmocka_unit_test(flags_come_in_all_forms),
        cmocka_unit_test(gpus_are_listed_by_number),
        cmocka_unit_test(options_that_a_gpu_does_not_support_are_refused),
        cmocka_unit_test(a_bad_value_names_option_found_and_allowed),
        cmocka_unit_test(an_unknown_option_is_hinted),
        cmocka_unit_test(options_of_other_servers_are_understood),
        cmocka_unit_test(adapters_are_named_as_vllm_names_them),
        cmocka_unit_test(a_model_may_be_a_word_of_its_own),
        cmocka_unit_test(sizes_may_have_units),
        cmocka_unit_test(the_environment_is_read_and_checked),
        cmocka_unit_test(a_config_file_loses_against_flags_and_environment),
        cmocka_unit_test(J8_a_public_address_needs_a_key),
        cmocka_unit_test(every_option_is_in_the_help_once),
        cmocka_unit_test(the_examples_of_the_help_are_options_that_are_taken),
        cmocka_unit_test(each_word_of_an_option_is_stored_as_a_value_of_its_own),
        cmocka_unit_test(every_word_of_quantization_is_a_format),
        cmocka_unit_test(a_packed_cache_that_is_no_folder_is_refused_before_anything_is_loaded),
        cmocka_unit_test(keys_are_wiped_from_the_command_line),
    };
    close(mkstemp(path));
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    config_free(&C);
    return bad;
}
