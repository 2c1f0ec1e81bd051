/* fuzz_callform: any schema as that of a tool's arguments, in the notation of every family. What the grammar allows is
 * what the reader of answers takes for a call: the bytes behind the schema choose among the bytes that are allowed, and
 * an answer that comes to its end is calls of the tool alone, whose arguments are JSON objects.
 * Input: a byte for the family, a byte of flags, the schema, a zero byte, the choices. */
#include "api/callform.h"
#include "api/calls/calls_row.h"
#include "base/json_scan.h"
#include "engine/grammar/match.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ONE = 1, STRICT = 2, LENIENT = 4, CHOICES_MAX = 512, WORDS = 8 };

static struct gr_vocab       *vocab;
static size_t                 n_row;
static const struct gr_limits small = { .rx = { .node_max = 50000, .fuel = 500000, .depth_max = 500 },
                                        .symbol_max = 50000,
                                        .lex_state_max = 2000,
                                        .lex_bytes_max = 4 << 20,
                                        .lex_fuel_max = 1000000 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static unsigned char byte[256];
    struct token_bytes   b[256];
    (void)argc;
    (void)argv;
    for (int i = 0; i < 256; i++) {
        byte[i] = (unsigned char)i;
        b[i] = (struct token_bytes){ byte + i, 1 };
    }
    while (calls_row_at(n_row)) n_row++;
    return gr_vocab_create(b, 256, &vocab);
}

/* Unlike a CHECK, which exits, it leaves the input behind. */
static void demand(bool good)
{
    if (!good) abort();
}

/* ---------------------------------------------------------------- the answer, read again */

struct told {
    uint32_t   n_call;
    bool       text; /* that is not blank */
    struct buf args;
};

static void tell(void *ctx, const struct calls_event *ev)
{
    static const struct json_bounds any = { JSON_DEPTH_MAX, UINT64_MAX, UINT64_MAX };
    struct told                    *t = ctx;
    struct json_error               je;
    struct json_cost                cost;
    if (ev->kind == CALLS_OPEN) {
        demand(ev->n == 1 && ev->text[0] == 'f');
        t->n_call++;
        buf_clear(&t->args);
    }
    if (ev->kind == CALLS_ARG) buf_put(&t->args, ev->text, ev->n);
    for (size_t i = 0; ev->kind == CALLS_TEXT && i < ev->n; i++) t->text = t->text || !strchr(" \n", ev->text[i]);
    if (ev->kind != CALLS_CLOSE) return;
    demand(t->args.n && t->args.data[0] == '{' && json_scan(t->args.data, t->args.n, &any, &cost, &je));
}

static void read_again(const struct calls_model *m, const struct calls_tools *tools, const char *s, size_t n, bool one)
{
    struct told            t = { .n_call = 0 };
    const struct calls_cfg cfg = { .model = m, .tools = tools, .sink = tell, .ctx = &t };
    struct calls           p;
    buf_init(&t.args, 1 << 20);
    calls_init(&p, &cfg, false);
    calls_text(&p, s, n);
    calls_end(&p);
    demand(t.n_call > 0 && !t.text && (!one || t.n_call == 1));
    calls_free(&p);
    buf_free(&t.args);
}

/* ---------------------------------------------------------------- the answer, chosen */

static uint32_t choose(const uint32_t *bits, uint32_t k)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < WORDS; w++) n += (uint32_t)__builtin_popcount(bits[w]);
    if (!n) return UINT32_MAX;
    k %= n;
    for (uint32_t b = 0; b < 256; b++)
        if (bits[b / 32] >> (b % 32) & 1 && k-- == 0) return b;
    return UINT32_MAX;
}

static void follow(struct grammar *g, const struct calls_model *m, const struct calls_tools *tools, const uint8_t *data,
                   size_t n, bool one)
{
    struct gr_match *match = gr_match_create(g, vocab);
    char             text[CHOICES_MAX];
    size_t           n_text = 0;
    for (size_t i = 0; match && i < n && n_text < CHOICES_MAX; i++) {
        uint32_t bits[WORDS + 1];
        if (gr_mask(match, bits)) break;
        uint32_t b = choose(bits, data[i]);
        if (b == UINT32_MAX) demand(gr_is_end(match));
        if (b == UINT32_MAX || gr_accept(match, b)) break;
        text[n_text++] = (char)b;
    }
    if (match && gr_is_end(match)) read_again(m, tools, text, n_text, one);
    gr_match_free(match);
}

/* ---------------------------------------------------------------- one input */

static void run(const struct calls_row *row, uint8_t flags, const json_t *schema, const uint8_t *choices, size_t n)
{
    struct arena       a;
    struct calls_model m;
    struct calls_tool  tool = { .name = "f", .n = 1, .allowed = true, .strict = flags & STRICT };
    struct calls_tools tools = { .tool = &tool, .n = 1, .limited = true };
    struct gr_rules   *r = gr_rules_create(&small);
    struct grammar    *g = NULL;
    char               err[CALLFORM_ERR] = "", why[GR_ERR] = "";
    uint32_t           symbol, at;
    json_t            *shown = json_pack("[{s:{s:O}}]", "function", "parameters", schema);
    arena_init(&a, 4 << 20);
    calls_model_init(&m, row, NULL, NULL);
    const struct callform f = {
        .calls = &m, .tools = &tools, .shown = shown, .one = flags & ONE, .lenient = flags & LENIENT
    };
    enum status st = calls_tool_props(&tool, schema, &a);
    if (!st) st = callform_rules(r, &f, &symbol, &at, err);
    demand(st != ST_INVALID || (*err && !memchr(err, '\n', strlen(err))));
    if (st)
        gr_rules_free(r);
    else if (gr_build(r, symbol, &g, why))
        demand(*why);
    if (g) follow(g, &m, &tools, choices, n, flags & ONE);
    gr_free(g);
    json_decref(shown);
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_error je;
    if (n < 3) return 0;
    const struct calls_row *row = calls_row_at(data[0] % n_row);
    const uint8_t          *end = memchr(data + 2, 0, n - 2);
    size_t                  len = end ? (size_t)(end - data - 2) : n - 2;
    json_t                 *schema = json_parse((const char *)data + 2, len, 0, &je);
    if (json_is_object(schema) && !row->thinks) run(row, data[1], schema, end ? end + 1 : data, end ? n - 3 - len : 0);
    json_decref(schema);
    return 0;
}
