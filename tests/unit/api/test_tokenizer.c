#include "tok_world.h"
#include "base/rng.h"
#include <pthread.h>

#define ADDED(id, content, more) "{\"id\":" id ",\"content\":\"" content "\",\"special\":true" more "}"
static const char *const merges[][2] = { { "h", "i" }, { "l", "o" } };

static struct tok *chat(const char *config)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    world_byte_model(&b, merges, ARRAY_N(merges));
    struct tok *t = world_load(&(struct parts){
        .model = b.data,
        .pre_tokenizer = WORLD_GPT2,
        .decoder = WORLD_BYTE_LEVEL,
        .added = "[" ADDED("258", "<s>", "") "," ADDED("259", "</s>", "") "," ADDED("260", "<|im|>", "") "," ADDED(
            "261", "<|im|>x", "") "]",
        .post_processor =
            "{\"type\":\"Sequence\",\"processors\":[" WORLD_GPT2
            ",{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
            "\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[258],\"tokens\":[\"<s>\"]}}}]}",
        .config = config });
    buf_free(&b);
    return t;
}

static void text_becomes_ids_with_special_tokens_around_it(void **state)
{
    (void)state;
    struct tok *t = chat(NULL);
    assert_string_equal(world_ids(t, "hi", 0), "256");
    assert_string_equal(world_ids(t, "hi", TOK_ADD_SPECIAL), "258 256");
    assert_string_equal(world_ids(t, "", TOK_ADD_SPECIAL), "258");
    assert_string_equal(world_ids(t, "", 0), "");
    assert_string_equal(world_ids(t, "hi<|im|>hi", 0), "256 260 256");
    assert_string_equal(world_ids(t, "<|im|>x<|im|>y", 0), "261 260 121"); /* leftmost, then longest */
    assert_string_equal(world_ids(t, "<|im<|im|>", 0), "60 124 105 109 260");
    assert_string_equal(world_ids_n(t, "\0hi", 3, 0), "0 256");
    tok_free(t);
}

static const char *pair_ids(const struct tok *t, unsigned flags)
{
    static char    line[200];
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    size_t         k = 0;
    uint32_t       second;
    arena_init(&a, 1 << 20);
    assert_int_equal(tok_encode_pair(t, &(struct tok_two){ "hi", "x", 2, 1 }, flags, 100, &a, &ids, &second), ST_OK);
    assert_true(second >= 1 && second < ids.n);
    for (size_t i = 0; i < ids.n; i++)
        k += (size_t)snprintf(line + k, sizeof line - k, "%s%u", i ? " " : "", ids.id[i]);
    arena_free(&a);
    return line;
}

#define S_TOKEN(name) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":0}}"
#define TEXT(name)    "{\"Sequence\":{\"id\":\"" name "\",\"type_id\":0}}"
#define TEMPLATE(pair)                                    \
    "{\"type\":\"TemplateProcessing\",\"single\":[" TEXT( \
        "A") "],\"pair\":[" pair "],\"special_tokens\":{" \
             "\"<s>\":{\"id\":\"<s>\",\"ids\":[258],\"tokens\":[\"<s>\"]},\"</s>\":{\"id\":\"</s>\",\"ids\":[259,259]}}}"

