#include "server/config.h"
#include "server/config_alias.h"
#include "server/config_kv.h"
#include "base/status.h"
#include "kernels/device.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define AT(field) offsetof(struct config, field)
#define U32_MAX   4294967295.0

/* server/config.c: the only list of options; --help, the env names and docs/ come from it. */
/* clang-format off */
static const struct opt options[] = {
    { "model", "model", OPT_STR, AT(model), "", 0, 0, "DIR", "model folder (safetensors, config.json, tokenizer.json); empty: the embedded pebble" },
    { NULL, "load-format", OPT_ENUM, AT(load_format), "auto", 0, 0, "auto|dummy", "dummy: weights are made up, no checkpoint is read; for measuring" },
    { NULL, "served-model-name", OPT_LIST, AT(served_name), "", 0, 0, "NAME", "name clients use; repeatable, the first is shown" },
    { NULL, "chat-template", OPT_STR, AT(chat_template), "", 0, 0, "FILE", "chat template instead of the model's own" },
    { NULL, "generation-config", OPT_ENUM, AT(generation_config), "auto", 0, 0, "auto|vllm", "auto: sampling defaults of generation_config.json; vllm: neutral ones" },
    { NULL, "packed-cache", OPT_STR, AT(packed_cache), "", 0, 0, "DIR[:GIB]", "cpu: keep weights there as they lie in memory, at most GIB (64) of them: later starts map them; only for this user to write" },
    { NULL, "max-model-len", OPT_U32, AT(max_model_len), "0", 0, 16777216, "TOKENS", "longest prompt + output; 0: what the model and the KV cache allow" },

    { "device", "device", OPT_ENUM, AT(device), "auto", 0, 0, "auto|cuda|cpu|ref", "what computes; auto: a GPU where one can serve, else the cpu" },
    { NULL, "tensor-parallel-size", OPT_U32, AT(tensor_parallel), "1", 1, 64, "N", "devices that share every layer" },
    { NULL, "dtype", OPT_ENUM, AT(dtype), "auto", 0, 0, "auto|bfloat16|float16|float32", "weights; auto: as the checkpoint" },
    { NULL, "quantization", OPT_ENUM, AT(quantization), "auto", 0, 0, "auto|int8|int8-g128|w8a8|int4|int4-all|w4a8|int4-g128|fp8", "cpu: round the matrices to these codes at start, embedding and head to int8 (int4-all: to int4); auto: as the checkpoint" },
    { NULL, "kv-cache-dtype", OPT_ENUM, AT(kv_dtype), "auto", 0, 0, "auto|bfloat16|float16|float32", "KV cache; auto: as the weights" },
    { NULL, "cuda-device", OPT_LIST, AT(cuda_device), "", 0, 0, "N[,N]", "GPUs to use, as --list-devices numbers them, one per rank; default: 0, 1, ..." },
    { NULL, "gpu-memory-utilization", OPT_NUM, AT(gpu_memory_utilization), "0.9", 0, 1, "SHARE", "share of each GPU's memory that may be in use, other processes included" },
    { NULL, "deterministic", OPT_BOOL, AT(deterministic), "false", 0, 0, NULL, "GPU: the same bits for a sequence whatever runs beside it; some speed is lost" },
    { NULL, "enforce-eager", OPT_BOOL, AT(enforce_eager), "false", 0, 0, NULL, "GPU: launch every kernel by itself, no CUDA graphs; slower" },
    { NULL, "pdl", OPT_BOOL, AT(pdl), "false", 0, 0, NULL, "GPU, sm_90 and later: a kernel begins while the one before it ends (programmatic dependent launch)" },
    { NULL, "gemm-file", OPT_STR, AT(gemm_file), "", 0, 0, "FILE", "GPU: algorithms that 'spillway tune' wrote; empty: where it writes by itself" },
    { NULL, "cublaslt", OPT_STR, AT(cublaslt), "", 0, 0, "FILE", "GPU: the cuBLASLt library; empty: libcublasLt.so.13 or .12; none: our own slower kernel" },
    { NULL, "collectives", OPT_ENUM, AT(collectives), "auto", 0, 0, "auto|own|nccl", "GPU: what adds among the ranks; auto: our own kernels for small sums in one machine, else NCCL" },
    { NULL, "cpu-isa", OPT_ENUM, AT(cpu_isa), "auto", 0, 0, "auto|amx|avx512-bf16|avx512-vnni|avx512|avx-vnni|avx2|neon-bf16|neon|scalar", "instruction set of the cpu device; auto: the best of this machine" },
    { NULL, "nccl-symmetric", OPT_ENUM, AT(nccl_symmetric), "auto", 0, 0, "auto|on|off", "GPU: what NCCL adds lies in a symmetric window (2.27 or newer); auto: where all ranks can; on: or do not start" },
    { NULL, "threads", OPT_U32, AT(threads), "0", 0, 1024, "N", "compute threads of the cpu device; 0: the CPUs this container may use" },

    { "nodes", "nnodes", OPT_U32, AT(nnodes), "0", 0, 64, "N", "machines that share every layer; 0: what LeaderWorkerSet or srun say, else 1" },
    { NULL, "node-rank", OPT_U32, AT(node_rank), "0", 0, 63, "N", "which of them this is; node 0 serves, the others help" },
    { NULL, "master-addr", OPT_STR, AT(master_addr), "", 0, 0, "HOST[:PORT]", "where node 0 listens for the others (port 29500)" },
    { NULL, "cluster-key", OPT_STR, AT(cluster_key), "", 0, 0, "KEY", "secret that all nodes share, better from a file or the environment: it signs what they tell each other" },
    { NULL, "cluster-key-file", OPT_STR, AT(cluster_key_file), "", 0, 0, "FILE", "the same from a file, without its line end" },
    { NULL, "cluster-insecure", OPT_BOOL, AT(cluster_insecure), "false", 0, 0, NULL, "several machines without a key: whoever reaches the port can steer this server" },

    { "engine", "max-num-seqs", OPT_U32, AT(max_num_seqs), "auto", 1, 65536, "N", "sequences that run at one time; auto: 256 on a GPU, 64 elsewhere" },
    { NULL, "max-num-batched-tokens", OPT_U32, AT(max_batch_tokens), "auto", 1, 1048576, "TOKENS", "token budget of one step; auto: 8192 on a GPU, 512 elsewhere" },
    { NULL, "prefill-chunk", OPT_U32, AT(prefill_chunk), "0", 0, 1048576, "TOKENS", "most prompt tokens of one sequence in a step; 0: the budget" },
    { NULL, "block-size", OPT_U32, AT(block_size), "16", 16, 64, "TOKENS", "tokens per KV block: 16, 32 or 64" },
    { NULL, "kv-cache-bytes", OPT_BYTES, AT(kv_bytes), "0", 0, 1e18, "BYTES", "KV cache (512MiB, 4GiB); 0: the smaller of 1 GiB and a quarter of memory; on a GPU what is left of its share" },
    { NULL, "kv-cache-gib", OPT_NUM, AT(kv_gib), "0", 0, 1e9, "GIB", "the same in GiB" },
    { NULL, "enable-prefix-caching", OPT_BOOL, AT(prefix_caching), "true", 0, 0, NULL, "reuse the KV of common prefixes" },
    { NULL, "kv-pin-max", OPT_U32, AT(kv_pin_max), "25", 0, 90, "PERCENT", "share of the device's and of the host's KV that \"kv_pin\" may hold, a tenant half of it; 0: none" },
    { NULL, "kv-host-gib", OPT_NUM, AT(kv_host_gib), "0", 0, 1e6, "GIB", "host memory for KV blocks that leave the device, taken at start; 0: no tiers" },
    { NULL, "kv-nvme", OPT_LIST, AT(kv_nvme), "", 0, 0, "DIR:GIB", "folder for KV blocks below the host and its share of the disk; survives restarts; repeatable" },
    { NULL, "kv-shared", OPT_STR, AT(kv_shared), "", 0, 0, "DIR[:GIB]", "folder (Lustre, FSx, NFS) that servers share: all read it, each writes at most GIB (64) of it; needs --kv-mac-key-file" },
    { NULL, "kv-shared-name", OPT_STR, AT(kv_shared_name), "", 0, 0, "NAME", "which of the servers of --kv-shared this is, at most 40 letters, digits and -; starts of one name share one budget; default: HOST-PORT" },
    { NULL, "kv-encrypt", OPT_BOOL, AT(kv_encrypt), "false", 0, 0, NULL, "encrypt blocks in folders (AES-256-GCM) under a key of this start: by design none survives a restart" },
    { NULL, "kv-encrypt-key-file", OPT_LIST, AT(kv_encrypt_key_file), "", 0, 0, "FILE", "the same under the key in FILE, 32 bytes or 64 hex digits: blocks survive restarts with that key; given twice: written with the first, read with both" },
    { NULL, "kv-mac-key-file", OPT_LIST, AT(kv_mac_key_file), "", 0, 0, "FILE", "secret of 16 bytes or more: blocks outside the device carry a MAC, not a checksum; given twice: written with the first, read with both" },
    { NULL, "kv-audit-every", OPT_U32, AT(kv_audit_every), "256", 0, 1000000000, "N", "one in N blocks that came up from below is computed again while the server is idle, and compared; 0: none" },
    { NULL, "enable-priority", OPT_BOOL, AT(priority), "false", 0, 0, NULL, "honour \"priority\" in requests; lower runs earlier" },
    { NULL, "clamp-max-tokens", OPT_BOOL, AT(clamp_max_tokens), "false", 0, 0, NULL, "cut max_tokens to the room left instead of a 400" },
    { NULL, "max-queue-requests", OPT_U32, AT(queue_requests), "1024", 1, 1048576, "N", "waiting requests; above: 429" },
    { NULL, "max-queue-tokens", OPT_U32, AT(queue_tokens), "0", 0, U32_MAX, "TOKENS", "waiting prompt tokens; above: 429; 0: 256 full contexts" },
    { NULL, "request-timeout", OPT_U32, AT(request_timeout_s), "0", 0, 604800, "SECONDS", "longest life of a request; 0: none" },

    { "server", "host", OPT_STR, AT(host), "127.0.0.1", 0, 0, "ADDRESS", "address to listen on" },
    { NULL, "port", OPT_U32, AT(port), "8080", 0, 65535, "PORT", "port to listen on; 0: any free one" },
    { NULL, "io-threads", OPT_U32, AT(io_threads), "1", 1, 64, "N", "threads that serve sockets" },
    { NULL, "text-threads", OPT_U32, AT(text_threads), "0", 0, 64, "N", "threads that parse and tokenise bodies of 256 KiB and more, beside one for smaller ones; 0: one, or two on 8 CPUs and more" },
    { NULL, "max-connections", OPT_U32, AT(max_connections), "100000", 1, 10000000, "N", "open connections; above: the oldest closes that is idle or has sent no whole head, else 503" },
    { NULL, "max-connections-per-address", OPT_U32, AT(max_connections_address), "0", 0, 10000000, "N", "of them by one client address (IPv6: one /64); above: 503; 0: all, as behind a load balancer" },
    { NULL, "max-body-mib", OPT_U32, AT(max_body_mib), "32", 1, 1024, "MIB", "largest request body; above: 413" },
    { NULL, "drain-seconds", OPT_U32, AT(drain_s), "25", 0, 3600, "SECONDS", "after SIGTERM: how long running requests may finish" },
    { NULL, "stuck-seconds", OPT_U32, AT(stuck_s), "30", 1, 3600, "SECONDS", "an engine without progress: /health is 503, and after so long it tells where it stands and the server exits with 70" },
    { NULL, "takeover", OPT_STR, AT(takeover), "", 0, 0, "PATH", "unix socket: take over from the server that listens there (sockets, host KV), then listen there" },
    { NULL, "takeover-seconds", OPT_U32, AT(takeover_s), "600", 1, 86400, "SECONDS", "how long a new server may take to be ready before this one goes on without it" },
    { NULL, "half-close", OPT_ENUM, AT(half_close), "cancel", 0, 0, "cancel|serve", "client closed its sending side while it waits: it is gone, or it still reads" },
    { NULL, "allowed-host", OPT_LIST, AT(allowed_host), "", 0, 0, "NAME", "Host header to accept besides the own names, or *; repeatable" },
    { NULL, "cors-origin", OPT_LIST, AT(cors_origin), "", 0, 0, "ORIGIN", "web origin that may call the API, or *; repeatable" },

    { "security", "api-key", OPT_LIST, AT(api_key), "", 0, 0, "KEY", "key that clients must send; repeatable" },
    { NULL, "api-key-file", OPT_STR, AT(api_key_file), "", 0, 0, "FILE", "keys, one a line; read again on SIGHUP" },
    { NULL, "api-key-file-empty", OPT_ENUM, AT(api_key_file_empty), "keep", 0, 0, "keep|deny", "that file holds no key or is gone at SIGHUP: keep the keys before, or no key of it is valid any more" },
    { NULL, "max-key-failures", OPT_U32, AT(max_key_failures), "10", 0, 1000000, "N", "wrong keys of one client address (IPv6: one /64) at once, then one a second; above: 429; 0: no bound, as behind a load balancer" },
    { NULL, "allow-anonymous", OPT_BOOL, AT(allow_anonymous), "false", 0, 0, NULL, "listen beyond loopback without any key" },
    { NULL, "share-prefix", OPT_BOOL, AT(share_prefix), "false", 0, 0, NULL, "let different API keys share cached prefixes" },
    { NULL, "protect-metrics", OPT_BOOL, AT(protect_metrics), "false", 0, 0, NULL, "/metrics wants a key on loopback too" },
    { NULL, "open-metrics", OPT_BOOL, AT(open_metrics), "false", 0, 0, NULL, "/metrics wants no key beyond loopback either" },

    { "log", "log-level", OPT_ENUM, AT(log_level), "info", 0, 0, "error|warn|info|debug|trace", "what is logged" },
    { NULL, "log-json", OPT_BOOL, AT(log_json), "false", 0, 0, NULL, "one JSON object a line" },

    { "other", "config", OPT_STR, AT(config_file), "", 0, 0, "FILE", "lines of 'name = value', names as here without the dashes" },
    { NULL, "help", OPT_BOOL, AT(help), "false", 0, 0, NULL, "this text" },
    { NULL, "version", OPT_BOOL, AT(version), "false", 0, 0, NULL, "the version" },
    { NULL, "healthcheck", OPT_BOOL, AT(healthcheck), "false", 0, 0, NULL, "ask the server on --port for /health; exit 0 or 1" },
    { NULL, "list-devices", OPT_BOOL, AT(list_devices), "false", 0, 0, NULL, "what could compute here" },
};
/* clang-format on */
enum { TAKEOVER_PATH_MAX = 90 }; /* a socket's path has 107 bytes, and a pid behind it while it is made */
enum { N_OPTION = sizeof options / sizeof *options };

