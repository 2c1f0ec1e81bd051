#include "base/msgpack.h"
#include "test.h"

/* The bytes are those of the specification's tables. */
static void bytes_are(struct msgpack *m, unsigned char *begin, const char *want, size_t n)
{
    assert_false(m->full);
    assert_int_equal(m->at - begin, n);
    assert_memory_equal(begin, want, n);
    m->at = begin;
}
#define WRITES(call, want)                       \
    do {                                         \
        call;                                    \
        bytes_are(&m, b, want, sizeof want - 1); \
    } while (0)

static void each_number_takes_its_shortest_form(void **state)
{
    (void)state;
    unsigned char  b[64];
    struct msgpack m = { .at = b, .end = b + sizeof b };
    WRITES(msgpack_uint(&m, 0), "\x00");
    WRITES(msgpack_uint(&m, 127), "\x7f");
    WRITES(msgpack_uint(&m, 128), "\xcc\x80");
    WRITES(msgpack_uint(&m, 255), "\xcc\xff");
    WRITES(msgpack_uint(&m, 256), "\xcd\x01\x00");
    WRITES(msgpack_uint(&m, 65536), "\xce\x00\x01\x00\x00");
    WRITES(msgpack_uint(&m, 1ull << 32), "\xcf\x00\x00\x00\x01\x00\x00\x00\x00");
    WRITES(msgpack_uint(&m, UINT64_MAX), "\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
    WRITES(msgpack_double(&m, 1.5), "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00");
    WRITES(msgpack_nil(&m), "\xc0");
}

static void texts_and_lists_say_their_length(void **state)
{
    (void)state;
    static unsigned char b[70000];
    static char          text[65537];
    struct msgpack       m = { .at = b, .end = b + sizeof b };
    WRITES(msgpack_text(&m, ""), "\xa0");
    WRITES(msgpack_text(&m, "GPU"), "\xa3GPU");
    WRITES(msgpack_bytes(&m, "\x00\x01", 2), "\xc4\x02\x00\x01");
    WRITES(msgpack_array(&m, 15), "\x9f");
    WRITES(msgpack_array(&m, 16), "\xdc\x00\x10");
    WRITES(msgpack_array(&m, 65536), "\xdd\x00\x01\x00\x00");
    WRITES(msgpack_map(&m, 8), "\x88");
    WRITES(msgpack_map(&m, 300), "\xde\x01\x2c");
    static const struct {
        size_t      n, n_head;
        const char *head;
    } row[] = {
        { 31, 1, "\xbf" }, { 32, 2, "\xd9\x20" }, { 256, 3, "\xda\x01\x00" }, { 65536, 5, "\xdb\x00\x01\x00\x00" }
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        memset(text, 'x', row[i].n);
        text[row[i].n] = 0;
        m.at = b;
        msgpack_text(&m, text);
        assert_int_equal(m.at - b, row[i].n_head + row[i].n);
        assert_memory_equal(b, row[i].head, row[i].n_head);
        assert_memory_equal(b + row[i].n_head, text, row[i].n);
    }
}

static void what_does_not_fit_is_not_written(void **state)
{
    (void)state;
    for (size_t room = 0; room < 12; room++) {
        unsigned char  b[16];
        struct msgpack m = { .at = b, .end = b + room };
        memset(b, 0xee, sizeof b);
        msgpack_text(&m, "twelve bytes");
        msgpack_uint(&m, 1);
        assert_true(m.full);
        assert_true(m.at <= m.end);
        for (size_t i = room; i < sizeof b; i++) assert_int_equal(b[i], 0xee);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_takes_its_shortest_form),
        cmocka_unit_test(texts_and_lists_say_their_length),
        cmocka_unit_test(what_does_not_fit_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
