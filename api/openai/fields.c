#include "api/openai/openai.h"
#include "api/param_rows.h"

/* The fields of generation requests: OpenAI's, and those that vLLM and this server add. They are read in the order of
 * the table, so the first row that objects is the one that a client is told of. */

/* Smallest positive values that a float of the engine can divide by. */
#define TOP_P_MIN      1e-30
#define REPETITION_MIN 0.01
#define REPETITION_MAX 100.0

static const struct param rows[] = {
    ROW_JSON("model", ON_BOTH, PARAM_ANY, ask.model, check_model),
    ROW_JSON("messages", ON_CHAT, PARAM_ANY, ask.messages, NULL),
    ROW_JSON("prompt", ON_COMPLETION, PARAM_ANY, ask.prompt, NULL),
    ROW_BOOL("stream", ON_BOTH, stream, NULL),
    ROW_JSON("stream_options", ON_BOTH, PARAM_OBJECT, ask.stream_options, check_stream_options),
    /* how much */
    ROW_INT("max_completion_tokens", ON_CHAT, ask.max_completion_tokens, 1, INT32_MAX, NULL),
    ROW_INT("max_tokens", ON_CHAT, ask.max_tokens, 1, INT32_MAX, NULL),
    ROW_INT("max_tokens", ON_COMPLETION, ask.max_tokens, 0, INT32_MAX, NULL),
    ROW_INT("min_tokens", ON_BOTH, ask.min_tokens, 0, INT32_MAX, NULL),
    ROW_INT("n", ON_BOTH, ask.n, 1, INT32_MAX, check_n),
    { "best_of", ON_BOTH, PARAM_INT, 0, 1, INT32_MAX, 0, 0, check_best_of },
    /* sampling */
    ROW_NUM("temperature", ON_BOTH, ask.temperature, 0, 2),
    ROW_NUM("top_p", ON_BOTH, ask.top_p, TOP_P_MIN, 1),
    ROW_INT("top_k", ON_BOTH, ask.top_k, -1, INT32_MAX, NULL),
    ROW_NUM("min_p", ON_BOTH, ask.min_p, 0, 1),
    ROW_NUM("presence_penalty", ON_BOTH, ask.presence, -2, 2),
    ROW_NUM("frequency_penalty", ON_BOTH, ask.frequency, -2, 2),
    ROW_NUM("repetition_penalty", ON_BOTH, ask.repetition, REPETITION_MIN, REPETITION_MAX),
    ROW_INT("seed", ON_BOTH, ask.seed, INT64_MIN, INT64_MAX, NULL),
    ROW_JSON("logit_bias", ON_BOTH, PARAM_OBJECT, ask.bias, check_bias),
    ROW_JSON("allowed_token_ids", ON_BOTH, PARAM_ARRAY, ask.allowed_ids, check_token_ids),
    ROW_JSON("bad_words", ON_BOTH, PARAM_ARRAY, ask.bad_words, check_bad_words),
    /* where it ends */
    ROW_JSON("stop", ON_BOTH, PARAM_ANY, ask.stop, check_stop),
    ROW_JSON("stop_token_ids", ON_BOTH, PARAM_ARRAY, ask.stop_ids, check_token_ids),
    ROW_BOOL("include_stop_str_in_output", ON_BOTH, ask.include_stop, NULL),
    ROW_BOOL("ignore_eos", ON_BOTH, s.ignore_eos, NULL),
    /* what comes back */
    ROW_BOOL("logprobs", ON_CHAT, ask.logprobs, NULL),
    ROW_INT("top_logprobs", ON_CHAT, ask.top_logprobs, 0, INT32_MAX, check_logprobs_count),
    ROW_READ("logprobs", ON_COMPLETION, PARAM_ANY, check_logprobs_n),
    ROW_INT("prompt_logprobs", ON_BOTH, ask.prompt_logprobs, 0, INT32_MAX, check_logprobs_count),
    ROW_BOOL("echo", ON_BOTH, echo, NULL),
    ROW_BOOL("skip_special_tokens", ON_BOTH, ask.skip_special, NULL),
    ROW_BOOL("spaces_between_special_tokens", ON_BOTH, ask.spaces_between, NULL),
    ROW_BOOL("return_tokens_as_token_ids", ON_BOTH, tokens_as_ids, NULL),
    ROW_BOOL("return_token_ids", ON_BOTH, return_token_ids, NULL),
    ROW_BOOL("return_prompt_text", ON_BOTH, return_prompt_text, NULL),
    ROW_BOOL("return_timings", ON_BOTH, return_timings, NULL),
    /* the prompt */
    ROW_BOOL("add_special_tokens", ON_BOTH, add_special, NULL),
    ROW_INT("truncate_prompt_tokens", ON_BOTH, ask.truncate, -1, INT32_MAX, NULL),
    ROW_JSON("truncation_side", ON_BOTH, PARAM_STRING, ask.truncation_side, check_side),
    ROW_BOOL("add_generation_prompt", ON_CHAT, ask.add_generation, NULL),
    ROW_BOOL("continue_final_message", ON_CHAT, ask.continue_final, NULL),
    ROW_JSON("chat_template_kwargs", ON_CHAT, PARAM_OBJECT, ask.template_kwargs, check_kwargs),
    ROW_READ("chat_template", ON_BOTH, PARAM_ANY, check_template),
    ROW_JSON("documents", ON_CHAT, PARAM_ARRAY, ask.documents, check_documents),
    ROW_JSON("reasoning_effort", ON_CHAT, PARAM_STRING, ask.effort, check_effort),
    /* the form of the answer */
    ROW_JSON("response_format", ON_BOTH, PARAM_OBJECT, ask.response_format, check_format),
    ROW_JSON("structured_outputs", ON_BOTH, PARAM_OBJECT, ask.structured, NULL),
    ROW_JSON("guided_json", ON_BOTH, PARAM_ANY, ask.guided_json, NULL),
    ROW_JSON("guided_regex", ON_BOTH, PARAM_STRING, ask.guided_regex, NULL),
    ROW_JSON("guided_choice", ON_BOTH, PARAM_ARRAY, ask.guided_choice, NULL),
    ROW_JSON("guided_grammar", ON_BOTH, PARAM_STRING, ask.guided_grammar, NULL),
    ROW_JSON("guided_whitespace_pattern", ON_BOTH, PARAM_STRING, ask.guided_space, NULL),
    /* who asks */
    ROW_INT("priority", ON_BOTH, ask.priority, -1000, 1000, check_priority),
    ROW_JSON("request_id", ON_BOTH, PARAM_STRING, ask.request_id, check_request_id),
    ROW_JSON("cache_salt", ON_BOTH, PARAM_STRING, ask.salt, check_salt),
    /* what its prefix is worth */
    ROW_JSON("prompt_cache_key", ON_BOTH, PARAM_STRING, ask.cache_key, check_cache_key),
    ROW_READ("prompt_cache_retention", ON_BOTH, PARAM_STRING, check_retention),
    ROW_INT("kv_priority", ON_BOTH, ask.kv_priority, 0, KV_PRIORITY_MAX - KV_PRIORITY_MIN, check_kv_priority),
    ROW_READ("kv_pin", ON_BOTH, PARAM_ANY, check_kv_pin),
    ROW_NUM("cache_hit_threshold", ON_BOTH, hit_share, 0, 1),
    ROW_READ("kv_transfer_params", ON_BOTH, PARAM_OBJECT, check_transfer),
    /* tools and reasoning */
    ROW_JSON("tools", ON_CHAT, PARAM_ARRAY, ask.tools, NULL),
    ROW_JSON("tool_choice", ON_CHAT, PARAM_ANY, ask.tool_choice, NULL),
    ROW_BOOL("parallel_tool_calls", ON_CHAT, ask.parallel, NULL),
    ROW_BOOL("include_reasoning", ON_CHAT, ask_reasoning, NULL),
    ROW_INT("thinking_token_budget", ON_CHAT, ask.thinking_budget, -1, INT32_MAX, NULL),
    /* not supported yet: neutral values pass */
    ROW_LATER("tools", ON_COMPLETION, check_tools),
    ROW_LATER("tool_choice", ON_COMPLETION, check_tool_choice),
    ROW_LATER("functions", ON_BOTH, check_tools),
    ROW_LATER("function_call", ON_BOTH, check_tool_choice),
    ROW_LATER("use_beam_search", ON_BOTH, check_false),
    ROW_LATER("prompt_embeds", ON_BOTH, NULL),
    ROW_LATER("suffix", ON_COMPLETION, NULL),
    ROW_LATER("modalities", ON_BOTH, check_modalities),
    ROW_LATER("audio", ON_BOTH, NULL),
    ROW_LATER("web_search_options", ON_BOTH, NULL),
    ROW_LATER("ec_transfer_params", ON_BOTH, NULL),
    ROW_LATER("repetition_detection", ON_BOTH, NULL),
    ROW_LATER("thinking_token_budget", ON_COMPLETION, check_budget),
    ROW_LATER("logprob_token_ids", ON_BOTH, NULL),
    ROW_LATER("stream_interval", ON_BOTH, check_one),
    ROW_LATER("return_token_offsets", ON_BOTH, check_false),
    ROW_LATER("return_mm_kwargs", ON_BOTH, check_false),
    ROW_LATER("watermarking", ON_BOTH, check_false),
    ROW_LATER("media_io_kwargs", ON_BOTH, check_ignored_object),
    ROW_LATER("mm_processor_kwargs", ON_BOTH, check_ignored_object),
    /* known, without effect */
    ROW_IGNORED("user", ON_BOTH, PARAM_STRING),
    ROW_IGNORED("metadata", ON_BOTH, PARAM_OBJECT),
    ROW_IGNORED("store", ON_BOTH, PARAM_BOOL),
    ROW_IGNORED("safety_identifier", ON_BOTH, PARAM_STRING),
    ROW_IGNORED("prompt_cache_options", ON_BOTH, PARAM_OBJECT),
    ROW_IGNORED("service_tier", ON_BOTH, PARAM_STRING),
    ROW_IGNORED("verbosity", ON_BOTH, PARAM_STRING),
    ROW_IGNORED("prediction", ON_BOTH, PARAM_OBJECT),
    ROW_IGNORED("moderation", ON_BOTH, PARAM_ANY),
    ROW_READ("parallel_tool_calls", ON_COMPLETION, PARAM_BOOL, NULL),
    ROW_READ("include_reasoning", ON_COMPLETION, PARAM_BOOL, NULL),
    ROW_IGNORED("length_penalty", ON_BOTH, PARAM_NUM),
    ROW_IGNORED("early_stopping", ON_BOTH, PARAM_ANY),
    ROW_IGNORED("vllm_xargs", ON_BOTH, PARAM_OBJECT),
    ROW_IGNORED("session_id", ON_BOTH, PARAM_STRING),
    ROW_IGNORED("guided_decoding_backend", ON_BOTH, PARAM_STRING),
};
const struct param_fields openai_fields = { rows, sizeof rows / sizeof *rows };
