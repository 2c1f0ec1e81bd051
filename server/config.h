/* config: the values of the options (server/options.h has their table).   Thread: main, then const.
 * config_parse -> config_check -> (const for all threads) -> config_free.
 * Later sources win: defaults, then SageMaker's where it is the platform (config_sagemaker.h), then the config file,
 * then the environment, then flags. */
#pragma once
#include "api/form.h"
#include "api/task.h"
#include "base/arena.h"
#include "base/log.h"
#include "engine/model/model.h"
#include "kernels/device.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str_list {
    const char **s;
    uint32_t     n;
};

enum {
    CUDA_DEVICES_MAX = 64,
    CONFIG_DIR_BYTES = 1024, /* length of --packed-cache's folder, with the terminating NUL */
    KEY_BYTES_PUBLIC_MIN =
        16, /* shortest API key if other machines can reach the server; shorter keys can be guessed */
};

/* Enums of options that no lower floor defines. */
enum load_format { LOAD_AUTO, LOAD_DUMMY };
enum sampling_defaults { SAMPLING_OF_MODEL, SAMPLING_NEUTRAL };
enum in_place { IN_PLACE_AUTO, IN_PLACE_ON, IN_PLACE_OFF };
enum half_close { HALF_CLOSE_CANCEL, HALF_CLOSE_SERVE };
enum empty_key_file { KEY_FILE_KEEP, KEY_FILE_DENY };
enum old_metrics { OLD_METRICS_AUTO, OLD_METRICS_ALL, OLD_METRICS_NONE };
enum sagemaker_mode { SAGEMAKER_AUTO, SAGEMAKER_ON, SAGEMAKER_OFF };

struct config {
    /* model */
    const char            *model, *chat_template;
    const char            *tool_parser, *reasoning_parser; /* names of api/family.h */
    enum load_format       load_format;
    enum sampling_defaults generation_config;
    struct str_list        served_name;
    bool                   lora;
    struct str_list        lora_modules; /* NAME=DIR, or vLLM's JSON */
    uint32_t               lora_slots, lora_rank, lora_host;
    const char            *lora_root;
    /* device */
    enum dev_kind     device;
    enum dtype        dtype, kv_dtype; /* DT_COUNT: auto */
    enum dev_cpu_isa  cpu_isa;
    enum model_format quantization;
    const char       *codes_named; /* vLLM's name (awq, gptq) for codes that the checkpoint must have; NULL: none */
    uint32_t          tensor_parallel, threads;
    bool              expert_parallel;
    /* cuda */
    double             gpu_memory_utilization;
    struct str_list    cuda_device; /* ordinals of CUDA devices */
    bool               deterministic, enforce_eager, pdl, wgmma, fp8_prefill;
    const char        *gemm_file, *cublaslt;
    enum dev_comm      collectives;
    enum dev_symmetric nccl_symmetric;
    /* nodes: cluster.h interprets them */
    uint32_t        nnodes, node_rank;
    const char     *master_addr, *cluster_key, *cluster_key_file;
    bool            cluster_insecure;
    enum api_task   task;
    enum model_pool pooling; /* POOL_NONE: auto */
    bool            matryoshka;
    /* engine */
    uint32_t        max_model_len, prefill_chunk, block_size;
    uint32_t        max_num_seqs, max_batch_tokens; /* 0: auto, see config_sizes */
    uint64_t        kv_bytes;
    double          kv_gib;
    double          window_share;
    bool            prefix_caching, priority, clamp_max_tokens, open_schemas;
    enum lmi_form   lmi_form;
    double          kv_host_gib;
    enum in_place   kv_in_place;
    uint32_t        kv_pin_max, kv_audit_every;
    struct str_list kv_peer;                           /* HOST:PORT */
    const char     *kv_peer_listen, *kv_peer_key_file; /* "": none */
    unsigned        kv_peer_transport;                 /* enum peer_transport */
    unsigned        role;                              /* enum server_role */
    struct str_list kv_nvme;                           /* DIR:GIB, for config_dir_gib */
    const char     *kv_events_config;                  /* JSON, as config_events_read reads it */
    const char     *packed_cache;                      /* DIR[:GIB], as config_shared reads it */
    const char     *kv_shared_name;                    /* "": made of host and port */
    const char     *kv_shared;                         /* DIR[:GIB], as config_shared reads it */
    const char     *kv_object;                         /* a URL, as object_open reads it; "": none */
    double          kv_object_gib;
    const char     *object_endpoint, *object_region;      /* "": of the environment */
    struct str_list kv_mac_key_file, kv_encrypt_key_file; /* files are written with the first key and read with all */
    bool            kv_encrypt;
    uint32_t        queue_requests, queue_tokens, request_timeout_s;
    /* server */
    const char *host;
    uint32_t port, io_threads, text_threads, max_connections, max_connections_address, max_body_mib, response_store_mib,
        drain_s, drain_delay_s, flush_s, stuck_s;
    enum half_close half_close;
    const char     *takeover;
    uint32_t        takeover_s;
    struct str_list allowed_host, cors_origin;
    bool            die_with_parent;
    /* sagemaker */
    enum sagemaker_mode sagemaker;
    const char         *sagemaker_folder;
    bool                on_sagemaker; /* what that mode came to */
    bool                stateful_sessions;
    uint32_t            session_s, max_sessions;
    /* security */
    struct str_list     api_key;
    const char         *api_key_file;
    enum empty_key_file api_key_file_empty;
    uint32_t            max_key_failures;
    const char         *tls_cert, *tls_key; /* files in PEM form; "": plain HTTP */
    bool                allow_anonymous, share_prefix, protect_metrics, open_metrics;
    /* log */
    enum log_level   log_level;
    bool             log_json;
    enum old_metrics old_metrics;
    const char      *otlp_endpoint; /* "": no traces */
    double           otlp_ratio;
    /* `spillway batch` (server/cmd/batch.h) */
    const char *batch_input, *batch_output, *batch_errors; /* paths; "-": standard input, standard output; "": none */
    bool        batch_restart;
    bool        batch; /* it is that command; no option */
    /* commands */
    const char     *config_file;
    struct str_list told; /* a line each: what has no effect here, and other things to know of the options */
    bool            help, version, healthcheck, list_devices, list_families;

