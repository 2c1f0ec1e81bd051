#include "api/calls/calls_impl.h"
#include <string.h>

/* The header of a harmony message, as text: " to=functions.f<|channel|>commentary <|constrain|>json". */

/* The word behind `key`; n_out 0: there is none. */
static const char *word_after(const char *s, size_t n, const char *key, size_t *n_out)
{
    size_t      n_key = strlen(key);
    const char *at = n ? memmem(s, n, key, n_key) : NULL;
    *n_out = 0;
    if (!at) return NULL;
    at += n_key;
    while (at + *n_out < s + n && !calls_blank(at[*n_out]) && at[*n_out] != '<') ++*n_out;
    return at;
}

static bool word_is(const char *s, size_t n, const char *word) { return n == strlen(word) && !memcmp(s, word, n); }

uint8_t calls_header_end(struct calls *p)
{
    static const char functions[] = "functions.";
    size_t            n_to, n_channel, n_head = sizeof functions - 1;
    const char       *to = word_after(p->value.data, p->value.n, "to=", &n_to);
    const char       *channel = word_after(p->value.data, p->value.n, "<|channel|>", &n_channel);
    if (n_to > n_head && !memcmp(to, functions, n_head) && n_to - n_head <= CALLS_NAME_MAX && p->cfg.tools) {
        p->n_name = (uint32_t)(n_to - n_head);
        memcpy(p->name, to + n_head, p->n_name);
        return CS_BODY;
    }
    bool tool = n_to && !(n_to > n_head && !memcmp(to, functions, n_head)); /* python, browser.search */
    return tool || (n_channel && word_is(channel, n_channel, "analysis")) ? CS_REASON : CS_TEXT;
}
