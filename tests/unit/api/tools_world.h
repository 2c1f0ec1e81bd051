/* tools_world: the world of api_world.h with a template that shows tools, calls and reasoning, for tests of dialects
 * that have them. Included once. */
#pragma once
#include "api/family.h"
#include "api_world.h"

static struct family family;
static struct buf    out __attribute__((unused)); /* of the answer at hand */

static int tools_world_open(void **state, const char *template)
{
    static const uint32_t ends[1] = { EOS };
    world_open(state);
    tmpl_free(world.tmpl);
    world.m.tmpl = world.tmpl = world_tmpl(template);
    family_init(&family, world.tmpl, world.tok, "auto", "auto");
    world.m.family = &family;
    grammars_free(world.m.grammars);
    world.m.grammars = grammars_create(world.tok, &family.calls, ends, 1);
    return 0;
}

/* With reasoning before an answer, and with the effort that was asked for. */
static inline int open_with_tools(void **state)
{
    static const char template[] =
        "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.tool_call_id or '' }}\n"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
        "{% if reasoning_effort is defined %}R{{ reasoning_effort }}{% endif %}{# </think> #}";
    return tools_world_open(state, template);
}
