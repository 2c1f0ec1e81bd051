#include "server/options.h"
#include "api/transfer.h"
#include "base/check.h"
#include "base/log.h"
#include "server/config.h"
#include "transfer/peer/net.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define U32_MAX 4294967295.0

/* Offset of a field; a field of another type than the row's does not compile. */
#define AT(field, kind) (offsetof(struct config, field) + 0 * sizeof(&((struct config *)0)->field == (kind *)0))
#define IS_WORD(field)  (sizeof(((struct config *)0)->field) == sizeof(unsigned))
#define AT_ENUM(field)  (offsetof(struct config, field) + 0 * sizeof(char[IS_WORD(field) ? 1 : -1]))

/* clang-format off */
#define ROW(n, t, d, h)                     .name = n, .type = t, .def = d, .help = h
#define NUMBER(n, t, d, lo, hi, unit, h)    ROW(n, t, d, h), .min = lo, .max = hi, .meta = unit
#define BOOL(n, field, d, h)                ROW(n, OPT_BOOL, d, h), .at = AT(field, bool)
#define U32(n, field, d, lo, hi, unit, h)   NUMBER(n, OPT_U32, d, lo, hi, unit, h), .at = AT(field, uint32_t)
#define BYTES(n, field, d, lo, hi, unit, h) NUMBER(n, OPT_BYTES, d, lo, hi, unit, h), .at = AT(field, uint64_t)
#define NUM(n, field, d, lo, hi, unit, h)   NUMBER(n, OPT_NUM, d, lo, hi, unit, h), .at = AT(field, double)
#define STR_OF(n, field, d, what, h)        ROW(n, OPT_STR, d, h), .meta = what, .at = AT(field, const char *)
#define STR(n, field, what, h)              STR_OF(n, field, "", what, h)
#define LIST(n, field, what, h)             ROW(n, OPT_LIST, "", h), .meta = what, .at = AT(field, struct str_list)
#define ENUM(n, field, d, list, h) \
    ROW(n, OPT_ENUM, d, h), .word = list, .n_word = sizeof list / sizeof *list, .at = AT_ENUM(field)

static const struct opt_word tasks[] = { { "auto", TASK_AUTO }, { "generate", TASK_GENERATE }, { "embed", TASK_EMBED }, { "classify", TASK_CLASSIFY }, { "score", TASK_SCORE } };
static const struct opt_word poolings[] = { { "auto", POOL_NONE }, { "last", POOL_LAST }, { "mean", POOL_MEAN }, { "cls", POOL_CLS } };
static const struct opt_word load_formats[] = { { "auto", LOAD_AUTO }, { "dummy", LOAD_DUMMY } };
static const struct opt_word sampling_defaults[] = { { "auto", SAMPLING_OF_MODEL }, { "vllm", SAMPLING_NEUTRAL } };
static const struct opt_word devices[] = { { "auto", DEV_AUTO }, { "cuda", DEV_CUDA }, { "cpu", DEV_CPU }, { "ref", DEV_REF } };
static const struct opt_word dtypes[] = { { "auto", DT_COUNT }, { "bfloat16", DT_BF16 }, { "float16", DT_F16 }, { "float32", DT_F32 } };
static const struct opt_word kv_dtypes[] = { { "auto", DT_COUNT }, { "bfloat16", DT_BF16 }, { "float16", DT_F16 }, { "float32", DT_F32 }, { "fp8", DT_F8E4M3 } };
static const struct opt_word collectives[] = { { "auto", DEV_COMM_AUTO }, { "own", DEV_COMM_OWN }, { "nccl", DEV_COMM_NCCL } };
static const struct opt_word symmetric[] = { { "auto", DEV_SYMMETRIC_AUTO }, { "on", DEV_SYMMETRIC_ON }, { "off", DEV_SYMMETRIC_OFF } };
static const struct opt_word lmi_forms[] = { { "jsonlines", LMI_LINES }, { "sse", LMI_EVENTS }, { "tgi", LMI_TGI } };
static const struct opt_word sagemaker_modes[] = { { "auto", SAGEMAKER_AUTO }, { "on", SAGEMAKER_ON }, { "off", SAGEMAKER_OFF } };
static const struct opt_word in_place_words[] = { { "auto", IN_PLACE_AUTO }, { "on", IN_PLACE_ON }, { "off", IN_PLACE_OFF } };
static const struct opt_word peer_transports[] = { { "tcp", PEER_TCP }, { "shm", PEER_SHM }, { "rdma", PEER_RDMA } };
static const struct opt_word roles[] = { { "prefill", ROLE_PREFILL }, { "decode", ROLE_DECODE }, { "both", ROLE_BOTH } };
static const struct opt_word half_close[] = { { "cancel", HALF_CLOSE_CANCEL }, { "serve", HALF_CLOSE_SERVE } };
static const struct opt_word empty_key_files[] = { { "keep", KEY_FILE_KEEP }, { "deny", KEY_FILE_DENY } };
static const struct opt_word old_metrics[] = { { "auto", OLD_METRICS_AUTO }, { "all", OLD_METRICS_ALL }, { "none", OLD_METRICS_NONE } };
static const struct opt_word log_levels[] = {
    { "error", LOG_LEVEL_ERROR }, { "warn", LOG_LEVEL_WARN }, { "info", LOG_LEVEL_INFO },
    { "debug", LOG_LEVEL_DEBUG }, { "trace", LOG_LEVEL_TRACE },
};
#define FORMAT_WORD(id, name, ...) { name, MODEL_FORMAT_##id },
#define ISA_WORD(id, name)         { name, DEV_ISA_##id },
static const struct opt_word quantizations[] = { MODEL_FORMAT_LIST(FORMAT_WORD) };
static const struct opt_word instruction_sets[] = { { "auto", DEV_ISA_AUTO }, DEV_CPU_ISA_LIST(ISA_WORD) };