const struct opt *config_options(size_t *n_out)
{
    *n_out = N_OPTION;
    return options;
}

static int fail(char *err, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *err, size_t n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err, n, fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}

/* ---- nearest name ---- */

static unsigned edit_distance(const char *a, const char *b)
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
            row[j] = best, diag = up;
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

static const char *nearest(const char *name)
{
    const char *best = NULL;
    unsigned    best_d = 100;
    for (size_t i = 0; i < N_OPTION; i++) {
        unsigned d = edit_distance(name, options[i].name);
        if (d > 3 && words_of(name, options[i].name)) d = 3;
        if (d < best_d) best_d = d, best = options[i].name;
    }
    return best_d <= 4 && best_d < strlen(name) ? best : NULL;
}

/* ---- values ---- */

static bool parse_bool(const char *v, bool *out)
{
    static const char *const yes[] = { "true", "1", "yes", "on" }, *const no[] = { "false", "0", "no", "off" };
    for (int i = 0; i < 4; i++) {
        if (!strcasecmp(v, yes[i])) return *out = true, true;
        if (!strcasecmp(v, no[i])) return *out = false, true;
    }
    return false;
}

/* Digits with an optional fraction; no sign, no exponent: locale-free. */
static bool parse_num(const char *v, double *out, const char **end)
{
    double x = 0, scale = 1;
    if (!isdigit((unsigned char)*v)) return false;
    for (; isdigit((unsigned char)*v); v++) x = x * 10 + (*v - '0');
    if (*v == '.')
        for (v++; isdigit((unsigned char)*v); v++) x += (*v - '0') * (scale /= 10);
    *out = x, *end = v;
    return true;
}

