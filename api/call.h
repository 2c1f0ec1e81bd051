/* call: one API request as text, until its last byte is written.   Thread: one owner at a time (io thread; lent to a
 * text worker for call_prepare).
 *
 *   call_weigh    JSON body -> bytes that its tree will take                                   io thread or text worker
 *   call_parse    JSON body -> call (fields checked; 400s with param)                         io thread or text worker
 *   call_prepare  chat template + tokenizer -> prompt ids; context check; the tree is dropped    io thread or text worker
 *   (server/gen.c makes one eng_request per prompt from it and feeds back the engine's output)
 *   answer_feed, answer_choice_end, answer_end  -> bytes for the socket (answer.h)                io thread
 *   call_free
 * All memory of a call lies in its arena, in one mapping for arrays that are too large for the arena, or in bounded
 * bufs. call_free frees all of it, also after a failed call_parse or call_prepare. */
#pragma once
#include "api/token/detok.h"
#include "api/error.h"
#include "api/form.h"
#include "api/guard.h"
#include "api/jinja/template.h"
#include "api/token/tokenizer.h"
#include "api/task.h"
#include "api/transfer.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/json_scan.h"
#include "engine/request.h"

struct model_head;      /* engine/model/head.h */
struct model_prompt;    /* engine/model/prompts.h */
struct model_prompts;   /* the same */
struct pair_form;       /* pair.h */
struct calls_tools;     /* api/calls/calls_tool.h */
struct responses_store; /* api/responses/store.h */
struct family;          /* family.h */
struct parts;           /* parts.h */

/* The served model as calls see it. Constant, shared. */
struct api_model {
    const char *const       *served_name; /* [n_name]; responses show [0] */
    uint32_t                 n_name;
    const struct tok        *tok;
    const struct tmpl       *tmpl;      /* NULL: no chat template; chat requests get a 400 */
    const struct family     *family;    /* how it speaks of tools and reasoning (family.h); NULL: neither is known */
    struct grammars         *grammars;  /* for forms of answers; has a lock of its own */
    struct responses_store  *responses; /* has locks of its own; NULL: responses are not stored */
    uint32_t                 context, vocab;
    const struct model_spec *spec;        /* of the model, for adapters that are loaded */
    struct adapters         *adapters;    /* has a lock of its own; NULL: none are served */
    const char              *fingerprint; /* system_fingerprint */
    int64_t                  created;
    const char              *root;                                  /* model path or name for /v1/models */
    float                    temperature, top_p, min_p, repetition; /* defaults of requests */
    uint32_t                 top_k;
    int64_t                  max_new_tokens; /* -1: the rest of the context */
    /* bounds */
    uint32_t                  n_max;                    /* choices of one prompt: 16   */
    uint32_t                  prompts_max;              /* 128 */
    uint32_t                  messages_max;             /* 10,000 */
    uint32_t                  logprobs_max;             /* 20 */
    uint32_t                  stop_max, stop_bytes_max; /* 16, 256 */
    uint32_t                  bias_max;                 /* 1024 */
    bool                      clamp_max_tokens;         /* --clamp-max-tokens: cut max_tokens instead of a 400 */
    bool                      open_schemas;             /* --json-schema-open: struct schema_form.open */
    bool                      priority;                 /* --enable-priority: a priority other than 0 is allowed */
    const struct api_peering *peering;                  /* NULL: there are no peers */
    enum api_task             task;
    /* other than TASK_GENERATE: */
    uint32_t                  state_dim; /* numbers of a state; 0: the model generates */
    enum eng_state_of         state_of;  /* SUM: a vector is the mean over the prompt */
    bool                      types;     /* tokens of a pair's second text are told from those of the first */
    bool                      normalizes, shortens; /* TASK_EMBED: to length 1; a vector's beginning is a vector too */
    const struct pair_form   *pair;  /* a pair is one prompt, which head scores; NULL: of each text a vector */
    const struct model_head  *head;  /* what makes scores of a state (engine/model/head.h); NULL: TASK_EMBED */
    const struct model_dense *dense; /* TASK_EMBED: layers between a state and its vector; NULL: there are none */
    /* texts that stand before others, by name; NULL: there are none */
    const struct model_prompts *prompts;
    bool                        skips_prompt; /* with state_of FIRST or SUM: tokens of such a text do not count */
};

