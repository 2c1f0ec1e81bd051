#include "api/openai/chunk.h"
#include "test.h"

struct fixture {
    struct buf head, tail, out;
};

static struct chunk_frame frame_of(const struct fixture *f)
{
    static const char open[] = ",\"delta\":{\"content\":\"";
    return (struct chunk_frame){ .head = f->head.data,
                                 .open = open,
                                 .tail = f->tail.data,
                                 .n_head = f->head.n,
                                 .n_open = sizeof open - 1,
                                 .n_tail = f->tail.n };
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    buf_init(&f->head, 1000);
    buf_init(&f->tail, 1000);
    buf_init(&f->out, 1 << 20);
    chunk_head(&f->head, "id\"1", "chat.completion.chunk", 12, "m/1");
    buf_puts(&f->tail, "\"}}]}\n\n");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    buf_free(&f->head);
    buf_free(&f->tail);
    buf_free(&f->out);
    free(f);
    return 0;
}

static void chunk(struct fixture *f, uint32_t i, const char *text, size_t n)
{
    struct chunk_frame frame = frame_of(f);
    buf_clear(&f->out);
    chunk_plain(&f->out, &frame, i, text, n);
}

static void a_chunk_is_one_data_line(void **state)
{
    struct fixture *f = *state;
    chunk(f, 0, "Hi", 2);
    assert_string_equal(
        buf_cstr(&f->out),
        "data: {\"id\":\"id\\\"1\",\"object\":\"chat.completion.chunk\",\"created\":12,\"model\":\"m/1\","
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n");
    chunk(f, 4294967295u, "", 0);
    assert_non_null(strstr(buf_cstr(&f->out), "{\"index\":4294967295,"));
}

static void text_of_any_bytes_stays_one_line_of_json(void **state)
{
    struct fixture          *f = *state;
    static const char *const texts[] = { "a\nb",         "\r\n\r\n", "q\"q\\", "\x01\x7f",         "é日😀",
                                         "\xe2\x80\xa8", "\xff\xfe", "tail\"", "data: [DONE]\n\n", "\xc2\x85" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct json_error e;
        chunk(f, 3, texts[i], strlen(texts[i]));
        for (size_t k = 0; k + 2 < f->out.n; k++) assert_true((unsigned char)f->out.data[k] >= 0x20);
        json_t *v = json_parse(f->out.data + 6, f->out.n - 8, 0, &e);
        assert_non_null(v);
        const char *s = json_string_value(
            json_object_get(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "delta"), "content"));
        if ((unsigned char)texts[i][0] != 0xff) assert_string_equal(s, texts[i]);
        json_decref(v);
    }
}

static void every_split_of_a_text_gives_the_same_escapes(void **state)
{
    struct fixture *f = *state;
    const char      text[] = "plain \"quoted\" \\ \n\t\x02 é";
    struct buf      whole, parts;
    buf_init(&whole, 1000);
    buf_init(&parts, 1000);
    json_put_str_body(&whole, text, sizeof text - 1);
    for (size_t n = 0; n + 2 < sizeof text; n++) { /* not through the é */
        chunk(f, 0, text, n);
        buf_clear(&parts);
        json_put_str_body(&parts, text, n);
        assert_non_null(memmem(f->out.data, f->out.n, parts.data ? parts.data : "", parts.n));
    }
    buf_free(&whole);
    buf_free(&parts);
}

static void a_full_buffer_fails_and_says_so(void **state)
{
    struct fixture    *f = *state;
    struct chunk_frame frame = frame_of(f);
    struct buf         small;
    buf_init(&small, 50);
    chunk_plain(&small, &frame, 0, "x", 1);
    assert_true(small.failed);
    buf_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_chunk_is_one_data_line, setup, teardown),
        cmocka_unit_test_setup_teardown(text_of_any_bytes_stays_one_line_of_json, setup, teardown),
        cmocka_unit_test_setup_teardown(every_split_of_a_text_gives_the_same_escapes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_buffer_fails_and_says_so, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
