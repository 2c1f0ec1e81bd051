/* config_check: checks that need more than one option: combinations, abilities of this machine, and the safety of the
 * address. */
#include "api/family.h"
#include "server/config.h"
#include "server/config_kv.h"
#include "server/options.h"
#include "server/usage.h"
#include "base/status.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TAKEOVER_PATH_MAX = 90 }; /* a socket's path has 107 bytes, and a pid behind it while it is made */

bool config_is_loopback(const char *host)
{
    struct in_addr  a4;
    struct in6_addr a6;
    if (!strcasecmp(host, "localhost")) return true;
    if (inet_pton(AF_INET, host, &a4) == 1) return (ntohl(a4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &a6) == 1 && IN6_IS_ADDR_LOOPBACK(&a6);
}

void config_sizes(const struct config *c, bool gpu, uint32_t *seqs_out, uint32_t *rows_out)
{
    uint32_t seqs = c->max_num_seqs, rows = c->max_batch_tokens, some = gpu ? CONFIG_SEQS_MAX_AUTO : 64;
    if (!rows) rows = gpu ? 8192 : 512;
    if (!c->max_batch_tokens && rows < seqs) rows = seqs;
    if (!seqs) seqs = some < rows ? some : rows;
    *seqs_out = seqs;
    *rows_out = rows;
}

int config_cuda_ordinals(const struct config *c, int *out, int max, char *err, size_t n_err)
{
    int n = 0;
    for (uint32_t i = 0; i < c->cuda_device.n; i++) {
        for (const char *p = c->cuda_device.s[i]; *p || p == c->cuda_device.s[i];) {
            size_t len = strcspn(p, ","), digits = strspn(p, "0123456789");
            if (!digits || digits != len || digits > 3 || (p[len] == ',' && !p[len + 1])) {
                usage_error(err, n_err,
                            "--cuda-device: found '%.40s', allowed are numbers of GPUs with commas between, as in 0,1",
                            c->cuda_device.s[i]);
                return -1;
            }
            int v = (int)strtol(p, NULL, 10); /* at most three digits */
            for (int k = 0; k < n; k++)
                if (out[k] == v) {
                    usage_error(err, n_err, "--cuda-device: GPU %d is named twice", v);
                    return -1;
                }
            if (n == max) {
                usage_error(err, n_err, "--cuda-device: more than %d GPUs", max);
                return -1;
            }
            out[n++] = v;
            p += len + (p[len] == ',');
        }
    }
    if (n && (uint32_t)n < c->tensor_parallel) {
        usage_error(err, n_err, "--cuda-device: found %d GPU%s, --tensor-parallel-size %u needs %u", n,
                    n == 1 ? "" : "s", c->tensor_parallel, c->tensor_parallel);
        return -1;
    }
    return n;
}

static int check_sizes(const struct config *c, char *err, size_t n_err)
{
    if (c->block_size != 16 && c->block_size != 32 && c->block_size != 64)
        return usage_error(err, n_err, "--block-size: found %u, allowed are 16, 32 and 64", c->block_size);
    if (c->given_kv_bytes && c->given_kv_gib)
        return usage_error(err, n_err, "--kv-cache-bytes and --kv-cache-gib are both given; use one of them");
    if (c->max_batch_tokens && c->max_num_seqs > c->max_batch_tokens)
        return usage_error(err, n_err, "--max-num-seqs: found %u, allowed is at most --max-num-batched-tokens (%u)",
                           c->max_num_seqs, c->max_batch_tokens);
    return 0;
}

static int check_lora(const struct config *c, char *err, size_t n_err)
{
    if (c->lora_modules.n && !c->lora) return usage_error(err, n_err, "--lora-modules needs --enable-lora");
    if (*c->lora_root && !c->lora) return usage_error(err, n_err, "--lora-root needs --enable-lora");
    /* SageMaker sends no keys, and nobody but its platform reaches the container. */
    if (*c->lora_root && !c->on_sagemaker && !config_is_loopback(c->host) && !c->api_key.n && !*c->api_key_file)
        return usage_error(
            err, n_err,
            "--lora-root: whoever reaches --host %.60s could load and unload adapters: give --api-key or "
            "--api-key-file",
            c->host);
    if (c->lora && c->nnodes > 1)
        return usage_error(err, n_err, "--enable-lora: adapters are served by one machine, --nnodes is %u", c->nnodes);
    if (c->lora_host && c->lora_host < c->lora_modules.n)
        return usage_error(err, n_err, "--max-cpu-loras: found %u, --lora-modules names %u", c->lora_host,
                           c->lora_modules.n);
    return 0;
}

static int check_parsers(const struct config *c, char *err, size_t n_err)
{
    char names[400] = "";
    if (!family_row_known(c->tool_parser))
        return usage_error(err, n_err,
                           "--tool-call-parser: found '%.40s', allowed are auto, none, %s and names of theirs",
                           c->tool_parser, family_names(true, names, sizeof names));
    if (!family_think_known(c->reasoning_parser))
        return usage_error(err, n_err,
                           "--reasoning-parser: found '%.40s', allowed are auto, none, %s and names of theirs",
                           c->reasoning_parser, family_names(false, names, sizeof names));
    return 0;
}

static int check_device(const struct config *c, char *err, size_t n_err)
{
    bool cuda = c->device == DEV_CUDA;
    if (cuda && (c->kv_dtype == DT_F32 || (c->kv_dtype == DT_F16 && c->dtype == DT_BF16)))
        return usage_error(
            err, n_err,
            "--kv-cache-dtype: found '%s', allowed with --device cuda are auto, bfloat16, fp8, and float16 "
            "with weights in float16",
            option_word("kv-cache-dtype", c->kv_dtype));
    if (cuda && c->dtype == DT_F32)
        return usage_error(err, n_err,
                           "--dtype: found 'float32', allowed with --device cuda are auto, bfloat16 and float16");
    if (cuda && (c->quantization == MODEL_FORMAT_W8A8 || c->quantization == MODEL_FORMAT_W4A8))
        return usage_error(err, n_err,
                           "--quantization: found '%s', allowed with --device cuda are auto, int8, int8-g128, int4, "
                           "int4-all, int4-g128 and fp8",
                           option_word("quantization", c->quantization));
    const char *isa = option_word("cpu-isa", c->cpu_isa);
    if (c->cpu_isa != DEV_ISA_AUTO && (cuda || c->device == DEV_REF))
        return usage_error(err, n_err, "--cpu-isa: found '%s', allowed with --device %s is auto", isa,
                           option_word("device", c->device));
    if (!dev_cpu_has_isa(isa)) {
        char have[128];
        return usage_error(err, n_err, "--cpu-isa: found '%s', this machine has %s", isa,
                           dev_cpu_isas(have, sizeof have));
    }
    if (c->gpu_memory_utilization <= 0)
        return usage_error(err, n_err, "--gpu-memory-utilization: found 0, allowed is a number above 0, at most 1");
    int ordinal[CUDA_DEVICES_MAX];
    return config_cuda_ordinals(c, ordinal, CUDA_DEVICES_MAX, err, n_err) < 0 ? EXIT_USAGE : 0;
}

/* Whether other machines can reach the server, and which keys they need then. */
static int check_address(const struct config *c, char *err, size_t n_err)
{
    if (strlen(c->takeover) > TAKEOVER_PATH_MAX)
        return usage_error(err, n_err, "--takeover: found %zu bytes, a socket's path here has at most %d",
                           strlen(c->takeover), TAKEOVER_PATH_MAX);
    if (*c->takeover && c->nnodes > 1)
        return usage_error(err, n_err, "--takeover works with one machine, --nnodes is %u", c->nnodes);
    if (!*c->host) return usage_error(err, n_err, "--host: the value is empty");
    for (uint32_t i = 0; i < c->api_key.n; i++)
        for (const char *p = c->api_key.s[i]; *p; p++)
            if (*p <= ' ' || *p > '~')
                return usage_error(err, n_err, "--api-key: value %u holds a byte that no header can carry", i + 1);
    for (uint32_t i = 0; i < c->api_key.n && !config_is_loopback(c->host); i++)
        if (strlen(c->api_key.s[i]) < KEY_BYTES_PUBLIC_MIN)
            return usage_error(
                err, n_err,
                "--api-key: value %u has %zu bytes, --host %.60s is reachable from other machines and needs at least %d",
                i + 1, strlen(c->api_key.s[i]), c->host, KEY_BYTES_PUBLIC_MIN);
    if (c->protect_metrics && c->open_metrics)
        return usage_error(err, n_err, "--protect-metrics and --open-metrics exclude each other");
    if (!config_is_loopback(c->host) && !c->api_key.n && !*c->api_key_file && !c->allow_anonymous)
        return usage_error(
            err, n_err,
            "--host %.60s is reachable from other machines: give --api-key or --api-key-file, or say --allow-anonymous",
            c->host);
    return 0;
}

static int check_tls(const struct config *c, char *err, size_t n_err)
{
    if (*c->tls_cert && !*c->tls_key)
        return usage_error(err, n_err, "--tls-cert needs --tls-key: the key of the certificate");
    if (*c->tls_key && !*c->tls_cert)
        return usage_error(err, n_err, "--tls-key needs --tls-cert: the certificate of the key");
    if (*c->tls_cert && c->on_sagemaker)
        return usage_error(err, n_err,
                           "--tls-cert: SageMaker speaks plain HTTP to its containers, allowed there is none");
    return 0;
}

static int check_packed_cache(const struct config *c, char *err, size_t n_err)
{
    char     dir[CONFIG_DIR_BYTES];
    uint64_t bytes;
    if (*c->packed_cache && !config_shared(c->packed_cache, dir, sizeof dir, &bytes)) {
        usage_error(err, n_err, "--packed-cache: '%s' is not DIR or DIR:GIB, as in /var/cache/spillway:100",
                    c->packed_cache);
        return EXIT_CONFIG;
    }
    return 0;
}

static int check_traces(const struct config *c, char *err, size_t n_err)
{
    const char *url = c->otlp_endpoint, *rest = strstr(url, "://");
    if (!*url) return 0;
    bool plain = !strncmp(url, "http://", 7), tls = !strncmp(url, "https://", 8);
    for (const char *p = url; *p; p++)
        if (*p <= ' ' || *p > '~') plain = tls = false;
    if ((plain || tls) && rest[3] && rest[3] != '/' && strlen(url) < 900) return 0;
    return usage_error(
        err, n_err,
        "--otlp-traces-endpoint: found '%.60s', allowed is http://HOST:PORT or https://, with or without a path", url);
}

static int check_batch(const struct config *c, char *err, size_t n_err)
{
    const struct {
        const char *name;
        bool        given;
    } row[] = { { "--input", *c->batch_input },
                { "--output", *c->batch_output },
                { "--errors", *c->batch_errors },
                { "--restart", c->batch_restart } };
    for (size_t i = 0; !c->batch && i < sizeof row / sizeof *row; i++)
        if (row[i].given)
            return usage_error(err, n_err, "%s is an option of 'spillway batch', which comes before everything else",
                               row[i].name);
    if (!c->batch) return 0;
    if (!*c->batch_input) return usage_error(err, n_err, "--input: the file of the batch is missing");
    if (!*c->batch_output) return usage_error(err, n_err, "--output: the file for the answers is missing");
    if (!strcmp(c->batch_errors, "-")) return usage_error(err, n_err, "--errors: found '-', needed is a file");
    if (!strcmp(c->batch_input, c->batch_output) && strcmp(c->batch_input, "-") != 0)
        return usage_error(err, n_err, "--output: found the file of --input, needed is another one");
    if (*c->takeover) return usage_error(err, n_err, "--takeover: a batch takes over from no server");
    return 0;
}

int config_check(const struct config *c, char *err, size_t err_bytes)
{
    int code = check_batch(c, err, err_bytes);
    if (!code) code = check_sizes(c, err, err_bytes);
    if (!code) code = check_parsers(c, err, err_bytes);
    if (!code) code = check_lora(c, err, err_bytes);
    if (!code) code = check_device(c, err, err_bytes);
    if (!code) code = check_address(c, err, err_bytes);
    if (!code) code = check_tls(c, err, err_bytes);
    if (!code) code = check_packed_cache(c, err, err_bytes);
    if (!code) code = check_traces(c, err, err_bytes);
    return code ? code : config_kv_check(c, err, err_bytes);
}
