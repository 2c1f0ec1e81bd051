#include "server/config_alias.h"
#include <string.h>
#include <strings.h>

static const char no_code[] = "no code of a model folder is ever run";
static const char no_download[] = "nothing is downloaded; give the folder with --model";
static const char tools_are_on[] = "tool calls are read wherever the model's notation is known; see --tool-call-parser";
static const char reasoning_is_on[] =
    "reasoning is told from text wherever its markers are known; see --reasoning-parser";
static const char no_plugin[] = "no code is loaded; see --tool-call-parser for the names that are known";
static const char no_spec[] = "speculative decoding is not supported; leave it out";
static const char no_swap[] = "KV goes to host memory with --kv-host-gib, and to a disk with --kv-nvme";
static const char log_is_one_line[] = "each request is one line at info; see --log-level";
static const char divided[] = "the ranks of --tensor-parallel-size divide the experts with --enable-expert-parallel";
static const char chunks[] = "prompts are always cut into chunks; see --prefill-chunk";

static const struct alias aliases[] = {
    { "-m", ALIAS_OF, "model" },
    { "--model-path", ALIAS_OF, "model" },
    { "--model-name", ALIAS_OF, "served-model-name" },
    { "--alias", ALIAS_OF, "served-model-name" },
    { "-a", ALIAS_OF, "served-model-name" },
    { "-tp", ALIAS_OF, "tensor-parallel-size" },
    { "--tp", ALIAS_OF, "tensor-parallel-size" },
    { "--tp-size", ALIAS_OF, "tensor-parallel-size" },
    { "-ep", ALIAS_OF, "enable-expert-parallel" },
    { "-q", ALIAS_OF, "quantization" },
    { "-c", ALIAS_OF, "max-model-len" },
    { "--ctx-size", ALIAS_OF, "max-model-len" },
    { "--context-length", ALIAS_OF, "max-model-len" },
    { "--max-seq-len", ALIAS_OF, "max-model-len" },
    { "--kv-cache-memory-bytes", ALIAS_OF, "kv-cache-bytes" },
    { "--mem-fraction-static", ALIAS_OF, "gpu-memory-utilization" },
    { "--max-running-requests", ALIAS_OF, "max-num-seqs" },
    { "--chunked-prefill-size", ALIAS_OF, "prefill-chunk" },
    { "-t", ALIAS_OF, "threads" },
    { "--allowed-origins", ALIAS_OF, "cors-origin" },
    { "--scheduling-policy", ALIAS_REFUSED, "use --enable-priority to honour \"priority\" in requests" },
    { "--trust-remote-code", ALIAS_FLAG, no_code },
    { "--disable-log-requests", ALIAS_FLAG, log_is_one_line },
    { "--enable-log-requests", ALIAS_FLAG, log_is_one_line },
    { "--no-enable-log-requests", ALIAS_FLAG, log_is_one_line },
    { "--disable-log-stats", ALIAS_FLAG, log_is_one_line },
    { "--disable-uvicorn-access-log", ALIAS_FLAG, log_is_one_line },
    { "--uvicorn-log-level", ALIAS_VALUE, "see --log-level" },
    { "--max-log-len", ALIAS_VALUE, "prompts are never logged" },
    { "--enable-chunked-prefill", ALIAS_FLAG, chunks },
    { "--no-enable-chunked-prefill", ALIAS_FLAG, chunks },
    { "--disable-frontend-multiprocessing", ALIAS_FLAG, "there is one process" },
    { "--distributed-executor-backend", ALIAS_VALUE,
      "ranks are threads of one process, and machines are joined by --nnodes" },
    { "--max-parallel-loading-workers", ALIAS_VALUE, "loading uses the CPUs that there are" },
    { "--disable-custom-all-reduce", ALIAS_FLAG, "see --collectives" },
    { "--swap-space", ALIAS_VALUE, no_swap },
    { "--cpu-offload-gb", ALIAS_REFUSED,
      "weights lie on the device alone; --quantization makes them smaller, --kv-host-gib is for KV" },
    { "--runner", ALIAS_OF, "task" },
    { "--is-embedding", ALIAS_REFUSED, "use --task embed" },
    { "--model-impl", ALIAS_VALUE, "there is one implementation" },
    { "--config-format", ALIAS_VALUE, "config.json is what is read" },
    { "--tokenizer-mode", ALIAS_VALUE, "tokenizer.json is what is read" },
    { "--pipeline-parallel-size", ALIAS_ONLY_ONE, "layers are not spread over devices; see --tensor-parallel-size" },
    { "-pp", ALIAS_ONLY_ONE, "layers are not spread over devices; see --tensor-parallel-size" },
    { "--ep-size", ALIAS_ONLY_ONE, divided },
    { "--expert-parallel-size", ALIAS_ONLY_ONE, divided },
    { "--enable-eplb", ALIAS_REFUSED,
      "experts stay on the ranks that --enable-expert-parallel gives them to; leave it out" },
    { "--data-parallel-size", ALIAS_ONLY_ONE, "start one server per replica" },
    { "-dp", ALIAS_ONLY_ONE, "start one server per replica" },
    { "-ngl", ALIAS_VALUE, "all layers lie on the device; see --device" },
    { "--n-gpu-layers", ALIAS_VALUE, "all layers lie on the device; see --device" },
    { "--tokenizer", ALIAS_REFUSED, "the tokenizer is the model folder's tokenizer.json" },
    { "--revision", ALIAS_REFUSED, no_download },
    { "--tokenizer-revision", ALIAS_REFUSED, no_download },
    { "--download-dir", ALIAS_REFUSED, no_download },
    { "--hf-token", ALIAS_REFUSED, no_download },
    { "-hf", ALIAS_REFUSED, no_download },
    { "--enable-auto-tool-choice", ALIAS_FLAG, tools_are_on },
    { "--tool-parser-plugin", ALIAS_REFUSED, no_plugin },
    { "--enable-reasoning", ALIAS_FLAG, reasoning_is_on },
    { "--speculative-config", ALIAS_REFUSED, no_spec },
    { "--speculative-model", ALIAS_REFUSED, no_spec },
    { "--limit-mm-per-prompt", ALIAS_REFUSED, "the models served here read text alone; leave it out" },
    { "--hf-overrides", ALIAS_REFUSED, "change config.json in the model folder instead" },
    { "--rope-scaling", ALIAS_REFUSED, "write rope_scaling into config.json in the model folder instead" },
    { "--ssl-keyfile", ALIAS_REFUSED, "put a proxy in front that speaks TLS" },
    { "--ssl-certfile", ALIAS_REFUSED, "put a proxy in front that speaks TLS" },
    { "--root-path", ALIAS_REFUSED, "let the proxy in front take the prefix away" },
};

