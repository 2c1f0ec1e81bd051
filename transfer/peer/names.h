/* names: addresses of peers by their names, asked for again and again by a thread of its own: a resolver that is slow or
 * dead holds up nobody.   Thread: names_get: one; the rest: whoever starts and ends the lane. */
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
/* name: n texts HOST:PORT or [IPv6]:PORT, copied. A name with several addresses (a headless service) gives all of them.
 * wake: called from its thread after it found something. ST_CONFIG: the text is no HOST:PORT. ST_NOMEM. */
enum status names_start(const char *const *name, uint32_t n, uint32_t every_ms, void (*wake)(void *), void *wake_arg,
                        struct names **out);
void        names_stop(struct names *n); /* does not wait for the resolver; wake is not called any more */
/* All addresses that were found last, at most max. *round_out rises when they are asked for again. */
uint32_t names_get(struct names *n, struct names_found *out, uint32_t max, uint64_t *round_out);
/* Splits HOST:PORT. false: it is none. */
bool names_split(const char *text, char *host, uint32_t host_bytes, char port[8]);
void names_text(struct names_found *f); /* fills text from addr */