static void two_texts_have_ids_around_and_between_them(void **state)
{
    (void)state;
    static const struct {
        const char *post, *config, *ids; /* ids NULL: it has no form for two texts */
    } cases[] = {
        { NULL, NULL, "256 120" },
        { WORLD_GPT2, NULL, "256 120" },
        { TEMPLATE(S_TOKEN("<s>") "," TEXT("A") "," S_TOKEN("</s>") "," TEXT("B") "," S_TOKEN("<s>")), NULL,
          "258 256 259 259 120 258" },
        { TEMPLATE(TEXT("A") "," TEXT("B")), NULL, "256 120" },
        { TEMPLATE(TEXT("B") "," TEXT("A")), NULL, NULL },
        { TEMPLATE(TEXT("A")), NULL, NULL },
        { TEMPLATE(TEXT("A") "," TEXT("B") "," S_TOKEN("nobody")), NULL, NULL },
        { "{\"type\":\"BertProcessing\",\"cls\":[\"<s>\",258],\"sep\":[\"</s>\",259]}", NULL, "258 256 259 120 259" },
        { "{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",258],\"sep\":[\"</s>\",259]}", NULL,
          "258 256 259 259 120 259" },
        { "{\"type\":\"Sequence\",\"processors\":[" WORLD_GPT2
          "," TEMPLATE(S_TOKEN("<s>") "," TEXT("A") "," TEXT("B")) "]}",
          NULL, "258 256 120" },
        { NULL,
          "{\"tokenizer_class\":\"LlamaTokenizer\",\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true,"
          "\"add_eos_token\":true}",
          "258 256 259 258 120 259" },
    };
    struct buf b;
    buf_init(&b, 1 << 20);
    world_byte_model(&b, merges, ARRAY_N(merges));
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct tok *t =
            world_load(&(struct parts){ .model = b.data,
                                        .added = "[" ADDED("258", "<s>", "") "," ADDED("259", "</s>", "") "]",
                                        .pre_tokenizer = WORLD_GPT2,
                                        .post_processor = cases[i].post,
                                        .config = cases[i].config });
        if (tok_pairs(t) != (cases[i].ids != NULL)) fail_msg("case %zu", i);
        if (cases[i].ids) assert_string_equal(pair_ids(t, TOK_ADD_SPECIAL), cases[i].ids);
        assert_string_equal(pair_ids(t, 0), "256 120");
        tok_free(t);
    }
    buf_free(&b);
}