    struct arena arena;
    bool         given_kv_bytes, given_kv_gib, port_from_env_ignored;
};

/* Returns 0, or the exit code (64) with one line in err. argv[0] is skipped; a leading word "serve" is accepted, and a
 * word after it is the model. environ_in: NAME=value strings, NULL-terminated. */
int config_parse(struct config *c, int argc, char *const *argv, char *const *environ_in, char *err, size_t err_bytes);
/* Checks combinations of options, the machine's abilities, and the safety of the address. Returns 0, or 64 (78 for
 * --packed-cache) with one line in err. */
int config_check(const struct config *c, char *err, size_t err_bytes);
/* The number of running sequences and the token budget of a step. Values that were not given are defaults, adjusted so
 * that the budget is at least the number of sequences. */
enum { CONFIG_SEQS_MAX_AUTO = 256 };
void config_sizes(const struct config *c, bool gpu, uint32_t *seqs_out, uint32_t *rows_out);
bool config_is_loopback(const char *host);
/* The GPUs of --cuda-device, at most max. Returns their number, or -1 with one line in err. */
int config_cuda_ordinals(const struct config *c, int *out, int max, char *err, size_t err_bytes);
/* Parses "DIR:GIB". false: another form. */
bool config_dir_gib(const char *text, char *dir_out, size_t dir_bytes, uint64_t *bytes_out);
/* Parses "DIR" or "DIR:GIB"; without GIB the share is 64 GiB. false: another form. */
bool config_shared(const char *text, char *dir_out, size_t dir_bytes, uint64_t *bytes_out);
/* Overwrites keys in argv and in the environment strings, because ps and /proc show these. */
void config_wipe_keys(int argc, char **argv, char **environ_in);
void config_free(struct config *c);
