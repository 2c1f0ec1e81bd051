#include "server/text_queue.h"
#include "base/hash.h"

enum { FLOW_JOBS_MIN = 8 };

void text_queue_init(struct text_queue *q, uint32_t n_job_max, uint64_t seed)
{
    *q = (struct text_queue){ .n_job_max = n_job_max, .seed = seed };
    q->n_flow_max = n_job_max / TEXT_SHARE > FLOW_JOBS_MIN ? n_job_max / TEXT_SHARE : FLOW_JOBS_MIN;
    list_init(&q->turn);
    for (uint32_t i = 0; i < TEXT_FLOWS; i++) {
        list_init(&q->flow[i].jobs);
        list_init(&q->flow[i].turn);
    }
}

static struct text_flow *flow_of(struct text_queue *q, const struct text_job *j)
{
    return &q->flow[hash_u64(j->who ^ q->seed) % TEXT_FLOWS];
}

bool text_queue_push(struct text_queue *q, struct text_job *j)
{
    if (q->n_job >= q->n_job_max || flow_of(q, j)->n_job >= q->n_flow_max) return false;
    text_queue_add(q, j);
    return true;
}

void text_queue_add(struct text_queue *q, struct text_job *j)
{
    struct text_flow *f = flow_of(q, j);
    if (!f->n_job) {
        f->credit = 0;
        list_add_tail(&q->turn, &f->turn);
    }
    list_add_tail(&f->jobs, &j->node);
    f->n_job++;
    q->n_job++;
}

struct text_job *text_queue_pop(struct text_queue *q)
{
    while (!list_empty(&q->turn)) {
        struct text_flow *f = LIST_ENTRY(q->turn.next, struct text_flow, turn);
        struct text_job  *j = LIST_ENTRY(f->jobs.next, struct text_job, node);
        list_del(&f->turn);
        if (f->credit < j->bytes) { /* not its turn yet: it saves for the next round */
            f->credit += TEXT_QUANTUM;
            list_add_tail(&q->turn, &f->turn);
            continue;
        }
        f->credit -= j->bytes;
        list_del(&j->node);
        f->n_job--;
        q->n_job--;
        if (f->n_job) list_add_head(&q->turn, &f->turn);
        return j;
    }
    return NULL;
}