/* The dialects for the route table. The struct is private to api/ (dialect.h). */
struct dialect;
extern const struct dialect dialect_chat, dialect_completion, dialect_lmi, dialect_lmi_events, dialect_tgi,
    dialect_invocation, dialect_messages, dialect_messages_count, dialect_responses, dialect_responses_count,
    dialect_embedding, dialect_score, dialect_rerank, dialect_classify;

struct call_choice {         /* index = prompt * n + i */
    struct eng_choice eng;   /* its arrays lie in the call's arena, or in `map` if large; made by call_prepare */
    double           *state; /* [model.state_dim] as eng_request.state; NULL: a token is drawn. Room for a vector too */
    struct detok      detok;
    struct buf        text;   /* not streaming: the text so far */
    uint32_t          n_fed;  /* tokens of eng that answer_feed has taken */
    uint32_t          n_said; /* those of n_fed whose text and logprobs were written; the last token may be held back */
    uint32_t          n_used; /* tokens that count in usage */
    uint32_t          room;   /* tokens it may get */
    enum eng_finish   finish; /* from answer_choice_end */
    bool              begun, ended;
    bool              lent, settled;       /* of state: a text thread has it; it is what the answer shows */
    uint32_t          text_chars;          /* characters so far (text_offset) */
    struct buf        lp;                  /* not streaming: logprobs JSON so far */
    struct parts     *parts;               /* where the answer may hold more than text; in the arena; else NULL */
    struct buf        reason, tool_calls;  /* not streaming: reasoning, and calls as the dialect writes them */
    uint32_t          n_reasoning, n_call; /* tokens of reasoning; calls that were opened */
    uint64_t          t_last_us;           /* its newest tokens came, by the server's clock */
    uint32_t          n_first;             /* tokens that came at first, all at once */
};
struct call_prompt {
    const struct model_prompt *before; /* of a text: what stands before it; NULL: nothing */
    /* the prompt itself */
    const char     *text;
    size_t          n_text; /* completions: as given; NULL: ids were given, or chat */
    const char     *echo;
    size_t          n_echo; /* completions with echo, documents of rerank: the text to return */
    uint32_t       *id;
    uint32_t        n_id;
    uint32_t        second, state_from; /* as in struct eng_request */
    float          *lp;
    uint32_t       *lp_rank;
    struct eng_top *lp_top;                                      /* prompt logprobs, if asked for */
    uint32_t        n_cached, n_cached_from[KV_TIERS], n_pinned; /* as in struct eng_request */
};

/* What tool_choice demands. */
enum tools_mode {
    TOOLS_FREE,     /* the model decides */
    TOOLS_REQUIRED, /* at least one call */
    TOOLS_NAMED,    /* one call of the tool that is allowed */
};

/* Values of the body as given, used by call_parse and call_prepare only. */
struct call_ask {
    const json_t *model, *messages, *prompt, *stop, *bias, *stop_ids, *allowed_ids, *bad_words, *documents,
        *template_kwargs, *effort, *tools, *tool_choice;
    const json_t *response_format, *structured, *guided_json, *guided_regex, *guided_choice, *guided_grammar,
        *guided_space;
    const json_t *system; /* beside the messages */
    const json_t *encoding_format;
    const json_t *query, *instruction, *side[7]; /* of rerank; of score, in the order of its fields */
    const json_t *salt, *cache_key, *request_id, *stream_options, *truncation_side;
    int64_t       max_tokens, max_completion_tokens, min_tokens, seed, top_k, truncate, logprobs_n, top_logprobs,
        prompt_logprobs, priority, kv_priority, n, thinking_budget, dimensions, top_n, doc_tokens;
    double temperature, top_p, min_p, presence, frequency, repetition;
    bool   logprobs, add_generation, add_generation_set, continue_final, include_stop, skip_special, spaces_between,
        parallel;
    bool drops_oldest; /* the dialect's prepare leaves out old messages of what is too long */
};

