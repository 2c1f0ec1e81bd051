#include "serve.h"
#include "server/text.h"

/* The io thread's part is played by the test: it pops the inbox. */
static struct io        io;
static _Atomic uint32_t n_run;
static _Atomic bool     held;
static uint32_t         n_done;

static void run(struct text_job *j)
{
    (void)j;
    while (atomic_load(&held)) usleep(100);
    atomic_fetch_add(&n_run, 1);
}
static void done(struct text_job *j)
{
    (void)j;
    n_done++;
}
static void pop_all(void)
{
    for (struct text_job *j; (j = ring_pop(&io.inbox));) j->done(j);
}

static void every_job_is_run_once_and_comes_back(void **state)
{
    (void)state;
    enum { N = 500 };
    static struct text_job job[N];
    struct text_pool      *p;
    n_run = n_done = 0;
    assert_int_equal(ring_init(&io.inbox, 1024), ST_OK);
    assert_int_equal(text_create(3, 1024, &p), ST_OK);
    for (int i = 0; i < N; i++) {
        job[i] = (struct text_job){
            .io = &io, .run = run, .done = done, .who = (uint64_t)i, .bytes = i % 2 ? 0 : TEXT_SMALL_MAX
        };
        assert_true(text_submit(p, &job[i]));
    }
    for (int i = 0; i < PATIENCE_S * 1000 && n_done < N; i++) {
        pop_all();
        usleep(1000);
    }
    assert_int_equal(n_done, N);
    assert_int_equal(atomic_load(&n_run), N);
    text_stop(p);
    text_free(p);
    ring_free(&io.inbox);
}

static void a_full_pool_refuses_jobs_and_a_stop_runs_the_waiting_ones(void **state)
{
    (void)state;
    enum { N = 64 };
    static struct text_job job[N];
    struct text_pool      *p;
    uint32_t               n_in = 0;
    n_run = n_done = 0;
    atomic_store(&held, true);
    assert_int_equal(ring_init(&io.inbox, 1024), ST_OK);
    assert_int_equal(text_create(1, 8, &p), ST_OK);
    for (int i = 0; i < N; i++) {
        job[i] = (struct text_job){ .io = &io, .run = run, .done = done };
        n_in += text_submit(p, &job[i]);
    }
    assert_in_range(n_in, 8, 12);
    atomic_store(&held, false);
    text_stop(p);
    pop_all();
    assert_int_equal(n_done, n_in);
    text_free(p);
    ring_free(&io.inbox);
}

/* Whose job comes out when, of the letters in who. */
static const char *order(struct text_queue *q)
{
    static char out[4096];
    size_t      n = 0;
    for (struct text_job *j; (j = text_queue_pop(q));) out[n++] = (char)j->who;
    out[n] = 0;
    return out;
}
static bool push(struct text_queue *q, char who, uint64_t bytes)
{
    static struct text_job job[4096];
    static uint32_t        n;
    struct text_job       *j = &job[n++ % 4096];
    *j = (struct text_job){ .who = (uint64_t)who, .bytes = bytes };
    return text_queue_push(q, j);
}

static void B44_each_client_has_its_turn_by_bytes(void **state)
{
    (void)state;
    static struct text_queue q;
    text_queue_init(&q, 400, 3);
    for (int i = 0; i < 4; i++) assert_true(push(&q, 'a', 30 << 20)); /* one that came first, with much */
    for (int i = 0; i < 3; i++) assert_true(push(&q, 'b', 1000));
    assert_true(push(&q, 'c', 300 << 10));
    assert_string_equal(order(&q), "bbbcaaaa");
    for (int i = 0; i < 6; i++) assert_true(push(&q, 'a', TEXT_QUANTUM));
    for (int i = 0; i < 3; i++) assert_true(push(&q, 'b', 2 * TEXT_QUANTUM));
    assert_string_equal(order(&q), "aabaabaab"); /* the same bytes for both */
    for (int i = 0; i < 100; i++) assert_true(push(&q, 'a', 1));
    assert_false(push(&q, 'a', 1)); /* a quarter of the room: the rest is for others */
    assert_true(push(&q, 'b', 1));
    assert_int_equal(strlen(order(&q)), 101);
}

static _Atomic bool large_held;
static void         run_large(struct text_job *j)
{
    (void)j;
    while (atomic_load(&large_held)) usleep(100);
}

static void B44_a_large_body_does_not_stand_before_a_small_one(void **state)
{
    (void)state;
    static struct text_job large[3], small[20];
    struct text_pool      *p;
    n_run = n_done = 0;
    atomic_store(&large_held, true);
    assert_int_equal(ring_init(&io.inbox, 1024), ST_OK);
    assert_int_equal(text_create(1, 256, &p), ST_OK);
    for (int i = 0; i < 3; i++) {
        large[i] = (struct text_job){ .io = &io, .run = run_large, .done = done, .who = 1, .bytes = 30 << 20 };
        assert_true(text_submit(p, &large[i]));
    }
    for (int i = 0; i < 20; i++) {
        small[i] = (struct text_job){ .io = &io, .run = run, .done = done, .who = 1, .bytes = 20 << 10 };
        assert_true(text_submit(p, &small[i]));
    }
    for (int i = 0; i < PATIENCE_S * 1000 && atomic_load(&n_run) < 20; i++) usleep(1000);
    assert_int_equal(atomic_load(&n_run), 20); /* while the large one still runs */
    atomic_store(&large_held, false);
    text_stop(p);
    pop_all();
    assert_int_equal(n_done, 23);
    text_free(p);
    ring_free(&io.inbox);
}

static void a_large_tokenize_waits_beside_the_io_thread(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    char *body = malloc(200000), *text = malloc(210000);
    int   n = snprintf(body, 100, "{\"prompt\":\"");
    memset(body + n, 'a', 100000);
    snprintf(body + n + 100000, 10, "\"}");
    post(text, 210000, "/tokenize", "", body);
    assert_int_equal(status_of(ask_bytes(text, strlen(text))), 200);
    assert_non_null(strstr(got, "\"count\":"));
    for (int i = 0; i < 20; i++) { /* and one that does not wait for its answer */
        int fd = raw_connect();
        raw_send(fd, text, strlen(text));
        close(fd);
    }
    assert_true(eventually(no_connection));
    post(text, 210000, "/detokenize", "", "{\"tokens\":[300,301]}");
    assert_int_equal(status_of(ask_bytes(text, strlen(text))), 200);
    free(body);
    free(text);
    serve_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_is_run_once_and_comes_back),
        cmocka_unit_test(a_full_pool_refuses_jobs_and_a_stop_runs_the_waiting_ones),
        cmocka_unit_test(B44_each_client_has_its_turn_by_bytes),
        cmocka_unit_test(B44_a_large_body_does_not_stand_before_a_small_one),
        cmocka_unit_test(a_large_tokenize_waits_beside_the_io_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
