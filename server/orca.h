/* orca: the load report of an answer, for gateways that choose among servers (Open Request Cost Aggregation): a request
 * with the header endpoint-load-metrics-format gets the header endpoint-load-metrics, before the body. Thread: any. */
#pragma once
#include <stddef.h>

struct server;

enum orca_format { ORCA_NONE, ORCA_TEXT, ORCA_JSON };
enum { ORCA_BYTES = 256 };

/* value[0..n): of the request's header; of no format that is known: ORCA_NONE. */
enum orca_format orca_format_of(const char *value, size_t n);
/* The header's line with its end, into out[ORCA_BYTES]; returns its bytes: 0 while there is no engine. */
size_t orca_header(const struct server *s, enum orca_format f, char *out, size_t bytes);
