/* grammars: the vocabulary that all constrained requests of one model share: its tokens as bytes, built by the first
 * such request.   Thread: any. */
#pragma once
#include "api/lang/form.h"
#include "api/token/tokenizer.h"
#include "engine/guide.h"

struct grammars;

/* tok and eos_id [n_eos] are borrowed until grammars_free. NULL: no memory. */
struct grammars *grammars_create(const struct tok *tok, const uint32_t *eos_id, uint32_t n_eos);
void             grammars_free(struct grammars *g);
/* The grammar of a form; errors and ownership as in form_compile. */
enum status grammars_compile(struct grammars *g, const struct form *f, struct grammar **g_out, char err[FORM_ERR]);
/* Makes a guide for one text of the grammar, with its first mask. Ownership and errors as in guide_create. */
enum status grammars_guide(struct grammars *g, struct grammar *grammar, struct guide **guide_out);
