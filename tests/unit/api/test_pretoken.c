#include "tok_world.h"
#include "api/token/tok_pattern.h"
#include "api/token/tok_unicode.h"
#include "base/rng.h"

/* ---- the hand-written matchers against PCRE2, which reads the same patterns */

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?"
#define TAIL        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPERS      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
static const char *const patterns[] = {
    CONTRACTION "|" WORD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL,
    CONTRACTION "|" WORD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL,
    CONTRACTION "|" WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL,
    WORD UPPERS "*" LOWERS "+" CONTRACTION "?|" WORD UPPERS "+" LOWERS "*" CONTRACTION
                "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL,
    WORD UPPERS "*" LOWERS "+|" WORD UPPERS "+" LOWERS "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL,
    "\\p{N}{1,3}",
    "\\p{N}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL,
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    CONTRACTION "|" WORD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" TAIL,
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
};

/* One character of each kind that some pattern tells from the others. */
static const char *const alphabet[] = {
    "a",
    "b",
    "S",
    "T",
    "s",
    "t",
    "r",
    "e",
    "v",
    "l",
    "m",
    "d",
    "'",
    " ",
    " ",
    "\n",
    "\r",
    "\t",
    "\xc2\xa0",
    "\xe3\x80\x80",
    "0",
    "7",
    "\xc2\xbd",
    "\xd9\xa3",
    "!",
    "/",
    "-",
    "_",
    "\xe2\x80\xa6",
    "\xe2\x82\xac",
    "\xcc\x81",
    "\xe0\xa5\x8d",
    "\xc3\xa9",
    "\xc3\x89",
    "\xc7\x85",
    "\xca\xb0",
    "\xe4\xb8\xad",
    "\xe3\x81\x82",
    "\xea\xb0\x80",
    "\xc5\xbf",
    "\x01",
    "\x7f",
    "\xe2\x80\x8b",
    "\xf0\x9f\x98\x80",
    "\xf0\xa0\x80\x80",
    "\xee\x80\x80",
    "\xef\xb8\x8f",
    "\xc2\x85",
    "\x0b",
};

static size_t random_text(uint64_t seed, char *to, size_t max)
{
    size_t   n = 0;
    uint32_t few = rng_philox(seed, 0, 0).x[0] % 3, pieces = 1 + rng_philox(seed, 0, 1).x[0] % 30;
    for (uint32_t i = 0; i < pieces && n + 8 < max; i++) {
        struct rng_block r = rng_philox(seed, 1, i);
        uint32_t         k = few ? rng_philox(seed, 2, r.x[0] % 4).x[0] : r.x[1];
        const char      *s = alphabet[k % ARRAY_N(alphabet)];
        for (uint32_t times = r.x[2] % 5 ? 1 : 1 + r.x[3] % 4; times-- && n + 8 < max; n += strlen(s))
            memcpy(to + n, s, strlen(s));
    }
    return n;
}

static void matchers_split_as_the_patterns_say(void **state)
{
    (void)state;
    char               err[300];
    struct tok_err     e = { err, sizeof err, "test" };
    struct arena       a;
    struct tok_work    w = { .a = &a };
    struct tok_scratch scratch = { 0 };
    const uint64_t     n_seed = (uint64_t)test_size(600, 150);
    tok_unicode_init();
    arena_init(&a, 1 << 20);
    for (size_t p = 0; p < ARRAY_N(patterns); p++) {
        struct tok_pattern by_hand = { .match = tok_match_find(patterns[p], strlen(patterns[p])) },
                           by_pcre = { .regex = NULL };
        assert_non_null(by_hand.match);
        assert_int_equal(tok_regex_new(&by_pcre.regex, patterns[p], strlen(patterns[p]), "pattern", &e), ST_OK);
        for (uint64_t seed = 0; seed < n_seed; seed++) {
            char               text[600];
            size_t             n = random_text(seed, text, sizeof text);
            struct tok_matches x, y;
            assert_int_equal(tok_matches_of(&by_hand, &w, &scratch, text, n, &x), ST_OK);
            assert_int_equal(tok_matches_of(&by_pcre, &w, &scratch, text, n, &y), ST_OK);
            for (bool more_x = true, more_y = true; more_x;) {
                assert_int_equal(tok_matches_next(&x, &w, &more_x), ST_OK);
                assert_int_equal(tok_matches_next(&y, &w, &more_y), ST_OK);
                if (more_x != more_y || (more_x && (x.begin != y.begin || x.end != y.end)))
                    fail_msg("pattern %zu, seed %d: [%zu,%zu) is [%zu,%zu) by PCRE2", p, (int)seed, x.begin, x.end,
                             y.begin, y.end);
            }
        }
        tok_pattern_free(&by_pcre);
    }
    tok_regex_done(&w);
    arena_free(&a);
}

