/* reader: the text of a grammar (ebnf.h), byte by byte, and what its two languages spell alike: strings, classes,
 * names. A failure makes every further read end at once.   Thread: one at a time. */
#pragma once
#include "api/lang/ebnf.h"
#include "api/schema/chars.h"

/* true: the text goes on, and nothing has failed. */
static inline bool reader_more(const struct ebnf *e) { return !e->failed && e->at < e->n_text; }
/* The next byte, or the one `ahead` of it; -1: there is none. */
static inline int reader_peek(const struct ebnf *e, size_t ahead)
{
    return reader_more(e) && e->at + ahead < e->n_text ? (unsigned char)e->text[e->at + ahead] : -1;
}
bool reader_is(const struct ebnf *e, const char *word); /* the text goes on with this word */
bool reader_take(struct ebnf *e, const char *word);     /* likewise; then it is passed */
/* Passes blanks, line breaks and comments; slashes: those that "//" begins as well as those of '#'. */
void reader_skip(struct ebnf *e, bool slashes);
/* The length of the name at `at`: letters, digits, '_' and '-' (dash); 0: there is none. */
size_t reader_name(const struct ebnf *e, size_t at, bool dash);
/* A whole number; false: none stands there. Large ones are cut at 2^31. */
bool reader_number(struct ebnf *e, uint32_t *v);
/* Passes a string in double quotes with its escapes \n \r \t \f \v \b \\ \" \' \/ \[ \] \xHH \uHHHH \UHHHHHHHH. fold:
 * letters of ASCII in both cases. The expression of its characters. */
uint32_t reader_string(struct ebnf *e, bool fold);
/* Passes a string of one character, and returns that. */
uint32_t reader_one_char(struct ebnf *e);
/* Passes a class [..]. Its expression. */
uint32_t reader_class(struct ebnf *e);
/* Passes the counts behind '{': m} m,} ,n} m,n}. */
void reader_counts(struct ebnf *e, uint32_t *min, uint32_t *max);
/* Passes <text> or <[number]>: the symbol of that token. */
uint32_t reader_token(struct ebnf *e, const struct ebnf_tokens *tokens);
