/* batch_identity: what the answers of a batch depend on, for the header of its output.   Thread: main. */
#pragma once
#include "server/boot.h"
#include <jansson.h>

/* SHA-256 of a file as hex digits, and the number of its lines. 0, or errno. fd is read from its beginning. */
int batch_identity_file(int fd, char hex_out[65], uint64_t *n_line_out);
/* An object of strings: version, the input's digest, the options that can change an answer, and where errors go. NULL:
 * no memory. */
json_t *batch_identity(const struct config *cfg, const char *input_hex);
/* Adds the digests of weights, tokenizer and templates; the engine exists. False: no memory. */
bool batch_identity_model(json_t *all, const struct boot *b);
