#include "test.h"
#include "base/json.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

static int out; /* where the lines of a test come out */

static char *one_line(void)
{
    static char   line[8192];
    struct pollfd p = { .fd = out, .events = POLLIN };
    ssize_t       n = poll(&p, 1, 0) == 1 ? read(out, line, sizeof line - 1) : 0;
    line[n > 0 ? n : 0] = 0;
    return line;
}

static int in_fd;

static int to_pipe(void **state)
{
    int p[2];
    (void)state;
    if (pipe(p)) return -1;
    out = p[0];
    in_fd = p[1];
    log_init(LOG_LEVEL_INFO, in_fd, false);
    return 0;
}

static int to_stderr(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_INFO, 2, false);
    close(out);
    close(in_fd);
    return 0;
}

static void a_line_has_time_level_and_text(void **state)
{
    (void)state;
    LOG_INFO("area: %d of %s", 7, "nine");
    char *line = one_line();
    assert_int_equal(strlen("2024-01-01T00:00:00.000Z"), 24);
    assert_int_equal(line[4], '-');
    assert_int_equal(line[10], 'T');
    assert_int_equal(line[23], 'Z');
    assert_string_equal(line + 24, " info  area: 7 of nine\n");
}

static void levels_above_the_chosen_one_are_silent(void **state)
{
    (void)state;
    LOG_DEBUG("area: not this");
    assert_string_equal(one_line(), "");
    LOG_ERROR("area: but this");
    assert_non_null(strstr(one_line(), " error area: but this\n"));
}

static void control_bytes_cannot_forge_a_line(void **state)
{
    (void)state;
    LOG_WARN("area: %s", "a\r\nfake error\x1b[31m\x7f\ttab");
    assert_non_null(strstr(one_line(), " warn  area: a\\r\\nfake error\\x1b[31m\\x7f\\ttab\n"));
}

static void invalid_utf8_and_hidden_code_points_are_shown_as_numbers(void **state)
{
    (void)state;
    LOG_WARN("%s", "\xc3\xa9\xff\xc0\xaf|\xe2\x80\xae|\xc2\x85|\xe2\x80\xa8|\xed\xa0\x80|\xf0\x9f\x98\x80");
    assert_non_null(
        strstr(one_line(), "\xc3\xa9\\xff\\xc0\\xaf|\\u{202e}|\\u{85}|\\u{2028}|\\xed\\xa0\\x80|\xf0\x9f\x98\x80\n"));
}

static void a_json_line_parses_whatever_is_in_it(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_INFO, in_fd, true);
    LOG_WARN("say \"%s\" \\ %s", "x\ny", "\xff\x1b\xe2\x80\xae");
    char   *line = one_line();
    json_t *v = json_parse(line, strlen(line), 0, NULL);
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(v, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(v, "msg")), "say \"x\ny\" \\ \\xff\\x1b\\u{202e}");
    json_decref(v);
}

static void a_json_line_of_quotes_and_controls_is_cut_but_whole(void **state)
{
    (void)state;
    char text[5000];
    log_init(LOG_LEVEL_INFO, in_fd, true);
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = "\"\n\\\xff"[i % 4];
    text[sizeof text - 1] = 0;
    LOG_INFO("%s", text);
    char   *line = one_line();
    json_t *v = json_parse(line, strlen(line), 0, NULL);
    assert_non_null(v);
    json_decref(v);
    assert_in_range(strlen(line), 3000, 4096);
}

static void a_long_line_is_cut_below_a_pipes_atomic_size(void **state)
{
    (void)state;
    char text[9000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    LOG_INFO("%s", text);
    char *line = one_line();
    assert_in_range(strlen(line), 2000, 4096);
    assert_string_equal(line + strlen(line) - 5, "x...\n");
}

static void a_full_pipe_drops_lines_counts_them_and_says_so_later(void **state)
{
    (void)state;
    uint64_t dropped = log_dropped();
    /* a blocking write would hang here for good */
    for (int i = 0; i < 3000; i++) LOG_INFO("area: line %d, which is long enough to fill the 64 KiB of a pipe soon", i);
    uint64_t n = log_dropped() - dropped;
    assert_in_range(n, 1000, 2999);
    while (*one_line()) {}
    LOG_INFO("area: after");
    char all[8192], want[64];
    all[0] = 0;
    for (char *p; *(p = one_line());) strncat(all, p, sizeof all - strlen(all) - 1);
    snprintf(want, sizeof want, " %d lines were dropped", (int)n);
    assert_non_null(strstr(all, "area: after\n"));
    assert_non_null(strstr(all, want));
    assert_int_equal(fcntl(in_fd, F_GETFL) & O_NONBLOCK, 0); /* what the caller gave is as it was */
}

static void a_full_socket_does_not_block_either(void **state)
{
    (void)state;
    int s[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    log_init(LOG_LEVEL_INFO, s[1], false);
    uint64_t dropped = log_dropped();
    for (int i = 0; i < 20000; i++)
        LOG_INFO("area: line %d, which is long enough to fill a socket's buffer before the loop is over", i);
    assert_true(log_dropped() > dropped);
    log_init(LOG_LEVEL_INFO, in_fd, false);
    close(s[0]);
    close(s[1]);
}

static void logging_keeps_errno(void **state)
{
    (void)state;
    errno = EDOM;
    LOG_INFO("area: anything");
    assert_int_equal(errno, EDOM);
}

static void a_limited_line_comes_once_and_tells_how_many_followed(void **state)
{
    (void)state;
    struct log_limit l = { 0 };
    assert_true(log_limit_pass(&l));
    for (int i = 0; i < 5; i++) assert_false(log_limit_pass(&l));
    assert_string_equal(one_line(), "");
    l.next_us = 0; /* a second later */
    assert_true(log_limit_pass(&l));
    assert_non_null(strstr(one_line(), "5 more lines"));
    for (int i = 0; i < 3; i++) LOG_WARN_LIMITED("area: here");
    char *line = one_line();
    assert_non_null(strstr(line, "area: here\n"));
    assert_null(strstr(strstr(line, "here") + 1, "here"));
}

int main(void)
{
#define LOG_TEST(f) cmocka_unit_test_setup_teardown(f, to_pipe, to_stderr)
    const struct CMUnitTest tests[] = {
        LOG_TEST(a_line_has_time_level_and_text),
        LOG_TEST(levels_above_the_chosen_one_are_silent),
        LOG_TEST(control_bytes_cannot_forge_a_line),
        LOG_TEST(invalid_utf8_and_hidden_code_points_are_shown_as_numbers),
        LOG_TEST(a_json_line_parses_whatever_is_in_it),
        LOG_TEST(a_json_line_of_quotes_and_controls_is_cut_but_whole),
        LOG_TEST(a_long_line_is_cut_below_a_pipes_atomic_size),
        LOG_TEST(a_full_pipe_drops_lines_counts_them_and_says_so_later),
        LOG_TEST(a_full_socket_does_not_block_either),
        LOG_TEST(logging_keeps_errno),
        LOG_TEST(a_limited_line_comes_once_and_tells_how_many_followed),
    };
    return cmocka_run_group_tests_name("base/log", tests, NULL, NULL);
}