/* Quadratic would be 10^10 steps here. */
static void long_runs_of_one_class_are_linear(void **state)
{
    (void)state;
    enum { LONGEST = 100000 };
    static char  text[LONGEST + 8];
    const size_t length = (size_t)test_size(LONGEST, 25000);
    tok_unicode_init();
    for (size_t c = 0; c < ARRAY_N(alphabet); c++) {
        size_t len = strlen(alphabet[c]), n = 0;
        for (; n < length; n += len) memcpy(text + n, alphabet[c], len);
        for (size_t p = 0; p < ARRAY_N(patterns); p++) {
            tok_match_fn match = tok_match_find(patterns[p], strlen(patterns[p]));
            size_t       at = 0;
            for (size_t end; at < n; at = end)
                if ((end = match(text, n, at)) == at) tok_next(text, &end);
            assert_int_equal(at, n);
        }
    }
}

/* ---- stages: pieces shown by a model that knows every piece of the text (ignore_merges) */

/* The pieces expected, with | between them: each is a token, so that any other piece shows by its absence. */
static void pieces_are(const char *pre_tokenizer, const char *text, const char *pieces)
{
    struct buf b, got;
    buf_init(&b, 1 << 20);
    buf_init(&got, 1 << 16);
    buf_puts(&b, "\"ignore_merges\":true,\"vocab\":{");
    uint32_t id = 0;
    for (const char *at = pieces;; at++) { /* "a|b" -> {"a":0,"b":1}: a piece that is not among them gives no id */
        size_t     n = strcspn(at, "|");
        struct buf one;
        buf_init(&one, 1 << 12);
        json_put_str_body(&one, at, n);
        char text_of[256];
        snprintf(text_of, sizeof text_of, "\"%.*s\":", (int)one.n, one.data);
        if (!memmem(b.data, b.n, text_of, strlen(text_of))) {
            buf_printf(&b, "%s%s%u", id ? "," : "", text_of, id);
            id++;
        }
        buf_free(&one);
        at += n;
        if (!*at) break;
    }
    buf_puts(&b, "},\"merges\":[]");
    struct tok    *t = world_load(&(struct parts){ .model = buf_cstr(&b), .pre_tokenizer = pre_tokenizer });
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    arena_init(&a, 1 << 20);
    assert_int_equal(tok_encode(t, text, strlen(text), 0, 1 << 16, &a, &ids), ST_OK);
    for (size_t i = 0; i < ids.n; i++) {
        size_t      n;
        const char *s = tok_token(t, ids.id[i], &n);
        buf_printf(&got, "%s%.*s", i ? "|" : "", (int)n, s);
    }
    assert_string_equal(buf_cstr(&got), pieces);
    arena_free(&a);
    tok_free(t);
    buf_free(&b);
    buf_free(&got);
}

#define SPLIT(pattern, behavior, invert) \
    "{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":" invert "}"

