/* Copies by two threads: each job comes back once, whole, and somebody who sleeps is told of the last one. */
#include "test.h"
#include "base/rng.h"
#include "transfer/peer/near_copy.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 32, ROUNDS = 200, JOB_BYTES = 96 << 10, PATIENCE_MS = 10000 };

struct copied {
    struct near_job job;
    bool            given;
};

static uint32_t below(uint32_t n)
{
    static uint64_t counter;
    return rng_philox(1, 0, counter++).x[0] % n;
}

/* Takes all jobs, and sleeps where the other thread has the last ones. */
static void take_all(struct near_copy *c, uint32_t n)
{
    while (n) {
        struct near_job *job = near_copy_take(c);
        if (!job) {
            struct pollfd p = { .fd = near_copy_fd(c), .events = POLLIN };
            assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
            continue;
        }
        struct copied *was = LIST_ENTRY(job, struct copied, job);
        assert_true(was->given);
        assert_memory_equal(job->dst, job->src, job->bytes);
        was->given = false;
        n--;
    }
    assert_null(near_copy_take(c));
}

static void each_job_comes_back_once_with_its_bytes(void **state)
{
    (void)state;
    struct near_copy *c = near_copy_open();
    unsigned char    *from = malloc((size_t)JOBS * JOB_BYTES), *to = malloc((size_t)JOBS * JOB_BYTES);
    struct copied     copied[JOBS] = { 0 };
    assert_non_null(c);
    assert_non_null(from);
    assert_non_null(to);
    for (size_t i = 0; i < (size_t)JOBS * JOB_BYTES; i++) from[i] = (unsigned char)(i * 7 + i / JOB_BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = 1 + below(JOBS);
        memset(to, 0, (size_t)JOBS * JOB_BYTES);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bytes = below(JOB_BYTES) + 1;
            copied[i].job = (struct near_job){ .dst = to + (size_t)i * JOB_BYTES,
                                               .src = from + (size_t)i * JOB_BYTES + below(JOB_BYTES - bytes + 1),
                                               .bytes = bytes };
            copied[i].given = true;
            near_copy_give(c, &copied[i].job);
        }
        take_all(c, n);
    }
    near_copy_close(c);
    free(from);
    free(to);
}

static void what_is_queued_at_the_end_is_let_go(void **state)
{
    (void)state;
    static unsigned char from[JOB_BYTES], to[JOBS][JOB_BYTES];
    for (int round = 0; round < 20; round++) {
        struct near_copy *c = near_copy_open();
        struct near_job   job[JOBS];
        assert_non_null(c);
        for (int i = 0; i < JOBS; i++) {
            job[i] = (struct near_job){ .dst = to[i], .src = from, .bytes = JOB_BYTES };
            near_copy_give(c, &job[i]);
        }
        near_copy_close(c); /* no thread writes to job or to behind this */
        memset(job, 0xff, sizeof job);
    }
    near_copy_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_comes_back_once_with_its_bytes),
        cmocka_unit_test(what_is_queued_at_the_end_is_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