static const struct opt options[] = {
    { .group = "model", STR("model", model, "DIR", "model folder (safetensors, config.json, tokenizer.json), or s3://BUCKET/PREFIX that holds such files; empty: the embedded pebble") },
    { ENUM("load-format", load_format, "auto", load_formats, "dummy: weights are made up, no checkpoint is read; for measuring") },
    { LIST("served-model-name", served_name, "NAME", "name clients use; repeatable, the first is shown") },
    { ENUM("task", task, "auto", tasks, "generate: text; embed: vectors, on /v1/embeddings; classify: labels, on /classify, of a ...ForSequenceClassification; score: pairs, on /rerank and /score, by the logits of yes and no; auto: as the folder's files say, else generate") },
    { ENUM("pooling", pooling, "auto", poolings, "of --task embed: the last token's state, the mean of all, or the first's (cls); auto: as 1_Pooling/config.json says, else last (encoders: cls)") },
    { BOOL("matryoshka", matryoshka, "false", "the model's vectors may be cut (\"dimensions\"), though its config.json does not say is_matryoshka") },
    { BOOL("enable-lora", lora, "false", "serve low-rank adapters (PEFT's LoRA) beside the model; see docs/design/lora.md") },
    { LIST("lora-modules", lora_modules, "NAME=DIR", "an adapter that is loaded at start, and the name that clients use for it; repeatable") },
    { U32("max-loras", lora_slots, "4", 1, 64, "N", "adapters on the device at one time; requests of others wait for a place") },
    { U32("max-lora-rank", lora_rank, "16", 1, 512, "N", "highest rank of an adapter; the device's memory for each follows from it") },
    { U32("max-cpu-loras", lora_host, "0", 0, 1024, "N", "adapters that are known at one time, in the host's memory; 0: those of --lora-modules, at least --max-loras") },
    { STR("lora-root", lora_root, "DIR", "adapters below this folder may be loaded and unloaded while the server runs, by /v1/load_lora_adapter; empty: none") },
    { STR("chat-template", chat_template, "FILE", "chat template instead of the model's own") },
    { STR_OF("tool-call-parser", tool_parser, "auto", "NAME", "how the model writes tool calls: hermes, llama3_json, mistral, ...; auto: by template and tokens; none") },
    { STR_OF("reasoning-parser", reasoning_parser, "auto", "NAME", "how the model marks its reasoning: qwen3, deepseek_r1, mistral, ...; auto: by the template; none") },
    { ENUM("generation-config", generation_config, "auto", sampling_defaults, "auto: sampling defaults of generation_config.json; vllm: neutral ones") },
    { STR("packed-cache", packed_cache, "DIR[:GIB]", "cpu: keep weights there as they lie in memory, at most GIB (64) of them: later starts map them; also what was fetched of s3:// by a start that is killed; only for this user to write") },
    { U32("max-model-len", max_model_len, "0", 0, 16777216, "TOKENS", "longest prompt + output; 0: what the model and the KV cache allow") },

    { .group = "device", ENUM("device", device, "auto", devices, "what computes; auto: a GPU where one can serve, else the cpu") },
    { U32("tensor-parallel-size", tensor_parallel, "1", 1, 64, "N", "devices that share every layer") },
    { BOOL("enable-expert-parallel", expert_parallel, "false", "each of those devices has some experts whole, instead of a slice of every one") },
    { ENUM("dtype", dtype, "auto", dtypes, "weights; auto: as the checkpoint") },
    { ENUM("quantization", quantization, "auto", quantizations, "round the matrices to these codes at start, embedding and head to int8 (int4-all: to int4); auto: as the checkpoint; w8a8, w4a8: on the cpu") },
    { ENUM("kv-cache-dtype", kv_dtype, "auto", kv_dtypes, "KV cache; auto: as the weights; fp8 (e4m3, a scale for each row): half of bfloat16's bytes") },
    { LIST("cuda-device", cuda_device, "N[,N]", "GPUs to use, as --list-devices numbers them, one per rank; default: 0, 1, ...") },
    { NUM("gpu-memory-utilization", gpu_memory_utilization, "0.9", 0, 1, "SHARE", "share of each GPU's memory that may be in use, other processes included") },
    { BOOL("deterministic", deterministic, "false", "GPU: the same bits for a sequence whatever runs beside it; some speed is lost") },
    { BOOL("enforce-eager", enforce_eager, "false", "GPU: launch every kernel by itself, no CUDA graphs; slower") },
    { BOOL("pdl", pdl, "false", "GPU, sm_90 and later: a kernel begins while the one before it ends (programmatic dependent launch)") },
    { BOOL("wgmma", wgmma, "false", "GPU, sm_90: attention, experts and codes of prompts by products of warp groups; --deterministic does without") },
    { BOOL("fp8-prefill", fp8_prefill, "false", "GPU, sm_90: activations of prompts become fp8 where they meet fp8 weights: faster, less exact; --deterministic does without") },
    { STR("gemm-file", gemm_file, "FILE", "GPU: algorithms that 'spillway tune' wrote; empty: where it writes by itself") },
    { STR("cublaslt", cublaslt, "FILE", "GPU: the cuBLASLt library; empty: libcublasLt.so.13 or .12; none: our own slower kernel") },
    { ENUM("collectives", collectives, "auto", collectives, "GPU: what adds among the ranks; auto: our own kernels for small sums in one machine, else NCCL") },
    { ENUM("cpu-isa", cpu_isa, "auto", instruction_sets, "instruction set of the cpu device; auto: the best of this machine") },
    { ENUM("nccl-symmetric", nccl_symmetric, "auto", symmetric, "GPU: what NCCL adds lies in a symmetric window (2.27 or newer); auto: where all ranks can; on: or do not start") },
    { U32("threads", threads, "0", 0, 1024, "N", "compute threads of the cpu device; 0: the CPUs this container may use") },

    { .group = "nodes", U32("nnodes", nnodes, "0", 0, 64, "N", "machines that share every layer; 0: what LeaderWorkerSet or srun say, else 1") },
    { U32("node-rank", node_rank, "0", 0, 63, "N", "which of them this is; node 0 serves, the others help") },
    { STR("master-addr", master_addr, "HOST[:PORT]", "where node 0 listens for the others (port 29500)") },
    { STR("cluster-key", cluster_key, "KEY", "secret that all nodes share, better from a file or the environment: it signs what they tell each other") },
    { STR("cluster-key-file", cluster_key_file, "FILE", "the same from a file, without its line end") },
    { BOOL("cluster-insecure", cluster_insecure, "false", "several machines without a key: whoever reaches the port can steer this server") },

    { .group = "engine", U32("max-num-seqs", max_num_seqs, "auto", 1, 65536, "N", "sequences that run at one time; auto: 256 on a GPU, 64 elsewhere") },
    { U32("max-num-batched-tokens", max_batch_tokens, "auto", 1, 1048576, "TOKENS", "token budget of one step; auto: 8192 on a GPU, 512 elsewhere") },
    { U32("prefill-chunk", prefill_chunk, "0", 0, 1048576, "TOKENS", "most prompt tokens of one sequence in a step; 0: the budget") },
    { U32("block-size", block_size, "16", 16, 64, "TOKENS", "tokens per KV block: 16, 32 or 64") },
    { BYTES("kv-cache-bytes", kv_bytes, "0", 0, 1e18, "BYTES", "KV cache (512MiB, 4GiB); 0: the smaller of 1 GiB and a quarter of memory; on a GPU what is left of its share") },
    { NUM("kv-cache-gib", kv_gib, "0", 0, 1e9, "GIB", "the same in GiB") },
    { NUM("kv-window-share", window_share, "0", 0, 0.95, "SHARE", "part of the KV cache for layers with a sliding window, where other layers see all tokens; 0: what sequences of eight windows need") },
    { BOOL("enable-prefix-caching", prefix_caching, "true", "reuse the KV of common prefixes") },
    { U32("kv-pin-max", kv_pin_max, "25", 0, 90, "PERCENT", "share of the device's and of the host's KV that \"kv_pin\" may hold, a tenant half of it; 0: none") },
    { NUM("kv-host-gib", kv_host_gib, "0", 0, 1e6, "GIB", "host memory for KV blocks that leave the device, taken at start; 0: no tiers") },
    { ENUM("kv-host-in-place", kv_in_place, "auto", in_place_words, "the device reads host KV where it lies instead of a copy; auto: on where it shares the host's page tables (GH200, GB200), on: also the cpu, and GPUs over PCIe") },
    { LIST("kv-nvme", kv_nvme, "DIR:GIB", "folder for KV blocks below the host and its share of the disk; survives restarts; repeatable") },
    { STR("kv-shared", kv_shared, "DIR[:GIB]", "folder (Lustre, FSx, NFS) that servers share: all read it, each writes at most GIB (64) of it; needs --kv-mac-key-file") },
    { STR("kv-shared-name", kv_shared_name, "NAME", "which of the servers of --kv-shared this is, at most 40 letters, digits and -; starts of one name share one budget; default: HOST-PORT") },
    { STR("kv-object", kv_object, "URL", "s3://BUCKET/PREFIX or redis://HOST[:PORT][/DB[/PREFIX]]: store that servers share for KV blocks below the host, also across zones; needs --kv-mac-key-file") },
    { NUM("kv-object-gib", kv_object_gib, "64", 0.001, 1e7, "GIB", "most that lies there, of all servers together; the oldest goes") },
    { STR("object-endpoint", object_endpoint, "URL", "http[s]://HOST[:PORT] of the object store; empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else AWS's own") },
    { STR("object-region", object_region, "NAME", "region of the object store; empty: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1") },
    { LIST("kv-peer", kv_peer, "HOST:PORT", "server to pull KV blocks from that it has computed (its --kv-peer-listen); a name with several addresses is all of them; repeatable") },
    { STR("kv-peer-listen", kv_peer_listen, "ADDRESS:PORT", "let peers read this server's host KV, on that address alone; beyond loopback with --kv-peer-key-file and --kv-mac-key-file") },
    { STR("kv-peer-key-file", kv_peer_key_file, "FILE", "secret of 16 bytes or more that all peers share: each proves to the other that it knows it") },
    { ENUM("kv-peer-transport", kv_peer_transport, "tcp", peer_transports, "how UCX moves blocks between peers, and nothing else instead; shm: on one machine") },
    { ENUM("role", role, "both", roles, "what of \"kv_transfer_params\" it takes: prefill: keeps prompts for others (needs --kv-peer-listen); decode: pulls theirs (needs --kv-peer)") },
    { BOOL("kv-encrypt", kv_encrypt, "false", "encrypt blocks in folders (AES-256-GCM) under a key of this start: by design none survives a restart") },
    { LIST("kv-encrypt-key-file", kv_encrypt_key_file, "FILE", "the same under the key in FILE, 32 bytes or 64 hex digits: blocks survive restarts with that key; given twice: written with the first, read with both") },
    { LIST("kv-mac-key-file", kv_mac_key_file, "FILE", "secret of 16 bytes or more: blocks outside the device carry a MAC, not a checksum; given twice: written with the first, read with both") },
    { U32("kv-audit-every", kv_audit_every, "256", 0, 1000000000, "N", "one in N blocks that came up from below is computed again while the server is idle, and compared; 0: none") },
    { STR("kv-events-config", kv_events_config, "JSON", "tell routers over ZeroMQ which KV blocks are stored and removed, on every tier; fields as vLLM's: enable_kv_cache_events, endpoint, ...; empty: off") },
    { BOOL("enable-priority", priority, "false", "honour \"priority\" in requests; lower runs earlier") },
    { BOOL("json-schema-open", open_schemas, "false", "JSON schemas of answers: what they do not say is allowed, as the specification has it: members beyond \"properties\", values that no keyword is about") },
    { BOOL("clamp-max-tokens", clamp_max_tokens, "false", "cut max_tokens to the room left instead of a 400") },
    { U32("max-queue-requests", queue_requests, "1024", 1, 1048576, "N", "waiting requests; above: 429") },
    { U32("max-queue-tokens", queue_tokens, "0", 0, U32_MAX, "TOKENS", "waiting prompt tokens; above: 429; 0: 256 full contexts") },
    { U32("request-timeout", request_timeout_s, "0", 0, 604800, "SECONDS", "longest life of a request; 0: none") },

    { .group = "server", STR_OF("host", host, "127.0.0.1", "ADDRESS", "address to listen on") },
    { U32("port", port, "8080", 0, 65535, "PORT", "port to listen on; 0: any free one") },
    { U32("io-threads", io_threads, "1", 1, 64, "N", "threads that serve sockets") },
    { U32("text-threads", text_threads, "0", 0, 64, "N", "threads that parse and tokenise bodies of 256 KiB and more, beside one for smaller ones; 0: one, or two on 8 CPUs and more") },
    { U32("max-connections", max_connections, "100000", 1, 10000000, "N", "open connections; above: the oldest closes that is idle or has sent no whole head, else 503") },
    { U32("max-connections-per-address", max_connections_address, "0", 0, 10000000, "N", "of them by one client address (IPv6: one /64); above: 503; 0: all, as behind a load balancer") },
    { U32("response-store-mib", response_store_mib, "0", 0, 1048576, "MIB", "memory for stored responses of each API key (previous_response_id), taken at start; 0: responses are not stored") },
    { U32("max-body-mib", max_body_mib, "32", 1, 1024, "MIB", "largest request body; above: 413") },
    { U32("drain-delay-seconds", drain_delay_s, "0", 0, 3600, "SECONDS", "after SIGTERM, before the drain: /ready is 503 and requests are still taken, so that a load balancer notices") },
    { U32("drain-seconds", drain_s, "25", 0, 3600, "SECONDS", "after SIGTERM: how long running requests may finish") },
    { U32("flush-seconds", flush_s, "0", 0, 3600, "SECONDS", "after that: how long KV that only the host holds may take into --kv-nvme; 0: as --drain-seconds") },
    { U32("stuck-seconds", stuck_s, "30", 1, 3600, "SECONDS", "an engine without progress: /health is 503, and after so long it tells where it stands and the server exits with 70") },
    { BOOL("die-with-parent", die_with_parent, "false", "when the process that started this one dies: as after SIGTERM") },
    { STR("takeover", takeover, "PATH", "unix socket: take over from the server that listens there (sockets, host KV), then listen there") },
    { U32("takeover-seconds", takeover_s, "600", 1, 86400, "SECONDS", "how long a new server may take to be ready before this one goes on without it") },
    { ENUM("half-close", half_close, "cancel", half_close, "client closed its sending side while it waits: it is gone, or it still reads") },
    { ENUM("lmi-format", lmi_form, "jsonlines", lmi_forms, "answers to bodies with \"inputs\" on /invocations: streams are lines of JSON or events; tgi: events and lists as TGI writes them") },
    { LIST("allowed-host", allowed_host, "NAME", "Host header to accept besides the own names, or *; repeatable") },
    { LIST("cors-origin", cors_origin, "ORIGIN", "web origin that may call the API, or *; repeatable") },

    { .group = "sagemaker", ENUM("sagemaker", sagemaker, "auto", sagemaker_modes, "on: address, model and options are also SageMaker's to say; auto: for 'serve' as process 1 of a container of theirs") },
    { STR_OF("sagemaker-folder", sagemaker_folder, "/opt/ml", "DIR", "where SageMaker unpacks what it has: model, additional-model-data-sources") },
    { BOOL("stateful-sessions", stateful_sessions, "false", "/invocations opens and closes sessions, by which SageMaker sends a client to the same instance") },
    { U32("session-seconds", session_s, "1200", 1, 604800, "SECONDS", "life of a session") },
    { U32("max-sessions", max_sessions, "10000", 1, 10000000, "N", "sessions that are open at one time; above: 424") },

    { .group = "security", LIST("api-key", api_key, "KEY", "key that clients must send; repeatable") },
    { STR("api-key-file", api_key_file, "FILE", "keys, one a line; read again on SIGHUP") },
    { ENUM("api-key-file-empty", api_key_file_empty, "keep", empty_key_files, "that file holds no key or is gone at SIGHUP: keep the keys before, or no key of it is valid any more") },
    { U32("max-key-failures", max_key_failures, "10", 0, 1000000, "N", "wrong keys of one client address (IPv6: one /64) at once, then one a second; above: 429; 0: no bound, as behind a load balancer") },
    { STR("tls-cert", tls_cert, "FILE", "serve HTTPS: certificate and the chain to its root, PEM; with --tls-key; both are read again on SIGHUP") },
    { STR("tls-key", tls_key, "FILE", "private key of it, PEM, without a passphrase") },
    { BOOL("allow-anonymous", allow_anonymous, "false", "listen beyond loopback without any key") },
    { BOOL("share-prefix", share_prefix, "false", "let different API keys share cached prefixes") },
    { BOOL("protect-metrics", protect_metrics, "false", "/metrics wants a key on loopback too") },
    { BOOL("open-metrics", open_metrics, "false", "/metrics wants no key beyond loopback either") },

    { .group = "log", ENUM("log-level", log_level, "info", log_levels, "what is logged") },
    { BOOL("log-json", log_json, "false", "one JSON object a line") },
    { STR("otlp-traces-endpoint", otlp_endpoint, "URL", "OpenTelemetry collector for a span of each request (OTLP over HTTP, JSON); without a path /v1/traces; empty: none") },
    { NUM("otlp-traces-ratio", otlp_ratio, "1", 0, 1, "SHARE", "share of requests without a traceparent that are traced; one that has it says so itself") },
    { ENUM("old-metric-names", old_metrics, "auto", old_metrics, "names of earlier vLLMs in /metrics; auto: those that routers read (gpu_cache_usage_perc, gpu_prefix_cache_*); all: time_per_output_token_seconds too") },

    { .group = "batch: 'spillway batch', with the options of model, device and engine", STR("input", batch_input, "FILE", "OpenAI batch lines to run; -: standard input, then nothing can be continued") },
    { STR("output", batch_output, "FILE", "where the answers go, a line each; continued where it has some of the same batch; -: standard output") },
    { STR("errors", batch_errors, "FILE", "where the lines that failed go instead") },
    { BOOL("restart", batch_restart, "false", "empty --output and --errors instead of continuing them") },

    { .group = "other", STR("config", config_file, "FILE", "lines of 'name = value', names as here without the dashes") },
    { BOOL("help", help, "false", "this text") },
    { BOOL("version", version, "false", "the version") },
    { BOOL("healthcheck", healthcheck, "false", "ask the server on --port for /health; exit 0 or 1") },
    { BOOL("list-families", list_families, "false", "which models can be served, by architecture and model_type") },
    { BOOL("list-devices", list_devices, "false", "what could compute here") },
};
/* clang-format on */
enum { N_OPTION = sizeof options / sizeof *options };
static_assert(sizeof options / sizeof *options <= OPTIONS_MAX, "config.c keeps a note for each");

