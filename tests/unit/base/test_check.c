#include "test.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"

static void fails(void *arg)
{
    (void)arg;
    CHECK(1 + 1 == 3);
}

static void holds(void *arg)
{
    (void)arg;
    CHECK(1 + 1 == 2);
}

static void as_role(void *arg)
{
    thread_role_self = *(enum thread_role *)arg;
    ASSERT_THREAD(THREAD_ENGINE);
}

static void a_false_check_exits_with_software_error(void **state)
{
    (void)state;
    assert_int_equal(test_exit_of(fails, NULL), EXIT_SOFTWARE);
    assert_int_equal(test_exit_of(holds, NULL), 0);
}

static void a_failed_check_prints_its_condition_and_its_line(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe(p), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        log_init(LOG_LEVEL_ERROR, p[1], false);
        CHECK(1 + 1 == 4);
        _exit(0);
    }
    close(p[1]);
    char    line[512];
    ssize_t n = read(p[0], line, sizeof line - 1);
    close(p[0]);
    waitpid(pid, NULL, 0);
    assert_true(n > 0);
    line[n] = 0;
    assert_non_null(strstr(line, "error check: 1 + 1 == 4 is false at "));
    assert_non_null(strstr(line, "test_check.c:"));
}

static void the_owner_thread_passes_and_a_stranger_does_not(void **state)
{
    (void)state;
    enum thread_role engine = THREAD_ENGINE, io = THREAD_IO, any = THREAD_ANY;
    assert_int_equal(test_exit_of(as_role, &engine), 0);
    assert_int_equal(test_exit_of(as_role, &any), 0);
    assert_int_equal(test_exit_of(as_role, &io), EXIT_SOFTWARE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_false_check_exits_with_software_error),
        cmocka_unit_test(a_failed_check_prints_its_condition_and_its_line),
        cmocka_unit_test(the_owner_thread_passes_and_a_stranger_does_not),
    };
    return cmocka_run_group_tests_name("base/check", tests, NULL, NULL);
}
