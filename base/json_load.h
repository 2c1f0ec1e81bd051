/* json_load: jansson's parser, for whole numbers of any size.   Private to base/json*.c. Thread: any. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* As json_loadb of any strict value; \u0000 is kept. A whole number beyond 64 bits becomes the nearest float:
 * unsigned ones stand in schemas of tools that are made from Rust's types. One beyond floats is an error. NULL: *e says
 * why. big_out: is set to true where there was one. */
json_t *json_load(const char *text, size_t n, json_error_t *e, bool *big_out);
/* Adds to list the digits of such numbers in text, strict JSON, each as a string. false: no memory. */
bool json_load_big(const char *text, size_t n, json_t *list);
