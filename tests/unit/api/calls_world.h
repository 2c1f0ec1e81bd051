/* calls_world: what events come to when they are joined, for tests of api/calls. Included once. */
#pragma once
#include "api/calls/calls_row.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char world_schema[] =
    "[{\"name\":\"w\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}},"
    "{\"name\":\"add\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"$ref\":\"#/$defs/i\"}},"
    "\"$defs\":{\"i\":{\"type\":\"integer\"}}}},{\"name\":\"now\"},"
    "{\"name\":\"s\",\"parameters\":{\"properties\":{\"q\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
    "\"f\":{\"type\":[\"string\",\"null\"]},\"o\":{\"type\":\"object\"},\"l\":{\"items\":{}},"
    "\"b\":{\"anyOf\":[{\"type\":\"boolean\"}]}}}}]";

struct joined {
    struct buf text, reason, calls; /* calls: "name arguments\n" each; of one that was cut "name arguments" */
    struct buf ids;
    uint32_t   n_event, n_call;
    bool       open;
};

static void join(void *ctx, const struct calls_event *ev)
{
    struct joined *j = ctx;
    j->n_event++;
    switch (ev->kind) {
    case CALLS_TEXT: buf_put(&j->text, ev->text, ev->n); break;
    case CALLS_REASON: buf_put(&j->reason, ev->text, ev->n); break;
    case CALLS_OPEN:
        if (j->open || ev->index != j->n_call) abort();
        j->open = true;
        buf_put(&j->calls, ev->text, ev->n);
        buf_putc(&j->calls, ' ');
        buf_printf(&j->ids, "%s\n", ev->id);
        break;
    case CALLS_ARG:
        if (!j->open || ev->index != j->n_call) abort();
        buf_put(&j->calls, ev->text, ev->n);
        break;
    case CALLS_CLOSE:
        if (!j->open || ev->index != j->n_call) abort();
        j->open = false;
        j->n_call++;
        buf_putc(&j->calls, '\n');
        break;
    }
}

static void joined_init(struct joined *j)
{
    *j = (struct joined){ .n_event = 0 };
    buf_init(&j->text, 1 << 26);
    buf_init(&j->reason, 1 << 26);
    buf_init(&j->calls, 1 << 26);
    buf_init(&j->ids, 1 << 20);
}

static void joined_free(struct joined *j)
{
    buf_free(&j->text);
    buf_free(&j->reason);
    buf_free(&j->calls);
    buf_free(&j->ids);
}

/* The four tools of the test vectors. */
static const struct calls_tools *world_tools(struct arena *a)
{
    struct json_error   e;
    json_t             *list = json_parse(world_schema, sizeof world_schema - 1, 0, &e);
    size_t              n = json_array_size(list);
    struct calls_tools *t = arena_calloc(a, 1, sizeof *t);
    t->tool = arena_calloc(a, n, sizeof *t->tool);
    t->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);
        t->tool[i].name = arena_strdup(a, json_string_value(json_object_get(x, "name")));
        t->tool[i].n = strlen(t->tool[i].name);
        if (calls_tool_props(&t->tool[i], json_object_get(x, "parameters"), a)) abort();
    }
    json_decref(list);
    return t;
}
