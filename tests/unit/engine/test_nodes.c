/* Two or three nodes as threads of this test, each with a runner that writes down what it is told. */
#include "test.h"
#include "base/log.h"
#include "engine/guests.h"
#include "engine/nodes.h"
#include "transfer/link.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

static const struct wire_limits lim = { .b = { .rows_max = 16,
                                               .seqs_max = 4,
                                               .pages_max = 8,
                                               .hist_max = 8,
                                               .ban_max = 1,
                                               .allow_max = 1,
                                               .bias_max = 1,
                                               .mask_max = 8 },
                                        .block_tokens = 16,
                                        .vocab = 100,
                                        .context = 64 };

struct node {
    struct nodes_cfg  cfg;
    struct nodes     *n;
    struct eng_runner run;
    uint32_t          n_block;
    enum status       st, wait_st;
    char              err[600];
    pthread_t         thread;
    uint32_t          id[64];
    _Atomic uint32_t  n_submit, n_wait;
};

static void submit(void *ctx, struct batch *b)
{
    struct node *o = ctx;
    o->id[o->n_submit % 64] = b->n_row ? b->id[0] : 0;
    atomic_fetch_add(&o->n_submit, 1);
}
static enum status wait_one(void *ctx, struct batch *b)
{
    struct node *o = ctx;
    (void)b;
    atomic_fetch_add(&o->n_wait, 1);
    return o->wait_st;
}

static struct node *node(uint32_t n_node, uint32_t i, uint16_t port)
{
    struct node *o = calloc(1, sizeof *o);
    o->cfg = (struct nodes_cfg){ .n_node = n_node,
                                 .node = i,
                                 .n_local = 1,
                                 .master = "127.0.0.1",
                                 .port = port,
                                 .key = "k",
                                 .version = "t",
                                 .limits = lim,
                                 .device = DEV_CUDA,
                                 .patience_ms = PATIENCE_S * 1000 };
    o->cfg.field[WIRE_F_NNODES] = n_node;
    o->n_block = 40 + i;
    o->run = (struct eng_runner){ .ctx = o, .submit = submit, .wait = wait_one, .depth = 2 };
    return o;
}

static void *meet(void *arg)
{
    struct node  *o = arg;
    unsigned char id[DEV_COMM_ID] = { 0 };
    if (!o->n) o->st = nodes_create(&o->cfg, &o->n, o->err, sizeof o->err);
    if (!o->st) o->st = nodes_agree(o->n, &o->n_block, id, o->err, sizeof o->err);
    if (!o->st) o->st = nodes_start(o->n, &o->run, o->err, sizeof o->err);
    return NULL;
}

static void end(struct node **o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        nodes_free(o[i]->n);
        free(o[i]);
    }
}

#ifdef CUDA_EMU /* the name of a communicator is the cuda device's to give */
static void start(struct node **o, uint32_t n)
{
    o[0] = node(n, 0, 0);
    assert_int_equal(nodes_create(&o[0]->cfg, &o[0]->n, o[0]->err, sizeof o[0]->err), ST_OK);
    for (uint32_t i = 1; i < n; i++) o[i] = node(n, i, nodes_port(o[0]->n));
}
static void run_all(struct node **o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) pthread_create(&o[i]->thread, NULL, meet, o[i]);
    for (uint32_t i = 0; i < n; i++) pthread_join(o[i]->thread, NULL);
}
static bool reaches(const _Atomic uint32_t *x, uint32_t n)
{
    for (int i = 0; i < PATIENCE_S * 1000 && atomic_load(x) < n; i++) usleep(1000);
    return atomic_load(x) >= n;
}
static bool becomes(struct nodes *n, enum nodes_state s)
{
    for (int i = 0; i < PATIENCE_S * 1000 && nodes_state(n) != s; i++) usleep(1000);
    return nodes_state(n) == s;
}

