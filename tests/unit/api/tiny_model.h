/* tiny_model: what a call needs to know of a model whose tokens are single bytes: tokenizer, template, bounds. Included
 * once. */
#pragma once
#include "api/call.h"
#include "api/schema/grammars.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the tokenizer puts behind a text, as a piece of its template: nothing, unless the including file says
 * otherwise. */
#ifndef TINY_AFTER
#define TINY_AFTER ""
#endif

static void die(const char *err)
{
    fprintf(stderr, "tiny_model: %s\n", err);
    abort();
}

enum { BOS = 256, EOS = 257, IM_START = 258, IM_END = 259, TOOL = 260, VOCAB = 261, CONTEXT = 1000 };

static struct world {
    struct tok      *tok;
    struct tmpl     *tmpl;
    struct api_model m;
    const char      *names[2];
} world;

static const char world_template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% if enable_thinking is defined %}T{{ enable_thinking }}{% endif %}"
    "{% if reasoning_effort is defined %}R{{ reasoning_effort }}{% endif %}{% if flag %}F{{ flag }}{% endif %}";

/* GPT-2's table: each byte as one printable character. */
static uint32_t byte_char(unsigned b, unsigned *n_hidden)
{
    bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    return shown ? b : 256 + (*n_hidden)++;
}

static struct tok *world_tok(void)
{
    struct buf               b;
    char                     err[300];
    unsigned                 n_hidden = 0;
    static const char *const added[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool>" };
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (unsigned i = 0; i < 5; i++)
        buf_printf(
            &b,
            "%s{\"id\":%u,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
            i ? "," : "", 256 + i, added[i], i < 4 ? "true" : "false");
    buf_puts(
        &b,
        "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}" TINY_AFTER
        "],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[256],\"tokens\":[\"<s>\"]},"
        "\"</s>\":{\"id\":\"</s>\",\"ids\":[257],\"tokens\":[\"</s>\"]}}},"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
        "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
    for (unsigned i = 0; i < 256; i++) {
        char     text[8];
        uint32_t cp = byte_char(i, &n_hidden);
        size_t   n = 0;
        if (cp < 0x80)
            text[n++] = (char)cp;
        else {
            text[n++] = (char)(0xc0 | cp >> 6);
            text[n++] = (char)(0x80 | (cp & 0x3f));
        }
        if (i) buf_putc(&b, ',');
        json_put_str(&b, text, n);
        buf_printf(&b, ":%u", i);
    }
    buf_puts(&b, "},\"merges\":[]}}");
    static const char config[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";
    struct tok       *t;
    if (tok_load(b.data, b.n, config, sizeof config - 1, &t, err, sizeof err)) die(err);
    buf_free(&b);
    return t;
}

static struct tmpl *world_tmpl(const char *text)
{
    char         err[300];
    struct tmpl *t;
    if (tmpl_parse(text, strlen(text), &t, err, sizeof err)) die(err);
    return t;
}

static int world_open(void **state)
{
    (void)state;
    world.tok = world_tok();
    world.tmpl = world_tmpl(world_template);
    world.names[0] = "tiny";
    world.names[1] = "alias";
    world.m = (struct api_model){ .served_name = world.names,
                                  .n_name = 2,
                                  .tok = world.tok,
                                  .tmpl = world.tmpl,
                                  .context = CONTEXT,
                                  .vocab = VOCAB,
                                  .fingerprint = "fp",
                                  .created = 7,
                                  .temperature = 1,
                                  .top_p = 1,
                                  .min_p = 0,
                                  .repetition = 1,
                                  .max_new_tokens = -1,
                                  .n_max = 16,
                                  .prompts_max = 128,
                                  .messages_max = 10000,
                                  .logprobs_max = 20,
                                  .stop_max = 16,
                                  .stop_bytes_max = 256,
                                  .bias_max = 1024 };
    world.m.grammars = grammars_create(world.tok, NULL, NULL, 0);
    return 0;
}

__attribute__((unused)) static int world_close(void **state)
{
    (void)state;
    tmpl_free(world.tmpl);
    grammars_free(world.m.grammars);
    tok_free(world.tok);
    return 0;
}
