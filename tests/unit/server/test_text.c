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
        job[i] = (struct text_job){ .io = &io, .run = run, .done = done };
        assert_true(text_submit(p, &job[i]));
    }
    for (int i = 0; i < PATIENCE_S * 1000 && n_done < N; i++) pop_all(), usleep(1000);
    assert_int_equal(n_done, N);
    assert_int_equal(atomic_load(&n_run), N);
    text_stop(p);
    text_free(p);
    ring_free(&io.inbox);
}

static void a_full_pool_says_no_and_stopping_runs_what_waits(void **state)
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
        cmocka_unit_test(a_full_pool_says_no_and_stopping_runs_what_waits),
        cmocka_unit_test(a_large_tokenize_waits_beside_the_io_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
