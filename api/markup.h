/* markup: a family's markers as symbols of a grammar, and what stands around the text that a request asks for: the end
 * of reasoning, headers of messages.   Thread: the one that makes the rules. */
#pragma once
#include "api/calls/calls.h"
#include "engine/grammar/grammar.h"

/* The marker of this text: the token, where the tokenizer has it, else its bytes. spelled: the bytes beside the token
 * too, where the reader of answers takes them for the marker. text is a marker of m. */
uint32_t markup_mark(struct gr_rules *r, const struct calls_model *m, const char *text, bool spelled);
/* These bytes, n > 0. */
uint32_t markup_text(struct gr_rules *r, const char *text, size_t n);
/* Where an answer begins. */
enum markup_start {
    MARKUP_PLAIN,  /* reasoning can come no more */
    MARKUP_BEFORE, /* it may begin with reasoning */
    MARKUP_INSIDE, /* it begins inside of reasoning, and the grammar with the marker that ends it */
};
#define MARKUP_NONE UINT32_MAX
/* All answers that are `text` or `calls` (MARKUP_NONE: no such answers). Of reasoning only the beginning is described:
 * a gate (api/gate.h) takes it from there. A call may end reasoning without its marker. */
uint32_t markup_answer(struct gr_rules *r, const struct calls_model *m, uint32_t text, uint32_t calls,
                       enum markup_start start);
