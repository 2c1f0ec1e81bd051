/* options: the table of options. Flags, SPILLWAY_* environment variables, the lines of --config and --help all come
 * from it, one row for each option.   Thread: any, the table is constant. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_type {
    OPT_BOOL,  /* bool */
    OPT_U32,   /* uint32_t */
    OPT_BYTES, /* uint64_t, a size with its unit */
    OPT_NUM,   /* double */
    OPT_STR,   /* const char * */
    OPT_LIST,  /* struct str_list; may be given several times */
    OPT_ENUM,  /* an enum, or unsigned: the value of one of the row's words */
};
struct opt_word {
    const char *word;
    unsigned    value;
};
struct opt {
    const char            *group; /* set on the first row of a group */
    const char            *name;
    enum opt_type          type;
    size_t                 at; /* offset in struct config */
    const char            *def;
    double                 min, max; /* OPT_U32, OPT_BYTES, OPT_NUM */
    const char            *meta;     /* the name of the value in --help; NULL: OPT_BOOL and OPT_ENUM */
    const struct opt_word *word;     /* [n_word] of OPT_ENUM */
    uint32_t               n_word;
    const char            *help;
};
enum {
    OPTIONS_MAX = 128,   /* rows */
    OPT_WORDS_MAX = 128, /* bytes of the longest list of words, as option_words writes it */
};

/* All options, in the order of --help; static. */
const struct opt *options_table(uint32_t *n_out);
/* The row's number in that table. */
uint32_t option_index(const struct opt *o);
/* name: n bytes, without leading dashes. NULL: no such option. */
const struct opt *option_find(const char *name, size_t n);
/* The name of the option that is most similar to this name, or NULL if none is similar. */
const char *option_nearest(const char *name);
/* The number of letters that must change to turn one into the other; 100 if one is longer than every option. */
unsigned option_distance(const char *a, const char *b);
/* The allowed words of an OPT_ENUM with '|' between them. Returns out. */
const char *option_words(const struct opt *o, char out[OPT_WORDS_MAX]);
/* The word of a value that an OPT_ENUM stored: option_word("device", DEV_CPU) is "cpu". */
const char *option_word(const char *name, unsigned value);
/* The text of --help. */
void options_help(struct buf *out);
