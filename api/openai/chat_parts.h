/* chat_parts: reasoning and tool calls in OpenAI's chats, as deltas of a stream and as members of a message.
 * Thread: the call's owner. */
#pragma once
#include "api/openai/chunk.h"

/* Columns of the writers. */
void chat_stream_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void chat_stream_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
void chat_keep_reason(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void chat_keep_tool(struct call *c, uint32_t i, const struct answer_tool *t, struct buf *out);
/* ,"reasoning":..,"reasoning_content":..,"tool_calls":[..] of a choice, as far as there are any */
void chat_put_parts(const struct call_choice *ch, struct buf *out);
