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
/* All answers whose text is `text` (and that hold no call), beginning with the marker that ends reasoning or, if
 * `begins`, at the beginning of an answer that may start with reasoning. Only the beginning of that reasoning is
 * described: a gate (api/gate.h) takes it from there. */
uint32_t markup_answer(struct gr_rules *r, const struct calls_model *m, uint32_t text, bool begins);
