/* grammars: the vocabulary that all constrained requests of one model share: its tokens as bytes, built by the first
 * such request.   Thread: any. */
#pragma once
#include "api/gate.h"
#include "api/lang/form.h"
#include "api/token/tokenizer.h"
#include "engine/guide.h"

struct grammars;

/* How a text begins. */
struct grammars_text {
    bool                      gated;     /* a free text comes before the grammar (api/gate.h) */
    enum gate_kind            kind;      /* then */
    bool                      reasoning; /* the prompt leaves reasoning open */
    const struct calls_tools *tools;     /* for the gate */
};

/* tok, calls and eos_id [n_eos] are borrowed until grammars_free. calls: how the model writes markup, or NULL; tokens
 * that are its markers are no text. NULL: no memory. */
struct grammars *grammars_create(const struct tok *tok, const struct calls_model *calls, const uint32_t *eos_id,
                                 uint32_t n_eos);
void             grammars_free(struct grammars *g);
/* The grammar of a form; errors and ownership as in form_compile. */
enum status grammars_compile(struct grammars *g, const struct form *f, struct grammar **g_out, char err[FORM_ERR]);
/* Its rules alone, for a text that holds more than the form; errors as in form_rules. */
enum status grammars_rules(struct grammars *g, const struct form *f, struct gr_rules *r, uint32_t *symbol_out,
                           char err[FORM_ERR]);
/* Makes a guide for one text of the grammar, with its first mask. Ownership and errors as in guide_create. */
enum status grammars_guide(struct grammars *g, struct grammar *grammar, const struct grammars_text *text,
                           struct guide **guide_out);
