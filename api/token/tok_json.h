/* tok_json: pull reader for the large parts of tokenizer.json (vocab, merges): a tree of values loads ten times slower.
 * The text must be valid UTF-8 and stays borrowed. A call that meets text of another form than it reads returns false;
 * then p points at the wrong byte, and the reader must not be used further.
 * tok_json_init -> calls -> tok_json_free.   Thread: one owner. */
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
    struct buf  unescaped; /* text of the last string that had an escape */
};

/* Begins to read text[0..n), which is borrowed. tok_json_free returns the memory of unescaped strings. */
void tok_json_init(struct tok_json *j, const char *text, size_t n);
void tok_json_free(struct tok_json *j);

int tok_json_peek(struct tok_json *j); /* skips white space; returns the next byte without taking it; -1: the end */
/* Reads a string; *s_out is its text with the escapes replaced, valid until the next string is read. Control bytes and
 * lone surrogates are refused. */
bool tok_json_string(struct tok_json *j, struct tok_span *s_out);
bool tok_json_u32(struct tok_json *j, uint32_t *v_out); /* digits only */
/* Skips any value, at most 64 levels deep. It looks at brackets and strings only, so the user of the span must parse
 * it. */
bool tok_json_value(struct tok_json *j, struct tok_span *span_out);

/* Walks through an object or array: tok_json_begin, then tok_json_next until it returns false. Then ok is true if the
 * closing bracket was read, and false if the text is wrong. */
struct tok_json_walk {
    char close;
    bool begun, ok;
};
bool tok_json_begin(struct tok_json *j, struct tok_json_walk *w, char open); /* '{' or '[' */
bool tok_json_next(struct tok_json *j, struct tok_json_walk *w);             /* true: j->p is before the next element */
bool tok_json_key(struct tok_json *j, struct tok_span *key_out);             /* reads a string and a colon */
