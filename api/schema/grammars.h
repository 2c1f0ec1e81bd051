/* grammars: the vocabulary that all constrained requests of one model share: its tokens as bytes, built by the first
 * such request.   Thread: any. */
#pragma once
#include "api/gate.h"
#include "api/lang/form_cache.h"
#include "api/token/tokenizer.h"
#include "engine/guide.h"

struct grammars;

/* How a text begins. */
struct grammars_text {
    bool                      gated;     /* a free text comes before the grammar (api/gate.h) */
    enum gate_kind            kind;      /* then */
    bool                      reasoning; /* the prompt leaves reasoning open */
    uint32_t                  budget;    /* tokens of reasoning; GATE_UNBOUNDED: as many as there is room for */
    const struct calls_tools *tools;     /* for the gate */
};

/* tok, calls and eos_id [n_eos] are borrowed until grammars_free. calls: how the model writes markup, or NULL; tokens
 * that are its markers are no text. NULL: no memory. */
struct grammars *grammars_create(const struct tok *tok, const struct calls_model *calls, const uint32_t *eos_id,
                                 uint32_t n_eos);
void             grammars_free(struct grammars *g);
/* The grammar of a form; errors and ownership as in form_compile. */
enum status grammars_compile(struct grammars *g, const struct form *f, struct grammar **g_out, char err[FORM_ERR]);
/* A grammar that is made of more than a form, of the same cache: form_cache_get. */
enum status grammars_get(struct grammars *g, const struct buf *key, form_make *make, void *arg, struct grammar **g_out,
                         char *ignored, char err[FORM_ERR]);
void        grammars_count(struct grammars *g, struct form_cache_counts *out);
/* Takes memory for n guides out of the share of all requests, before they are made. false: it is in use. */
bool grammars_hold(struct grammars *g, uint32_t n);
void grammars_give(struct grammars *g, uint32_t n);
/* Its rules alone, for a text that holds more than the form; errors as in form_rules. */
enum status grammars_rules(struct grammars *g, const struct form *f, struct gr_rules *r, uint32_t *symbol_out,
                           char err[FORM_ERR]);
/* Makes a guide for one text of the grammar (NULL: of GATE_NONE), with its first mask. Ownership and errors as in
 * guide_create; ST_INVALID, too: no tokens spell the marker that a budget must force. */
enum status grammars_guide(struct grammars *g, struct grammar *grammar, const struct grammars_text *text,
                           struct guide **guide_out);
