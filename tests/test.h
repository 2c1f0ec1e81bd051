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

#define ARRAY_N(a) (sizeof(a) / sizeof *(a))

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
