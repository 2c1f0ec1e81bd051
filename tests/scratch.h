/* scratch: temporary files and folders of C tests that nobody has to remember: what mkdtemp and mkstemp made is removed
 * when the process exits, however its tests went. An abort (CHECK, a sanitizer) keeps them and says where. Included by
 * test.h. */
#pragma once
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCRATCH_MAX = 64 };
static char *scratch_path[SCRATCH_MAX]; /* the last ones: who makes more than that removes them himself */
static int   scratch_n;
static pid_t scratch_pid;

static inline int scratch_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

static inline void scratch_clean(void)
{
    if (getpid() != scratch_pid) return; /* a child of the test */
    for (int i = 0; i < SCRATCH_MAX; i++) {
        if (scratch_path[i]) nftw(scratch_path[i], scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
        free(scratch_path[i]);
    }
}

static inline void scratch_aborted(int sig)
{
    static const char kept[] = "kept: ";
    for (int i = 0; i < SCRATCH_MAX && getpid() == scratch_pid; i++)
        if (scratch_path[i] && !access(scratch_path[i], F_OK) && write(2, kept, sizeof kept - 1) > 0 &&
            write(2, scratch_path[i], strlen(scratch_path[i])) > 0)
            (void)!write(2, "\n", 1);
    signal(sig, SIG_DFL);
    raise(sig);
}

static inline void scratch_note(const char *path)
{
    if (!scratch_pid) {
        scratch_pid = getpid();
        atexit(scratch_clean);
        signal(SIGABRT, scratch_aborted);
    }
    if (getpid() != scratch_pid) return;
    char **p = &scratch_path[scratch_n++ % SCRATCH_MAX];
    free(*p);
    *p = strdup(path);
}

static inline char *scratch_mkdtemp(char *template)
{
    char *p = mkdtemp(template);
    if (p) scratch_note(p);
    return p;
}

static inline int scratch_mkstemp(char *template)
{
    int fd = mkstemp(template);
    if (fd >= 0) scratch_note(template);
    return fd;
}
#define mkdtemp scratch_mkdtemp
#define mkstemp scratch_mkstemp