/* How long the answer took, for return_timings. The server sets it before the answer ends. */
struct call_timing {
    uint64_t queue_us, prompt_us; /* until the engine took the request up; from then until its first tokens came */
    uint64_t output_us, n_timed;  /* from the first tokens until the last, and how many came in this time */
};

struct call {
    const struct model_prompt *prompt_named; /* of prompt_name; or NULL */
    /* the rest */
    struct arena            arena;
    const struct api_model *model;
    json_t                 *body;    /* the parsed request; NULL after call_prepare */
    char                    id[144]; /* "chatcmpl-..." */
    int64_t                 created;
    uint32_t                n, n_prompt, n_choice; /* n_choice = n * n_prompt */
    struct call_prompt     *prompt;
    struct call_choice     *choice;
    struct eng_sampling     s; /* for every prompt; max_tokens is bounded by the rest of each prompt's context */
    int64_t                 max_tokens;       /* as asked; -1: the rest of the context */
    const char             *max_tokens_param; /* name of the field that set it */
    struct detok_cfg        detok;
    bool stream, include_usage, continuous_usage, echo, logprobs, return_token_ids, tokens_as_ids, add_special,
        has_seed;
    bool    score_only; /* completions: echo with max_tokens 0; the engine makes one token, which is not returned */
    int32_t top_logprobs, prompt_logprobs; /* -1: none */
    int32_t priority;
    struct kv_salt            salt;      /* from cache_salt; the server mixes the tenant in */
    struct kv_keep            keep;      /* prompt_cache_retention, kv_priority, kv_pin */
    double                    hit_share; /* cache_hit_threshold */
    uint64_t                  cache_key; /* hash of prompt_cache_key; 0: none */
    uint64_t                  n_unknown_fields;
    uint64_t                  tenant; /* whose store it may read and write */
    const struct buf         *past;   /* of call_from, in call_parse only */
    const char               *named;  /* the adapter of call_from, in call_parse only; or NULL */
    const char               *echo_prefix;
    size_t                    n_echo_prefix; /* chat echo: content of the last message */
    struct adapter           *adapter;       /* kept for this call: the one that the model's name names; or NULL */
    char                      served[256];   /* the model's name as the client wrote it, or the first served name */
    struct call_ask           ask;
    char                      schema_ignored[200]; /* names of a schema's keywords that are not enforced; "": none */
    uint32_t                  n_guide;             /* guides whose memory is held (api/schema/grammars.h) */
    struct grammar           *grammar;             /* or NULL: the form of the answer; each choice has a guide then */
    const struct dialect     *dialect;
    void                     *own;            /* state of the dialect's writers, in the arena */
    const char               *role;           /* chat: role of the answer */
    struct buf                scratch, token; /* scratch: text of a piece; text of a token, for logprobs */
    void                     *map;            /* large arrays of choices and prompt logprobs */
    size_t                    map_bytes;
    bool                      return_prompt_text, return_timings;
    struct call_timing        timing;
    const struct calls_tools *tools; /* what may be called, in the arena; NULL: calls are not looked for */
    enum tools_mode           tools_mode;
    bool                      one_call;      /* parallel_tool_calls false: the answer ends behind the first call */
    bool                      ask_reasoning; /* include_reasoning */
    bool                      reasons;       /* the prompt leaves reasoning open */
    bool                      may_reason;    /* the answer may begin with reasoning */
    struct guard              guard;         /* chat: control tokens spelled in users' text */
    struct buf                rendered;      /* chat: the prompt as text, kept for return_prompt_text */
    size_t                    prompt_bytes;  /* bytes of text to tokenise; large ones go to a text worker */
    struct call_transfer      transfer;
    uint32_t                  dimensions;                /* of a vector; 0: all */
    bool                      as_base64, use_activation; /* embeddings: their form; whether they are made of length 1 */
    uint32_t                  n_left; /* score, rerank: the first prompts are one side, the others the other */
    struct call_prompt       *left;   /* [n_left], with model.pair: that side, which has no prompts of its own */
    uint32_t                  top_n;  /* rerank: how many results; 0: all */
    bool                      returns_documents;
};

