#include "api/openai/openai.h"
#include <math.h>
#include <stddef.h>

/* The fields of generation requests: OpenAI's, and those that vLLM and this server add. They are read in the order of
 * the table, so the first row that objects is the one that a client is told of. */

#define AT(field) offsetof(struct call, field)
#define BOOL(name, on, field)                             \
    {                                                     \
        name, on, PARAM_BOOL, AT(field), 0, 0, 0, 0, NULL \
    }
#define INT(name, on, field, lo, hi, check)                 \
    {                                                       \
        name, on, PARAM_INT, AT(field), lo, hi, 0, 0, check \
    }
#define NUM(name, on, field, min, max)                       \
    {                                                        \
        name, on, PARAM_NUM, AT(field), 0, 0, min, max, NULL \
    }
#define JSON(name, on, type, field, check)           \
    {                                                \
        name, on, type, AT(field), 0, 0, 0, 0, check \
    }
#define IGNORED(name, type)                                                     \
    {                                                                           \
        name, ON_BOTH, type, 0, INT64_MIN, INT64_MAX, -INFINITY, INFINITY, NULL \
    }
#define LATER(name, on, check)                      \
    {                                               \
        name, on, PARAM_LATER, 0, 0, 0, 0, 0, check \
    }
/* Smallest positive values that a float of the engine can divide by. */
#define TOP_P_MIN      1e-30
#define REPETITION_MIN 0.01
#define REPETITION_MAX 100.0

