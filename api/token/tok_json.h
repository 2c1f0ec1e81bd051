/* tok_json: pull reader for the large parts of tokenizer.json (vocab, merges), which a tree of values would load ten
 * times slower. The text must be valid UTF-8 and stays borrowed. Every call returns false on text that is not what was
 * asked; then p stands at the offending byte and the reader is not used further.   Thread: one owner. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok_span {
    const char *p;
    size_t      n;
};
struct tok_json {
    const char *begin, *p, *end;
    struct buf  unescaped; /* of the last string that held an escape */
};

void tok_json_init(struct tok_json *j, const char *text, size_t n);
void tok_json_free(struct tok_json *j);

int tok_json_peek(struct tok_json *j); /* next byte that is no white space; -1: the end */
/* The string's text without escapes, valid until the next one is read. Control bytes and lone surrogates are
 * refused. */
bool tok_json_string(struct tok_json *j, struct tok_span *s_out);
bool tok_json_u32(struct tok_json *j, uint32_t *v_out); /* digits only */
/* Any value, by its brackets and strings alone: whoever uses the span parses it properly. At most 64 deep. */
bool tok_json_value(struct tok_json *j, struct tok_span *span_out);

/* Walks an object or array: begin, then next until false; then j->p is past the closing bracket and ok tells the two
 * ends apart. */
struct tok_json_walk {
    char close;
    bool begun, ok;
};
bool tok_json_begin(struct tok_json *j, struct tok_json_walk *w, char open); /* '{' or '[' */
bool tok_json_next(struct tok_json *j, struct tok_json_walk *w); /* at the next element; false: closed or wrong */
bool tok_json_key(struct tok_json *j, struct tok_span *key_out); /* string and colon */
