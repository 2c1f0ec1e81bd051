/* doctor_host: checks the limits of the process and its cgroup, and the kernel's settings. */
#include "base/memory.h"
#include "base/thread.h"
#include "server/cmd/doctor.h"
#include "transfer/lanes.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
enum { FILES_MIN = 256, FILES_GOOD = 65536 };

static void as_text(rlim_t v, uint64_t unit, char out[32])
{
    if (v == RLIM_INFINITY)
        snprintf(out, 32, "unlimited");
    else
        snprintf(out, 32, "%" PRIu64, (uint64_t)v / unit);
}

static void limits(struct doctor *d)
{
    struct rlimit r;
    char          soft[32], hard[32], rdma[64];
    if (!getrlimit(RLIMIT_NOFILE, &r)) { /* the server raises its own limit as far as the hard one lets it */
        enum doctor_state s = r.rlim_max < FILES_GOOD ? DOCTOR_WARN : DOCTOR_OK;
        if (r.rlim_max < FILES_MIN) s = DOCTOR_FAIL;
        as_text(r.rlim_cur, 1, soft);
        as_text(r.rlim_max, 1, hard);
        doctor_say(d, s, "nofile",
                   s ? "ulimit -Hn 65536, LimitNOFILE=65536, or --ulimit nofile=65536 of the container" : "",
                   "%s open files, at most %s: each connection takes one", soft, hard);
    }
    if (!getrlimit(RLIMIT_MEMLOCK, &r)) {
        bool needed = doctor_line(d, "/sys/class/infiniband", rdma, sizeof rdma) || d->gpu;
        bool low = r.rlim_cur != RLIM_INFINITY && r.rlim_cur < GIB;
        snprintf(rdma, sizeof rdma, "%s/sys/class/infiniband", d->root);
        needed |= !access(rdma, F_OK);
        as_text(r.rlim_cur, 1024, soft);
        doctor_say(d, low && needed ? DOCTOR_WARN : DOCTOR_OK, "memlock",
                   low && needed ? "ulimit -l unlimited, LimitMEMLOCK=infinity" : "", "%s KiB may be locked%s", soft,
                   low ? ": host KV is not registered with io_uring or a network card beyond that" : "");
    }
    if (!getrlimit(RLIMIT_CORE, &r)) {
        as_text(r.rlim_cur, 1024, soft);
        doctor_say(d, DOCTOR_OK, "core", "",
                   "%s KiB: the server turns core dumps off, because they hold prompts and keys", soft);
    }
}

static uint64_t meminfo(const struct doctor *d, const char *key)
{
    char     path[600], line[200];
    uint64_t v = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", d->root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':')
            v = strtoull(line + strlen(key) + 1, NULL, 10);
    if (f) fclose(f);
    return v;
}

static void memory(struct doctor *d)
{
    char     file[600], mount[600], text[64];
    uint64_t all = meminfo(d, "MemTotal") * 1024, group, may;
    snprintf(file, sizeof file, "%s/proc/self/cgroup", d->root);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", d->root);
    group = memory_cgroup_bytes(file, mount);
    may = group && group < all ? group : all;
    doctor_say(d, may < 2 * GIB ? DOCTOR_WARN : DOCTOR_OK, "memory",
               may < 2 * GIB ? "give the container more, or --kv-cache-bytes and --max-num-seqs less" : "",
               "%.1f GiB may be used%s, of the machine's %.1f", (double)may / (double)GIB, group ? " (cgroup)" : "",
               (double)all / (double)GIB);
    bool strict = doctor_line(d, "/proc/sys/vm/overcommit_memory", text, sizeof text) && !strcmp(text, "2");
    doctor_say(d, strict ? DOCTOR_WARN : DOCTOR_OK, "overcommit", strict ? "sysctl vm.overcommit_memory=0" : "",
               strict ? "vm.overcommit_memory is 2: arenas that are reserved count as used"
                      : "memory may be reserved before it is used");
    uint64_t swap = meminfo(d, "SwapTotal");
    doctor_say(
        d, swap ? DOCTOR_WARN : DOCTOR_OK, "swap", swap ? "swapoff -a, or memory.swap.max=0 for the container" : "",
        swap ? "%" PRIu64 " MiB: weights that are swapped out make a step take seconds" : "none (%" PRIu64 " MiB)",
        swap >> 10);
}

