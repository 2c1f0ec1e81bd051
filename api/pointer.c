#include "api/pointer.h"
#include <stdio.h>
#include <string.h>

static const char cut[] = "/...";

/* Room that a name needs as a step, with its slash; no more is counted than does not fit anyway. */
static size_t step_bytes(const char *key)
{
    size_t n = 1;
    for (; *key && n < POINTER_BYTES; key++) n += *key == '~' || *key == '/' ? 2 : 1;
    return n;
}

static void write_step(char *to, const char *key)
{
    *to++ = '/';
    for (; *key; key++) {
        if (*key == '~' || *key == '/') *to++ = '~';
        if (*key == '~')
            *to++ = '0';
        else
            *to++ = *key == '/' ? '1' : *key;
    }
    *to = 0;
}

size_t pointer_key(struct pointer *p, const char *key)
{
    size_t n = strlen(p->text);
    if (p->cut) return n;
    p->cut = n + step_bytes(key) + sizeof cut > sizeof p->text;
    if (p->cut)
        memcpy(p->text + n, cut, sizeof cut);
    else
        write_step(p->text + n, key);
    return n;
}

size_t pointer_index(struct pointer *p, size_t index)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%zu", index);
    return pointer_key(p, digits);
}

void pointer_leave(struct pointer *p, size_t was)
{
    if (!p->text[was]) return; /* the step was below a cut, and left nothing */
    p->text[was] = 0;
    p->cut = false;
}
