#include "cgroup_world.h"
#include "base/memory.h"

static uint64_t limit(void) { return memory_cgroup_bytes(cgroup_file, cgroup_mount); }

static void B43_the_smallest_limit_of_a_group_or_its_parents_counts(void **state)
{
    (void)state;
    assert_int_equal(limit(), 0);
    cgroup_put("self", "0::/kube/pod/box\n");
    assert_int_equal(limit(), 0);
    cgroup_put("fs/kube/pod/box/memory.max", "max\n");
    assert_int_equal(limit(), 0);
    cgroup_put("fs/kube/memory.max", "3221225472\n");
    assert_int_equal(limit(), 3221225472);
    cgroup_put("fs/kube/pod/box/memory.max", "4294967296\n");
    assert_int_equal(limit(), 3221225472);
    cgroup_put("fs/kube/pod/memory.max", "1073741824\n");
    assert_int_equal(limit(), 1073741824);
    cgroup_put("fs/kube/pod/memory.max", "nonsense\n");
    assert_int_equal(limit(), 3221225472);
}

static void a_group_that_is_not_visible_falls_back_to_the_mount(void **state)
{
    (void)state;
    cgroup_put("self", "0::/../../host/only\n");
    cgroup_put("fs/memory.max", "536870912\n");
    assert_int_equal(limit(), 536870912);
}

static void a_limit_of_version_1_counts_too(void **state)
{
    (void)state;
    cgroup_put("self", "12:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n");
    cgroup_put("fs/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limit(), 9223372036854771712u); /* none: above any machine's memory */
    cgroup_put("fs/memory/docker/memory.limit_in_bytes", "268435456\n");
    assert_int_equal(limit(), 268435456);
    cgroup_put("fs/memory/memory.limit_in_bytes", "134217728\n");
    assert_int_equal(limit(), 134217728);
}

static void the_memory_of_the_machine_is_the_upper_bound(void **state)
{
    (void)state;
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(memory_limit_bytes(), 1, all);
    memory_give_back(); /* never fails */
}

int main(void)
{
#define DIR_TEST(f) cmocka_unit_test_setup_teardown(f, cgroup_make, cgroup_drop)
    const struct CMUnitTest tests[] = {
        DIR_TEST(B43_the_smallest_limit_of_a_group_or_its_parents_counts),
        DIR_TEST(a_group_that_is_not_visible_falls_back_to_the_mount),
        DIR_TEST(a_limit_of_version_1_counts_too),
        cmocka_unit_test(the_memory_of_the_machine_is_the_upper_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