static void special_tokens_in_a_text_can_be_plain(void **state)
{
    (void)state;
    struct tok *t = chat(NULL);
    assert_string_equal(world_ids(t, "<s>", TOK_NO_SPECIAL_PARSE), "60 115 62");
    assert_string_equal(world_ids(t, "<s>", TOK_NO_SPECIAL_PARSE | TOK_ADD_SPECIAL), "258 60 115 62");
    tok_free(t);
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    struct tok              *t = chat(NULL);
    static const char *const bad[] = { "\xc0\x80", "\xf5\x80\x80\x80", "abc\xe4\xb8", "\xed\xa0\x80", "\xff", "\x80" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_string_equal(world_ids(t, bad[i], 0), status_name(ST_INVALID));
    tok_free(t);
}

static void tokens_are_found_by_id_and_by_text(void **state)
{
    (void)state;
    struct tok *t = chat(NULL);
    size_t      n = 0;
    uint32_t    id = 0;
    assert_int_equal(tok_vocab_size(t), 262);
    assert_string_equal(tok_token(t, 258, &n), "<s>");
    assert_int_equal(n, 3);
    assert_string_equal(tok_token(t, 32, &n), "\xc4\xa0"); /* the blank, as the vocabulary writes it */
    assert_null(tok_token(t, 262, &n));
    assert_true(tok_id_of(t, "hi", 2, &id));
    assert_int_equal(id, 256);
    assert_false(tok_id_of(t, "ho", 2, &id));
    assert_true(tok_is_special(t, 258) && tok_is_added(t, 258));
    assert_false(tok_is_special(t, 256) || tok_is_added(t, 256) || tok_is_special(t, 1u << 30));
    assert_int_equal(tok_longest_bytes(t), 7); /* <|im|>x */
    tok_free(t);
}

static void tokenizer_config_names_tokens_and_may_change_the_template(void **state)
{
    (void)state;
    struct tok *t =
        chat("{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_bos_token\":false,\"bos_token\":\"<s>\","
             "\"eos_token\":{\"content\":\"</s>\",\"special\":true},\"pad_token\":null,\"unk_token\":\"none such\"}");
    uint32_t id = 0;
    assert_true(tok_bos(t, &id));
    assert_int_equal(id, 258);
    assert_true(tok_id_of(t, "</s>", 4, &id));
    assert_int_equal(id, 259);
    assert_string_equal(tok_special_name(t, "eos_token"), "</s>");
    assert_string_equal(tok_special_name(t, "unk_token"), "none such");
    assert_null(tok_special_name(t, "pad_token"));
    assert_string_equal(world_ids(t, "hi", TOK_ADD_SPECIAL), "258 256"); /* that class takes tokenizer.json's word */
    tok_free(t);
    t = chat(
        "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":false,\"add_eos_token\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    assert_string_equal(world_ids(t, "hi", TOK_ADD_SPECIAL), "256 259");
    tok_free(t);
    t = chat("{\"tokenizer_class\":\"GemmaTokenizer\",\"add_eos_token\":false,\"bos_token\":\"<s>\"}");
    assert_string_equal(world_ids(t, "hi", TOK_ADD_SPECIAL), "258 256");
    tok_free(t);
    t = chat("{}");
    assert_false(tok_bos(t, &id));
    assert_null(tok_special_name(t, "eos_token"));
    tok_free(t);
}

/* lstrip, rstrip, single_word, normalized. */
static void added_tokens_strip_spaces_only_where_their_flags_allow_it(void **state)
{
    (void)state;
    static const char model[] = "\"vocab\":{\"a\":0,\" \":1,\"b\":2,\"m\":3,\"_\":4,\"M\":5},\"merges\":[]";
    struct tok       *t = world_load(&(struct parts){
              .model = model,
              .added = "[" ADDED("6", "<l>", ",\"lstrip\":true") "," ADDED(
                  "7", "<r>",
                  ",\"rstrip\":true") ","
                                            "{\"id\":8,\"content\":\"mm\",\"single_word\":true,\"normalized\":false}]" });
    assert_string_equal(world_ids(t, "a  <l> a", 0), "0 6 1 0");
    assert_string_equal(world_ids(t, "a <r>  a", 0), "0 1 7 0");
    assert_string_equal(world_ids(t, " <r>  <l> ", 0), "1 7 6 1");
    assert_string_equal(world_ids(t, "mm", 0), "8");
    assert_string_equal(world_ids(t, "a mm b", 0), "0 1 8 1 2");
    assert_string_equal(world_ids(t, "amm mma _mm", 0), "0 3 3 1 3 3 0 1 4 3 3");
    assert_int_equal(tok_longest_bytes(t), SIZE_MAX); /* one id for any number of spaces */
    tok_free(t);
    t = world_load(&(struct parts){
        .model = model,
        .normalizer = "{\"type\":\"Lowercase\"}",
        .added =
            "[{\"id\":6,\"content\":\"MM\",\"normalized\":true},{\"id\":7,\"content\":\"A\",\"normalized\":false}]" });
    assert_string_equal(world_ids(t, "mm MM mM A a", 0), "6 1 6 1 6 1 7 1 0");
    tok_free(t);
}

static void metaspace_marks_the_first_word_of_the_text_alone(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){
        .model = "\"vocab\":{\"_\":0,\"a\":1},\"merges\":[]",
        .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"split\":false}",
        .added = "[" ADDED("2", "<s>", "") "]" });
    assert_string_equal(world_ids(t, "a<s>a", 0), "0 1 2 1");
    assert_string_equal(world_ids(t, "<s>a", 0), "2 1");
    assert_string_equal(world_ids(t, " a", 0), "0 1");
    tok_free(t);
}

