#include "test.h"
#include "server/cmd/doctor.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char root[64];

static void put(const char *path, const char *text)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A machine with nothing wrong, and no GPU. */
static void sound_machine(void)
{
    snprintf(root, sizeof root, "/tmp/doctor-XXXXXX");
    assert_non_null(mkdtemp(root));
    put("/proc/meminfo",
        "MemTotal:       67108864 kB\nHugePages_Total:    0\nHugePages_Free:    0\nHugepagesize:    2048 kB\n"
        "SwapTotal:    0 kB\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/sys/vm/overcommit_memory", "0\n");
    put("/proc/sys/kernel/numa_balancing", "0\n");
    put("/sys/devices/system/node/online", "0\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    put("/dev/shm/x", "");
}

static struct doctor D;
static const char   *look(const char *dir)
{
    buf_free(&D.out);
    D = (struct doctor){ .root = root };
    doctor_look(&D, &dir, dir != NULL);
    return buf_cstr(&D.out);
}

/* The line of a check, and no other one. */
static const char *line_of(const char *text, const char *name)
{
    static char line[700];
    enum { NAME_AT = 6 };
    size_t n = strlen(name);
    while (strlen(text) > NAME_AT && (strncmp(text + NAME_AT, name, n) || text[NAME_AT + n] != ' ')) {
        text = strchr(text, '\n');
        assert_non_null(text);
        text++;
    }
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    return line;
}

static void check_is(const char *text, const char *name, const char *state, const char *says)
{
    const char *line = line_of(text, name);
    if (strncmp(line, state, strlen(state)) || !strstr(line, says)) print_error("found: %s\n", line);
    assert_true(!strncmp(line, state, strlen(state)));
    assert_non_null(strstr(line, says));
}

static void a_sound_machine_fails_nothing(void **state)
{
    (void)state;
    sound_machine();
    const char *text = look(NULL);
    check_is(text, "memory", "ok", "64.0 GiB may be used");
    check_is(text, "driver", "ok", "no NVIDIA GPU");
    check_is(text, "clock", "ok", "tsc");
    check_is(text, "numa", "ok", "node 0");
    check_is(text, "thp", "ok", "[madvise]");
    check_is(text, "swap", "ok", "none");
    assert_int_equal(D.n[DOCTOR_FAIL], 0);
}

static void each_setting_that_harms_has_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *name, *state, *says;
    } row[] = {
        { "/proc/meminfo", "MemTotal: 1048576 kB\n", "memory", "warn", "1.0 GiB may be used" },
        { "/proc/meminfo", "MemTotal: 67108864 kB\nSwapTotal: 2048000 kB\n", "swap", "warn", "2000 MiB" },
        { "/sys/fs/cgroup/memory.max", "1073741824\n", "memory", "warn", "(cgroup)" },
        { "/sys/fs/cgroup/cpu.max", "50000 100000\n", "cpu", "warn", "1 of" },
        { "/proc/sys/vm/overcommit_memory", "2\n", "overcommit", "warn", "vm.overcommit_memory=0" },
        { "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n", "thp", "warn", "echo madvise" },
        { "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n", "clock", "warn",
          "clocksource=tsc" },
        { "/sys/class/infiniband/efa_0/node_type", "1\n", "hugepages", "warn", "vm.nr_hugepages=5128" },
        { "/sys/class/infiniband/efa_0/node_type", "1\n", "memlock", "warn", "ulimit -l unlimited" },
    };
    struct rlimit before, low = { 8 << 20, 8 << 20 };
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    low.rlim_max = before.rlim_max;
    if (before.rlim_cur > low.rlim_cur) assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        sound_machine();
        put(row[i].path, row[i].text);
        check_is(look(NULL), row[i].name, row[i].state, row[i].says);
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    sound_machine();
    put("/sys/devices/system/node/online", "0-1\n");
    check_is(look(NULL), "numa", "ok", "nodes 0-1");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    check_is(look(NULL), "numa", "warn", "kernel.numa_balancing=0");
}

static void a_gpu_without_its_driver_fails(void **state)
{
    (void)state;
    sound_machine();
    put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n"); /* a network card of the same maker */
    check_is(look(NULL), "driver", "ok", "no NVIDIA GPU");
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    check_is(look(NULL), "driver", "fail", "install driver 580");
}

