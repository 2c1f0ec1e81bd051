/* orca: the load report in an answer's head, for gateways that choose among servers (Open Request Cost Aggregation). A
 * request with the header endpoint-load-metrics-format gets an answer with the header endpoint-load-metrics.
 * Thread: any. */
#pragma once
#include <stddef.h>

struct server;

enum orca_format { ORCA_NONE, ORCA_TEXT, ORCA_JSON };
enum { ORCA_BYTES = 256 };

/* value: [n] bytes of the request's header. ORCA_NONE: no known format. */
enum orca_format orca_format_of(const char *value, size_t n);
/* Writes the header's line, with its line end, to out [bytes], ORCA_BYTES are enough. Returns its length; 0: f is
 * ORCA_NONE, or the engine does not run yet. */
size_t orca_header(const struct server *s, enum orca_format f, char *out, size_t bytes);
