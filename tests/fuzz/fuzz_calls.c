/* fuzz_calls: any bytes as what a model writes, through every row. Events keep their order; cut anywhere, or with its
 * markers as tokens, the joined events of bytes are the same; where no calls are looked for, no byte is lost. */
#include "tests/unit/api/calls_world.h"
#include "base/check.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct arena              arena;
static const struct calls_tools *tools;
static size_t                    n_row, n_think;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    arena_init(&arena, 1 << 20);
    tools = world_tools(&arena);
    while (calls_row_at(n_row)) n_row++;
    while (calls_think_at(n_think)) n_think++;
    return 0;
}

static void run(const struct calls_model *m, const struct calls_tools *t, uint8_t flags, const char *s, size_t n,
                size_t piece, struct joined *j)
{
    struct calls     p;
    struct calls_cfg cfg = { .model = m, .tools = t, .one = flags & 1, .sink = join, .ctx = j };
    joined_init(j);
    calls_init(&p, &cfg, flags & 2);
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < piece ? n - at : piece;
        calls_text(&p, s + at, k);
    }
    calls_end(&p);
    CHECK(!j->open && p.raw.n <= CALLS_ARGS_MAX + (1 << 17));
    calls_free(&p);
}

/* Bytes 0x80..0x9f are markers as tokens. */
static void run_tokens(const struct calls_model *m, uint8_t flags, const char *s, size_t n)
{
    struct calls     p;
    struct joined    j;
    struct calls_cfg cfg = {
        .model = m, .tools = tools, .one = flags & 1, .hidden = flags & 4, .sink = join, .ctx = &j
    };
    joined_init(&j);
    calls_init(&p, &cfg, flags & 2);
    for (size_t i = 0; i < n; i++) {
        unsigned mark = (unsigned char)s[i] - 0x80u;
        if (mark < m->n_mark)
            calls_mark(&p, (int)mark);
        else
            calls_text(&p, s + i, 1);
    }
    calls_end(&p);
    CHECK(!j.open);
    calls_free(&p);
    joined_free(&j);
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->data, b->data, a->n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 4 || n > 1 << 14) return 0;
    const struct calls_row *row = calls_row_at(data[0] % n_row);
    struct calls_model      m;
    struct joined           whole, cut;
    uint8_t                 flags = data[2];
    const char             *s = (const char *)data + 4;
    n -= 4;
    calls_model_init(&m, row, calls_think_at(data[1] % n_think), NULL);
    run(&m, tools, flags, s, n, n + 1, &whole);
    run(&m, tools, flags, s, n, 1 + data[3] % 16, &cut);
    if (!row->thinks) /* whose headers are bounded in tokens */
        CHECK(same(&whole.text, &cut.text) && same(&whole.reason, &cut.reason) && same(&whole.calls, &cut.calls));
    joined_free(&whole);
    joined_free(&cut);
    run_tokens(&m, flags, s, n);
    if (row->thinks) return 0;
    calls_model_init(&m, row, NULL, NULL);
    bool drops = false; /* markers around text, which are dropped */
    for (uint32_t i = 0; i < m.n_step; i++) drops = drops || (m.step[i].from == CS_TEXT && m.step[i].to == CS_TEXT);
    run(&m, NULL, 0, s, n, n + 1, &whole);
    if (!drops) CHECK(whole.text.n == n && (!n || !memcmp(whole.text.data, s, n)));
    joined_free(&whole);
    return 0;
}