static bool parse_bytes(const char *v, double *out)
{
    static const struct {
        const char *unit;
        double      n;
    } unit[] = {
        { "", 1 },
        { "B", 1 },
        { "K", 1024 },
        { "KiB", 1024 },
        { "kB", 1e3 },
        { "KB", 1e3 },
        { "M", 1048576 },
        { "MiB", 1048576 },
        { "MB", 1e6 },
        { "G", 1073741824 },
        { "GiB", 1073741824 },
        { "GB", 1e9 },
        { "T", 1099511627776 },
        { "TiB", 1099511627776 },
        { "TB", 1e12 },
    };
    const char *end;
    if (!parse_num(v, out, &end)) return false;
    while (*end == ' ') end++;
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
        if (strcmp(end, unit[i].unit)) continue;
        *out *= unit[i].n;
        return true;
    }
    return false;
}

static bool word_allowed(const char *words, const char *v)
{
    size_t n = strlen(v);
    for (const char *p = words; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (!strncmp(p, v, n) && (p[n] == '|' || p[n] == 0) && n) return true;
    return false;
}

/* A number as the option's unit has it, or with a unit of its own: GiB and MiB sizes, thousands of tokens (32k is 32000, 32K is 32768). */
static bool parse_in_unit(const struct opt *o, const char *v, double *out)
{
    const char *end = "", *unit = o->meta ? o->meta : "";
    if (!parse_num(v, out, &end)) return false;
    if (!*end) return true;
    if (!strcmp(unit, "TOKENS") && !end[1] && strchr("kmKM", *end)) {
        double step = *end == 'k' || *end == 'm' ? 1000 : 1024;
        *out *= *end == 'k' || *end == 'K' ? step : step * step;
        return true;
    }
    double one = !strcmp(unit, "GIB") ? 1073741824.0 : !strcmp(unit, "MIB") ? 1048576.0 : 0;
    if (one == 0 || !parse_bytes(v, out)) return false;
    *out /= one;
    return true;
}

static const char *number_kind(const struct opt *o)
{
    if (o->type == OPT_BYTES) return "a size";
    if (o->meta && !strcmp(o->meta, "GIB")) return "a number of GiB, or a size as 512MiB,";
    if (o->meta && !strcmp(o->meta, "MIB")) return "a whole number of MiB, or a size as 64MiB,";
    if (o->meta && !strcmp(o->meta, "TOKENS")) return "a whole number, or thousands as 32k,";
    return o->type == OPT_NUM ? "a number" : "a whole number";
}

/* origin: where the value came from, for the error line: "--port", "SPILLWAY_PORT", "spillway.conf line 3: port". */
static int set_value(struct config *c, const struct opt *o, const char *v, const char *origin, char *err, size_t n_err)
{
    void  *to = (char *)c + o->at;
    double x = 0;
    char   shown[80];
    v = config_alias_value(o->name, v);
    snprintf(shown, sizeof shown, "%.60s%s", v, strlen(v) > 60 ? "..." : "");
    switch (o->type) {
    case OPT_BOOL:
        if (!parse_bool(v, to)) return fail(err, n_err, "%s: found '%s', allowed are true and false", origin, shown);
        break;
    case OPT_ENUM:
        if (!word_allowed(o->meta, v)) return fail(err, n_err, "%s: found '%s', allowed are %s", origin, shown, o->meta);
        *(const char **)to = arena_strdup(&c->arena, v);
        break;
    case OPT_STR: *(const char **)to = arena_strdup(&c->arena, v); break;
    case OPT_LIST: {
        struct str_list *l = to;
        const char     **grown = arena_alloc(&c->arena, (l->n + 1) * sizeof *grown);
        if (!*v) return fail(err, n_err, "%s: the value is empty", origin);
        if (!grown) return fail(err, n_err, "%s: too many values", origin);
        if (l->n) memcpy(grown, l->s, l->n * sizeof *grown);
        grown[l->n] = arena_strdup(&c->arena, v);
        l->s = grown, l->n++;
        break;
    }
    default: {
        if (!strcmp(o->def, "auto") && !strcmp(v, "auto")) {
            *(uint32_t *)to = 0;
            break;
        }
        bool ok = o->type == OPT_BYTES ? parse_bytes(v, &x) : parse_in_unit(o, v, &x);
        if (ok && o->type == OPT_U32 && x != floor(x)) ok = false;
        if (!ok || x < o->min || x > o->max)
            return fail(err, n_err, "%s: found '%s', allowed is %s%s from %.0f to %.0f", origin, shown,
                        !strcmp(o->def, "auto") ? "auto or " : "", number_kind(o), o->min, o->max);
        if (o->type == OPT_U32)
            *(uint32_t *)to = (uint32_t)x;
        else if (o->type == OPT_BYTES)
            *(uint64_t *)to = (uint64_t)x;
        else
            *(double *)to = x;
        if (o->at == AT(kv_bytes)) c->given_kv_bytes = x > 0;
        if (o->at == AT(kv_gib)) c->given_kv_gib = x > 0;
    }
    }
    return 0;
}

static const struct opt *find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_OPTION; i++)
        if (strlen(options[i].name) == n && !memcmp(options[i].name, name, n)) return &options[i];
    return NULL;
}

