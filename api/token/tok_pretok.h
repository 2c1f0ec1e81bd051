/* tok_pretok: the pre-tokenizer: a chain of stages, each cutting the pieces of the one before; what the last one gives
 * goes to the model. load -> run* -> free.   Thread: const after load. The chain's length, not the text, bounds how
 * deep calls nest. */
#pragma once
#include "api/token/tok_pattern.h"
#include "api/token/tok_unicode.h"

enum tok_stage_kind {
    STAGE_SPLIT,        /* by a pattern */
    STAGE_CHARS,        /* by single characters of a kind (trait), or one character (cp) */
    STAGE_WORDS,        /* \w+ or [^\w\s]+ */
    STAGE_METASPACE,    /* spaces become cp, one may be put in front; and split before each, if split */
    STAGE_PREFIX_SPACE, /* a space in front where there is none */
    STAGE_BYTE_LEVEL,   /* bytes become printable characters */
    STAGE_FIXED,        /* every length characters */
    STAGE_SCRIPTS,      /* between characters of two scripts */
};
enum tok_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
};
enum tok_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct tok_stage {
    enum tok_stage_kind kind;
    enum tok_behavior   behavior;
    bool                invert, split;
    enum tok_prepend    prepend;
    struct tok_pattern  pattern;
    enum tok_trait_bit  trait; /* 0: cp */
    uint32_t            cp, length;
};
struct tok_pretok {
    struct tok_stage stage[TOK_STAGES_MAX];
    uint32_t         n;
    bool             shrinks; /* some stage throws text away */
};

enum status tok_pretok_load(struct tok_pretok *p, const json_t *component,
                            const struct tok_err *e); /* component may be NULL or null */
void        tok_pretok_free(struct tok_pretok *p);
/* Stages from k on over one piece; what the last one cuts goes to w->encode. at_start: it begins where the whole text does. */
enum status tok_pretok_run(const struct tok_pretok *p, uint32_t k, struct tok_work *w, const char *s, size_t n,
                           bool at_start);
