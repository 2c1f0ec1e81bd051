/* test: what every unit test includes; cmocka wants these four first. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"
#include "size.h"

/* How long a test waits for what must come: nothing but a hang lasts that long, however slow or busy the machine is. */
enum { PATIENCE_S = 60 };

#define ARRAY_N(a) (sizeof(a) / sizeof *(a))

/* TEST_FILTER=NAME in the environment: that test of the program alone. The fault table runs its rows so (tests/fault/score). */
__attribute__((constructor)) static void test_filter(void)
{
    const char *name = getenv("TEST_FILTER");
    if (name) cmocka_set_test_filter(name);
}

/* Leaves this test. The reason is the line before the word SKIPPED: there tests/count.awk looks for it. */
#define test_skip(...) (print_message(__VA_ARGS__), print_message("\n"), skip())

/* Runs fn(arg) in a child with stderr closed; its exit status, or minus its signal. For what ends the process. */
static inline int test_exit_of(void (*fn)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        close(2);
        fn(arg);
        _exit(0);
    }
    int st;
    if (pid < 0 || waitpid(pid, &st, 0) != pid) return -1000;
    return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}