/* What a request goes on from: lines of the store (api/responses/store.h). */
struct call_past {
    struct buf lines;
    uint64_t   tree_bytes; /* memory that call_parse will use for them, until call_prepare has finished */
};

/* Who sends a body. */
struct call_from {
    const char       *request_id; /* a valid X-Request-Id of the client, or the server's id; NULL: a random one */
    uint64_t          tenant;     /* key of what is stored for this client */
    const struct buf *past;       /* lines of call_past, not used after call_parse; NULL or empty: none */
    const char       *adapter; /* what stands for the body's "model", used in call_parse only; NULL: the body's holds */
};

/* Texts of one request for embeddings, and their tokens. */
enum { EMBED_INPUTS_MAX = 2048, EMBED_TOKENS_MAX = 300000 };
/* Bounds of a body: members of its objects, and memory of its tree. */
enum { CALL_MEMBERS_MAX = 256 << 10, CALL_TREE_BYTES_MAX = 256 << 20 };
extern const struct json_bounds call_bounds;

/* What decides which dialect a request is in, where its route has several. */
struct call_shape {
    const struct api_model *model;
    const char             *body; /* [n_body] */
    size_t                  n_body;
    enum lmi_form           form;
};

/* Replaces *d by the dialect of the body, if *d is a row that only chooses (dialect.pick). ST_INVALID with *e. */
enum status call_pick(const struct dialect **d, const struct call_shape *s, struct api_error *e);
/* Bytes that call_parse will use for the tree of this body, until call_prepare has finished. Fields that are not read
 * do not count. On error *e, as from call_parse. */
enum status call_weigh(const struct dialect *d, const char *body, size_t n_body, uint64_t *bytes_out,
                       struct api_error *e);
/* Bytes of text that this body stands for, with those of the stored response that it goes on from: whether a text
 * thread should have it. */
uint64_t call_text_bytes(const struct dialect *d, const struct api_model *m, uint64_t tenant, const char *body,
                         size_t n_body);
/* Finds what the body goes on from. past_out is the caller's to free (buf_free), also with an error. ST_INVALID with
 * *e, ST_NOMEM. */
enum status call_recall(const struct dialect *d, const struct api_model *m, uint64_t tenant, const char *body,
                        size_t n_body, struct call_past *past_out, struct api_error *e);
/* from: NULL: nobody, by a random id. body is not used afterwards. ST_OK; ST_INVALID or ST_NOMEM with *e. */
enum status call_parse(struct call *c, const struct dialect *d, const struct api_model *m, const char *body,
                       size_t n_body, const struct call_from *from, struct api_error *e);
enum status call_prepare(struct call *c, struct api_error *e);
/* Frees the tree after a failed call_parse or call_prepare, if call_free comes later. */
void call_drop_body(struct call *c);

/* Ends a call at any point after its begin: frees choices, texts, the body's tree and the arena. The engine must
 * have let go of it. */
void call_free(struct call *c);

/* Smaller endpoints: request body -> JSON response body, or *e. */
enum status api_tokenize(const struct api_model *m, const char *body, size_t n, struct buf *out, struct api_error *e);
/* Of a body for /v1/messages: {"input_tokens":n}, as many as its prompt would have. */
enum status api_count_tokens(const struct api_model *m, const char *body, size_t n, struct buf *out,
                             struct api_error *e);
/* The same of a body for /v1/responses, with what it goes on from. */
enum status api_input_tokens(const struct api_model *m, uint64_t tenant, const char *body, size_t n, struct buf *out,
                             struct api_error *e);
enum status api_detokenize(const struct api_model *m, const char *body, size_t n, struct buf *out, struct api_error *e);
void        api_models(const struct api_model *m, struct buf *out);
/* For clients with a tokenizer of their own: the class, the named special tokens, the template. */
void        api_tokenizer_info(const struct api_model *m, struct buf *out);
enum status api_model_card(const struct api_model *m, const char *id, size_t n, struct buf *out, struct api_error *e);
