/* text_queue: a queue that is fair among clients by bytes: deficit round robin (Shreedhar and Varghese 1996) over a
 * fixed number of flows. Clients are hashed into the flows.   Thread: one at a time.
 * A client with large or many jobs delays mainly itself: at most one of its jobs goes first for each TEXT_QUANTUM bytes
 * of another client's job. */
#pragma once
#include "base/list.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct io;

/* Embedded in its owner's struct. run is called on a text thread and must not touch data of the io thread. */
struct text_job {
    struct io *io;
    void (*run)(struct text_job *j);
    void (*done)(struct text_job *j);
    uint64_t    who;   /* the client: its key, or its address */
    uint64_t    bytes; /* size of the body: the job's cost */
    struct list node;  /* of the queue */
};

enum { TEXT_FLOWS = 256, TEXT_QUANTUM = 64 << 10, TEXT_SHARE = 4 };

struct text_flow {
    struct list jobs, turn; /* turn: linked while there are jobs */
    uint64_t    credit;     /* bytes that it may take in this round */
    uint32_t    n_job;
};
struct text_queue {
    struct text_flow flow[TEXT_FLOWS];
    struct list      turn; /* flows with jobs, the next one first */
    uint32_t         n_job, n_job_max, n_flow_max;
    uint64_t         seed;
};

/* n_job_max: bound on all jobs. The bound of one flow is n_job_max / TEXT_SHARE, but at least 8. seed: unknown to
 * clients. */
void             text_queue_init(struct text_queue *q, uint32_t n_job_max, uint64_t seed);
bool             text_queue_push(struct text_queue *q, struct text_job *j); /* false: full */
void             text_queue_add(struct text_queue *q, struct text_job *j);  /* beyond the bounds too */
struct text_job *text_queue_pop(struct text_queue *q);                      /* NULL: empty */
