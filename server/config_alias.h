/* config_alias: options of other servers' command lines: other names of our options, options without effect here, and
 * options that are refused with what to do instead.   Thread: any, the tables are constant. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum alias_kind {
    ALIAS_OF,       /* another name; text: our option */
    ALIAS_FLAG,     /* has no effect and no value; text: why */
    ALIAS_VALUE,    /* has no effect, and a value follows; text: why */
    ALIAS_ONLY_ONE, /* has no effect with the value 1, and is refused with others; text: why */
    ALIAS_REFUSED,  /* text: what to do instead */
};
struct alias {
    const char     *name; /* with its dashes */
    enum alias_kind kind;
    const char     *text;
};
/* name: n bytes, with dashes for underscores. NULL: no such option. */
const struct alias *config_alias_find(const char *name, size_t n);
/* Our word for another server's value of one of our options ("dtype", "fp16" -> "float16"); v itself if there is
 * none. */
const char *config_alias_value(const char *option, const char *v);
/* A value of --quantization that names codes which the checkpoint must have; it is read as auto. */
bool config_alias_codes(const char *v);
/* Whether s has the form of a name on a model hub, "owner/model". It does not look for a path of that name. */
bool config_is_hub_name(const char *s);
