/* anthropic: the dialect of Anthropic's Messages API.   Thread: the call's owner.
 *
 *   fields.c     the fields of a request, and what thinking and output_config ask for
 *   history.c    messages of content blocks become messages in OpenAI's form
 *   tools.c      tools and tool_choice become those in OpenAI's form
 *   blocks.c     writers: content blocks, as events of a stream and as members of a whole message
 *   messages.c   the row, its errors, and the count of a prompt's tokens */
#pragma once
#include "api/dialect.h"

extern const struct param_fields anthropic_fields;

/* What the writers need of a call; c->own. Which content block of the answer is open, and its number. */
enum anthropic_block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_TOOL };
struct anthropic_call {
    bool                 hides_thinking; /* thinking.display is "omitted": the block comes without its text */
    enum anthropic_block open;
    uint32_t             n_block;  /* blocks that were opened */
    bool                 has_args; /* the open call's input has begun */
};
static inline struct anthropic_call *anthropic_of(const struct call *c) { return c->own; }

/* Makes c->own, if it is not there. ST_NOMEM. */
enum status anthropic_open(struct call *c);
/* Makes c->ask.messages, in OpenAI's form, of the body's "system" and "messages". ST_INVALID with *e, ST_NOMEM. */
enum status anthropic_history(struct call *c, struct api_error *e);
/* Makes c->ask.tools and c->ask.tool_choice, in OpenAI's form. ST_INVALID with *e, ST_NOMEM. */
enum status anthropic_tools(struct call *c, struct api_error *e);

/* Columns of the writers (dialect.h). Of a stream: each writes its events. */
void anthropic_stream_begin(struct call *c, uint32_t i, struct buf *out);
void anthropic_stream_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void anthropic_stream_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void anthropic_stream_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
/* The end of the last block; then why the message ended, and its usage. */
void anthropic_stream_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void anthropic_stream_usage(struct call *c, struct buf *out);
/* Of a whole message: each adds to the blocks so far, and usage writes the message. */
void anthropic_whole_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void anthropic_whole_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void anthropic_whole_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
/* The end of the last block; then the message. */
void anthropic_whole_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void anthropic_whole_usage(struct call *c, struct buf *out);
