/* text: a pool of threads for work that would block an io thread: parsing, templates and tokenizers on large bodies.
 * text_submit -> text_job.run (on a text thread) -> text_job.done (on the job's io thread).   Thread: as said.
 *
 * The jobs wait in two fair queues (text_queue.h), one for small bodies and one for large ones. One thread takes small
 * ones only, so they never wait for a large one. The others take large ones, and small ones if no large one waits. */
#pragma once
#include "server/text_queue.h"

struct text_pool;

enum {
    TEXT_INLINE_MAX = 16 << 10, /* bytes; the io thread itself handles smaller bodies, as a hand-off would cost more */
    TEXT_SMALL_MAX = 256 << 10, /* bytes; a smaller body is small */
};

/* n_thread: threads for large bodies; one more is started for small ones. queue_max: most jobs that wait in each queue.
 * ST_NOMEM, or the error of starting a thread. */
enum status text_create(uint32_t n_thread, uint32_t queue_max, struct text_pool **p_out);
/* False: the queue, or the client's share of it, is full (429). j stays the caller's and must live until done. */
bool text_submit(struct text_pool *p, struct text_job *j);
/* The same for a request that goes on: it is taken in any case. Who lets requests in bounds their number. */
void text_continue(struct text_pool *p, struct text_job *j);
/* Waits for the threads, which first run all waiting jobs and push them to the inbox of their io thread. */
void     text_stop(struct text_pool *p);
uint32_t text_waiting(const struct text_pool *p); /* jobs in the queues; any thread */
void     text_free(struct text_pool *p);
