#include "server/routes.h"
#include "server/endpoint.h"
#include "server/gen.h"
#include "server/health.h"
#include "server/invoke.h"
#include "server/lora.h"
#include "server/stored.h"
#include <assert.h>

/* clang-format off */
/*    path                    label                   methods        auth          flags                                body             handler, dialect */
#define ROUTES(X)                                                                                                                           \
    X("/v1/chat/completions", "/v1/chat/completions", M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_chat) \
    X("/v1/completions",      "/v1/completions",      M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_completion) \
    X("/invocations",         "/invocations",         M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN | ROUTE_PLATFORM, 0, invoke_handle, &dialect_invocation) \
    X("/v1/messages",         "/v1/messages",         M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_messages) \
    X("/v1/messages/count_tokens", "/v1/messages/count_tokens", M_POST, AUTH_KEY, ROUTE_JSON | ROUTE_MODEL,           ROUTE_BODY_TEXT,  endpoint_count_tokens, &dialect_messages_count) \
    X("/v1/responses",        "/v1/responses",        M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_responses) \
    X("/v1/responses/input_tokens", "/v1/responses/input_tokens", M_POST, AUTH_KEY, ROUTE_JSON | ROUTE_MODEL,         ROUTE_BODY_TEXT,  endpoint_input_tokens, &dialect_responses_count) \
    X("/v1/responses/",       "/v1/responses/{id}",   M_GET | M_DELETE | M_POST, AUTH_KEY, ROUTE_MODEL | ROUTE_PREFIX, ROUTE_BODY_SMALL, stored_handle, NULL) \
    X("/v1/embeddings",       "/v1/embeddings",       M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_embedding) \
    X("/rerank",              "/rerank",              M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_rerank) \
    X("/v1/rerank",           "/v1/rerank",           M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_rerank) \
    X("/v2/rerank",           "/v2/rerank",           M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_rerank) \
    X("/score",               "/score",               M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_score) \
    X("/v1/score",            "/v1/score",            M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_score) \
    X("/classify",            "/classify",            M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle, &dialect_classify) \
    X("/tokenize",            "/tokenize",            M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_TEXT,  endpoint_tokenize, NULL) \
    X("/detokenize",          "/detokenize",          M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_TEXT,  endpoint_detokenize, NULL) \
    X("/tokenizer_info",      "/tokenizer_info",      M_GET,          AUTH_KEY,     ROUTE_MODEL,                          ROUTE_BODY_SMALL, endpoint_tokenizer_info, NULL) \
    X("/v1/models",           "/v1/models",           M_GET,          AUTH_KEY,     ROUTE_MODEL,                          ROUTE_BODY_SMALL, endpoint_models, NULL) \
    X("/v1/models/",          "/v1/models/{id}",      M_GET,          AUTH_KEY,     ROUTE_MODEL | ROUTE_PREFIX,           ROUTE_BODY_SMALL, endpoint_model_card, NULL) \
    X("/health",              "/health",              M_GET,          AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_health, NULL) \
    X("/ready",               "/ready",               M_GET,          AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_ready, NULL) \
    X("/livez",               "/livez",               M_GET,          AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_livez, NULL) \
    X("/ping",                "/ping",                M_GET | M_POST, AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_health, NULL) \
    X("/metrics",             "/metrics",             M_GET,          AUTH_METRICS, ROUTE_QUIET,                          ROUTE_BODY_SMALL, endpoint_metrics, NULL) \
    X("/version",             "/version",             M_GET,          AUTH_KEY,     ROUTE_QUIET,                          ROUTE_BODY_SMALL, endpoint_version, NULL) \
    X("/",                    "/",                    M_GET,          AUTH_OPEN,    0,                                    ROUTE_BODY_SMALL, endpoint_page, NULL) \
    X("/playground/",         "/playground/{file}",   M_GET,          AUTH_OPEN,    ROUTE_PREFIX,                         ROUTE_BODY_SMALL, endpoint_page_file, NULL) \
    X("/v1/load_lora_adapter", "/v1/load_lora_adapter", M_POST,       AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_SMALL, lora_load, NULL) \
    X("/v1/unload_lora_adapter", "/v1/unload_lora_adapter", M_POST,   AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_SMALL, lora_unload, NULL) \
    X("/adapters",            "/adapters",            M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_SMALL, lora_platform_load, NULL) \
    X("/adapters/",           "/adapters/{name}",     M_DELETE,       AUTH_KEY,     ROUTE_MODEL | ROUTE_PREFIX,           ROUTE_BODY_SMALL, lora_platform_unload, NULL)

/* clang-format on */

/* RFC 9110, 9.3.2: HEAD is taken wherever GET is; the answer goes out without its body (conn_respond_with). */
#define WITH_HEAD(m) ((m)&M_GET ? (m) | M_HEAD : (m))
#define ROW(p, l, m, a, f, b, h, d) \
    { .path = p, .label = l, .methods = WITH_HEAD(m), .auth = a, .flags = f, .body_max = b, .handle = h, .dialect = d },
static const struct route table[] = { ROUTES(ROW) };
#define AUTH_IS_SET(p, l, m, a, f, b, h, d) static_assert((a) != AUTH_UNSET, "route " p " has no auth class");
ROUTES(AUTH_IS_SET)

/* Those of adapters are the last. */
enum { N_ROUTE = sizeof table / sizeof *table, N_LORA = 4 };

const struct routes *routes_served(bool adapters)
{
    static const struct routes all = { .row = table, .n = N_ROUTE }, plain = { .row = table, .n = N_ROUTE - N_LORA };
    return adapters ? &all : &plain;
}
