/* orca: the load report in an answer, for gateways that choose among servers (Open Request Cost Aggregation). The
 * answer to a request with the header endpoint-load-metrics-format has the header endpoint-load-metrics.
 * Thread: any. */
#pragma once
#include <stddef.h>

struct server;

enum orca_format { ORCA_NONE, ORCA_TEXT, ORCA_JSON };
enum { ORCA_BYTES = 256 };

/* value[0..n): the value of the request's header. ORCA_NONE: the format is unknown. */
enum orca_format orca_format_of(const char *value, size_t n);
/* Writes the header line with its line end into out[bytes], bytes being ORCA_BYTES. Returns its length; 0: f is
 * ORCA_NONE, or there is no engine yet. */
size_t orca_header(const struct server *s, enum orca_format f, char *out, size_t bytes);