/* ---- sources ---- */

static int set_defaults(struct config *c, char *err, size_t n_err)
{
    for (size_t i = 0; i < N_OPTION; i++) {
        if (options[i].type == OPT_LIST) continue;
        int code = set_value(c, &options[i], options[i].def, options[i].name, err, n_err);
        if (code) return code;
    }
    return 0;
}

/* A list given by a later source replaces the earlier one. */
static void clear_list(struct config *c, const struct opt *o, unsigned char *fresh)
{
    if (o->type != OPT_LIST || fresh[o - options]) return;
    *(struct str_list *)((char *)c + o->at) = (struct str_list){ 0 };
    fresh[o - options] = 1;
}

static int read_file(struct config *c, const char *path, char *err, size_t n_err)
{
    unsigned char fresh[N_OPTION] = { 0 };
    char          line[4096], origin[200];
    FILE         *f = fopen(path, "re");
    int           code = 0, n_line = 0;
    if (!f) return fail(err, n_err, "--config: cannot open %s: %s", path, strerror(errno));
    while (!code && fgets(line, sizeof line, f)) {
        n_line++;
        char *p = line + strlen(line);
        while (p > line && isspace((unsigned char)p[-1])) *--p = 0;
        for (p = line; isspace((unsigned char)*p); p++) {}
        if (!*p || *p == '#') continue;
        char *eq = strchr(p, '=');
        if (!eq) {
            code = fail(err, n_err, "%s line %d: found no '=', allowed are lines of 'name = value'", path, n_line);
            break;
        }
        char *end = eq, *v = eq + 1;
        while (end > p && isspace((unsigned char)end[-1])) end--;
        *end = 0;
        while (isspace((unsigned char)*v)) v++;
        for (char *u = p; *u; u++)
            if (*u == '_') *u = '-';
        const struct opt *o = find(p, strlen(p));
        if (!o || o->at == AT(config_file) || o->at == AT(help)) {
            const char *near = nearest(p);
            code = fail(err, n_err, "%s line %d: unknown option '%.40s'%s%s%s", path, n_line, p, near ? "; did you mean '" : "",
                        near ? near : "", near ? "'?" : "");
            break;
        }
        snprintf(origin, sizeof origin, "%s line %d: %s", path, n_line, o->name);
        clear_list(c, o, fresh);
        code = set_value(c, o, v, origin, err, n_err);
    }
    fclose(f);
    return code;
}