const struct opt *options_table(uint32_t *n_out)
{
    *n_out = N_OPTION;
    return options;
}

uint32_t option_index(const struct opt *o) { return (uint32_t)(o - options); }

const struct opt *option_find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_OPTION; i++)
        if (strlen(options[i].name) == n && !memcmp(options[i].name, name, n)) return &options[i];
    return NULL;
}

const char *option_words(const struct opt *o, char out[OPT_WORDS_MAX])
{
    size_t n = 0;
    for (uint32_t i = 0; i < o->n_word; i++) {
        int k = snprintf(out + n, OPT_WORDS_MAX - n, "%s%s", i ? "|" : "", o->word[i].word);
        n += (size_t)k;
        CHECK(n < OPT_WORDS_MAX);
    }
    return out;
}

const char *option_word(const char *name, unsigned value)
{
    const struct opt *o = option_find(name, strlen(name));
    CHECK(o && o->type == OPT_ENUM);
    uint32_t i = 0;
    while (i < o->n_word && o->word[i].value != value) i++;
    CHECK(i < o->n_word);
    return o->word[i].word;
}

/* ---- nearest name ---- */

unsigned option_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t   na = strlen(a), nb = strlen(b);
    unsigned row[LONGEST + 1];
    if (na > LONGEST || nb > LONGEST) return 100;
    for (size_t j = 0; j <= nb; j++) row[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned diag = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diag = up;
        }
    }
    return row[nb];
}