const struct alias *config_alias_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strlen(aliases[i].name) == n && !memcmp(aliases[i].name, name, n)) return &aliases[i];
    return NULL;
}

const char *config_alias_value(const char *option, const char *v)
{
    static const struct {
        const char *option, *from, *to;
    } words[] = {
        { "task", "pooling", "embed" },
        { "task", "embedding", "embed" },
        { "dtype", "fp16", "float16" },
        { "dtype", "half", "float16" },
        { "dtype", "f16", "float16" },
        { "dtype", "bf16", "bfloat16" },
        { "dtype", "fp32", "float32" },
        { "dtype", "float", "float32" },
        { "dtype", "f32", "float32" },
        { "kv-cache-dtype", "fp16", "float16" },
        { "kv-cache-dtype", "bf16", "bfloat16" },
        { "kv-cache-dtype", "fp32", "float32" },
        { "kv-cache-dtype", "fp8_e4m3", "fp8" },
        /* A checkpoint's own codes are read as they are. */
        { "quantization", "awq", "auto" },
        { "quantization", "awq_marlin", "auto" },
        { "quantization", "gptq", "auto" },
        { "quantization", "gptq_marlin", "auto" },
        { "quantization", "none", "auto" },
        { "quantization", "compressed-tensors", "auto" },
        { "quantization", "modelopt", "auto" },
        { "quantization", "modelopt_fp4", "auto" },
        { "load-format", "safetensors", "auto" },
        { "log-level", "warning", "warn" },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].option, option) && !strcasecmp(words[i].from, v)) return words[i].to;
    return v;
}

bool config_alias_codes(const char *v)
{
    return !strcmp(config_alias_value("quantization", v), "auto") && strcasecmp(v, "auto") != 0 &&
           strcasecmp(v, "none") != 0;
}

static size_t part(const char *s)
{
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
}

bool config_is_hub_name(const char *s)
{
    size_t n = part(s);
    if (!n || s[0] == '.' || s[n] != '/') return false;
    size_t k = part(s + n + 1);
    return k && !s[n + 1 + k] && s[n + 1] != '.';
}