static void every_step_is_run_by_all_in_order(void **state)
{
    (void)state;
    struct node *o[3];
    struct batch b;
    start(o, 3);
    run_all(o, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(o[i]->st, ST_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(o[i]->n_block, 40); /* the least of all */
    assert_int_equal(batch_init(&b, &lim.b), ST_OK);
    for (uint32_t k = 1; k <= 50; k++) {
        uint32_t page = 3, id = k;
        batch_clear(&b);
        batch_add(&b, &id, 1, 5, &page, 1);
        o[0]->run.submit(o[0]->run.ctx, &b);
        assert_int_equal(o[0]->run.wait(o[0]->run.ctx, &b), ST_OK);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(reaches(&o[i]->n_submit, 50) && reaches(&o[i]->n_wait, 50));
        for (uint32_t k = 1; k <= 50; k++) assert_int_equal(o[i]->id[k - 1], k);
    }
    nodes_stop(o[0]->n);
    assert_true(becomes(o[1]->n, NODES_DONE) && becomes(o[2]->n, NODES_DONE));
    batch_free(&b);
    end(o, 3);
}

static void a_node_that_goes_away_ends_the_others(void **state)
{
    (void)state;
    struct node *o[2];
    struct batch b;
    start(o, 2);
    run_all(o, 2);
    assert_int_equal(o[0]->st | o[1]->st, ST_OK);
    nodes_free(o[1]->n);
    o[1]->n = NULL; /* closes its connection without a word */
    assert_true(becomes(o[0]->n, NODES_LOST));
    assert_int_equal(batch_init(&b, &lim.b), ST_OK);
    o[0]->run.submit(o[0]->run.ctx, &b);
    assert_int_equal(o[0]->run.wait(o[0]->run.ctx, &b), ST_DEVICE);
    batch_free(&b);
    end(o, 2);
    start(o, 2);
    run_all(o, 2);
    nodes_stop(o[0]->n);
    assert_true(becomes(o[1]->n, NODES_DONE));
    end(o, 2);
}

static void a_device_that_is_lost_elsewhere_is_lost_here(void **state)
{
    (void)state;
    struct node *o[2];
    struct batch b;
    start(o, 2);
    o[1]->wait_st = ST_DEVICE;
    run_all(o, 2);
    assert_int_equal(batch_init(&b, &lim.b), ST_OK);
    o[0]->run.submit(o[0]->run.ctx, &b);
    assert_true(becomes(o[0]->n, NODES_LOST) && becomes(o[1]->n, NODES_LOST));
    assert_int_equal(o[0]->run.wait(o[0]->run.ctx, &b), ST_DEVICE);
    batch_free(&b);
    end(o, 2);
}

static enum dev_ballot decided(struct nodes *n, unsigned char id[DEV_COMM_ID])
{
    const struct dev_vote *v = nodes_vote(n);
    for (int i = 0; i < PATIENCE_S * 1000 && v->result(v->ctx, id) == DEV_BALLOT_OPEN; i++) usleep(1000);
    return v->result(v->ctx, id);
}

/* All or none: where two nodes came to different ends, or one failed, all go on under another name; and nobody waits
 * for who has not cast. */
static void nodes_decide_alike(void **state)
{
    (void)state;
    enum { F = DEV_BALLOT_FAILED, NO = DEV_BALLOT_NONE, HAVE = DEV_BALLOT_HAVE, SILENT = DEV_BALLOT_OPEN };
    static const unsigned char want[][4] = { { HAVE, HAVE, HAVE, HAVE }, { NO, NO, NO, NO },   { HAVE, NO, HAVE, F },
                                             { HAVE, HAVE, F, F },       { F, HAVE, HAVE, F }, { SILENT, F, HAVE, F },
                                             { HAVE, SILENT, NO, F } };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        struct node               *o[3];
        unsigned char              id[3][DEV_COMM_ID];
        static const unsigned char none[DEV_COMM_ID];
        start(o, 3);
        run_all(o, 3);
        for (int i = 0; i < 3; i++) {
            const struct dev_vote *v = nodes_vote(o[i]->n);
            assert_int_equal(v->result(v->ctx, id[i]) == DEV_BALLOT_OPEN || k > 1, 1);
            if (want[k][i] != SILENT) v->cast(v->ctx, (enum dev_ballot)want[k][i]);
        }
        for (int i = 0; i < 3; i++) assert_int_equal(decided(o[i]->n, id[i]), want[k][3]);
        for (int i = 0; i < 3; i++) assert_memory_equal(id[i], id[0], sizeof id[0]);
        assert_int_equal(memcmp(id[0], none, sizeof none) != 0, want[k][3] == F);
        if (want[k][0] == SILENT) nodes_vote(o[0]->n)->cast(o[0]->n, DEV_BALLOT_HAVE); /* too late: it stays decided */
        assert_int_equal(decided(o[1]->n, id[1]), want[k][3]);
        for (int i = 0; i < 3; i++) assert_int_equal(nodes_state(o[i]->n), NODES_OK);
        end(o, 3);
    }
}

static void strangers_are_sent_away_and_the_rest_goes_on(void **state)
{
    (void)state;
    struct node *o[2];
    char         err[300], text[64];
    int          fd;
    start(o, 2);
    pthread_create(&o[0]->thread, NULL, meet, o[0]);
    struct node *other = node(2, 1, nodes_port(o[0]->n)), *wrong = node(2, 1, nodes_port(o[0]->n));
    other->cfg.key = "another";
    other->cfg.patience_ms = 100;
    wrong->cfg.field[WIRE_F_SEQS] = 7;
    meet(other);
    assert_int_equal(other->st, ST_TIMEOUT); /* a word that it cannot check ends nobody */
    assert_non_null(strstr(other->err, "--cluster-key"));
    meet(wrong);
    assert_int_equal(wrong->st, ST_CONFIG);
    assert_non_null(strstr(wrong->err, "--max-num-seqs"));
    assert_int_equal(link_connect("127.0.0.1", nodes_port(o[0]->n), 1000, &fd, err, sizeof err), ST_OK);
    memset(text, 'G', sizeof text);
    assert_int_equal(send(fd, text, sizeof text, MSG_NOSIGNAL), sizeof text);
    pthread_create(&o[1]->thread, NULL, meet, o[1]);
    pthread_join(o[0]->thread, NULL);
    pthread_join(o[1]->thread, NULL);
    assert_int_equal(o[0]->st | o[1]->st, ST_OK);
    close(fd);
    end(o, 2);
    end((struct node *[]){ other, wrong }, 2);
}

static void hostile_bytes_after_the_hello_lose_the_node_and_no_more(void **state)
{
    (void)state;
    struct node *o[2];
    start(o, 2);
    run_all(o, 2);
    struct batch b;
    assert_int_equal(batch_init(&b, &lim.b), ST_OK);
    uint32_t id = 500, page = 3; /* no such id: what an honest node 0 never sends */
    batch_add(&b, &id, 1, 5, &page, 1);
    o[0]->run.submit(o[0]->run.ctx, &b);
    assert_true(becomes(o[1]->n, NODES_LOST));
    assert_int_equal(o[1]->n_submit, 0);
    batch_free(&b);
    end(o, 2);
}
#endif

/* ---- while they gather: what a worker says, by hand */

static int connect_to(const struct node *o)
{
    char err[300];
    int  fd;
    assert_int_equal(link_connect("127.0.0.1", nodes_port(o->n), 5000, &fd, err, sizeof err), ST_OK);
    return fd;
}

/* Connects as node i of n and says hello with this key, as a program with these arrays of a step. Returns the
 * connection. */
static int say_hello_of(const struct node *first, uint32_t n, uint32_t i, const char *key, uint32_t arrays)
{
    struct wire_hello h = { .node = i, .n_block = 40, .arrays = arrays };
    struct link_head  head;
    unsigned char     nonce[WIRE_NONCE], out[WIRE_HELLO_BYTES];
    int               fd = connect_to(first);
    snprintf(h.version, sizeof h.version, "t");
    h.field[WIRE_F_NNODES] = n;
    h.nonce[0] = (unsigned char)(i + 1);
    assert_int_equal(link_recv(fd, NULL, nonce, sizeof nonce, &head, 5000), ST_OK);
    assert_int_equal(head.type, WIRE_CHALLENGE);
    wire_hello_put(out, &h, nonce, key);
    assert_int_equal(link_send(fd, NULL, WIRE_HELLO, out, sizeof out, 5000), ST_OK);
    return fd;
}

static int say_hello(const struct node *first, uint32_t n, uint32_t i, const char *key)
{
    return say_hello_of(first, n, i, key, wire_arrays());
}

/* Node 0 has seen all the others. What comes then needs GPUs: elsewhere it says that there is no way between them. */
static void assert_all_came(const struct node *o)
{
    if (o->st == ST_CONFIG && strstr(o->err, "cannot reach each other")) return;
    if (o->st == ST_DEVICE || o->st == ST_PEER_LOST || o->st == ST_OK) return;
    fail_msg("%s: %s", status_name(o->st), o->err);
}

static struct node *first_of(uint32_t n)
{
    struct node *o = node(n, 0, 0);
    assert_int_equal(nodes_create(&o->cfg, &o->n, o->err, sizeof o->err), ST_OK);
    assert_int_equal(pthread_create(&o->thread, NULL, meet, o), 0);
    return o;
}

/* True: it was sent away; false: it waits to be welcomed, and has done so for timeout_ms. */
static bool is_refused(int fd, uint32_t timeout_ms, char text[WIRE_TEXT_MAX + 1])
{
    struct link_head head;
    unsigned char    in[WIRE_REFUSE_BYTES], nonce[WIRE_NONCE] = { 2 };
    enum status      st = link_recv(fd, NULL, in, sizeof in, &head, timeout_ms);
    if (st == ST_AGAIN) return false;
    assert_int_equal(st, ST_OK);
    assert_int_equal(head.type, WIRE_REFUSE);
    assert_int_equal(wire_refuse_get(in, head.bytes, nonce, "k", text), ST_OK); /* and it is signed */
    return true;
}

static void a_worker_that_starts_again_is_taken_while_others_are_waited_for(void **state)
{
    (void)state;
    char         text[WIRE_TEXT_MAX + 1];
    struct node *o = first_of(3);
    for (int i = 0; i < 5; i++) {
        int once = say_hello(o, 3, 1, "k");
        int twice = say_hello(o, 3, 1, "k"); /* while the first one is there, whose hello came before */
        assert_true(is_refused(twice, PATIENCE_S * 1000, text));
        assert_non_null(strstr(text, "there is a node 1 already"));
        assert_false(is_refused(once, 0, text));
        close(twice);
        close(once); /* it dies, and is started again */
    }
    int one = say_hello(o, 3, 1, "k"), two = say_hello(o, 3, 2, "k");
    pthread_join(o->thread, NULL);
    assert_all_came(o);
    close(one);
    close(two);
    end(&o, 1);
}

static void a_worker_whose_steps_have_other_arrays_is_refused(void **state)
{
    (void)state;
    char         text[WIRE_TEXT_MAX + 1];
    struct node *o = first_of(2);
    int          other = say_hello_of(o, 2, 1, "k", wire_arrays() + 1), older = say_hello_of(o, 2, 1, "k", 0);
    assert_true(is_refused(other, PATIENCE_S * 1000, text));
    assert_string_equal(
        text, "its steps consist of other arrays than node 0's: both say version t, but are different builds");
    assert_true(is_refused(older, PATIENCE_S * 1000, text));
    int one = say_hello(o, 2, 1, "k"); /* nobody has taken its place */
    pthread_join(o->thread, NULL);
    assert_all_came(o);
    close(other);
    close(older);
    close(one);
    end(&o, 1);
}

static void silent_strangers_hold_up_no_node(void **state)
{
    (void)state;
    enum { STRANGERS = GUESTS_MAX + 20 }; /* node 0 waits for none of them, and their number delays no connection */
    int          fd[STRANGERS];
    struct node *o = first_of(2);
    for (int i = 0; i < STRANGERS; i++) {
        fd[i] = connect_to(o);
        if (i % 3 == 1) assert_int_equal(send(fd[i], "SPWL", 4, MSG_NOSIGNAL), 4); /* the beginning of a frame */
        if (i % 3 == 2) (void)!send(fd[i], "GET / HTTP/1.1\r\nHost: you\r\n\r\n", 29, MSG_NOSIGNAL);
    }
    int one = say_hello(o, 2, 1, "k");
    pthread_join(o->thread, NULL);
    assert_all_came(o);
    close(one);
    for (int i = 0; i < STRANGERS; i++) close(fd[i]);
    end(&o, 1);
}

/* ---- somebody in the place of node 0 says no */

struct impostor {
    int          listener;
    const char  *key; /* signs with it; NULL: not at all */
    pthread_t    thread;
    _Atomic bool stop;
    uint32_t     n_asked; /* the thread's; read after its end */
};

static void *refuse_all(void *arg)
{
    struct impostor *m = arg;
    while (!m->stop) {
        unsigned char    nonce[WIRE_NONCE] = { 9 }, hello[WIRE_HELLO_BYTES], out[WIRE_REFUSE_BYTES];
        struct link_head head;
        char             from[64];
        int              fd;
        if (link_accept(m->listener, 50, &fd, from, sizeof from)) continue;
        if (!link_send(fd, NULL, WIRE_CHALLENGE, nonce, sizeof nonce, 1000) &&
            !link_recv(fd, NULL, hello, sizeof hello, &head, 1000)) {
            m->n_asked++;
            uint32_t n = wire_refuse_put(out, "go home", hello, head.bytes, m->key ? m->key : "");
            (void)link_send(fd, NULL, WIRE_REFUSE, out, n, 1000);
        }
        close(fd);
    }
    return NULL;
}

static struct node *meet_impostor(const char *signs_with, uint32_t *n_asked_out)
{
    struct impostor m = { .key = signs_with };
    uint16_t        port;
    char            err[300];
    assert_int_equal(link_listen("127.0.0.1", 0, &m.listener, &port, err, sizeof err), ST_OK);
    assert_int_equal(pthread_create(&m.thread, NULL, refuse_all, &m), 0);
    struct node *o = node(2, 1, port);
    o->cfg.patience_ms = 100;
    meet(o);
    m.stop = true;
    pthread_join(m.thread, NULL);
    close(m.listener);
    *n_asked_out = m.n_asked;
    return o;
}

static void a_refusal_counts_when_it_is_signed(void **state)
{
    (void)state;
    uint32_t     n_asked;
    struct node *o = meet_impostor(NULL, &n_asked);
    assert_int_equal(o->st, ST_TIMEOUT);
    assert_true(n_asked >= 2); /* again, until the node's patience ended */
    assert_non_null(strstr(o->err, "not signed"));
    end(&o, 1);
    o = meet_impostor("another", &n_asked);
    assert_int_equal(o->st, ST_TIMEOUT);
    assert_true(n_asked >= 2);
    end(&o, 1);
    o = meet_impostor("k", &n_asked);
    assert_int_equal(o->st, ST_CONFIG);
    assert_int_equal(n_asked, 1);
    assert_non_null(strstr(o->err, "refuses this node: go home"));
    end(&o, 1);
}

static void missing_nodes_are_reported_after_the_wait(void **state)
{
    (void)state;
    struct node *a = node(2, 0, 0), *b = node(2, 1, 1); /* of two groups: b's master is nobody's port */
    pthread_t    t;
    a->cfg.patience_ms = b->cfg.patience_ms = 100;
    assert_int_equal(pthread_create(&t, NULL, meet, a), 0);
    meet(b);
    pthread_join(t, NULL);
    assert_int_equal(a->st, ST_TIMEOUT);
    assert_non_null(strstr(a->err, "only 0 of the other 1 nodes"));
    assert_int_equal(b->st, ST_TIMEOUT);
    assert_non_null(strstr(b->err, "node 0 does not come"));
    end((struct node *[]){ a, b }, 2);
}

int main(void)
{
    log_level_max = LOG_LEVEL_ERROR;
    const struct CMUnitTest tests[] = {
#ifdef CUDA_EMU
        cmocka_unit_test(every_step_is_run_by_all_in_order),
        cmocka_unit_test(a_node_that_goes_away_ends_the_others),
        cmocka_unit_test(a_device_that_is_lost_elsewhere_is_lost_here),
        cmocka_unit_test(nodes_decide_alike),
        cmocka_unit_test(strangers_are_sent_away_and_the_rest_goes_on),
        cmocka_unit_test(hostile_bytes_after_the_hello_lose_the_node_and_no_more),
#endif
        cmocka_unit_test(a_worker_that_starts_again_is_taken_while_others_are_waited_for),
        cmocka_unit_test(a_worker_whose_steps_have_other_arrays_is_refused),
        cmocka_unit_test(silent_strangers_hold_up_no_node),
        cmocka_unit_test(a_refusal_counts_when_it_is_signed),
        cmocka_unit_test(missing_nodes_are_reported_after_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