static void env_name(const struct opt *o, char *out, size_t n)
{
    int at = snprintf(out, n, "SPILLWAY_");
    for (const char *p = o->name; *p && (size_t)at + 1 < n; p++) out[at++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    out[at] = 0;
}

static const struct opt *find_env(const char *name, size_t n)
{
    char own[80];
    for (size_t i = 0; i < N_OPTION; i++) {
        env_name(&options[i], own, sizeof own);
        if (strlen(own) == n && !memcmp(own, name, n)) return &options[i];
    }
    return NULL;
}

/* Kubernetes puts SPILLWAY_SERVICE_HOST, SPILLWAY_PORT=tcp://..., SPILLWAY_PORT_8080_TCP_ADDR and the like into every pod when a
 * Service is named "spillway": not ours. */
static bool env_of_kubernetes(const char *name, size_t n, const char *v)
{
    static const char service[] = "SPILLWAY_SERVICE_", port[] = "SPILLWAY_PORT_";
    if (n >= sizeof service - 1 && !memcmp(name, service, sizeof service - 1)) return true;
    if (n > sizeof port - 1 && !memcmp(name, port, sizeof port - 1) && isdigit((unsigned char)name[sizeof port - 1])) return true;
    return n == 13 && !memcmp(name, "SPILLWAY_PORT", 13) && (!strncmp(v, "tcp://", 6) || !strncmp(v, "udp://", 6));
}

static int read_environ(struct config *c, char *const *env, bool only_config, char *err, size_t n_err)
{
    unsigned char fresh[N_OPTION] = { 0 };
    for (; env && *env; env++) {
        if (strncmp(*env, "SPILLWAY_", 9)) continue;
        const char *eq = strchr(*env, '=');
        if (!eq) continue;
        size_t n = (size_t)(eq - *env);
        if (env_of_kubernetes(*env, n, eq + 1)) {
            if (n == 13) c->port_from_env_ignored = true;
            continue;
        }
        const struct opt *o = find_env(*env, n);
        if (!o) {
            char   name[64];
            size_t k = 0;
            for (; k + 1 < sizeof name && 9 + k < n; k++)
                name[k] = (*env)[9 + k] == '_' ? '-' : (char)tolower((unsigned char)(*env)[9 + k]);
            name[k] = 0;
            const char *near = nearest(name);
            char        own[80] = "";
            if (near) env_name(find(near, strlen(near)), own, sizeof own);
            return fail(err, n_err, "unknown environment variable %.*s%s%s%s", (int)(n < 60 ? n : 60), *env, near ? "; did you mean " : "",
                        own, near ? "?" : "");
        }
        if ((o->at == AT(config_file)) != only_config) continue;
        char origin[80];
        snprintf(origin, sizeof origin, "%.*s", (int)(n < 70 ? n : 70), *env);
        clear_list(c, o, fresh);
        if (o->type != OPT_LIST) {
            int code = set_value(c, o, eq + 1, origin, err, n_err);
            if (code) return code;
            continue;
        }
        for (const char *p = eq + 1; *p;) { /* a list: commas between the values */
            size_t len = strcspn(p, ",");
            char  *one = arena_strndup(&c->arena, p, len);
            int    code = !one ? fail(err, n_err, "%s: too long", origin) : len ? set_value(c, o, one, origin, err, n_err) : 0;
            if (code) return code;
            p += len + (p[len] == ',');
        }
    }
    return 0;
}

/* An option that is another server's. *o_out: the option of ours that it names; NULL: it is dealt with, or refused. */
static int read_alias(struct config *c, const struct alias *al, int *i, int argc, char *const *argv, const char *v, bool only_config,
                      const struct opt **o_out, char *err, size_t n_err)
{
    *o_out = NULL;
    if (al->kind == ALIAS_OF) {
        *o_out = find(al->text, strlen(al->text));
        return 0;
    }
    if (al->kind == ALIAS_REFUSED) return fail(err, n_err, "%s: %s", al->name, al->text);
    bool valued = al->kind != ALIAS_FLAG;
    if (valued && !v && ++*i >= argc) return fail(err, n_err, "%s: the value is missing", al->name);
    if (valued && !v) v = argv[*i];
    if (al->kind == ALIAS_ONLY_ONE && strcmp(v, "1") != 0)
        return fail(err, n_err, "%s: found '%.40s', allowed is 1: %s", al->name, v, al->text);
    if (only_config) return 0;
    char line[200];
    snprintf(line, sizeof line, "%s has no effect here: %s", al->name, al->text);
    const char **grown = arena_alloc(&c->arena, (c->told.n + 1) * sizeof *grown);
    if (!grown) return fail(err, n_err, "too many options");
    if (c->told.n) memcpy(grown, c->told.s, c->told.n * sizeof *grown);
    grown[c->told.n++] = arena_strdup(&c->arena, line);
    c->told.s = grown;
    return 0;
}

/* A word without dashes: the model, once, where it can be one. */
static int read_word(struct config *c, const char *a, bool served, bool *model, bool only_config, char *err, size_t n_err)
{
    struct stat st;
    bool        path = strchr(a, '/') || !strcmp(a, ".") || !strcmp(a, "..") || (!stat(a, &st) && S_ISDIR(st.st_mode));
    if (!*model && (served || path)) {
        *model = true;
        if (!only_config) c->model = arena_strdup(&c->arena, a);
        return 0;
    }
    if (!*model && edit_distance(a, "serve") <= 2) return fail(err, n_err, "unexpected word '%.60s'; did you mean 'serve'?", a);
    return fail(err, n_err, "unexpected word '%.60s'; a model folder is given as --model DIR, see --help", a);
}

static int read_flags(struct config *c, int argc, char *const *argv, bool only_config, char *err, size_t n_err)
{
    unsigned char fresh[N_OPTION] = { 0 };
    bool          served = false, model = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "-h")) a = "--help";
        if (a[0] != '-' && !served && i == 1 && !strcmp(a, "serve")) {
            served = true;
            continue;
        }
        if (a[0] != '-') {
            int code = read_word(c, a, served, &model, only_config, err, n_err);
            if (code) return code;
            continue;
        }
        bool        shorter = strncmp(a, "--", 2) != 0;
        const char *name = shorter ? a + 1 : a + 2, *eq = strchr(name, '='), *v = eq ? eq + 1 : NULL;
        size_t      n = eq ? (size_t)(eq - name) : strlen(name);
        bool        no = false;
        char        dashed[64];
        if (n >= sizeof dashed) return fail(err, n_err, "unknown option '%.60s'; see --help", a);
        for (size_t k = 0; k < n; k++) dashed[k] = name[k] == '_' ? '-' : name[k];
        dashed[n] = 0;
        const struct opt *o = shorter ? NULL : find(dashed, n);
        if (!o) {
            char whole[72];
            snprintf(whole, sizeof whole, "%s%s", shorter ? "-" : "--", dashed);
            const struct alias *al = config_alias_find(whole, strlen(whole));
            if (al) {
                int code = read_alias(c, al, &i, argc, argv, v, only_config, &o, err, n_err);
                if (code) return code;
                if (!o) continue;
            } else if (shorter) {
                return fail(err, n_err, "unknown option '%.60s'; see --help", a);
            }
        }
        if (!o && !v && !strncmp(dashed, "no-", 3)) {
            o = find(dashed + 3, n - 3);
            no = o && o->type == OPT_BOOL;
            if (!no) o = NULL;
        }
        if (!o) {
            const char *near = nearest(dashed);
            return fail(err, n_err, "unknown option '--%s'%s%s%s", dashed, near ? "; did you mean '--" : "; see --help", near ? near : "",
                        near ? "'?" : "");
        }
        if (o->type == OPT_BOOL && !v) v = no ? "false" : "true";
        if (!v && ++i >= argc) return fail(err, n_err, "--%s: the value is missing", o->name);
        if (!v) v = argv[i];
        bool names = o->at == AT(served_name); /* vLLM takes several behind one option */
        while (names && only_config && i + 1 < argc && argv[i + 1][0] != '-') i++;
        if ((o->at == AT(config_file)) != only_config) continue;
        char origin[80];
        snprintf(origin, sizeof origin, "--%s", o->name);
        clear_list(c, o, fresh);
        int code = set_value(c, o, v, origin, err, n_err);
        while (!code && names && i + 1 < argc && argv[i + 1][0] != '-') code = set_value(c, o, argv[++i], origin, err, n_err);
        if (code) return code;
    }
    return 0;
}