/* ---- what cannot be served is said in one line that names the field */

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"
static const struct {
    struct parts p;
    const char  *says;
} refused[] = {
    { { .model = "\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]" },
      "model.vocab[\"b\"]: id 0 belongs to another token too" },
    { { .model = "\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]" }, "model.vocab[\"a\"]: appears twice" },
    { { .model = "\"vocab\":{\"a\":16777216},\"merges\":[]" }, "model.vocab[\"a\"]: the id must be" },
    { { .model = "\"vocab\":{\"a\":-1},\"merges\":[]" }, "model.vocab[\"a\"]: the id must be" },
    { { .model = "\"vocab\":{\"a\":1.5},\"merges\":[]" }, "model.vocab[\"a\"]: the id must be" },
    { { .model = "\"vocab\":{\"a\":\"0\"},\"merges\":[]" }, "model.vocab[\"a\"]: the id must be" },
    { { .model = "\"vocab\":[],\"merges\":[]" }, "model.vocab: must be an object" },
    { { .model = "\"vocab\":{},\"merges\":[]" }, "model.vocab: is empty" },
    { { .model = "\"merges\":[]" }, "model.vocab: is missing" },
    { { .model = "\"vocab\":{\"a\":0}" }, "model.merges: is missing" },
    { { .model = "\"vocab\":{\"a\":0},\"merges\":{}" }, "model.merges: must be an array" },
    { { .model = "\"vocab\":{\"a\":0},\"merges\":[\"a b\"]" }, "model.merges[0]: names the token \"b\"" },
    { { .model = "\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]" }, "model.merges[0]: makes the token \"ab\"" },
    { { .model = "\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]" }, "model.merges[0]: must be two strings" },
    { { .model = "\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]" }, "model.merges[0]: must be two strings" },
    { { .model = "\"vocab\":{\"a\":0},\"merges\":[7]" }, "model.merges[0]: must be a string" },
    { { .model = "\"vocab\":{\"a\":0},\"merges\":[\"aa\"]" }, "model.merges[0]: must be two tokens" },
    { { .model = "\"type\":\"Unigram\",\"vocab\":[]" }, "model.type: appears twice" },
    { { .model = "\"unk_token\":\"x\"," VOCAB }, "model.unk_token: \"x\" is not in model.vocab" },
    { { .model = "\"byte_fallback\":1," VOCAB }, "model.byte_fallback: must be true or false" },
    { { .model = "\"dropout\":0.1," VOCAB }, "model.dropout: must be null or 0" },
    { { .model = VOCAB, .added = "{}" }, "added_tokens: must be an array" },
    { { .model = VOCAB, .added = "[7]" }, "added_tokens[0]: must be an object" },
    { { .model = VOCAB, .added = "[{\"id\":3}]" }, "added_tokens[0].content" },
    { { .model = VOCAB, .added = "[{\"content\":\"x\"}]" }, "added_tokens[0].id" },
    { { .model = VOCAB, .added = "[" ADDED("99999999", "x", "") "]" }, "added_tokens[0].id" },
    { { .model = VOCAB, .added = "[" ADDED("1", "x", "") "]" },
      "added_tokens[0].id: 1 of \"x\" belongs to another token too" },
    { { .model = VOCAB, .added = "[" ADDED("3", "a", "") "]" },
      "added_tokens[0].id: 3, but \"a\" has the id 0 already" },
    { { .model = VOCAB, .added = "[" ADDED("3", "x", "") "," ADDED("3", "x", "") "]" },
      "added_tokens: id 3 appears twice" },
    { { .model = VOCAB, .added = "[" ADDED("3", "x", ",\"lstrip\":\"yes\"") "]" },
      "added_tokens[0].lstrip: must be true or false" },
    { { .model = VOCAB, .normalizer = "{\"type\":\"Sideways\"}" },
      "normalizer.type: \"Sideways\" is not supported; supported: NFC" },
    { { .model = VOCAB, .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{}]}" },
      "normalizer.normalizers[1].type: \"\"" },
    { { .model = VOCAB, .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}" },
      "normalizer: pattern not supported" },
    { { .model = VOCAB, .pre_tokenizer = "{\"type\":\"Sideways\"}" },
      "pre_tokenizer.type: \"Sideways\" is not supported" },
    { { .model = VOCAB,
        .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]\"},\"behavior\":\"Isolated\"}" },
      "pre_tokenizer: pattern not supported: a class without its end" },
    { { .model = VOCAB, .normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}" },
      "normalizer.precompiled_charsmap: is no base64" },
    { { .model = VOCAB, .normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}" },
      "normalizer.precompiled_charsmap: has no trie" },
    { { .model = "\"vocab\":[]", .type = "Unigram" }, "model.vocab: is empty" },
    { { .model = "\"vocab\":[[\"a\",-1]]", .type = "Unigram" }, "model.unk_id: must be the id of a token" },
    { { .model = "\"unk_id\":1,\"vocab\":[[\"a\",-1]]", .type = "Unigram" },
      "model.unk_id: must be the id of a token" },
    { { .model = "\"unk_id\":0,\"vocab\":[[\"a\",\"b\"]]", .type = "Unigram" },
      "model.vocab[0]: must be [token, score]" },
    { { .model = "\"unk_id\":0,\"vocab\":[[\"a\",1],[\"a\",2]]", .type = "Unigram" },
      "model.vocab[1]: the token \"a\" appears twice" },
    { { .model = "\"vocab\":{\"a\":0}", .type = "WordPiece" }, "model.unk_token: \"[UNK]\" is not in model.vocab" },
    { { .model = "\"vocab\":{\"a\":0}", .type = "WordLevel" }, "model.type: \"WordLevel\" is not supported" },
    { { .model = VOCAB,
        .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Upwards\"}" },
      "pre_tokenizer.behavior: \"Upwards\"" },
    { { .model = VOCAB, .pre_tokenizer = "{\"type\":\"Split\"}" }, "pre_tokenizer.pattern" },
    { { .model = VOCAB, .post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[]}" },
      "post_processor.single: has no Sequence A" },
    { { .model = VOCAB,
        .post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}" },
      "post_processor.special_tokens" },
    { { .model = VOCAB, .post_processor = "{\"type\":\"BertProcessing\",\"sep\":[\"x\",77],\"cls\":[\"a\",0]}" },
      "post_processor: id 77 is no token" },
    { { .model = VOCAB, .decoder = "{\"type\":\"CTC\"}" }, "decoder.type: \"CTC\" is not supported" },
    { { .model = VOCAB,
        .decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}" },
      "decoder.decoders[1]: ByteFallback is not supported behind" },
    { { .model = VOCAB, .config = "[]" }, "tokenizer_config.json: must be an object" },
    { { .model = VOCAB, .config = "{" }, "tokenizer_config.json: JSON" },
    { { .model = VOCAB, .config = "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true}" },
      "tokenizer_config.json: add_bos_token" },
};

