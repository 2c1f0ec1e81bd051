/* On which thread a state becomes a vector, and what happens meanwhile (serve.h). */
#include "serve.h"

#include "engine/model/dense.h"
#include "server/settle.h"
#include <semaphore.h>

enum { N_IN = 64, WIDE = SETTLE_INLINE_MAX / N_IN + 1, NARROW = SETTLE_INLINE_MAX / N_IN };

static float              weight[N_IN * WIDE];
static struct dense_layer layer = { .n_in = N_IN, .weight = weight };
static _Atomic int        n_in_act, role; /* calls of the activation; of the thread that was in the last one */
static _Atomic bool       holds;          /* each vector waits in its first number for `go` */
static sem_t              go;

/* The layer's activation. The state's first number is the length of the prompt, and every weight is 1. */
static double act(double x)
{
    static _Thread_local uint32_t n;
    bool                          first = n++ % layer.n_out == 0;
    if (!first) return x;
    atomic_store(&role, (int)thread_role_self);
    atomic_fetch_add(&n_in_act, 1);
    if (atomic_load(&holds))
        while (sem_wait(&go)) {}
    return x;
}

static void up(uint32_t n_out)
{
    static struct model_dense dense;
    layer.n_out = n_out;
    layer.act = act;
    for (uint32_t i = 0; i < N_IN * WIDE; i++) weight[i] = 1;
    dense = (struct model_dense){ .n_layer = 1, .layer[0] = layer };
    assert_int_equal(sem_init(&go, 0, 0), 0);
    n_in_act = 0;
    holds = false;
    serve_up(false, NULL, NULL);
    S.boot.model.task = TASK_EMBED;
    S.boot.model.state_dim = N_IN;
    S.boot.model.dense = &dense;
    serve_ready();
}
static int down(void **state)
{
    (void)state;
    holds = false;
    sem_post(&go);
    serve_down();
    sem_destroy(&go);
    return 0;
}

static char text[1 << 16];
static int  ask_vectors(const char *input)
{
    char body[1000];
    snprintf(body, sizeof body, "{\"input\":%s}", input);
    post(text, sizeof text, "/v1/embeddings", "Connection: close\r\n", body);
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    return fd;
}
static bool is_in_act(void) { return atomic_load(&n_in_act) > 0; }
static bool both_are_in_act(void) { return atomic_load(&n_in_act) > 1; }

static void a_small_vector_is_made_on_the_io_thread(void **state)
{
    (void)state;
    up(NARROW);
    int fd = ask_vectors("[5,6,7]");
    assert_int_equal(status_of(raw_read(fd, NULL)), 200);
    close(fd);
    assert_non_null(strstr(got, "\"embedding\":[3,3,"));
    assert_int_equal(atomic_load(&role), THREAD_IO);
}

static void a_large_one_is_made_on_a_text_thread_and_holds_nobody(void **state)
{
    (void)state;
    up(WIDE);
    holds = true;
    int fd = ask_vectors("[5,6,7]");
    assert_true(eventually(is_in_act));
    assert_int_equal(atomic_load(&role), THREAD_TEXT);
    for (int i = 0; i < 3; i++) { /* the only io thread answers */
        ASK("GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_int_equal(status_of(got), 200);
    }
    sem_post(&go);
    assert_int_equal(status_of(raw_read(fd, NULL)), 200);
    assert_non_null(strstr(got, "\"embedding\":[3,3,"));
    close(fd);
    assert_true(eventually(no_generation));
}

static void many_of_one_request_keep_their_order(void **state)
{
    (void)state;
    up(WIDE);
    int fd = ask_vectors("[[1],[1,2],[1,2,3],[1,2,3,4],[1,2,3,4,5],[1,2,3,4,5,6]]");
    assert_int_equal(status_of(raw_read(fd, NULL)), 200);
    close(fd);
    for (int i = 0; i < 6; i++) {
        char want[80];
        snprintf(want, sizeof want, "\"index\":%d,\"embedding\":[%d,%d,", i, i + 1, i + 1);
        assert_non_null(strstr(got, want));
    }
    assert_int_equal(atomic_load(&n_in_act), 6);
    assert_int_equal(atomic_load(&role), THREAD_TEXT);
    assert_true(eventually(no_generation));
}

static void a_client_may_leave_meanwhile(void **state)
{
    (void)state;
    up(WIDE);
    holds = true;
    int fd = ask_vectors("[[1],[1,2],[1,2,3]]");
    assert_true(eventually(is_in_act));
    close(fd);
    assert_true(eventually(no_connection));
    holds = false;
    sem_post(&go);
    assert_true(eventually(no_generation));
    fd = ask_vectors("[7,7]"); /* the server goes on */
    assert_int_equal(status_of(raw_read(fd, NULL)), 200);
    close(fd);
}

/* With a score there are no vectors to be written, but they are made all the same. */
static void a_score_of_large_vectors_is_made_there_too(void **state)
{
    (void)state;
    up(WIDE);
    post(text, sizeof text, "/score", "Connection: close\r\n", "{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\"]}");
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    assert_int_equal(status_of(raw_read(fd, NULL)), 200);
    close(fd);
    assert_int_equal(atomic_load(&n_in_act), 3);
    assert_int_equal(atomic_load(&role), THREAD_TEXT);
}

static void a_server_ends_while_a_vector_is_made(void **state)
{
    (void)state;
    up(WIDE);
    holds = true;
    int fd = ask_vectors("[[1],[1,2]]");
    assert_true(eventually(is_in_act));
    server_fail_all(S.srv);
    raw_read(fd, NULL);
    assert_int_equal(status_of(got), 503);
    close(fd);
    holds = false;
    sem_post(&go);
}

static void two_requests_are_settled_side_by_side_or_in_turn(void **state)
{
    (void)state;
    up(WIDE);
    int a = ask_vectors("[[1],[1,2]]"), b = ask_vectors("[[1,2,3]]");
    assert_true(eventually(both_are_in_act));
    assert_int_equal(status_of(raw_read(a, NULL)), 200);
    assert_non_null(strstr(got, "\"index\":1,\"embedding\":[2,2,"));
    assert_int_equal(status_of(raw_read(b, NULL)), 200);
    assert_non_null(strstr(got, "\"index\":0,\"embedding\":[3,3,"));
    close(a);
    close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_small_vector_is_made_on_the_io_thread, down),
        cmocka_unit_test_teardown(a_large_one_is_made_on_a_text_thread_and_holds_nobody, down),
        cmocka_unit_test_teardown(many_of_one_request_keep_their_order, down),
        cmocka_unit_test_teardown(a_client_may_leave_meanwhile, down),
        cmocka_unit_test_teardown(a_score_of_large_vectors_is_made_there_too, down),
        cmocka_unit_test_teardown(a_server_ends_while_a_vector_is_made, down),
        cmocka_unit_test_teardown(two_requests_are_settled_side_by_side_or_in_turn, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