static void cpus(struct doctor *d)
{
    char     file[600], mount[600];
    uint32_t quota, online = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), may = thread_cpu_count();
    snprintf(file, sizeof file, "%s/proc/self/cgroup", d->root);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", d->root);
    quota = thread_quota_cpus(file, mount);
    if (quota && quota < may) may = quota;
    doctor_say(d, may < 2 ? DOCTOR_WARN : DOCTOR_OK, "cpu",
               may < 2 ? "two CPUs or more: sockets, the engine and what computes take turns on one" : "",
               "%u of %u may be used%s", may, online, quota ? " (cgroup quota)" : "");
}

static void uring(struct doctor *d)
{
    char why[200];
    bool works = lane_uring_works(why, sizeof why);
    doctor_say(
        d, works ? DOCTOR_OK : DOCTOR_WARN, "io_uring",
        works
            ? ""
            : "sysctl kernel.io_uring_disabled=0, and a seccomp profile that allows io_uring_setup, io_uring_enter, io_uring_register",
        works ? "%s" : "refused (%s): folders of KV are read and written by threads, more slowly",
        works ? "allowed" : why);
}

static void pages(struct doctor *d)
{
    char     text[200], rdma[600];
    uint64_t huge = meminfo(d, "HugePages_Total"), size = meminfo(d, "Hugepagesize"),
             is_free = meminfo(d, "HugePages_Free");
    snprintf(rdma, sizeof rdma, "%s/sys/class/infiniband", d->root);
    bool efa = !access(rdma, F_OK), short_of = efa && huge * size * 1024 < 5 * GIB;
    doctor_say(d, short_of ? DOCTOR_WARN : DOCTOR_OK, "hugepages",
               short_of ? "5128 pages of 2 MiB for EFA: vm.nr_hugepages=5128, and hugepages-2Mi: 5120Mi in the pod"
                        : "",
               "%" PRIu64 " of %" PRIu64 " KiB, %" PRIu64 " free", huge, size, is_free);
    bool known = doctor_line(d, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    bool never = known && strstr(text, "[never]") != NULL;
    doctor_say(d, never ? DOCTOR_WARN : DOCTOR_OK, "thp",
               never ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" : "",
               "transparent huge pages: %s%s", known ? text : "unknown",
               never ? "; weights then take more of the TLB" : "");
}

static void numa(struct doctor *d)
{
    char online[100], balance[20];
    if (!doctor_line(d, "/sys/devices/system/node/online", online, sizeof online)) snprintf(online, sizeof online, "0");
    bool several = strpbrk(online, ",-") != NULL;
    bool moves =
        several && doctor_line(d, "/proc/sys/kernel/numa_balancing", balance, sizeof balance) && *balance != '0';
    doctor_say(d, moves ? DOCTOR_WARN : DOCTOR_OK, "numa",
               moves ? "sysctl kernel.numa_balancing=0, and numactl --cpunodebind with --membind of one node" : "",
               "node%s %s%s", several ? "s" : "", online,
               moves ? ": the kernel moves pages between them while they are read" : "");
}

static void shm(struct doctor *d)
{
    char           path[600];
    struct statvfs v;
    snprintf(path, sizeof path, "%s/dev/shm", d->root);
    if (statvfs(path, &v)) {
        doctor_say(d, d->gpu ? DOCTOR_WARN : DOCTOR_OK, "shm", d->gpu ? "mount a tmpfs at /dev/shm" : "",
                   "no /dev/shm: needed by NCCL between several GPUs alone");
        return;
    }
    uint64_t size = (uint64_t)v.f_blocks * v.f_frsize;
    bool     small = d->gpu && size < GIB;
    doctor_say(d, small ? DOCTOR_WARN : DOCTOR_OK, "shm",
               small ? "--shm-size=2g, or an emptyDir of medium Memory at /dev/shm" : "",
               "/dev/shm has %" PRIu64 " MiB%s", size / MIB, small ? ": too little for NCCL between several GPUs" : "");
}

static void clock_source(struct doctor *d)
{
    static const char *const quick[] = { "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page" };
    char                     text[60];
    if (!doctor_line(d, "/sys/devices/system/clocksource/clocksource0/current_clocksource", text, sizeof text)) {
        doctor_say(d, DOCTOR_OK, "clock", "", "the kernel does not tell its clock source");
        return;
    }
    bool is_quick = false;
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) is_quick |= !strcmp(text, quick[i]);
    doctor_say(d, is_quick ? DOCTOR_OK : DOCTOR_WARN, "clock",
               is_quick ? "" : "boot with clocksource=tsc, or another type of instance", "%s%s", text,
               is_quick ? "" : ": each look at the clock is a system call");
}

void doctor_host(struct doctor *d)
{
    limits(d);
    memory(d);
    cpus(d);
    uring(d);
    pages(d);
    numa(d);
    shm(d);
    clock_source(d);
}