/* Every word of name ("served-name") is a part of the option's ("served-model-name"). */
static bool words_of(const char *name, const char *option)
{
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "-");
        char   word[48];
        if (n >= sizeof word) return false;
        memcpy(word, p, n);
        word[n] = 0;
        if (!strstr(option, word)) return false;
        p += n + (p[n] == '-');
    }
    return strlen(name) >= 3;
}

const char *option_nearest(const char *name)
{
    const char *best = NULL;
    unsigned    best_d = 100;
    for (size_t i = 0; i < N_OPTION; i++) {
        unsigned d = option_distance(name, options[i].name);
        if (d > 3 && words_of(name, options[i].name)) d = 3;
        if (d < best_d) {
            best_d = d;
            best = options[i].name;
        }
    }
    return best_d <= 4 && best_d < strlen(name) ? best : NULL;
}

/* ---- help ---- */

void options_help(struct buf *out)
{
    buf_puts(
        out,
        "usage: spillway [serve] [DIR] [--option value | --option=value]...\n"
        "       spillway batch --input FILE --output FILE [--option value]...    runs OpenAI batch lines without a server\n"
        "       spillway tune --model DIR | --shape NAME   finds the GPU's fastest matrix products; tune --help says more\n"
        "       spillway plan --model DIR [--gpu NAME]     what a model takes, how many sequences fit, and how fast it can be\n"
        "       spillway doctor [DIR]...                   what this machine gives a server: driver, libraries, limits, folders\n"
        "       spillway kv ls|verify|gc DIR               looks into a folder of --kv-nvme; kv --help says more\n\n"
        "examples:\n"
        "  spillway                                                    the embedded model on http://127.0.0.1:8080\n"
        "  spillway --model ./Qwen3-0.6B --port 9000 --max-model-len 32k    a folder of one's own, on another port\n"
        "  spillway --model ./Qwen3-0.6B --host 0.0.0.0 --api-key-file keys --kv-cache-gib 8    for other machines\n\n"
        "Every option can also come from the environment (SPILLWAY_ and the name in capitals, '-' as '_')\n"
        "or from a file (--config). Flags win over the environment, the environment over the file.\n"
        "Sizes in GIB and MIB may have a unit (512MiB, 4GB), TOKENS may be thousands (32k; 32K is 32768).\n");
    for (size_t i = 0; i < N_OPTION; i++) {
        const struct opt *o = &options[i];
        char              left[32 + OPT_WORDS_MAX], words[OPT_WORDS_MAX];
        const char       *value = o->type == OPT_ENUM ? option_words(o, words) : o->meta;
        if (o->group) buf_printf(out, "\n%s\n", o->group);
        snprintf(left, sizeof left, "--%s%s%s", o->name, value ? " " : "", value ? value : "");
        buf_printf(out, "  %-34s %s%s", left, strlen(left) > 34 ? "\n                                     " : "",
                   o->help);
        if (o->type == OPT_BOOL && !strcmp(o->def, "true"))
            buf_printf(out, " (default; --no-%s turns it off)", o->name);
        else if (o->type != OPT_BOOL && *o->def)
            buf_printf(out, " (default %s)", o->def);
        buf_putc(out, '\n');
    }
    buf_puts(
        out,
        "\nexit codes: 0 done, 1 batch: lines failed, 64 usage, 70 internal, 71 broken GPU, 74 input/output, 75 batch: ended by a signal, 77 permission, 78 model or configuration refused\n");
}
