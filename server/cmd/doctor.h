/* doctor: looks at what this machine gives a server, before one is started: driver and libraries, limits, folders, memory,
 * and prints one line each with what to do about it.   Thread: main. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stdint.h>

enum doctor_state { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

/* What has been found so far. root: stands in front of /proc and /sys (tests); "" for the machine's own. */
struct doctor {
    const char *root;
    bool        json;
    struct buf  out;
    uint32_t    n[3]; /* by enum doctor_state */
    bool        gpu;  /* there is an NVIDIA GPU */
};
/* One line. fix: what to do, "" where nothing is to be done; fmt: what was found. */
void doctor_say(struct doctor *d, enum doctor_state s, const char *name, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A line of a file below root, without its end; false: it cannot be read. */
bool doctor_line(const struct doctor *d, const char *path, char *out, size_t bytes);

/* doctor_libraries.c, doctor_host.c, doctor_folder.c: parts of doctor_look */
void doctor_libraries(struct doctor *d);
void doctor_host(struct doctor *d);
void doctor_folder(struct doctor *d, const char *dir);
/* All of it into d->out, which is the caller's to free. */
void doctor_look(struct doctor *d, const char *const *dir, uint32_t n_dir);

/* argv[0] is "doctor". 0: nothing failed; 1: something did; 64: usage. */
int doctor_main(int argc, char **argv);
