/* names: the addresses of peers, resolved periodically from their names. A thread of its own calls the resolver, so a
 * slow or dead resolver delays no other thread.   Thread: the one that called names_start; names_split and names_text:
 * any. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct names;
struct names_found {
    struct sockaddr_storage addr;
    socklen_t               n_addr;
    char                    text[64]; /* "10.0.0.7:7450" */
};
/* name: n texts HOST:PORT or [IPv6]:PORT, at most 32, copied. All addresses of a name are found (a headless service
 * has several). wake: called from the thread of names after each round, with its lock held, so it must not call
 * names_get.
 * They are resolved until the process ends, because a resolver cannot be interrupted.
 * ST_CONFIG: a text is not HOST:PORT, or there are too many. ST_NOMEM; errors of thread_start. */
enum status names_start(const char *const *name, uint32_t n, uint32_t every_ms, void (*wake)(void *), void *wake_arg,
                        struct names **out);
/* Copies the addresses of the last round, at most max, and returns how many. *round_out: rounds so far; 0: none is
 * over. */
uint32_t names_get(struct names *n, struct names_found *out, uint32_t max, uint64_t *round_out);
/* Splits HOST:PORT or [IPv6]:PORT into strings. false: text has another form. */
bool names_split(const char *text, char *host, uint32_t host_bytes, char port[8]);
void names_text(struct names_found *f); /* fills text from addr */
