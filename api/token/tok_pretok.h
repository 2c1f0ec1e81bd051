/* tok_pretok: the pre-tokenizer: a chain of stages. Each stage cuts or rewrites the pieces of the stage before it; the
 * pieces of the last stage go to the model. The depth of calls is bounded by the number of stages, whatever the text
 * is. load -> run* -> free.   Thread: const after load. */
#pragma once
#include "api/token/tok_pattern.h"
#include "api/token/tok_unicode.h"

enum tok_stage_kind {
    STAGE_SPLIT,        /* cuts at the matches of a pattern */
    STAGE_CHARS,        /* cuts at each character with a trait, or at each cp */
    STAGE_WORDS,        /* keeps the matches of \w+ and [^\w\s]+ */
    STAGE_METASPACE,    /* replaces spaces by cp, may put one in front, and if split, cuts before each */
    STAGE_PREFIX_SPACE, /* puts a space in front of a piece without one */
    STAGE_BYTE_LEVEL,   /* replaces each byte by one printable character */
    STAGE_FIXED,        /* cuts into pieces of `length` characters */
    STAGE_SCRIPTS,      /* cuts between characters of different scripts */
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
    enum tok_trait_bit  trait; /* 0: the stage looks for cp */
    uint32_t            cp, length;
};
struct tok_pretok {
    struct tok_stage stage[TOK_STAGES_MAX];
    uint32_t         n;
    bool             shrinks; /* some stage removes text */
};

/* Reads the "pre_tokenizer". ST_CONFIG or ST_NOMEM, and e has the reason. */
enum status tok_pretok_load(struct tok_pretok *p, const json_t *component,
                            const struct tok_err *e); /* component may be NULL or null */
void        tok_pretok_free(struct tok_pretok *p);
/* Runs the stages from number k on over one piece and passes the resulting pieces to w->encode. at_start: the piece
 * begins at the beginning of the whole text. */
enum status tok_pretok_run(const struct tok_pretok *p, uint32_t k, struct tok_work *w, const char *s, size_t n,
                           bool at_start);