static void an_unsupported_tokenizer_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(refused); i++) {
        struct tok *t = NULL;
        char        err[300];
        if (world_try(&refused[i].p, &t, err) != ST_CONFIG) fail_msg("accepted: %s", refused[i].says);
        if (!strstr(err, refused[i].says) || strchr(err, '\n'))
            fail_msg("\"%s\" does not say \"%s\"", err, refused[i].says);
        assert_true(!strncmp(err, "tokenizer", 9));
        assert_null(t);
    }
}

static void text_that_is_no_tokenizer_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "{}",
                                       "[]",
                                       "{\"model\":1}",
                                       "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}",
                                       "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}x",
                                       "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},}",
                                       "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"model\":{}}",
                                       "{\"version\":\"2.0\",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
                                       "{\"model\":{\"vocab\":{\"a\\ud800\":0},\"merges\":[]}}",
                                       "{\"model\":{\"vocab\":{\"a\":0,},\"merges\":[]}}",
                                       "{\"model\":{\"vocab\":{\"\x80\":0},\"merges\":[]}}",
                                       "{\"model\":{\"vocab\":{\"a" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        struct tok *t = NULL;
        char        err[200];
        if (tok_load(bad[i], strlen(bad[i]), NULL, 0, &t, err, sizeof err) != ST_CONFIG)
            fail_msg("accepted: %s", bad[i]);
        assert_true(err[0]);
    }
    char        deep[5000], err[20]; /* the message is cut, not overrun */
    struct tok *t = NULL;
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"x\":", 5);
    assert_int_equal(tok_load(deep, sizeof deep, NULL, 0, &t, err, sizeof err), ST_CONFIG);
}

