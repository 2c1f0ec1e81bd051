#include "test.h"
#include "server/cluster.h"

static struct config config(void)
{
    return (struct config){ .device = "auto", .master_addr = "", .cluster_key = "", .tensor_parallel = 8 };
}

static int resolve(const struct config *c, char *const *env, struct cluster *out, char *err)
{
    return cluster_resolve(c, env, out, err, 300);
}

static void the_first_host_of_a_list_is_read(void **state)
{
    (void)state;
    static const char *const row[][2] = { { "a", "a" },
                                          { "a,b", "a" },
                                          { "n[001-004]", "n001" },
                                          { "a[1-3,05],b", "a1" },
                                          { "n[7]-ib,x", "n7-ib" },
                                          { "r[1-2]n[05-6]", "r1n05" } };
    char                     out[32];
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        assert_true(cluster_first_host(row[i][0], out, sizeof out));
        assert_string_equal(out, row[i][1]);
    }
    static const char *const bad[] = { "", ",a", "n[", "n[]", "n[-2]", "n[1-2", "a-name-that-is-much-longer-than-the-room" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_false(cluster_first_host(bad[i], out, sizeof out));
}

static void one_node_is_what_nobody_speaks_of(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    char *const    job[] = { "SLURM_NNODES=4", "SLURM_JOB_NODELIST=a,b", "LWS_GROUP_SIZE=1", NULL }; /* a job, but no step on all nodes */
    assert_int_equal(resolve(&c, NULL, &k, err), 0);
    assert_int_equal(k.n_node, 1);
    assert_int_equal(resolve(&c, job, &k, err), 0);
    assert_int_equal(k.n_node, 1);
    char *const lws[] = { "LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=1", "LWS_LEADER_ADDRESS=x", NULL };
    c.nnodes = 1; /* said aloud */
    assert_int_equal(resolve(&c, lws, &k, err), 0);
    assert_int_equal(k.n_node, 1);
}

static void lws_and_slurm_say_who_we_are(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    char *const    lws[] = { "LWS_GROUP_SIZE=4", "LWS_WORKER_INDEX=3", "LWS_LEADER_ADDRESS=vllm-0.vllm.default", NULL };
    assert_int_equal(resolve(&c, lws, &k, err), 0);
    assert_true(k.n_node == 4 && k.node == 3 && k.port == 29500);
    assert_string_equal(k.master, "vllm-0.vllm.default");
    char *const slurm[] = { "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=1", "SLURM_STEP_NODELIST=gpu[07-08]", "SLURM_STEP_NUM_TASKS=2", NULL };
    assert_int_equal(resolve(&c, slurm, &k, err), 0);
    assert_true(k.n_node == 2 && k.node == 1);
    assert_string_equal(k.master, "gpu07");
    char *const many[] = { "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=1", "SLURM_STEP_NODELIST=gpu[07-08]", "SLURM_STEP_NUM_TASKS=16", NULL };
    assert_int_equal(resolve(&c, many, &k, err), 64);
    assert_non_null(strstr(err, "one task per node"));
    c.master_addr = "10.1.2.3:777"; /* options win */
    assert_int_equal(resolve(&c, slurm, &k, err), 0);
    assert_string_equal(k.master, "10.1.2.3");
    assert_int_equal(k.port, 777);
}

static void options_say_who_we_are(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    c.nnodes = 2, c.node_rank = 1;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--master-addr"));
    c.master_addr = "[fd00::1]:9";
    assert_int_equal(resolve(&c, NULL, &k, err), 0);
    assert_string_equal(k.master, "fd00::1");
    assert_int_equal(k.port, 9);
    c.master_addr = "fd00::1";
    assert_int_equal(resolve(&c, NULL, &k, err), 0);
    assert_true(k.port == 29500 && !strcmp(k.master, "fd00::1"));
    static const char *const bad[] = { "host:", "host:x", "host:70000", "[::1", ":80", "[::1]x" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        c.master_addr = bad[i];
        assert_int_equal(resolve(&c, NULL, &k, err), 64);
    }
    c.master_addr = "h", c.node_rank = 2;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--node-rank"));
    c.node_rank = 1, c.nnodes = 3;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--tensor-parallel-size"));
    c.nnodes = 2, c.kv_host_gib = 1;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--kv-host-gib"));
    c.kv_host_gib = 0, c.device = "cpu";
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_host_of_a_list_is_read),
        cmocka_unit_test(one_node_is_what_nobody_speaks_of),
        cmocka_unit_test(lws_and_slurm_say_who_we_are),
        cmocka_unit_test(options_say_who_we_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
