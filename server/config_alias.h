/* config_alias: what people paste from other servers' command lines: other names of our options, options that mean
 * nothing here, and options that have another answer here.   Thread: any, the tables are constant. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum alias_kind {
    ALIAS_OF,       /* text: the option of ours that it is */
    ALIAS_FLAG,     /* no effect, no value; text: why */
    ALIAS_VALUE,    /* no effect, and a value follows; text: why */
    ALIAS_ONLY_ONE, /* no effect with the value 1; else refused; text: why */
    ALIAS_REFUSED,  /* text: what to do instead */
};
struct alias {
    const char     *name; /* with its dashes */
    enum alias_kind kind;
    const char     *text;
};
/* name: n bytes, dashes for underscores. NULL: nobody's. */
const struct alias *config_alias_find(const char *name, size_t n);
/* Another word for a value of an option of ours ("dtype", "fp16" -> "float16"); v itself where there is none. */
const char *config_alias_value(const char *option, const char *v);
/* A name of a model hub, "owner/model", and no path. */
bool config_is_hub_name(const char *s);
