#include "test.h"
#include "transfer/link.h"
#include <pthread.h>
#include <sys/socket.h>

static void heads_are_checked(void **state)
{
    (void)state;
    unsigned char    p[LINK_HEAD];
    struct link_head h;
    link_head_put(p, 7, "hello", 5);
    assert_int_equal(link_head_get(p, 5, &h), ST_OK);
    assert_true(h.type == 7 && h.bytes == 5 && h.sum == link_sum("hello", 5));
    assert_int_equal(link_head_get(p, 4, &h), ST_TOO_LARGE);
    p[4]++;
    assert_int_equal(link_head_get(p, 5, &h), ST_CONFIG);
    p[4]--;
    p[0]++;
    assert_int_equal(link_head_get(p, 5, &h), ST_INVALID);
}

struct pair {
    int listener, a, b;
};

static int setup(void **state)
{
    static struct pair p;
    char               err[300], from[64];
    uint16_t           port;
    assert_int_equal(link_listen("127.0.0.1", 0, &p.listener, &port, err, sizeof err), ST_OK);
    assert_int_equal(link_connect("127.0.0.1", port, 1000, &p.a, err, sizeof err), ST_OK);
    assert_int_equal(link_accept(p.listener, 1000, &p.b, from, sizeof from), ST_OK);
    assert_string_equal(from, "127.0.0.1");
    *state = &p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    close(p->a);
    close(p->b);
    close(p->listener);
    return 0;
}

enum { BIG = 3 << 20, PATIENCE_MS = 180000 }; /* what must come is waited for, on a busy machine too */
static void *send_big(void *arg)
{
    unsigned char *x = malloc(BIG);
    for (int i = 0; i < BIG; i++) x[i] = (unsigned char)(i * 7 + i / 1000);
    enum status st = link_send(*(int *)arg, NULL, 3, x, BIG, PATIENCE_MS);
    free(x);
    return (void *)(intptr_t)st;
}

static void frames_arrive_whole_and_in_order(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    pthread_t        t;
    void            *st;
    unsigned char   *x = malloc(BIG);
    assert_int_equal(link_send(p->a, NULL, 1, "one", 3, PATIENCE_MS), ST_OK);
    assert_int_equal(link_send(p->a, NULL, 2, NULL, 0, PATIENCE_MS), ST_OK);
    pthread_create(&t, NULL, send_big, &p->a); /* more than the socket's buffers hold */
    assert_int_equal(link_recv(p->b, NULL, x, BIG, &h, PATIENCE_MS), ST_OK);
    assert_true(h.type == 1 && h.bytes == 3 && !memcmp(x, "one", 3));
    assert_int_equal(link_recv(p->b, NULL, x, BIG, &h, PATIENCE_MS), ST_OK);
    assert_true(h.type == 2 && h.bytes == 0);
    assert_int_equal(link_recv(p->b, NULL, x, BIG, &h, PATIENCE_MS), ST_OK);
    assert_true(h.type == 3 && h.bytes == BIG);
    for (int i = 0; i < BIG; i++) assert_int_equal(x[i], (unsigned char)(i * 7 + i / 1000));
    pthread_join(t, &st);
    assert_int_equal((intptr_t)st, ST_OK);
    free(x);
}

static void a_silent_peer_is_not_lost_and_a_closed_connection_is(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    char             x[8];
    assert_int_equal(link_recv(p->b, NULL, x, sizeof x, &h, 20), ST_AGAIN);
    shutdown(p->a, SHUT_RDWR);
    assert_int_equal(link_recv(p->b, NULL, x, sizeof x, &h, PATIENCE_MS), ST_PEER_LOST);
}

static void a_wrong_byte_is_seen(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    unsigned char    f[LINK_HEAD + 4];
    char             x[8];
    link_head_put(f, 9, "body", 4);
    memcpy(f + LINK_HEAD, "bodx", 4);
    assert_int_equal(send(p->a, f, sizeof f, 0), sizeof f);
    assert_int_equal(link_recv(p->b, NULL, x, sizeof x, &h, PATIENCE_MS), ST_INVALID);
}

static void a_frame_over_the_bound_is_refused_by_its_head(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    char             x[8], nine[9] = "12345678";
    assert_int_equal(link_send(p->a, NULL, 1, nine, 9, PATIENCE_MS), ST_OK);
    assert_int_equal(link_recv(p->b, NULL, x, sizeof x, &h, PATIENCE_MS), ST_TOO_LARGE);
}

static void a_frame_that_is_cut_is_a_loss(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    unsigned char    f[LINK_HEAD];
    char             x[8];
    link_head_put(f, 1, "body", 4);
    assert_int_equal(send(p->a, f, 10, 0), 10);
    shutdown(p->a, SHUT_WR);
    assert_int_equal(link_recv(p->b, NULL, x, sizeof x, &h, PATIENCE_MS), ST_PEER_LOST);
}

