/* json_load: jansson's parser, for whole numbers of any size.   Private to base/json*.c. Thread: any. */
#pragma once
#include <jansson.h>
#include <stddef.h>

/* As json_loadb of any strict value; \u0000 is kept. A whole number beyond 64 bits becomes the nearest float:
 * unsigned ones stand in schemas of tools that are made from Rust's types. One beyond floats is an error. NULL: *e says
 * why. */
json_t *json_load(const char *text, size_t n, json_error_t *e);