int config_parse(struct config *c, int argc, char *const *argv, char *const *env, char *err, size_t n_err)
{
    memset(c, 0, sizeof *c);
    arena_init(&c->arena, 4u << 20);
    int code = set_defaults(c, err, n_err);
    /* --config first, from wherever it is given: its lines lose against everything else */
    if (!code) code = read_environ(c, env, true, err, n_err);
    if (!code) code = read_flags(c, argc, argv, true, err, n_err);
    if (!code && *c->config_file) code = read_file(c, c->config_file, err, n_err);
    if (!code) code = read_environ(c, env, false, err, n_err);
    if (!code) code = read_flags(c, argc, argv, false, err, n_err);
    return code;
}

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
    *seqs_out = seqs, *rows_out = rows;
}

int config_cuda_ordinals(const struct config *c, int *out, int max, char *err, size_t n_err)
{
    int n = 0;
    for (uint32_t i = 0; i < c->cuda_device.n; i++) {
        for (const char *p = c->cuda_device.s[i]; *p || p == c->cuda_device.s[i];) {
            size_t len = strcspn(p, ","), digits = strspn(p, "0123456789");
            if (!digits || digits != len || digits > 3 || (p[len] == ',' && !p[len + 1])) {
                fail(err, n_err, "--cuda-device: found '%.40s', allowed are numbers of GPUs with commas between, as in 0,1",
                     c->cuda_device.s[i]);
                return -1;
            }
            int v = (int)strtol(p, NULL, 10); /* at most three digits */
            for (int k = 0; k < n; k++)
                if (out[k] == v) {
                    fail(err, n_err, "--cuda-device: GPU %d is named twice", v);
                    return -1;
                }
            if (n == max) {
                fail(err, n_err, "--cuda-device: more than %d GPUs", max);
                return -1;
            }
            out[n++] = v;
            p += len + (p[len] == ',');
        }
    }
    if (n && (uint32_t)n < c->tensor_parallel) {
        fail(err, n_err, "--cuda-device: found %d GPU%s, --tensor-parallel-size %u needs %u", n, n == 1 ? "" : "s", c->tensor_parallel,
             c->tensor_parallel);
        return -1;
    }
    return n;
}

