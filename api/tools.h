/* tools: the tools of a request: checked, brought into the form that templates show, and made ready for the reader of
 * the answer.   Thread: the call's owner. */
#pragma once
#include "api/call.h"

/* Reads tools and tool_choice of c->ask; fills c->tools and c->ask.tools. Errors name the field. */
enum status tools_read(struct call *c, struct api_error *e);
