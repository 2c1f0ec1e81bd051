#include "tok_world.h"
#include "base/rng.h"
#include "base/utf8.h"

static const char *const merges[][2] = { { "h", "e" },    { "l", "l" }, { "he", "ll" },
                                         { "hell", "o" }, { "e", "n" }, { "en", "d" } };
enum { HELLO = 259, END = 261, SPECIAL = 262, ADDED = 263, HOLE = 300, EMOJI = 263 };

static struct tok *byte_level(void)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    world_byte_model(&b, merges, ARRAY_N(merges));
    struct tok *t =
        world_load(&(struct parts){ .model = b.data,
                                    .pre_tokenizer = WORLD_BYTE_LEVEL,
                                    .decoder = WORLD_BYTE_LEVEL,
                                    .added = "[{\"id\":262,\"content\":\"<end>\",\"special\":true},"
                                             "{\"id\":263,\"content\":\"\xe2\x9c\xa8 x\",\"normalized\":false}]" });
    buf_free(&b);
    return t;
}

#define LLAMA                                                                                                                  \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}," \
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
enum { SP_UNK, SP_A = 1, SP_BLANK_A = 2, SP_BLANK = 3, SP_F0 = 4, SP_9F, SP_98, SP_80, SP_0A, SP_EOS };

static struct tok *sentence_piece(const char *decoder)
{
    return world_load(&(struct parts){ .model = "\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"a\":1,\"\xe2\x96\x81"
                                                "a\":2,\"\xe2\x96\x81\":3,\"<0xF0>\":4,\"<0x9F>\":5,"
                                                "\"<0x98>\":6,\"<0x80>\":7,\"<0x0A>\":8,\"</s>\":9},\"merges\":[]",
                                       .decoder = decoder,
                                       .added = "[{\"id\":9,\"content\":\"</s>\",\"special\":true}]" });
}

