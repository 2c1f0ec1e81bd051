/* calls_impl: what the files of api/calls share.   Thread: the owner of struct calls. */
#pragma once
#include "api/calls/calls_row.h"

static inline bool calls_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- calls_emit.c: events, and the life of a call ---- */
void calls_flush(struct calls *p); /* what was put so far is told */
void calls_put_blanks(struct calls *p);
void calls_drop_raw(struct calls *p);                                           /* what was kept is no text */
void calls_put(struct calls *p, enum calls_kind kind, const char *s, size_t n); /* TEXT, REASON or ARG */
/* p->name is whole. False: it can be no call, and the caller gives up. */
bool calls_open(struct calls *p);
void calls_close(struct calls *p);
/* No call, or no end of one: what was kept is text, and text goes on. */
void calls_give_up(struct calls *p);
/* A piece of the arguments; kept while the name is not known. False: too much, and the caller gives up. */
bool calls_arg(struct calls *p, const char *s, size_t n);
/* From here on bytes are kept, as long as no call is open. */
void calls_hold(struct calls *p);

/* ---- calls_value.c: arguments that have markers ---- */
bool calls_key_end(struct calls *p);
void calls_value_begin(struct calls *p);
bool calls_value_byte(struct calls *p, char c);
bool calls_value_end(struct calls *p);
/* As a part of a JSON string; c is one byte of UTF-8. */
bool calls_arg_char(struct calls *p, char c);
bool calls_arg_code(struct calls *p, uint32_t cp); /* one that is no surrogate */

/* ---- machines: a byte each ---- */
enum calls_verdict { CALLS_MORE, CALLS_READY, CALLS_WRONG };
enum calls_verdict calls_json_byte(struct calls *p, char c);   /* CS_JSON */
enum calls_verdict calls_object_byte(struct calls *p, char c); /* CS_CALL, CS_LIST */
enum calls_verdict calls_python_byte(struct calls *p, char c);
enum calls_verdict calls_gemma_byte(struct calls *p, char c);
/* Whether a bare word is a JSON number, true, false or null. */
bool calls_word_good(const char *s, size_t n);
bool calls_number_good(const char *s, size_t n, bool integer);

/* ---- calls_harmony.c ---- */
/* The header in p->value is whole: the state that its body has. */
uint8_t calls_header_end(struct calls *p);