int config_check(const struct config *c, char *err, size_t n_err)
{
    if (c->block_size != 16 && c->block_size != 32 && c->block_size != 64)
        return fail(err, n_err, "--block-size: found %u, allowed are 16, 32 and 64", c->block_size);
    if (c->given_kv_bytes && c->given_kv_gib)
        return fail(err, n_err, "--kv-cache-bytes and --kv-cache-gib are both given; use one of them");
    if (c->max_batch_tokens && c->max_num_seqs > c->max_batch_tokens)
        return fail(err, n_err, "--max-num-seqs: found %u, allowed is at most --max-num-batched-tokens (%u)", c->max_num_seqs,
                    c->max_batch_tokens);
    if (!strcmp(c->device, "cuda") && (!strcmp(c->kv_dtype, "float16") || !strcmp(c->kv_dtype, "float32")))
        return fail(err, n_err, "--kv-cache-dtype: found '%s', allowed with --device cuda are auto and bfloat16", c->kv_dtype);
    if (!strcmp(c->device, "cuda") && !strcmp(c->dtype, "float32"))
        return fail(err, n_err, "--dtype: found 'float32', allowed with --device cuda are auto, bfloat16 and float16");
    if (!strcmp(c->device, "cuda") && strcmp(c->quantization, "auto") != 0)
        return fail(err, n_err, "--quantization: found '%s', allowed with --device cuda is auto", c->quantization);
    if (strcmp(c->cpu_isa, "auto") != 0 && (!strcmp(c->device, "cuda") || !strcmp(c->device, "ref")))
        return fail(err, n_err, "--cpu-isa: found '%s', allowed with --device %s is auto", c->cpu_isa, c->device);
    if (!dev_cpu_has_isa(c->cpu_isa)) {
        char have[128];
        return fail(err, n_err, "--cpu-isa: found '%s', this machine has %s", c->cpu_isa, dev_cpu_isas(have, sizeof have));
    }
    if (c->gpu_memory_utilization <= 0)
        return fail(err, n_err, "--gpu-memory-utilization: found 0, allowed is a number above 0, at most 1");
    int ordinal[CUDA_DEVICES_MAX];
    if (config_cuda_ordinals(c, ordinal, CUDA_DEVICES_MAX, err, n_err) < 0) return EXIT_USAGE;
    if (strlen(c->takeover) > TAKEOVER_PATH_MAX)
        return fail(err, n_err, "--takeover: found %zu bytes, a socket's path here has at most %d", strlen(c->takeover), TAKEOVER_PATH_MAX);
    if (*c->takeover && c->nnodes > 1) return fail(err, n_err, "--takeover works with one machine, --nnodes is %u", c->nnodes);
    if (!*c->host) return fail(err, n_err, "--host: the value is empty");
    for (uint32_t i = 0; i < c->api_key.n; i++)
        for (const char *p = c->api_key.s[i]; *p; p++)
            if (*p <= ' ' || *p > '~') return fail(err, n_err, "--api-key: value %u holds a byte that no header can carry", i + 1);
    for (uint32_t i = 0; i < c->api_key.n && !config_is_loopback(c->host); i++)
        if (strlen(c->api_key.s[i]) < KEY_BYTES_PUBLIC_MIN)
            return fail(err, n_err,
                        "--api-key: value %u has %zu bytes, --host %.60s is reachable from other machines and needs at least %d", i + 1,
                        strlen(c->api_key.s[i]), c->host, KEY_BYTES_PUBLIC_MIN);
    if (c->protect_metrics && c->open_metrics) return fail(err, n_err, "--protect-metrics and --open-metrics exclude each other");
    if (!config_is_loopback(c->host) && !c->api_key.n && !*c->api_key_file && !c->allow_anonymous)
        return fail(err, n_err, "--host %.60s is reachable from other machines: give --api-key or --api-key-file, or say --allow-anonymous",
                    c->host);
    return config_kv_check(c, err, n_err);
}