static void a_split_follows_each_behavior_of_the_tokenizers_library(void **state)
{
    (void)state;
    pieces_are(SPLIT("{\"String\":\"-\"}", "Isolated", "false"), "the-final--countdown", "the|-|final|-|-|countdown");
    pieces_are(SPLIT("{\"String\":\"-\"}", "Removed", "false"), "the-final--countdown", "the|final|countdown");
    pieces_are(SPLIT("{\"String\":\"-\"}", "MergedWithPrevious", "false"), "the-final--countdown",
               "the-|final-|-|countdown");
    pieces_are(SPLIT("{\"String\":\"-\"}", "MergedWithNext", "false"), "the-final--countdown",
               "the|-final|-|-countdown");
    pieces_are(SPLIT("{\"String\":\"-\"}", "Contiguous", "false"), "the-final--countdown", "the|-|final|--|countdown");
    pieces_are(SPLIT("{\"Regex\":\"[a-z]+\"}", "Removed", "true"), "ab-cd1", "ab|cd");
    pieces_are(SPLIT("{\"Regex\":\"(?=[A-Z])\"}", "Isolated", "false"), "camelCaseText", "camel|Case|Text");
    pieces_are(SPLIT("{\"String\":\"\"}", "Isolated", "false"), "abc", "a|b|c");
}

static void other_pre_tokenizers_split_as_the_library_does(void **state)
{
    (void)state;
    pieces_are("{\"type\":\"Whitespace\"}", "Hey, you!! x_1", "Hey|,|you|!!|x_1");
    pieces_are("{\"type\":\"WhitespaceSplit\"}", " Hey, \t\nyou ", "Hey,|you");
    pieces_are("{\"type\":\"Digits\",\"individual_digits\":true}", "a12b", "a|1|2|b");
    pieces_are("{\"type\":\"Digits\",\"individual_digits\":false}", "a12b", "a|12|b");
    pieces_are("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "a!!b$", "a|!!|b|$");
    pieces_are("{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"x\"}", "axbxxc", "a|b|c");
    pieces_are("{\"type\":\"FixedLength\",\"length\":2}", "abcde", "ab|cd|e");
    pieces_are("{\"type\":\"BertPreTokenizer\"}", "Hi, there", "Hi|,|there");
    pieces_are("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", "Hey  you",
               "_Hey|_|_you");
    pieces_are("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\",\"split\":false}", "Hey you",
               "Hey_you");
    pieces_are(
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Digits\",\"individual_digits\":true}]}",
        "a1 2b", "a|1|2|b");
}

static void a_pattern_nobody_wrote_goes_through_pcre2(void **state)
{
    (void)state;
    pieces_are(SPLIT("{\"Regex\":\"[\\\\p{L}&&[^\\\\p{Han}]]+|\\\\p{Han}\"}", "Isolated", "false"), "ab中cd文",
               "ab|中|cd|文");
    pieces_are(SPLIT("{\"Regex\":\"^x\"}", "Isolated", "false"), "xx\nxx", "x|x\n|x|x"); /* ^ is of lines */
    pieces_are(SPLIT("{\"Regex\":\"\\\\w+\"}", "Isolated", "false"), "a\xcc\x81_\xc2\xb2-x", "a\xcc\x81_\xc2\xb2|-|x");
    pieces_are(SPLIT("{\"Regex\":\"[[:punct:]]+\"}", "Isolated", "false"),
               "a+-\xe2\x82\xac"
               "b",
               "a|+-\xe2\x82\xac|b");
    pieces_are(SPLIT("{\"Regex\":\"\\\\h+\"}", "Isolated", "false"), "zfaceg", "z|face|g");
}

static void a_pattern_that_explodes_ends_its_request(void **state)
{
    (void)state;
    struct tok *t =
        world_load(&(struct parts){ .model = "\"vocab\":{\"a\":0},\"merges\":[]",
                                    .pre_tokenizer = SPLIT("{\"Regex\":\"(a|aa)+(x|y)\"}", "Isolated", "false") });
    assert_string_equal(world_ids(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", 0), status_name(ST_TOO_LARGE));
    tok_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matchers_split_as_the_patterns_say),
        cmocka_unit_test(long_runs_of_one_class_are_linear),
        cmocka_unit_test(a_split_follows_each_behavior_of_the_tokenizers_library),
        cmocka_unit_test(other_pre_tokenizers_split_as_the_library_does),
        cmocka_unit_test(a_pattern_nobody_wrote_goes_through_pcre2),
        cmocka_unit_test(a_pattern_that_explodes_ends_its_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