/* The key of a test: of one direction */
static struct link_seal sealed(unsigned char first)
{
    unsigned char    key[LINK_KEY] = { first };
    struct link_seal s = { 0 };
    assert_int_equal(link_seal_open(&s, key), ST_OK);
    return s;
}

static void sealed_frames_arrive_and_no_others(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    char             x[64];
    struct link_seal to = sealed(1), of = sealed(1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(link_send(p->a, &to, i, "body", i ? 4 : 0, PATIENCE_MS), ST_OK);
        assert_int_equal(link_recv(p->b, &of, x, sizeof x, &h, PATIENCE_MS), ST_OK);
        assert_true(h.type == i && h.bytes == (i ? 4u : 0u));
    }
    /* made up: checksum and all, but no seal that holds */
    unsigned char f[LINK_HEAD + 4 + LINK_MAC] = { 0 };
    link_head_put(f, 1, "evil", 4);
    memcpy(f + LINK_HEAD, "evil", 4);
    assert_int_equal(send(p->a, f, sizeof f, 0), sizeof f);
    assert_int_equal(link_recv(p->b, &of, x, sizeof x, &h, PATIENCE_MS), ST_CANCELED);
    link_seal_close(&to);
    link_seal_close(&of);
}

static void a_sealed_frame_holds_once_and_in_its_place(void **state)
{
    struct pair     *p = *state;
    struct link_head h;
    unsigned char    f[LINK_HEAD + 4 + LINK_MAC], x[64];
    struct link_seal to = sealed(2), of = sealed(2), other = sealed(3), late = sealed(2);
    assert_int_equal(link_send(p->a, &to, 7, "body", 4, PATIENCE_MS), ST_OK);
    assert_int_equal(recv(p->b, f, sizeof f, MSG_WAITALL), sizeof f);
    assert_int_equal(send(p->a, f, sizeof f, 0), sizeof f);
    assert_int_equal(link_recv(p->b, &of, x, sizeof x, &h, PATIENCE_MS), ST_OK);
    assert_int_equal(send(p->a, f, sizeof f, 0), sizeof f); /* again */
    assert_int_equal(link_recv(p->b, &of, x, sizeof x, &h, PATIENCE_MS), ST_CANCELED);
    assert_int_equal(send(p->a, f, sizeof f, 0), sizeof f); /* of another connection or direction */
    assert_int_equal(link_recv(p->b, &other, x, sizeof x, &h, PATIENCE_MS), ST_CANCELED);
    f[8]++; /* another type: heads are under the seal too */
    assert_int_equal(send(p->a, f, sizeof f, 0), sizeof f);
    assert_int_equal(link_recv(p->b, &late, x, sizeof x, &h, PATIENCE_MS), ST_CANCELED);
    link_seal_close(&to);
    link_seal_close(&of);
    link_seal_close(&other);
    link_seal_close(&late);
}

static void a_peer_that_reads_nothing_is_lost_in_time(void **state)
{
    struct pair *p = *state;
    char        *x = calloc(1, 16 << 20);
    assert_int_equal(link_send(p->a, NULL, 1, x, 16 << 20, 100), ST_PEER_LOST);
    free(x);
}

static void a_refused_connection_is_reported(void **state)
{
    (void)state;
    char     err[300] = "", from[64];
    uint16_t port;
    int      fd, listener;
    assert_int_equal(link_listen("127.0.0.1", 0, &listener, &port, err, sizeof err), ST_OK);
    assert_int_equal(link_accept(listener, 10, &fd, from, sizeof from), ST_AGAIN);
    close(listener);
    assert_int_equal(link_connect("127.0.0.1", port, 200, &fd, err, sizeof err), ST_AGAIN);
    assert_non_null(strstr(err, "refused"));
    assert_int_equal(link_listen("192.0.2.1", 0, &listener, &port, err, sizeof err),
                     ST_CONFIG); /* TEST-NET: nobody's */
    assert_non_null(strstr(err, "address of this machine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_checked),
        cmocka_unit_test_setup_teardown(frames_arrive_whole_and_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_peer_is_not_lost_and_a_closed_connection_is, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wrong_byte_is_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(a_frame_over_the_bound_is_refused_by_its_head, setup, teardown),
        cmocka_unit_test_setup_teardown(a_frame_that_is_cut_is_a_loss, setup, teardown),
        cmocka_unit_test_setup_teardown(sealed_frames_arrive_and_no_others, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sealed_frame_holds_once_and_in_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_peer_that_reads_nothing_is_lost_in_time, setup, teardown),
        cmocka_unit_test(a_refused_connection_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