bool config_shared(const char *text, char *dir_out, size_t dir_bytes, uint64_t *bytes_out)
{
    if (config_dir_gib(text, dir_out, dir_bytes, bytes_out)) return true;
    if (!*text || strlen(text) >= dir_bytes || text[strlen(text) - 1] == ':') return false;
    const char *colon = strrchr(text, ':');
    if (colon && strspn(colon + 1, "0123456789.-+eE") == strlen(colon + 1)) return false; /* a share, and not an allowed one */
    memcpy(dir_out, text, strlen(text) + 1);
    *bytes_out = (uint64_t)64 << 30;
    return true;
}

bool config_dir_gib(const char *text, char *dir_out, size_t dir_bytes, uint64_t *bytes_out)
{
    const char *colon = strrchr(text, ':');
    const char *end;
    double      gib;
    if (!colon || colon == text || (size_t)(colon - text) >= dir_bytes) return false;
    if (!parse_num(colon + 1, &gib, &end)) return false;
    if (*end) { /* with a unit of its own: DIR:512MiB */
        if (!parse_bytes(colon + 1, &gib)) return false;
        gib /= 1073741824.0;
    }
    if (gib <= 0 || gib > 1e6) return false;
    memcpy(dir_out, text, (size_t)(colon - text));
    dir_out[colon - text] = 0;
    *bytes_out = (uint64_t)(gib * (double)(1 << 30));
    return true;
}

void config_help(struct buf *out)
{
    buf_puts(out, "usage: spillway [serve] [DIR] [--option value | --option=value]...\n"
                  "       spillway tune --model DIR | --shape NAME   finds the GPU's fastest matrix products; tune --help says more\n"
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
        char              left[80];
        if (o->group) buf_printf(out, "\n%s\n", o->group);
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->meta ? " " : "", o->meta ? o->meta : "");
        buf_printf(out, "  %-34s %s%s", left, strlen(left) > 34 ? "\n                                     " : "", o->help);
        if (o->type == OPT_BOOL && !strcmp(o->def, "true"))
            buf_printf(out, " (default; --no-%s turns it off)", o->name);
        else if (o->type != OPT_BOOL && *o->def)
            buf_printf(out, " (default %s)", o->def);
        buf_putc(out, '\n');
    }
    buf_puts(
        out,
        "\nexit codes: 0 done, 64 usage, 70 internal, 71 broken GPU, 74 input/output, 77 permission, 78 model or configuration refused\n");
}

static void wipe(char *s)
{
    if (s) memset(s, '*', strlen(s));
}

void config_wipe_keys(int argc, char **argv, char **env)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--api-key") && i + 1 < argc)
            wipe(argv[i + 1]);
        else if (!strncmp(argv[i], "--api-key=", 10))
            wipe(argv[i] + 10);
        else if (!strcmp(argv[i], "--cluster-key") && i + 1 < argc)
            wipe(argv[i + 1]);
        else if (!strncmp(argv[i], "--cluster-key=", 14))
            wipe(argv[i] + 14);
    }
    for (; env && *env; env++) {
        if (!strncmp(*env, "SPILLWAY_API_KEY=", 17)) wipe(*env + 17);
        if (!strncmp(*env, "SPILLWAY_CLUSTER_KEY=", 21)) wipe(*env + 21);
    }
}

void config_free(struct config *c)
{
    for (uint32_t i = 0; i < c->api_key.n; i++) explicit_bzero((void *)(uintptr_t)c->api_key.s[i], strlen(c->api_key.s[i]));
    arena_free(&c->arena);
}
