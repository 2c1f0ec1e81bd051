/* schema_place: where in the client's document a failure is. Schemas are merged, turned into their opposites and come
 * from references, so that the way on which the compiler came to a keyword is no way in the document. But what it looks
 * at are values of the document, or made of some: the place of such a value is looked up when something fails. */
#include "api/schema/schema_impl.h"
#include <stdio.h>
#include <string.h>

/* Does `target` stand in `at`? Then p leads there. */
static bool lead(const json_t *at, const json_t *target, struct pointer *p)
{
    const char *key;
    json_t     *value;
    if (at == target) return true;
    json_object_foreach((json_t *)(uintptr_t)at, key, value)
    {
        size_t was = pointer_key(p, key);
        if (lead(value, target, p)) return true;
        pointer_leave(p, was);
    }
    for (size_t i = 0; i < json_array_size(at); i++) {
        size_t was = pointer_index(p, i);
        if (lead(json_array_get(at, i), target, p)) return true;
        pointer_leave(p, was);
    }
    return false;
}

/* Of a value that the compiler made: the first in it that stands in the document. */
static bool lead_within(const json_t *root, const json_t *made, struct pointer *p)
{
    const char *key;
    json_t     *value;
    bool        shared = json_is_boolean(made) || json_is_null(made); /* one for all documents */
    if (!made || (!shared && lead(root, made, p))) return made != NULL;
    json_object_foreach((json_t *)(uintptr_t)made, key, value)
    {
        if (lead_within(root, value, p)) return true;
    }
    for (size_t i = 0; i < json_array_size(made); i++)
        if (lead_within(root, json_array_get(made, i), p)) return true;
    return false;
}

/* Of one schema: its keyword, if it has it. */
static bool of_node(const struct schema *s, const json_t *node, const char *keyword, struct pointer *p)
{
    const json_t *value = json_object_get(node, keyword);
    if (!value) return false;
    if (!lead(s->root, node, p)) return lead_within(s->root, value, p) || lead_within(s->root, node, p);
    pointer_key(p, keyword);
    return true;
}

static bool of_frame(const struct schema *s, const struct schema_frame *f, const char *keyword, struct pointer *p)
{
    for (uint32_t i = 0; i < f->all->n; i++)
        if (of_node(s, f->all->part[i].node, keyword, p)) return true;
    return false;
}

/* The schema that is being read, else those that are being compiled, from the innermost: its keyword, else itself. */
static void find(const struct schema *s, const char *keyword, struct pointer *p)
{
    const struct schema_frame *f = s->frame;
    if (of_node(s, s->node, keyword, p) || (f && of_frame(s, f, keyword, p)) || lead_within(s->root, s->node, p))
        return;
    for (; f; f = f->up) {
        for (uint32_t i = 0; i < f->all->n; i++)
            if (lead_within(s->root, f->all->part[i].node, p)) return;
        if (lead_within(s->root, f->node, p)) return;
    }
}

void schema_place(const struct schema *s, const char *keyword, struct pointer *p)
{
    static const char whole[] = "/" SCHEMA_ROOT;
    const size_t      n = sizeof whole - 1;
    *p = (struct pointer){ .text = "" };
    if (s->form.at) snprintf(p->text, sizeof p->text, "%s", s->form.at);
    size_t begin = strlen(p->text);
    find(s, keyword, p);
    const char *within = p->text + begin;
    if (!strncmp(within, whole, n) && (!within[n] || within[n] == '/'))
        memmove(p->text, within + n, strlen(within + n) + 1);
}
