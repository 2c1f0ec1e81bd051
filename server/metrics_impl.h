/* metrics_impl: the table of the families of /metrics, and the struct that two files share: metrics.c makes and
 * counts, metrics_page.c samples and prints.   Thread: as in metrics.h. */
#pragma once
#include "server/metrics.h"
#include "server/nvml.h"
#include <string.h>

/* clang-format off */
/* BARE: no common labels; COMMON: with them; both are always exported. OLD, OLDER: exported only with the matching
 * --old-metric-names. GPU: one series for each GPU. The table writes BARE and COMMON as 0 and 1. */
enum family_kind { BARE, COMMON, OLD, OLDER, GPU };

/*  id             type      kind  labels     buckets      name, help */
#define FAMILIES(X)                                                                                                                         \
    X(RUNNING,       GAUGE,     1, l_one,    NULL,      "vllm:num_requests_running", "Sequences in the running batch.")                        \
    X(WAITING,       GAUGE,     1, l_one,    NULL,      "vllm:num_requests_waiting", "Sequences that wait to run.")                            \
    X(WAITING_WHY,   GAUGE,     1, l_reason, NULL,      "vllm:num_requests_waiting_by_reason", "Waiting sequences by reason.")                 \
    X(KV_USE,        GAUGE,     1, l_one,    NULL,      "vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.")                               \
    X(KV_USE_OLD,    GAUGE,     OLD, l_one,    NULL,      "vllm:gpu_cache_usage_perc", "KV blocks in use, 0 to 1 (old name).")                   \
    X(SLEEP,         GAUGE,     1, l_sleep,  NULL,      "vllm:engine_sleep_state", "Sleep state of the engine.")                               \
    X(LORA,          GAUGE,     0, l_one,    NULL,      "vllm:lora_requests_info", "LoRA adapters in use.")                                    \
    X(CACHE_INFO,    GAUGE,     0, l_one,    NULL,      "vllm:cache_config_info", "Settings of the KV cache, as labels.")                                 \
    X(PROMPT,        COUNTER,   1, l_one,    NULL,      "vllm:prompt_tokens_total", "Prompt tokens, cached ones included.")                    \
    X(PROMPT_SRC,    COUNTER,   1, l_source, NULL,      "vllm:prompt_tokens_by_source_total", "Prompt tokens by where their KV came from.")    \
    X(PROMPT_CACHED, COUNTER,   1, l_one,    NULL,      "vllm:prompt_tokens_cached_total", "Prompt tokens that were not computed.")            \
    X(CACHED_SRC,    COUNTER,   1, l_cached, NULL,      "vllm:prompt_tokens_cached_by_source_total", "Prompt tokens that were not computed, by where their KV was.") \
    X(GENERATED,     COUNTER,   1, l_one,    NULL,      "vllm:generation_tokens_total", "Tokens generated.")                                   \
    X(SUCCESS,       COUNTER,   1, l_finish, NULL,      "vllm:request_success_total", "Requests that ended, by reason.")                       \
    X(PREEMPTED,     COUNTER,   1, l_one,    NULL,      "vllm:num_preemptions_total", "Sequences put back to waiting for want of KV blocks.")  \
    X(QUERIES,       COUNTER,   1, l_one,    NULL,      "vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.")            \
    X(HITS,          COUNTER,   1, l_one,    NULL,      "vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.")                   \
    X(QUERIES_OLD,   COUNTER,   OLD, l_one,    NULL,      "vllm:gpu_prefix_cache_queries_total", "Tokens looked up (old name).")                 \
    X(HITS_OLD,      COUNTER,   OLD, l_one,    NULL,      "vllm:gpu_prefix_cache_hits_total", "Tokens found (old name).")                        \
    X(HIT_RATE_OLD,  GAUGE,     OLD, l_one,  NULL,      "vllm:gpu_prefix_cache_hit_rate", "Share of the tokens looked up that were found (old name).") \
    X(EXT_QUERIES,   COUNTER,   1, l_one,    NULL,      "vllm:external_prefix_cache_queries_total", "Tokens looked up in external tiers.")     \
    X(EXT_HITS,      COUNTER,   1, l_one,    NULL,      "vllm:external_prefix_cache_hits_total", "Tokens found in external tiers.")            \
    X(MM_QUERIES,    COUNTER,   1, l_one,    NULL,      "vllm:mm_cache_queries_total", "Items looked up in the multimodal cache.")             \
    X(MM_HITS,       COUNTER,   1, l_one,    NULL,      "vllm:mm_cache_hits_total", "Items found in the multimodal cache.")                    \
    X(SPEC_DRAFTS,   COUNTER,   1, l_one,    NULL,      "vllm:spec_decode_num_drafts_total", "Drafts that were made.")                                        \
    X(SPEC_TOKENS,   COUNTER,   1, l_one,    NULL,      "vllm:spec_decode_num_draft_tokens_total", "Drafted tokens.")                          \
    X(SPEC_ACCEPTED, COUNTER,   1, l_one,    NULL,      "vllm:spec_decode_num_accepted_tokens_total", "Accepted drafted tokens.")              \
    X(SPEC_POS,      COUNTER,   1, l_pos,    NULL,      "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted drafted tokens, by position in the draft.")         \
    X(CORRUPTED,     COUNTER,   1, l_one,    NULL,      "vllm:corrupted_requests_total", "Requests that ended because their logits were NaN.") \
    X(TTFT,          HISTOGRAM, 1, l_one,    &kb_ttft,  "vllm:time_to_first_token_seconds", "Time from arrival to the first token.")                         \
    X(ITL,           HISTOGRAM, 1, l_one,    &kb_itl,   "vllm:inter_token_latency_seconds", "Time between two outputs of a request.")               \
    X(ITL_OLD,       HISTOGRAM, OLDER, l_one, &kb_itl,  "vllm:time_per_output_token_seconds", "Time between two outputs of a request (old name).") \
    X(TPOT,          HISTOGRAM, 1, l_one,    &kb_itl,   "vllm:request_time_per_output_token_seconds", "Decode time per token, per request.")   \
    X(E2E,           HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:e2e_request_latency_seconds", "Time from arrival to the last token.")                          \
    X(QUEUE,         HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_queue_time_seconds", "Time that a request waited to be scheduled.")                         \
    X(INFERENCE,     HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_inference_time_seconds", "Time from being scheduled to the last token.")                     \
    X(PREFILL,       HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_prefill_time_seconds", "Time from being scheduled to the first token.")                      \
    X(DECODE,        HISTOGRAM, 1, l_one,    &kb_e2e,   "vllm:request_decode_time_seconds", "Time from the first token to the last one.")                            \
    X(N_PROMPT,      HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_prompt_tokens", "Prompt tokens per request.")                            \
    X(N_OUTPUT,      HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_generation_tokens", "Generated tokens per request.")                     \
    X(N_OUTPUT_MAX,  HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_max_num_generation_tokens", "Longest choice per request, in tokens.")    \
    X(MAX_TOKENS,    HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_params_max_tokens", "The parameter max_tokens of requests.")                           \
    X(KV_COMPUTED,   HISTOGRAM, 1, l_one,    &kb_125,   "vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed per request.")      \
    X(ITERATION,     HISTOGRAM, 1, l_one,    &kb_iter,  "vllm:iteration_tokens_total", "Tokens per engine step.")                              \
    X(PARAM_N,       HISTOGRAM, 1, l_one,    &kb_n,     "vllm:request_params_n", "The parameter n of requests.")                                             \
    X(HTTP,          COUNTER,   0, l_http,   NULL,      "http_requests_total", "HTTP requests by route, method and status class.")             \
    X(HTTP_TIME,     HISTOGRAM, 0, l_http,   &kb_http,  "http_request_duration_seconds", "Duration of HTTP requests, by route and method.")                 \
    X(HTTP_TIME_ALL, HISTOGRAM, 0, l_one,    &kb_highr, "http_request_duration_highr_seconds", "Duration of HTTP requests of all routes, in finer buckets.") \
    X(HTTP_IN,       SUMMARY,   0, l_http,   NULL,      "http_request_size_bytes", "Bytes of the bodies of HTTP requests, by route.") \
    X(HTTP_OUT,      SUMMARY,   0, l_http,   NULL,      "http_response_size_bytes", "Bytes of HTTP answers with their heads, by route.") \
    X(CPU,           REAL,      0, l_one,    NULL,      "process_cpu_seconds_total", "CPU time of the process, user and system.")                              \
    X(RSS,           GAUGE,     0, l_one,    NULL,      "process_resident_memory_bytes", "Resident memory.")                                   \
    X(VIRTUAL,       GAUGE,     0, l_one,    NULL,      "process_virtual_memory_bytes", "Virtual memory.") \
    X(FDS,           GAUGE,     0, l_one,    NULL,      "process_open_fds", "Open file descriptors.")                                          \
    X(FDS_MAX,       GAUGE,     0, l_one,    NULL,      "process_max_fds", "Limit of open file descriptors.")                                           \
    X(START,         GAUGE,     0, l_one,    NULL,      "process_start_time_seconds", "Start of the process, Unix time.")                      \
    X(BUILD,         GAUGE,     0, l_version, NULL,     "spillway:build_info", "Version of this binary, and how it was built.")                                      \
    X(LOAD,          GAUGE,     0, l_one,    NULL,      "spillway:model_load_seconds", "Time that loading the model took.")                     \
    X(WEIGHTS,       GAUGE,     0, l_one,    NULL,      "spillway:weights_bytes", "Bytes of weights.")                                         \
    X(KV_BYTES,      GAUGE,     0, l_one,    NULL,      "spillway:kv_cache_bytes", "Bytes of the KV cache.")                                   \
    X(KV_BLOCKS,     GAUGE,     0, l_one,    NULL,      "spillway:kv_blocks", "Blocks of the KV cache.")                                       \
    X(WINDOW_BYTES,  GAUGE,     0, l_one,    NULL,      "spillway:kv_window_bytes", "Bytes of the KV of layers with a window, beside kv_cache_bytes; 0: they have no pool of their own.") \
    X(WINDOW_BLOCKS, GAUGE,     0, l_one,    NULL,      "spillway:kv_window_blocks", "Blocks of that pool.") \
    X(WINDOW_USED,   GAUGE,     0, l_one,    NULL,      "spillway:kv_window_used_blocks", "Blocks of it that running sequences hold.") \
    X(WINDOW_PASSED, COUNTER,   0, l_one,    NULL,      "spillway:kv_window_freed_blocks_total", "Blocks that sequences gave back because their window had passed them.") \
    X(WINDOW_EVICTED, COUNTER,  0, l_one,    NULL,      "spillway:kv_window_evicted_blocks_total", "Blocks of windows that were kept for later prompts and given away.") \
    X(WINDOW_LOADED, COUNTER,   0, l_one,    NULL,      "spillway:kv_window_loaded_blocks_total", "Blocks of windows that came up from the tiers below the device.") \
    X(ARENA,         GAUGE,     0, l_arena,  NULL,      "spillway:arena_reserved_bytes", "Bound of each part of memory that has one, in bytes.") \
    X(ARENA_USED,    GAUGE,     0, l_arena,  NULL,      "spillway:arena_used_bytes", "Bytes in use of each part of memory that has a bound.") \
    X(TIER_RESERVED, GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_reserved_bytes", "Capacity of a KV tier in bytes.")                              \
    X(TIER_USED,     GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_used_bytes", "Bytes in use in a KV tier.")                                \
    X(TIER_BLOCKS,   GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_blocks", "Blocks in a KV tier.")                                          \
    X(TIER_DEGRADED, GAUGE,     0, l_below,  NULL,      "spillway:kv_tier_degraded", "Folders of a KV tier that currently cannot be used or written to.") \
    X(TIER_HITS,     COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_hit_blocks_total", "Blocks that came up from a KV tier.")                 \
    X(TIER_STORES,   COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_stored_blocks_total", "Blocks that went down to a KV tier.")              \
    X(TIER_EVICTED,  COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_evicted_blocks_total", "Blocks that left a KV tier for want of room.")    \
    X(TIER_EVICTIONS, COUNTER,  0, l_evict,  NULL,      "spillway:kv_evictions_total", "Blocks evicted, by tier and reason: least recently used, end of its time, lower priority, nothing lower was left.") \
    X(TIER_MISSES,   COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_miss_blocks_total", "Blocks that a prompt lacked on the device and a KV tier did not hold.") \
    X(TIER_PINNED,   GAUGE,     0, l_pinned, NULL,      "spillway:kv_pinned_bytes", "Bytes of the blocks that kv_pin holds.")                                    \
    X(PIN_REFUSED,   COUNTER,   0, l_one,    NULL,      "spillway:kv_pins_refused_total", "Requests with kv_pin whose prompt was not pinned for want of room.") \
    X(KV_BORROWED,   COUNTER,   0, l_one,    NULL,      "spillway:kv_copied_blocks_total", "Blocks copied because a prompt shares a part of them.") \
    X(KV_RESUMED,    COUNTER,   0, l_one,    NULL,      "spillway:kv_resumed_tokens_total", "Tokens of preempted sequences that lower tiers gave back.") \
    X(TIER_IN,       COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_written_bytes_total", "Bytes written to a KV tier.")                      \
    X(TIER_OUT,      COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_read_bytes_total", "Bytes read from a KV tier.")                          \
    X(TIER_DOUBT,    COUNTER,   0, l_doubt,  NULL,      "spillway:kv_verify_failures_total", "Blocks that came back in doubt and were computed anew.") \
    X(TIER_VERIFY,   COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_verify_failures_total", "Blocks that came back in doubt, by tier.")                             \
    X(TIER_LATENCY,  HISTOGRAM, 0, l_tier,   &kb_load,  "spillway:kv_load_seconds", "Time from asking for a load to its use, by the slowest tier that it takes from.") \
    X(TIER_LATE,     COUNTER,   0, l_tier,   NULL,      "spillway:kv_tier_loads_abandoned_total", "Loads given up at their deadline, by tier.")    \
    X(TIER_REGRETS,  GAUGE,     0, l_tier,   NULL,      "spillway:kv_tier_load_regret_seconds", "Time by which loads took longer than computing would have, by tier.") \
    X(TIER_DECISION, COUNTER,   0, l_decision, NULL,    "spillway:kv_load_decisions_total", "Prefixes found below the device: loaded, or computed because that was cheaper.") \
    X(TIER_ABANDON,  COUNTER,   0, l_one,    NULL,      "spillway:kv_loads_abandoned_total", "Loads that fell behind their deadline and were computed.") \
    X(TIER_DROPPED,  COUNTER,   0, l_one,    NULL,      "spillway:kv_stores_dropped_total", "Blocks not stored for want of room or time.")         \
    X(FOLDER_EVENTS, COUNTER,   0, l_folder, NULL,      "spillway:kv_folder_events_total", "Events in KV folders: pauses of writing, and segments that were removed, gave way to another model's, or were taken over.") \
    X(FOLDER_SEGS,   GAUGE,     0, l_segment, NULL,     "spillway:kv_folder_segments", "Segments in KV folders that are not in use: of another key, damaged, not yet readable, or of another server.") \
    X(FOLDER_PAUSED, GAUGE,     0, l_one,    NULL,      "spillway:kv_folders_paused", "KV folders that are currently not written to.")                  \
    X(FOLDER_FOUND,  COUNTER,   0, l_one,    NULL,      "spillway:kv_folder_recovered_blocks_total", "Blocks found in folders, of this model.")     \
    X(PD_PULLS,      COUNTER,   0, l_claim,  NULL,      "spillway:pd_pulls_total", "Requests with do_remote_prefill, by how the pull of their prompt ended; all but pulled and here computed it.") \
    X(PD_PARCELS,    COUNTER,   0, l_parcel, NULL,      "spillway:pd_parcels_total", "Prompts kept for another server: made, taken (it said so), lapsed (nobody claimed them in time), refused (no block could be kept).") \
    X(PD_KEPT,       GAUGE,     0, l_one,    NULL,      "spillway:pd_kept_blocks", "Blocks of the host that are kept for other servers.")     \
    X(PLACE,         GAUGE,     0, l_one,    NULL,      "spillway:kv_in_place_slots", "Blocks of the host that the device may read where they are, at the moment.") \
    X(PLACED,        COUNTER,   0, l_one,    NULL,      "spillway:kv_in_place_blocks_total", "Blocks of the host that were found there and not copied.") \
    X(PLACE_MOVED,   COUNTER,   0, l_one,    NULL,      "spillway:kv_in_place_moved_total", "Of them, those that were read so often that they were copied up.") \
    X(AUDITS,        COUNTER,   0, l_one,    NULL,      "spillway:kv_audits_total", "Blocks from below that were computed again and compared.")    \
    X(AUDIT_WRONG,   COUNTER,   0, l_one,    NULL,      "spillway:kv_audit_mismatch_total", "Audited blocks whose bytes differed; all blocks were dropped then.") \
    X(TIER_ERRORS,   COUNTER,   0, l_one,    NULL,      "spillway:kv_transfer_errors_total", "Copies, reads and writes of blocks that failed.")     \
    X(TIER_REGRET,   GAUGE,     0, l_one,    NULL,      "spillway:kv_load_regret_seconds", "Time by which loads took longer than computing would have.")     \
    X(STEPS,         COUNTER,   0, l_one,    NULL,      "spillway:engine_steps_total", "Engine steps.")                                        \
    X(STEP_TIME,     GAUGE,     0, l_one,    NULL,      "spillway:engine_step_seconds", "Length of a step, moving average.")                   \
    X(STEP_TIMES,    HISTOGRAM, 0, l_one,    &kb_load,  "spillway:step_seconds", "Length of a step.")                                               \
    X(STEP_SLOW,     GAUGE,     0, l_one,    NULL,      "spillway:step_slowdown_ratio", "Duration of the last steps, as a multiple of the usual duration of steps with as many tokens.") \
    X(PHASES,        REAL,      0, l_phase,  NULL,      "spillway:step_phase_seconds_total", "Time of the engine's thread by part of a step; wait: for the device, or in it where it is the CPU.") \
    X(HOST_TIMES,    HISTOGRAM, 0, l_one,    &kb_phase, "spillway:step_host_seconds", "The host's own time in a step: all parts but wait.") \
    X(GAPS,          HISTOGRAM, 0, l_one,    &kb_phase, "spillway:step_gap_seconds", "Time for which the device had no work before a step, though requests waited or ran.") \
    X(NAN,           COUNTER,   0, l_one,    NULL,      "spillway:nan_requests_total", "Requests that ended because their logits were NaN.")         \
    X(LATE_MASKS,    COUNTER,   0, l_one,    NULL,      "spillway:late_masks_total", "Rows of requests with a grammar that were computed twice: their mask was late.") \
    X(QUEUE_TOKENS,  GAUGE,     0, l_one,    NULL,      "spillway:queue_tokens", "Prompt tokens that wait.")                                   \
    X(QUEUED,        GAUGE,     0, l_queue,  NULL,      "spillway:queue_requests", "Requests that wait and have never run, by who asks and by priority.") \
    X(ENDED,         COUNTER,   0, l_ended,  NULL,      "spillway:requests_ended_total", "Requests to generate, by how they ended: finished; finished while the server drained; cut off at the drain limit; canceled; past their deadline; refused for want of room; invalid; failed.") \
    X(TEXT_TIME,     HISTOGRAM, 0, l_one,    &kb_load,  "spillway:text_seconds", "Reading a request: JSON, chat template, tokens.") \
    X(TEXT_QUEUE,    GAUGE,     0, l_one,    NULL,      "spillway:text_jobs_waiting", "Large bodies that wait for a text thread.") \
    X(GRAMMAR_HITS,    REAL,      0, l_one,    NULL,      "spillway:grammar_cache_hits_total", "Forms of answers whose grammar was there.")\
    X(GRAMMAR_MADE,    REAL,      0, l_one,    NULL,      "spillway:grammars_compiled_total", "Forms of answers that were compiled, also in vain.")\
    X(GRAMMAR_EVICTED, REAL,      0, l_one,    NULL,      "spillway:grammars_evicted_total", "Grammars that gave way to others.")  \
    X(GRAMMARS,        GAUGE,     0, l_one,    NULL,      "spillway:grammars", "Grammars that are kept.")                          \
    X(GRAMMAR_BYTES,   GAUGE,     0, l_one,    NULL,      "spillway:grammar_bytes", "Memory of the grammars that are kept.")       \
    X(CONNECTIONS,   GAUGE,     0, l_one,    NULL,      "spillway:connections", "Open client connections.")                                    \
    X(STREAMS,       GAUGE,     0, l_one,    NULL,      "spillway:generations", "Requests whose answer is not yet complete.")                  \
    X(UNREAD_BYTES,  GAUGE,     0, l_unread, NULL,      "spillway:unread_bytes", "Bytes held for clients that do not read, by kind of route.") \
    X(PAUSED,        COUNTER,   0, l_one,    NULL,      "spillway:slow_reader_pauses_total", "Streams parked because their client reads slowly.") \
    X(KEYS,          COUNTER,   0, l_key,    NULL,      "spillway:auth_failures_total", "Requests refused for their API key: none, a wrong one, or from an address that sent too many.") \
    X(TLS_SHAKES,    COUNTER,   0, l_shake,  NULL,      "spillway:tls_handshakes_total", "TLS handshakes by how they ended: done; failed; plain_http: the client spoke no TLS; unfinished: it left or was too slow.") \
    X(TLS_EXPIRES,   GAUGE,     0, l_one,    NULL,      "spillway:tls_certificate_expiration_timestamp_seconds", "Unix time at which the certificate in use expires.") \
    X(UNREAD,        COUNTER,   0, l_one,    NULL,      "spillway:unread_dropped_total", "Connections reset because answers that nobody read held too much memory.") \
    X(GPU_USE, GAUGE, GPU, l_one, NULL, "spillway:gpu_utilization", "Share of the last sampling period in which a kernel ran on this GPU.") \
    X(GPU_MEM_USE, GAUGE, GPU, l_one, NULL, "spillway:gpu_memory_utilization", "Share of the last sampling period in which memory of this GPU was read or written.") \
    X(GPU_MEM, GAUGE, GPU, l_one, NULL, "spillway:gpu_memory_total_bytes", "Memory of this GPU.") \
    X(GPU_MEM_USED, GAUGE, GPU, l_one, NULL, "spillway:gpu_memory_used_bytes", "Memory of this GPU in use, by whomever.") \
    X(GPU_POWER, GAUGE, GPU, l_one, NULL, "spillway:gpu_power_watts", "Power that this GPU takes.") \
    X(GPU_TEMP, GAUGE, GPU, l_one, NULL, "spillway:gpu_temperature_celsius", "Temperature of this GPU.") \
    X(GPU_ECC, COUNTER, GPU, l_ecc, NULL, "spillway:gpu_ecc_errors_total", "Memory errors since the driver was loaded.") \
    X(GPU_ROWS, GAUGE, GPU, l_rows, NULL, "spillway:gpu_remapped_rows", "Rows of memory remapped; 1: a remapping waits for a reset, or failed.") \
    X(GPU_THROTTLE, GAUGE, GPU, l_throttle, NULL, "spillway:gpu_throttled", "1: the clocks of this GPU are currently held down, by reason.") \
    X(GPU_XID, COUNTER, GPU, l_one, NULL, "spillway:gpu_xid_errors_total", "XID events since this start; the log names them.") \
    X(GPU_XID_LAST, GAUGE, GPU, l_one, NULL, "spillway:gpu_last_xid", "Number of the last XID event.") \
    X(GPU_LOST, GAUGE, GPU, l_one, NULL, "spillway:gpu_lost", "1: the driver does not reach this GPU any more.") \
    X(GPU_ODD, COUNTER, GPU, l_one, NULL, "spillway:gpu_odd_answers_total", "Answers of the driver that cannot be true, and were not taken.") \
    X(GPU_AGE, GAUGE, GPU, l_one, NULL, "spillway:gpu_sample_age_seconds", "Age of these numbers: more than some seconds means that the driver hangs.") \
    X(KV_EVENTS,     COUNTER,   0, l_event,  NULL,      "spillway:kv_events_total", "KV events told to routers: blocks stored and removed, and clearings of all blocks.") \
    X(KV_EVENT_BATCHES, COUNTER, 0, l_one,   NULL,      "spillway:kv_event_batches_total", "Batches of them, which are the numbers of the sequence.") \
    X(KV_EVENT_DROPS, COUNTER,  0, l_event_drop, NULL,  "spillway:kv_events_dropped_total", "Events left out because the queue was full; batches left out because a subscriber was slow.") \
    X(KV_EVENT_REPLAYS, COUNTER, 0, l_one,   NULL,      "spillway:kv_event_replays_total", "Replays that subscribers asked for.") \
    X(TRACES,        COUNTER,   0, l_trace,  NULL,      "spillway:traces_total", "Requests whose spans were sent to the collector, found the queue full, or were not taken.") \
    X(UNKNOWN,       COUNTER,   0, l_one,    NULL,      "spillway:unknown_fields_total", "Fields of requests that no route knows.")                  \
    X(ACCEPT,        COUNTER,   0, l_one,    NULL,      "spillway:accept_pauses_total", "Pauses of accept for want of descriptors.")           \
    X(LOG_DROPPED,   COUNTER,   0, l_one,    NULL,      "spillway:log_lines_dropped_total", "Log lines that found their pipe full.")
