/* text: a few threads for what would hold up an io thread: parsing, templates and tokenizers on large bodies.
 * text_submit -> run (a text thread) -> done (back on the job's io thread).   Thread: as said.
 *
 * What waits, waits in two fair queues (text_queue.h), of small bodies and of large ones. One thread takes small ones
 * alone, so a large body never stands before a small one; the others take large ones, and small ones when no large one
 * waits. */
#pragma once
#include "server/text_queue.h"

struct text_pool;

enum {
    TEXT_INLINE_MAX = 16 << 10, /* smaller bodies are done on the io thread: the hand-off would cost more */
    TEXT_SMALL_MAX = 256 << 10, /* a body below is small */
};

/* n_thread: for large bodies; one more is started for small ones. queue_max: jobs that may wait, of each size. */
enum status text_create(uint32_t n_thread, uint32_t queue_max, struct text_pool **p_out);
bool        text_submit(struct text_pool *p,
                        struct text_job  *j); /* false: the queue, or this client's share of it, is full (429) */
/* Joins; jobs that wait are still run, and handed to their io thread's inbox. */
void     text_stop(struct text_pool *p);
uint32_t text_waiting(const struct text_pool *p); /* jobs in the queues; any thread */
void     text_free(struct text_pool *p);