static const struct param rows[] = {
    JSON("model", ON_BOTH, PARAM_ANY, ask.model, check_model),
    JSON("messages", ON_CHAT, PARAM_ANY, ask.messages, NULL),
    JSON("prompt", ON_COMPLETION, PARAM_ANY, ask.prompt, NULL),
    BOOL("stream", ON_BOTH, stream),
    JSON("stream_options", ON_BOTH, PARAM_OBJECT, ask.stream_options, check_stream_options),
    /* how much */
    INT("max_completion_tokens", ON_CHAT, ask.max_completion_tokens, 1, INT32_MAX, NULL),
    INT("max_tokens", ON_CHAT, ask.max_tokens, 1, INT32_MAX, NULL),
    INT("max_tokens", ON_COMPLETION, ask.max_tokens, 0, INT32_MAX, NULL),
    INT("min_tokens", ON_BOTH, ask.min_tokens, 0, INT32_MAX, NULL),
    INT("n", ON_BOTH, ask.n, 1, INT32_MAX, check_n),
    { "best_of", ON_BOTH, PARAM_INT, 0, 1, INT32_MAX, 0, 0, check_best_of },
    /* sampling */
    NUM("temperature", ON_BOTH, ask.temperature, 0, 2),
    NUM("top_p", ON_BOTH, ask.top_p, TOP_P_MIN, 1),
    INT("top_k", ON_BOTH, ask.top_k, -1, INT32_MAX, NULL),
    NUM("min_p", ON_BOTH, ask.min_p, 0, 1),
    NUM("presence_penalty", ON_BOTH, ask.presence, -2, 2),
    NUM("frequency_penalty", ON_BOTH, ask.frequency, -2, 2),
    NUM("repetition_penalty", ON_BOTH, ask.repetition, REPETITION_MIN, REPETITION_MAX),
    INT("seed", ON_BOTH, ask.seed, INT64_MIN, INT64_MAX, NULL),
    JSON("logit_bias", ON_BOTH, PARAM_OBJECT, ask.bias, check_bias),
    JSON("allowed_token_ids", ON_BOTH, PARAM_ARRAY, ask.allowed_ids, check_token_ids),
    JSON("bad_words", ON_BOTH, PARAM_ARRAY, ask.bad_words, check_bad_words),
    /* where it ends */
    JSON("stop", ON_BOTH, PARAM_ANY, ask.stop, check_stop),
    JSON("stop_token_ids", ON_BOTH, PARAM_ARRAY, ask.stop_ids, check_token_ids),
    BOOL("include_stop_str_in_output", ON_BOTH, ask.include_stop),
    BOOL("ignore_eos", ON_BOTH, s.ignore_eos),
    /* what comes back */
    BOOL("logprobs", ON_CHAT, ask.logprobs),
    INT("top_logprobs", ON_CHAT, ask.top_logprobs, 0, INT32_MAX, check_logprobs_count),
    { "logprobs", ON_COMPLETION, PARAM_ANY, 0, 0, 0, 0, 0, check_logprobs_n },
    INT("prompt_logprobs", ON_BOTH, ask.prompt_logprobs, 0, INT32_MAX, check_logprobs_count),
    BOOL("echo", ON_BOTH, echo),
    BOOL("skip_special_tokens", ON_BOTH, ask.skip_special),
    BOOL("spaces_between_special_tokens", ON_BOTH, ask.spaces_between),
    BOOL("return_tokens_as_token_ids", ON_BOTH, tokens_as_ids),
    BOOL("return_token_ids", ON_BOTH, return_token_ids),
    BOOL("return_prompt_text", ON_BOTH, return_prompt_text),
    BOOL("return_timings", ON_BOTH, return_timings),
    /* the prompt */
    BOOL("add_special_tokens", ON_BOTH, add_special),
    INT("truncate_prompt_tokens", ON_BOTH, ask.truncate, -1, INT32_MAX, NULL),
    JSON("truncation_side", ON_BOTH, PARAM_STRING, ask.truncation_side, check_side),
    BOOL("add_generation_prompt", ON_CHAT, ask.add_generation),
    BOOL("continue_final_message", ON_CHAT, ask.continue_final),
    JSON("chat_template_kwargs", ON_CHAT, PARAM_OBJECT, ask.template_kwargs, check_kwargs),
    { "chat_template", ON_BOTH, PARAM_ANY, 0, 0, 0, 0, 0, check_template },
    JSON("documents", ON_CHAT, PARAM_ARRAY, ask.documents, check_documents),
    JSON("reasoning_effort", ON_CHAT, PARAM_STRING, ask.effort, check_effort),
    /* the form of the answer */
    JSON("response_format", ON_BOTH, PARAM_OBJECT, ask.response_format, check_format),
    JSON("structured_outputs", ON_BOTH, PARAM_OBJECT, ask.structured, NULL),
    JSON("guided_json", ON_BOTH, PARAM_ANY, ask.guided_json, NULL),
    JSON("guided_regex", ON_BOTH, PARAM_STRING, ask.guided_regex, NULL),
    JSON("guided_choice", ON_BOTH, PARAM_ARRAY, ask.guided_choice, NULL),
    JSON("guided_grammar", ON_BOTH, PARAM_STRING, ask.guided_grammar, NULL),
    JSON("guided_whitespace_pattern", ON_BOTH, PARAM_STRING, ask.guided_space, NULL),
    /* who asks */
    INT("priority", ON_BOTH, ask.priority, -1000, 1000, check_priority),
    JSON("request_id", ON_BOTH, PARAM_STRING, ask.request_id, check_request_id),
    JSON("cache_salt", ON_BOTH, PARAM_STRING, ask.salt, check_salt),
    /* what its prefix is worth */
    JSON("prompt_cache_key", ON_BOTH, PARAM_STRING, ask.cache_key, check_cache_key),
    { "prompt_cache_retention", ON_BOTH, PARAM_STRING, 0, 0, 0, 0, 0, check_retention },
    INT("kv_priority", ON_BOTH, ask.kv_priority, 0, KV_PRIORITY_MAX - KV_PRIORITY_MIN, check_kv_priority),
    { "kv_pin", ON_BOTH, PARAM_ANY, 0, 0, 0, 0, 0, check_kv_pin },
    NUM("cache_hit_threshold", ON_BOTH, hit_share, 0, 1),
    { "kv_transfer_params", ON_BOTH, PARAM_OBJECT, 0, 0, 0, 0, 0, check_transfer },
    /* tools and reasoning */
    JSON("tools", ON_CHAT, PARAM_ARRAY, ask.tools, NULL),
    JSON("tool_choice", ON_CHAT, PARAM_ANY, ask.tool_choice, NULL),
    BOOL("parallel_tool_calls", ON_CHAT, ask.parallel),
    BOOL("include_reasoning", ON_CHAT, ask_reasoning),
    INT("thinking_token_budget", ON_CHAT, ask.thinking_budget, -1, INT32_MAX, NULL),
    /* not supported yet: neutral values pass */
    LATER("tools", ON_COMPLETION, check_tools),
    LATER("tool_choice", ON_COMPLETION, check_tool_choice),
    LATER("functions", ON_BOTH, check_tools),
    LATER("function_call", ON_BOTH, check_tool_choice),
    LATER("use_beam_search", ON_BOTH, check_false),
    LATER("prompt_embeds", ON_BOTH, NULL),
    LATER("suffix", ON_COMPLETION, NULL),
    LATER("modalities", ON_BOTH, check_modalities),
    LATER("audio", ON_BOTH, NULL),
    LATER("web_search_options", ON_BOTH, NULL),
    LATER("ec_transfer_params", ON_BOTH, NULL),
    LATER("repetition_detection", ON_BOTH, NULL),
    LATER("thinking_token_budget", ON_COMPLETION, check_budget),
    LATER("logprob_token_ids", ON_BOTH, NULL),
    LATER("stream_interval", ON_BOTH, check_one),
    LATER("return_token_offsets", ON_BOTH, check_false),
    LATER("return_mm_kwargs", ON_BOTH, check_false),
    LATER("watermarking", ON_BOTH, check_false),
    LATER("media_io_kwargs", ON_BOTH, check_ignored_object),
    LATER("mm_processor_kwargs", ON_BOTH, check_ignored_object),
    /* known, without effect */
    IGNORED("user", PARAM_STRING),
    IGNORED("metadata", PARAM_OBJECT),
    IGNORED("store", PARAM_BOOL),
    IGNORED("safety_identifier", PARAM_STRING),
    IGNORED("prompt_cache_options", PARAM_OBJECT),
    IGNORED("service_tier", PARAM_STRING),
    IGNORED("verbosity", PARAM_STRING),
    IGNORED("prediction", PARAM_OBJECT),
    IGNORED("moderation", PARAM_ANY),
    { "parallel_tool_calls", ON_COMPLETION, PARAM_BOOL, 0, 0, 0, 0, 0, NULL },
    { "include_reasoning", ON_COMPLETION, PARAM_BOOL, 0, 0, 0, 0, 0, NULL },
    IGNORED("length_penalty", PARAM_NUM),
    IGNORED("early_stopping", PARAM_ANY),
    IGNORED("vllm_xargs", PARAM_OBJECT),
    IGNORED("session_id", PARAM_STRING),
    IGNORED("guided_decoding_backend", PARAM_STRING),
};
const struct param_fields openai_fields = { rows, sizeof rows / sizeof *rows };