/* clang-format on */

enum family_id {
#define ID(id, ...) F_##id,
    FAMILIES(ID)
#undef ID
        N_FAMILY
};
enum { WHYS_BELOW = 2 };   /* the first values of enum kv_evict_why: reasons for an eviction below the host */
enum { N_HTTP_LABEL = 5 }; /* texts of a handler: N_CLASS with a status, one with the method, one without */
/* Parts of memory with a bound, in the order of the label. */
enum arena_id { ARENA_WEIGHTS, ARENA_WORK, ARENA_KV, ARENA_KV_HOST, ARENA_BODIES, ARENA_RESPONSES };
enum { N_CLASS = 3 }; /* 2xx, 4xx, 5xx */

struct metrics {
    bool                 shown[N_FAMILY];
    struct metric_family fam[N_FAMILY];
    char                 common[400];
    char                 cache_info[600];
    char (*http_label)[120];
    const struct routes *routes;
    uint32_t             n_handler;  /* http series: handler h, class k at h * N_CLASS + k; handler 0: no route */
    uint32_t            *handler_of; /* [route] */
    double               start_time;
    uint32_t             n_gpu[N_FAMILY]; /* of a GPU family: series of one GPU; else 0 */
    char (*gpu_label)[64];
};

static inline struct metric *one(struct metrics *m, enum family_id id) { return &m->fam[id].metric[0]; }
static inline void           observe(struct metrics *m, enum family_id id, double v)
{
    metric_observe(&m->fam[id], one(m, id), v);
}
static inline void count_to(struct metrics *m, enum family_id id, uint32_t k, uint64_t v)
{
    atomic_store_explicit(&m->fam[id].metric[k].value, v, memory_order_relaxed);
}
