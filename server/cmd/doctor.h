/* doctor: `spillway doctor`: checks this machine before a server is started: driver and libraries, limits, folders,
 * memory. It prints one line for each finding, with the remedy.   Thread: main. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stdint.h>

enum doctor_state { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

/* The findings so far. root: prefix of the paths /proc and /sys, for tests; "": the machine's own. */
struct doctor {
    const char *root;
    bool        json;
    struct buf  out;
    uint32_t    n[3]; /* by enum doctor_state */
    bool        gpu;  /* there is an NVIDIA GPU */
};
/* Adds one line. fix: the remedy, "" if none is needed; fmt: the finding. */
void doctor_say(struct doctor *d, enum doctor_state s, const char *name, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Reads the first line of a file below root, without its line end. false: the file cannot be read, or the line is
 * empty. */
bool doctor_line(const struct doctor *d, const char *path, char *out, size_t bytes);

/* doctor_libraries.c, doctor_host.c, doctor_folder.c: parts of doctor_look */
void doctor_libraries(struct doctor *d);
void doctor_host(struct doctor *d);
void doctor_folder(struct doctor *d, const char *dir);
/* Runs all checks and writes the lines to d->out, which the caller frees. */
void doctor_look(struct doctor *d, const char *const *dir, uint32_t n_dir);

/* argv[0] is "doctor". 0: nothing failed; 1: something did; 64: usage. */
int doctor_main(int argc, char **argv);