/* In a child: limits, once lowered, stay so. */
static void few_open_files_are_a_fault(void **state)
{
    (void)state;
    static const struct {
        rlim_t      n;
        const char *state;
    } row[] = { { 64, "fail" }, { 1024, "warn" } };
    sound_machine();
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            struct rlimit low = { row[i].n, row[i].n };
            if (setrlimit(RLIMIT_NOFILE, &low)) _exit(2);
            const char *line = line_of(look(NULL), "nofile");
            _exit(strncmp(line, row[i].state, 4) || !strstr(line, "ulimit -Hn 65536") ? 3 : 0);
        }
        int st;
        assert_int_equal(waitpid(child, &st, 0), child);
        assert_true(WIFEXITED(st));
        assert_int_equal(WEXITSTATUS(st), 0);
    }
}

/* As a container's seccomp profile does it: the call gets EPERM. */
static bool forbid_io_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = { ARRAY_N(code), code };
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

static void an_io_uring_that_seccomp_forbids_is_seen(void **state)
{
    (void)state;
    sound_machine();
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (!forbid_io_uring()) _exit(77);
        const char *line = line_of(look(NULL), "io_uring");
        _exit(strncmp(line, "warn", 4) || !strstr(line, "kernel.io_uring_disabled=0") ? 3 : 0);
    }
    int st;
    assert_int_equal(waitpid(child, &st, 0), child);
    assert_true(WIFEXITED(st));
    if (WEXITSTATUS(st) == 77) {
        print_message("skipped: this kernel takes no seccomp filter\n");
        return;
    }
    assert_int_equal(WEXITSTATUS(st), 0);
}

static void a_folder_is_judged_by_what_is_under_it(void **state)
{
    (void)state;
    char path[100];
    sound_machine();
    check_is(look("/no/such/folder"), "folder", "fail", "mkdir -p it");
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    check_is(look(path), "folder", "fail", "Not a directory");
    assert_int_equal(D.n[DOCTOR_FAIL], 1);
    check_is(look("/dev/shm"), "folder", "warn", "that is memory");
    check_is(look(root), "folder", "", "GiB free");
    snprintf(path, sizeof path, "%s/a\nfail b", root);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_null(strstr(look(path), "\nfail b")); /* a name cannot make a line of its own */
}

static void json_has_the_same_checks(void **state)
{
    (void)state;
    sound_machine();
    size_t n = 0;
    for (const char *p = look("/no/such/folder"); *p; p++) n += *p == '\n';
    const char *dir = "/no/such/folder";
    buf_free(&D.out);
    D = (struct doctor){ .root = root, .json = true };
    doctor_look(&D, &dir, 1);
    const char *text = buf_cstr(&D.out);
    size_t      n_name = 0;
    for (const char *p = text; (p = strstr(p, "\"name\": ")); p++) n_name++;
    assert_int_equal(n_name, n - 1); /* without the sum */
    assert_non_null(strstr(
        text, "{\"name\": \"folder\", \"state\": \"fail\", \"found\": \"/no/such/folder: No such file or directory\", "
              "\"fix\": \"mkdir -p it, or mount its volume\"}"));
    assert_non_null(strstr(text, ", \"fail\": 1}\n"));
    assert_true(!strncmp(text, "{\"checks\": [\n", 13));
}

static void options_that_are_none_are_refused(void **state)
{
    (void)state;
    char *unknown[] = { (char[]){ "doctor" }, (char[]){ "--frobnicate" }, NULL };
    assert_int_equal(doctor_main(2, unknown), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_machine_fails_nothing),
        cmocka_unit_test(each_setting_that_harms_has_its_line),
        cmocka_unit_test(a_gpu_without_its_driver_fails),
        cmocka_unit_test(few_open_files_are_a_fault),
        cmocka_unit_test(an_io_uring_that_seccomp_forbids_is_seen),
        cmocka_unit_test(a_folder_is_judged_by_what_is_under_it),
        cmocka_unit_test(json_has_the_same_checks),
        cmocka_unit_test(options_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
