/* Memory nodes: a machine of two is made of files, as this one may have one. */
#include "kernels/cpu/place.h"
#include "op_test.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void lists_of_cpus_are_read_and_others_refused(void **state)
{
    (void)state;
    uint64_t bits[2];
    assert_int_equal(place_list("0-3,8,64-65\n", bits, 128), 7);
    assert_int_equal(bits[0], 0x10f);
    assert_int_equal(bits[1], 3);
    assert_int_equal(place_list("5,5", bits, 128), 1);
    assert_int_equal(place_list("", bits, 128), 0);
    assert_int_equal(place_list("x", bits, 128), 0);
    assert_int_equal(place_list("3-1", bits, 128), 0);
    assert_int_equal(place_list("0-128", bits, 128), 0);
}

static void put(const char *root, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void ranks_go_to_the_nodes_that_have_memory(void **state)
{
    (void)state;
    static struct place_nodes nodes;
    char                      root[] = "/tmp/spw-place-XXXXXX", path[64], list[16];
    assert_non_null(mkdtemp(root));
    place_nodes(root, &nodes); /* nothing there: one node, nobody is bound */
    assert_int_equal(nodes.n, 1);
    assert_int_equal(place_rank(&nodes, 0, 2, NULL, 0), UINT32_MAX);

    cpu_set_t was, now;
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    int first = 0, last = CPU_SETSIZE - 1; /* of this thread's */
    while (!CPU_ISSET(first, &was)) first++;
    while (!CPU_ISSET(last, &was)) last--;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/node%d", root, i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put(root, "has_memory", "0,2\n"); /* node 1 has CPUs alone */
    snprintf(list, sizeof list, "%d\n", first);
    put(root, "node0/cpulist", list);
    put(root, "node1/cpulist", "1000\n");
    snprintf(list, sizeof list, "%d\n", last);
    put(root, "node2/cpulist", list);
    place_nodes(root, &nodes);
    assert_int_equal(nodes.n, 2);
    assert_int_equal(nodes.id[1], 2);

    size_t bytes = 1 << 20;
    void  *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    for (uint32_t rank = 0; rank < 4;
         rank++) { /* two to a node; the system may refuse a node that is not there, and memory works all the same */
        assert_int_equal(place_rank(&nodes, rank, 4, base, bytes), rank / 2);
        assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
        assert_int_equal(CPU_COUNT(&now), 1);
        assert_true(CPU_ISSET(rank / 2 ? last : first, &now));
        sched_setaffinity(0, sizeof was, &was);
    }
    assert_int_equal(place_rank(&nodes, 0, 1, base, bytes), UINT32_MAX); /* alone: all CPUs, memory over all nodes */
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &was));
    memset(base, 1, bytes);
    munmap(base, bytes);

    put(root, "node2/cpulist", "1000\n"); /* not this container's: the rank stays free */
    place_nodes(root, &nodes);
    assert_int_equal(place_rank(&nodes, 1, 2, NULL, 0), UINT32_MAX);
    sched_getaffinity(0, sizeof now, &now);
    assert_true(CPU_EQUAL(&now, &was));
    static const char *const made[] = { "has_memory", "node0/cpulist", "node1/cpulist", "node2/cpulist",
                                        "node0",      "node1",         "node2" };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", root, made[i]);
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(remove(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_cpus_are_read_and_others_refused),
        cmocka_unit_test(ranks_go_to_the_nodes_that_have_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
