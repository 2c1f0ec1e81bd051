/* calls_impl: functions that the files of api/calls share.   Thread: the owner of struct calls. */
#pragma once
#include "api/calls/calls_row.h"

static inline bool calls_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- calls_emit.c: events, and the life of a call ---- */
void calls_flush(struct calls *p); /* emits p->run */
void calls_put_blanks(struct calls *p);
void calls_drop_raw(struct calls *p);                                           /* the kept bytes belong to a call */
void calls_put(struct calls *p, enum calls_kind kind, const char *s, size_t n); /* TEXT, REASON or ARG */
/* Opens the call whose complete name is p->name. False: it can be no call, and the caller calls calls_give_up. */
bool calls_open(struct calls *p);
void calls_close(struct calls *p);
/* The bytes are no call, or a call without an end: emits the kept bytes as text, and goes on with text. */
void calls_give_up(struct calls *p);
/* Takes a piece of the arguments; keeps it while the name is not known. False: over a bound, and the caller calls
 * calls_give_up. */
bool calls_arg(struct calls *p, const char *s, size_t n);
/* Begins to keep bytes in p->raw, until a call is open. */
void calls_hold(struct calls *p);

/* ---- calls_value.c: arguments that have markers ---- */
bool calls_key_end(struct calls *p);
void calls_value_begin(struct calls *p);
bool calls_value_byte(struct calls *p, char c);
bool calls_value_end(struct calls *p);
/* Append to the arguments as a part of a JSON string. c: one byte of UTF-8. */
bool calls_arg_char(struct calls *p, char c);
bool calls_arg_code(struct calls *p, uint32_t cp); /* cp is no surrogate */

/* ---- machines: each call takes one byte ---- */
enum calls_verdict { CALLS_MORE, CALLS_READY, CALLS_OVER /* before this byte */, CALLS_WRONG };
enum calls_verdict calls_json_byte(struct calls *p, char c);   /* CS_JSON */
enum calls_verdict calls_object_byte(struct calls *p, char c); /* CS_CALL, CS_LIST */
enum calls_verdict calls_python_byte(struct calls *p, char c);
enum calls_verdict calls_gemma_byte(struct calls *p, char c);
/* Of calls_args_begin, calls_args_leads and calls_passes_lead: those of objects and of Python's calls. */
const struct calls_tool *calls_object_begins(const struct calls *p);
const struct calls_tool *calls_python_begins(const struct calls *p);
uint32_t                 calls_object_leads(const struct calls *p, struct calls_lead *out);
uint32_t                 calls_python_leads(const struct calls *p, struct calls_lead *out);
bool                     calls_object_passes(const char *s, size_t n);
bool                     calls_python_passes(const char *s, size_t n);
/* Whether a bare word is a JSON number, true, false or null. */
bool calls_word_good(const char *s, size_t n);
bool calls_number_good(const char *s, size_t n, bool integer);

/* ---- calls_harmony.c ---- */
/* Reads the complete header in p->value and returns the state in which its body is read. */
uint8_t calls_header_end(struct calls *p);
