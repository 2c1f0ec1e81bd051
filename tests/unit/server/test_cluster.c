#include "test.h"
#include "server/cluster.h"

static struct config config(void)
{
    return (struct config){
        .device = DEV_AUTO, .master_addr = "", .cluster_key = "secret", .cluster_key_file = "", .tensor_parallel = 8
    };
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
    static const char *const bad[] = {
        "", ",a", "n[", "n[]", "n[-2]", "n[1-2", "a-name-that-is-much-longer-than-the-room"
    };
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_false(cluster_first_host(bad[i], out, sizeof out));
}

static void without_variables_or_options_there_is_one_node(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    char *const    job[] = { "SLURM_NNODES=4", "SLURM_JOB_NODELIST=a,b", "LWS_GROUP_SIZE=1",
                             NULL }; /* a job, but no step on all nodes */
    assert_int_equal(resolve(&c, NULL, &k, err), 0);
    assert_int_equal(k.n_node, 1);
    assert_int_equal(resolve(&c, job, &k, err), 0);
    assert_int_equal(k.n_node, 1);
    char *const lws[] = { "LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=1", "LWS_LEADER_ADDRESS=x", NULL };
    c.nnodes = 1; /* said aloud */
    assert_int_equal(resolve(&c, lws, &k, err), 0);
    assert_int_equal(k.n_node, 1);
}

static void the_variables_of_lws_and_slurm_give_the_rank_of_this_node(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    char *const    lws[] = { "LWS_GROUP_SIZE=4", "LWS_WORKER_INDEX=3", "LWS_LEADER_ADDRESS=vllm-0.vllm.default", NULL };
    assert_int_equal(resolve(&c, lws, &k, err), 0);
    assert_true(k.n_node == 4 && k.node == 3 && k.port == 29500);
    assert_string_equal(k.master, "vllm-0.vllm.default");
    char *const slurm[] = { "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=1", "SLURM_STEP_NODELIST=gpu[07-08]",
                            "SLURM_STEP_NUM_TASKS=2", NULL };
    assert_int_equal(resolve(&c, slurm, &k, err), 0);
    assert_true(k.n_node == 2 && k.node == 1);
    assert_string_equal(k.master, "gpu07");
    char *const many[] = { "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=1", "SLURM_STEP_NODELIST=gpu[07-08]",
                           "SLURM_STEP_NUM_TASKS=16", NULL };
    assert_int_equal(resolve(&c, many, &k, err), 64);
    assert_non_null(strstr(err, "one task per node"));
    c.master_addr = "10.1.2.3:777"; /* options win */
    assert_int_equal(resolve(&c, slurm, &k, err), 0);
    assert_string_equal(k.master, "10.1.2.3");
    assert_int_equal(k.port, 777);
}

static void options_give_the_rank_of_this_node(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    c.nnodes = 2;
    c.node_rank = 1;
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
    c.master_addr = "h";
    c.node_rank = 2;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--node-rank"));
    c.node_rank = 1;
    c.nnodes = 3;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--tensor-parallel-size"));
    c.nnodes = 2;
    c.kv_host_gib = 1;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--kv-host-gib"));
    c.kv_host_gib = 0;
    c.device = DEV_CPU;
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--device"));
}

/* A port that other machines reach wants a key, or a word that it shall have none. */
static void without_a_key_only_loopback_is_taken(void **state)
{
    (void)state;
    struct config  c = config();
    struct cluster k;
    char           err[300];
    c.nnodes = 2;
    c.master_addr = "10.0.0.1";
    c.cluster_key = "";
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    assert_non_null(strstr(err, "--cluster-key-file is missing"));
    c.master_addr = "gpu07";
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    c.cluster_insecure = true;
    assert_int_equal(resolve(&c, NULL, &k, err), 0);
    c.cluster_insecure = false;
    for (size_t i = 0; i < 3; i++) {
        c.master_addr = (const char *const[]){ "127.0.0.1:1", "localhost", "[::1]:7" }[i];
        assert_int_equal(resolve(&c, NULL, &k, err), 0);
        assert_string_equal(k.key, "");
    }
}

static void a_key_comes_from_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t      n;
        int         code;
    } row[] = { { "0123456789abcdef\n", 17, 0 },
                { "0123456789abcde\n", 16, 78 },
                { "0123456789abcdef\0\n", 18, 78 },
                { "", 0, 78 } };
    struct config  c = config();
    struct cluster k;
    char           err[300], path[] = "/tmp/spillway-key-XXXXXX", big[600];
    int            fd = mkstemp(path);
    c.nnodes = 2;
    c.master_addr = "gpu07";
    c.cluster_key = "";
    c.cluster_key_file = path;
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, row[i].text, row[i].n, 0), row[i].n);
        assert_int_equal(resolve(&c, NULL, &k, err), row[i].code);
        if (!row[i].code) assert_string_equal(k.key, "0123456789abcdef");
    }
    memset(big, 'x', sizeof big);
    memset(big + 500, '\n', 20); /* what is cut does not look whole */
    assert_int_equal(pwrite(fd, big, sizeof big, 0), sizeof big);
    assert_int_equal(resolve(&c, NULL, &k, err), 78);
    c.cluster_key = "and another";
    assert_int_equal(resolve(&c, NULL, &k, err), 64);
    c.cluster_key = "";
    c.cluster_key_file = "/nowhere/key";
    assert_int_equal(resolve(&c, NULL, &k, err), 78);
    assert_non_null(strstr(err, "/nowhere/key"));
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_host_of_a_list_is_read),
        cmocka_unit_test(without_variables_or_options_there_is_one_node),
        cmocka_unit_test(the_variables_of_lws_and_slurm_give_the_rank_of_this_node),
        cmocka_unit_test(options_give_the_rank_of_this_node),
        cmocka_unit_test(without_a_key_only_loopback_is_taken),
        cmocka_unit_test(a_key_comes_from_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