/* ---- threads share one tokenizer */

static void *encode_a_lot(void *arg)
{
    const struct tok *t = arg;
    struct arena      a;
    uint64_t          sum = 0;
    arena_init(&a, 1 << 20);
    for (uint32_t i = 0; i < 300; i++) {
        struct tok_ids ids = { NULL, 0, 0 };
        char           text[64];
        int            n = snprintf(text, sizeof text, "hi hilo lolo hihi %u<|im|>", i);
        if (tok_encode(t, text, (size_t)n, TOK_ADD_SPECIAL, 1000, &a, &ids)) return NULL;
        for (size_t k = 0; k < ids.n; k++) sum = sum * 31 + ids.id[k];
        arena_reset(&a);
    }
    arena_free(&a);
    return (void *)(uintptr_t)sum;
}

static void threads_share_one_tokenizer(void **state)
{
    (void)state;
    struct tok *t = chat(NULL);
    pthread_t   thread[3];
    void       *sum[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, encode_a_lot, t), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(thread[i], &sum[i]), 0);
    assert_non_null(sum[0]);
    assert_ptr_equal(sum[0], sum[1]);
    assert_ptr_equal(sum[0], sum[2]);
    tok_free(t);
}

/* ---- normal forms: marks in any number and order, and long runs of them */

static void marks_pile_up_in_linear_time(void **state)
{
    (void)state;
    enum { N = 200000 };
    struct tok *t = world_load(
        &(struct parts){ .model = "\"vocab\":{\"a\":0,\"\xcc\xa3\":1,\"\xcc\x81\":2,\"\xe1\xba\xa1\":3},\"merges\":[]",
                         .normalizer = "{\"type\":\"NFC\"}" });
    assert_string_equal(world_ids(t, "a\xcc\x81\xcc\xa3", 0), "3 2"); /* reordered, then composed */
    char *text = malloc(1 + 4 * N);
    text[0] = 'a';
    for (int i = 0; i < N; i++) memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\xa3", 4);
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    arena_init(&a, 1 << 25);
    assert_int_equal(tok_encode(t, text, 1 + 4 * N, 0, SIZE_MAX / 8, &a, &ids), ST_OK);
    assert_int_equal(ids.n, 2 * N);
    assert_int_equal(ids.id[0], 3);
    for (size_t i = 1; i < 2 * N; i++) assert_int_equal(ids.id[i], i < N ? 1 : 2);
    arena_free(&a);
    free(text);
    tok_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_ids_with_special_tokens_around_it),
        cmocka_unit_test(two_texts_have_ids_around_and_between_them),
        cmocka_unit_test(special_tokens_in_a_text_can_be_plain),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(tokens_are_found_by_id_and_by_text),
        cmocka_unit_test(tokenizer_config_names_tokens_and_may_change_the_template),
        cmocka_unit_test(added_tokens_strip_spaces_only_where_their_flags_allow_it),
        cmocka_unit_test(metaspace_marks_the_first_word_of_the_text_alone),
        cmocka_unit_test(an_unsupported_tokenizer_is_refused_by_name),
        cmocka_unit_test(text_that_is_no_tokenizer_json_is_refused),
        cmocka_unit_test(threads_share_one_tokenizer),
        cmocka_unit_test(marks_pile_up_in_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
