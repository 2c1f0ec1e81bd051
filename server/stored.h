/* stored: the routes of stored responses: /v1/responses/{id}, .../input_items, .../cancel.   Thread: the connection's
 * io thread. */
#pragma once

struct conn;

/* The handler: answers at once. */
void stored_handle(struct conn *c);
