#include "cgroup_world.h"
#include "base/thread.h"
#include <sched.h>
#include <signal.h>

struct seen {
    enum thread_role role;
    char             name[32];
    int              term_blocked, segv_blocked;
};

static void *look(void *arg)
{
    struct seen *s = arg;
    sigset_t     set;
    s->role = thread_role_self;
    for (int i = 0; i < PATIENCE_S * 1000 && strncmp(s->name, "a-name", 6);
         i++) { /* the name is given by the starter, just after */
        pthread_getname_np(pthread_self(), s->name, sizeof s->name);
        usleep(1000);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    s->term_blocked = sigismember(&set, SIGTERM);
    s->segv_blocked = sigismember(&set, SIGSEGV);
    return NULL;
}

static void a_thread_has_its_role_its_name_and_no_signals(void **state)
{
    (void)state;
    pthread_t   t;
    struct seen s = { 0 };
    assert_int_equal(thread_start(&t, THREAD_ENGINE, "a-name-that-is-too-long", look, &s), ST_OK);
    pthread_join(t, NULL);
    assert_int_equal(s.role, THREAD_ENGINE);
    assert_string_equal(s.name, "a-name-that-is-");
    assert_int_equal(s.term_blocked, 1);
    assert_int_equal(s.segv_blocked, 0);
    assert_int_equal(thread_role_self, THREAD_ANY);
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGTERM), 0); /* here it is as it was */
}

static uint32_t quota(void) { return thread_quota_cpus(cgroup_file, cgroup_mount); }

static void cgroup_v2_quota_is_rounded_up(void **state)
{
    (void)state;
    cgroup_put("self", "0::/\n");
    assert_int_equal(quota(), 0);
    cgroup_put("fs/cpu.max", "max 100000\n");
    assert_int_equal(quota(), 0);
    cgroup_put("fs/cpu.max", "250000 100000\n");
    assert_int_equal(quota(), 3);
    cgroup_put("fs/cpu.max", "200000 100000\n");
    assert_int_equal(quota(), 2);
    cgroup_put("fs/cpu.max", "1000 100000\n");
    assert_int_equal(quota(), 1);
    cgroup_put("fs/cpu.max", "nonsense\n");
    assert_int_equal(quota(), 0);
    cgroup_put("fs/cpu.max", "100000 0\n");
    assert_int_equal(quota(), 0);
}

static void the_smallest_quota_on_the_way_to_the_root_counts(void **state)
{
    (void)state;
    cgroup_put("self", "0::/kube/pod/box\n");
    cgroup_put("fs/kube/pod/box/cpu.max", "800000 100000\n");
    assert_int_equal(quota(), 8);
    cgroup_put("fs/kube/cpu.max", "300000 100000\n");
    assert_int_equal(quota(), 3);
    cgroup_put("fs/kube/pod/cpu.max", "max 100000\n");
    assert_int_equal(quota(), 3);
}

static void a_path_that_is_not_visible_falls_back_to_the_mounts_root(void **state)
{
    (void)state;
    cgroup_put("self", "0::/../../host/only\n");
    cgroup_put("fs/cpu.max", "400000 100000\n");
    assert_int_equal(quota(), 4);
}

static void cgroup_v1_quota_is_found_under_either_mount_name(void **state)
{
    (void)state;
    cgroup_put("self", "12:memory:/x\n4:cpu,cpuacct:/docker/1\n3:cpuset:/y\n");
    cgroup_put("fs/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    cgroup_put("fs/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(), 0);
    cgroup_put("fs/cpu/cpu.cfs_quota_us", "150000\n");
    cgroup_put("fs/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(), 2);
    cgroup_put("fs/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "500000\n");
    cgroup_put("fs/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(), 5);
    cgroup_put("self", "3:cpuset,cpuacct:/y\n"); /* neither is "cpu" */
    assert_int_equal(quota(), 0);
}

static void nonsense_and_absence_mean_no_quota(void **state)
{
    (void)state;
    assert_int_equal(quota(), 0);
    cgroup_put("self", "no colons\n:\n::\n1:\n0::relative\n");
    assert_int_equal(quota(), 0);
}

static void the_affinity_mask_bounds_the_count(void **state)
{
    (void)state;
    cpu_set_t was, one;
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    uint32_t n = thread_cpu_count();
    assert_in_range(n, 1, CPU_COUNT(&was));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &was)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(thread_cpu_count(), 1);
    sched_setaffinity(0, sizeof was, &was);
    assert_int_equal(thread_cpu_count(), n);
}

int main(void)
{
#define DIR_TEST(f) cmocka_unit_test_setup_teardown(f, cgroup_make, cgroup_drop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_role_its_name_and_no_signals),
        DIR_TEST(cgroup_v2_quota_is_rounded_up),
        DIR_TEST(the_smallest_quota_on_the_way_to_the_root_counts),
        DIR_TEST(a_path_that_is_not_visible_falls_back_to_the_mounts_root),
        DIR_TEST(cgroup_v1_quota_is_found_under_either_mount_name),
        DIR_TEST(nonsense_and_absence_mean_no_quota),
        cmocka_unit_test(the_affinity_mask_bounds_the_count),
    };
    return cmocka_run_group_tests_name("base/thread", tests, NULL, NULL);
}
