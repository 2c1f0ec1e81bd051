#include "tok_world.h"

#define WORDS(more)      \
    .type = "WordPiece", \
    .model = "\"vocab\":{\"[UNK]\":0,\"a\":1,\"ab\":2,\"##c\":3,\"##cd\":4,\"##d\":5,\".\":6,\"n't\":7}" more

static void the_longest_token_is_taken_from_the_left(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ WORDS("") });
    assert_string_equal(world_ids(t, "abcd", 0), "2 4");
    assert_string_equal(world_ids(t, "ac", 0), "1 3");
    tok_free(t);
}

static void a_piece_that_cannot_be_spelled_is_one_unk(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ WORDS(",\"max_input_chars_per_word\":4") });
    assert_string_equal(world_ids(t, "abx", 0), "0");
    assert_string_equal(world_ids(t, "aba", 0), "0");   /* "##a" is no token */
    assert_string_equal(world_ids(t, "acccc", 0), "0"); /* five characters */
    assert_string_equal(world_ids(t, "accc", 0), "1 3 3 3");
    tok_free(t);
}

static const char *text_of(const struct tok *t, const uint32_t *id, size_t n)
{
    static struct buf out;
    buf_free(&out);
    buf_init(&out, 1000);
    detok_all(t, id, n, false, &out);
    return buf_cstr(&out);
}

static void words_get_their_spaces_back(void **state)
{
    (void)state;
    const uint32_t id[] = { 2, 4, 1, 6, 7, 3 };
    struct tok    *t = world_load(
           &(struct parts){ WORDS(""), .decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}" });
    assert_string_equal(text_of(t, id, ARRAY_N(id)), "abcd a.n'tc");
    tok_free(t);
    t = world_load(
        &(struct parts){ WORDS(""), .decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}" });
    assert_string_equal(text_of(t, id, ARRAY_N(id)), "abcd a . n'tc");
    tok_free(t);
}

/* A token of the model alone: with BPE's, what is neither token nor unk leaves nothing, and its neighbours merge. */
static void the_neighbours_of_a_dropped_character_can_merge(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ .model = "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" });
    assert_string_equal(world_ids(t,
                                  "a\xc3\xa9"
                                  "b",
                                  0),
                        "2");
    assert_string_equal(world_ids(t, "\xc3\xa9", 0), "");
    assert_string_equal(world_ids(t,
                                  "b\xc3\xa9"
                                  "ba\xc3\xa9\xc3\xa9"
                                  "b",
                                  0),
                        "1 1 2");
    tok_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_token_is_taken_from_the_left),
        cmocka_unit_test(a_piece_that_cannot_be_spelled_is_one_unk),
        cmocka_unit_test(words_get_their_spaces_back),
        cmocka_unit_test(the_neighbours_of_a_dropped_character_can_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
