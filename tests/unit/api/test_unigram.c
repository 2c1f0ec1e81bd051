#include "tok_world.h"

#define UNIGRAM(members) .type = "Unigram", .model = members
#define TOKENS           "[\"<unk>\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-2],[\"<s>\",-1],[\"c\",-4],[\"xy\",-30]"

static void of_ways_that_score_the_same_the_first_found_counts(void **state)
{
    (void)state;
    /* "ab" is offered from 0 before "b" is offered from 1: -2 both */
    struct tok *t = world_load(&(struct parts){ UNIGRAM("\"unk_id\":0,\"vocab\":[" TOKENS "]") });
    assert_string_equal(world_ids(t, "ab", 0), "3");
    assert_string_equal(world_ids(t, "aab", 0), "1 3");
    tok_free(t);
}

/* The library's JSON reader makes -14.208006766637784 of this score, so it ties with a token that is written so, and
 * the first counts. */
static void a_score_is_read_as_the_library_reads_it(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ UNIGRAM(
        "\"unk_id\":0,\"vocab\":[[\"u\",-99],[\"a\",0],[\"ab\",-14.208006766637785],[\"b\",-14.208006766637784],[\"bc\",-1],[\"c\",-1]]") });
    assert_string_equal(world_ids(t, "ab", 0), "2"); /* with the nearest double "a b" would be better */
    tok_free(t);
}

static void unknown_characters_side_by_side_are_one_token(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ UNIGRAM("\"unk_id\":0,\"vocab\":[" TOKENS "]") });
    assert_string_equal(world_ids(t, "a??b?", 0), "1 0 2 0");
    assert_string_equal(world_ids(t, "<unk>?", 0), "0");
    assert_string_equal(world_ids(t, "xy", 0), "6");
    tok_free(t);
}

static void unknown_characters_become_bytes_where_all_have_tokens(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ UNIGRAM(
        "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"u\",0],[\"a\",-1],[\"<0xC3>\",-1],[\"<0xA9>\",-1]]") });
    assert_string_equal(world_ids(t, "a\xc3\xa9", 0), "1 2 3");
    assert_string_equal(world_ids(t, "\xc3\xa9\xc3\xa8", 0), "0"); /* of a run all or none */
    tok_free(t);
}

static void no_text_becomes_a_special_token_of_the_vocabulary(void **state)
{
    (void)state;
    struct tok *t =
        world_load(&(struct parts){ .added = "[{\"id\":4,\"content\":\"<s>\",\"special\":true}]",
                                    UNIGRAM("\"unk_id\":0,\"vocab\":[" TOKENS ",[\"<\",-9],[\"s\",-9],[\">\",-9]]") });
    assert_string_equal(world_ids(t, "a<s>", 0), "1 4");
    assert_string_equal(world_ids(t, "a<s>", TOK_NO_SPECIAL_PARSE), "1 7 8 9");
    tok_free(t);
}

/* A long text without a space is one piece: its lattice stays within the arena and its time linear. */
static void a_long_piece_is_cut_in_linear_time_and_bounded_memory(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    struct tok    *t = world_load(&(struct parts){ UNIGRAM("\"unk_id\":0,\"vocab\":[" TOKENS "]") });
    char          *text = malloc(N);
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    assert_non_null(text);
    for (size_t i = 0; i < N; i++) text[i] = i % 2 ? 'b' : 'a';
    arena_init(&a, 10 * N);
    assert_int_equal(tok_encode(t, text, N, 0, N, &a, &ids), ST_OK);
    assert_int_equal(ids.n, N / 2);
    arena_free(&a);
    arena_init(&a, 1 << 16);
    ids = (struct tok_ids){ NULL, 0, 0 };
    assert_int_equal(tok_encode(t, text, N, 0, N, &a, &ids), ST_TOO_LARGE);
    arena_free(&a);
    free(text);
    tok_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_ways_that_score_the_same_the_first_found_counts),
        cmocka_unit_test(a_score_is_read_as_the_library_reads_it),
        cmocka_unit_test(unknown_characters_side_by_side_are_one_token),
        cmocka_unit_test(unknown_characters_become_bytes_where_all_have_tokens),
        cmocka_unit_test(no_text_becomes_a_special_token_of_the_vocabulary),
        cmocka_unit_test(a_long_piece_is_cut_in_linear_time_and_bounded_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