/* What each push gives, with | between, and # before what finish gives. */
static const char *stream(const struct tok *t, const struct detok_cfg *cfg, const uint32_t *id, size_t n)
{
    static char  line[4096];
    struct buf   out;
    struct detok d;
    size_t       k = 0;
    buf_init(&out, 1 << 16);
    detok_init(&d, t, cfg);
    for (size_t i = 0; i <= n; i++) {
        buf_clear(&out);
        bool stopped = i < n && detok_push(&d, id[i], true, &out);
        if (i == n) detok_finish(&d, &out);
        const char *between = i ? "|" : "";
        k += (size_t)snprintf(line + k, sizeof line - k, "%s%s%s", i == n ? "#" : between, buf_cstr(&out),
                              stopped ? "!" : "");
    }
    detok_free(&d);
    buf_free(&out);
    return line;
}
#define STREAM(t, cfg, ...) \
    stream(t, cfg, (const uint32_t[]){ __VA_ARGS__ }, sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static void a_character_is_sent_only_when_it_is_whole(void **state)
{
    (void)state;
    struct tok *t = byte_level();
    assert_string_equal(STREAM(t, NULL, 'h', 0xf0, 0x9f, 0x98, 0x80, HELLO), "h||||\xf0\x9f\x98\x80|hello#");
    assert_string_equal(STREAM(t, NULL, 0xc3, 0xa9, 0xc3), "|\xc3\xa9|#\xef\xbf\xbd"); /* the stream ends inside one */
    assert_string_equal(STREAM(t, NULL, 0xf0, 0x9f, 'x'),
                        "||\xef\xbf\xbdx#"); /* one U+FFFD for what could have been one */
    assert_string_equal(STREAM(t, NULL, 0xe0, 0x80),
                        "|\xef\xbf\xbd\xef\xbf\xbd#"); /* and one for each that could not */
    assert_string_equal(STREAM(t, NULL, 0xf4, 0x90, 0xff), "|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd#");
    assert_string_equal(STREAM(t, NULL, 0xf0, 0xf0, 0x9f, 0x98, 0x80), "|\xef\xbf\xbd|||\xf0\x9f\x98\x80#");
    assert_string_equal(STREAM(t, NULL, ADDED, SPECIAL, HOLE, 'x'), "\xe2\x9c\xa8 x|<end>||x#");
    tok_free(t);
}

static void special_tokens_are_left_out_when_asked(void **state)
{
    (void)state;
    struct tok      *t = byte_level();
    struct detok_cfg cfg = { .skip_special = true };
    assert_string_equal(STREAM(t, &cfg, HELLO, SPECIAL, ADDED), "hello||\xe2\x9c\xa8 x#");
    tok_free(t);
}

static void a_stop_string_is_never_shown_not_even_in_part(void **state)
{
    (void)state;
    struct tok             *t = byte_level();
    const struct detok_stop stop[] = { { "<end>", 5 }, { "ab", 2 } };
    struct detok_cfg        cfg = { .stop = stop, .n_stop = 2 };
    assert_string_equal(STREAM(t, &cfg, HELLO, '<', END, '>', 'x'), "hello|||!|!#");
    assert_string_equal(STREAM(t, &cfg, 'a', 'a', 'a', 'b'), "|a|a|!#");
    assert_string_equal(STREAM(t, &cfg, '<', '<', 'e', 'x'), "|<||<ex#"); /* it was not one after all */
    assert_string_equal(STREAM(t, &cfg, HELLO, '<', 'e'), "hello||#<e");  /* the end: what was held is text */
    assert_string_equal(STREAM(t, &cfg, 'x', SPECIAL, 'y'), "x|!|!#");
    cfg.include_stop = true;
    assert_string_equal(STREAM(t, &cfg, 'x', '<', END, '>', 'y'), "x|||<end>!|!#");
    tok_free(t);
}

static void the_stop_that_ends_first_wins(void **state)
{
    (void)state;
    struct tok             *t = byte_level();
    const struct detok_stop stop[] = { { "hello", 5 }, { "ell", 3 }, { "l", 1 } };
    struct detok_cfg        cfg = { .stop = stop, .n_stop = 3 };
    struct detok            d;
    struct buf              out;
    buf_init(&out, 1 << 10);
    detok_init(&d, t, &cfg);
    assert_true(detok_push(&d, HELLO, true, &out)); /* one token: the same as letter by letter */
    assert_int_equal(d.stop_index, 2);
    assert_string_equal(buf_cstr(&out), "he");
    detok_free(&d);
    cfg.n_stop = 2;
    buf_clear(&out);
    detok_init(&d, t, &cfg);
    assert_true(detok_push(&d, HELLO, true, &out));
    assert_int_equal(d.stop_index, 1);
    assert_string_equal(buf_cstr(&out), "h");
    detok_free(&d);
    buf_free(&out);
    tok_free(t);
}

static void until_min_tokens_nothing_stops(void **state)
{
    (void)state;
    struct tok             *t = byte_level();
    const struct detok_stop stop[] = { { "ab", 2 } };
    struct detok_cfg        cfg = { .stop = stop, .n_stop = 1 };
    struct detok            d;
    struct buf              out;
    buf_init(&out, 1 << 10);
    detok_init(&d, t, &cfg);
    for (const char *s = "abab"; *s; s++) assert_false(detok_push(&d, (unsigned char)*s, false, &out));
    assert_string_equal(buf_cstr(&out), "abab"); /* and nothing is held */
    assert_false(detok_push(&d, 'b', true, &out));
    assert_false(detok_push(&d, 'a', true, &out));
    assert_true(detok_push(&d, 'b', true, &out));
    detok_finish(&d, &out);
    assert_string_equal(buf_cstr(&out), "ababb");
    detok_free(&d);
    buf_free(&out);
    tok_free(t);
}

static void a_stop_string_may_lie_in_the_text_that_was_held_back_until_the_end(void **state)
{
    (void)state;
    struct tok             *t = sentence_piece(LLAMA);
    const struct detok_stop stop[] = { { "a\n", 2 } };
    struct detok_cfg        cfg = { .stop = stop, .n_stop = 1 };
    assert_string_equal(STREAM(t, &cfg, SP_A, SP_A, SP_0A),
                        "|a|#"); /* the line end is a byte token, known at the end */
    tok_free(t);
}

static void runs_of_byte_tokens_are_characters_or_one_mark_each(void **state)
{
    (void)state;
    struct tok *t = sentence_piece(LLAMA);
    assert_string_equal(STREAM(t, NULL, SP_BLANK_A, SP_BLANK_A, SP_F0, SP_9F, SP_98, SP_80, SP_A),
                        "a| a|||||\xf0\x9f\x98\x80"
                        "a#");
    assert_string_equal(STREAM(t, NULL, SP_F0, SP_9F, SP_A), "||\xef\xbf\xbd\xef\xbf\xbd"
                                                             "a#");
    assert_string_equal(STREAM(t, NULL, SP_0A, SP_80, SP_0A, SP_A),
                        "|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd|a#"); /* certain at once */
    assert_string_equal(STREAM(t, NULL, SP_A, SP_0A, SP_F0), "a||#\xef\xbf\xbd\xef\xbf\xbd");
    tok_free(t);
}

static void only_the_first_space_of_a_text_goes(void **state)
{
    (void)state;
    struct tok *t = sentence_piece(LLAMA);
    assert_string_equal(STREAM(t, NULL, SP_BLANK, SP_BLANK, SP_BLANK_A), "| | a#");
    assert_string_equal(STREAM(t, NULL, SP_A, SP_BLANK_A), "a| a#");
    struct detok_cfg cfg = { .skip_special = true };
    assert_string_equal(STREAM(t, &cfg, SP_EOS, SP_BLANK_A), "|a#");
    tok_free(t);
    t = sentence_piece("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}");
    assert_string_equal(STREAM(t, NULL, SP_BLANK_A, SP_BLANK_A), "a| a#");
    tok_free(t);
    t = sentence_piece(
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":2}]}");
    assert_string_equal(STREAM(t, NULL, SP_A, SP_A, SP_A, SP_A, SP_BLANK, SP_A), "|||a|aa\xe2\x96\x81|#");
    tok_free(t);
    t = sentence_piece(NULL);
    assert_string_equal(STREAM(t, NULL, SP_A, SP_EOS, SP_A), "a| </s>| a#"); /* no decoder: spaces between */
    tok_free(t);
}

static void one_token_alone_keeps_its_bytes(void **state)
{
    (void)state;
    struct tok *t = byte_level(), *sp = sentence_piece(LLAMA);
    const struct {
        const struct tok *t;
        uint32_t          id;
        const char       *bytes;
    } one[] = { { t, 0xf0, "\xf0" },      { t, HELLO, "hello" }, { t, ADDED, "\xe2\x9c\xa8 x" }, { t, HOLE, "" },
                { sp, SP_BLANK_A, " a" }, { sp, SP_F0, "\xf0" }, { sp, SP_EOS, "</s>" } };
    for (size_t i = 0; i < ARRAY_N(one); i++) {
        struct buf b;
        buf_init(&b, 100);
        detok_one(one[i].t, one[i].id, &b);
        assert_string_equal(buf_cstr(&b), one[i].bytes);
        buf_free(&b);
    }
    tok_free(t);
    tok_free(sp);
}

/* Any ids: valid UTF-8 at every step, the same as all at once; any stop strings: the text up to the first that ends. */
static void random_ids_come_as_the_whole_does(void **state)
{
    (void)state;
    struct tok             *t[] = { byte_level(), sentence_piece(LLAMA), sentence_piece(NULL) };
    const struct detok_stop stop[] = {
        { "aa", 2 }, { "lo", 2 }, { "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 9 }, { " a ", 3 }
    };
    struct buf all, out;
    buf_init(&all, 1 << 16);
    buf_init(&out, 1 << 16);
    for (uint64_t seed = 0; seed < 6000; seed++) {
        const struct tok *x = t[seed % 3];
        uint32_t          id[40], n = 1 + rng_philox(seed, 0, 0).x[0] % 40;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t r = rng_philox(seed, 1, i).x[0];
            id[i] = r % 4 ? r % 266 : 'a' + r % 2;
            if (seed % 3) id[i] = r % 11;
        }
        struct detok_cfg cfg = { .skip_special = seed % 2, .stop = stop, .n_stop = (uint32_t)(seed % 5) };
        buf_clear(&all);
        buf_clear(&out);
        detok_all(x, id, n, cfg.skip_special, &all);
        size_t cut = all.n;
        for (size_t e = 1; e <= all.n && cut == all.n; e++)
            for (uint32_t s = 0; s < cfg.n_stop; s++)
                if (stop[s].n <= e && !memcmp(all.data + e - stop[s].n, stop[s].text, stop[s].n) && e - stop[s].n < cut)
                    cut = e - stop[s].n;
        struct detok d;
        detok_init(&d, x, &cfg);
        for (uint32_t i = 0; i < n; i++) {
            size_t from = out.n;
            detok_push(&d, id[i], true, &out);
            uint32_t len, cp;
            for (size_t at = from; at < out.n; at += len)
                assert_true((len = utf8_decode(out.data + at, out.n - at, &cp)));
        }
        detok_finish(&d, &out);
        assert_int_equal(d.stopped, cut < all.n);
        detok_free(&d);
        assert_int_equal(out.n, cut);
        if (cut) assert_memory_equal(out.data, all.data, cut);
    }
    for (size_t i = 0; i < 3; i++) tok_free(t[i]);
    buf_free(&all);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_sent_only_when_it_is_whole),
        cmocka_unit_test(special_tokens_are_left_out_when_asked),
        cmocka_unit_test(a_stop_string_is_never_shown_not_even_in_part),
        cmocka_unit_test(the_stop_that_ends_first_wins),
        cmocka_unit_test(until_min_tokens_nothing_stops),
        cmocka_unit_test(a_stop_string_may_lie_in_the_text_that_was_held_back_until_the_end),
        cmocka_unit_test(runs_of_byte_tokens_are_characters_or_one_mark_each),
        cmocka_unit_test(only_the_first_space_of_a_text_goes),
        cmocka_unit_test(one_token_alone_keeps_its_bytes),
        cmocka_unit_test(random_ids_come_as_the_whole_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
