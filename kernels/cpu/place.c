#include "kernels/cpu/place.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t place_list(const char *text, uint64_t *bits, uint32_t max)
{
    uint32_t n = 0;
    memset(bits, 0, max / 64 * sizeof *bits);
    for (const char *p = text; *p >= '0' && *p <= '9';) {
        char         *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        if (last < first || last >= max) return 0;
        for (unsigned long i = first; i <= last; i++)
            if (!(bits[i / 64] >> i % 64 & 1)) {
                bits[i / 64] |= UINT64_C(1) << i % 64;
                n++;
            }
        p = *end == ',' ? end + 1 : end;
        if (p == end) break;
    }
    return n;
}

static bool read_line(const char *root, const char *name, char *text, int bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "re");
    bool  ok = f && fgets(text, bytes, f);
    if (f) fclose(f);
    return ok;
}

void place_nodes(const char *root, struct place_nodes *out)
{
    char     text[4096], name[64];
    uint64_t node[PLACE_NODES_MAX / 64];
    *out = (struct place_nodes){ 0 };
    if (read_line(root, "has_memory", text, sizeof text) && place_list(text, node, PLACE_NODES_MAX))
        for (uint32_t i = 0; i < PLACE_NODES_MAX; i++) {
            if (!(node[i / 64] >> i % 64 & 1)) continue;
            snprintf(name, sizeof name, "node%" PRIu32 "/cpulist", i);
            if (!read_line(root, name, text, sizeof text) || !place_list(text, out->cpu[out->n], PLACE_CPUS_MAX))
                continue;
            out->id[out->n++] = i;
        }
    if (out->n == 0) out->n = 1; /* of no CPUs: nobody is bound to it */
}

/* The calling thread to those CPUs of the node that it may use; false: it may use none of them, or the system
 * refuses. */
static bool bind_thread(const uint64_t *cpu)
{
    union {
        cpu_set_t set;
        uint64_t  bits[PLACE_CPUS_MAX / 64];
    } may = { .bits = { 0 } };
    if (sched_getaffinity(0, sizeof may, &may.set)) return false;
    uint64_t any = 0;
    for (uint32_t i = 0; i < PLACE_CPUS_MAX / 64; i++) any |= may.bits[i] &= cpu[i];
    return any && !sched_setaffinity(0, sizeof may, &may.set);
}

static void bind_memory(int policy, const uint64_t *node, void *base, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)base + page - 1) / page * page,
              end = ((uintptr_t)base + bytes) / page * page;
    if (begin < end && syscall(SYS_mbind, begin, end - begin, policy, node, PLACE_NODES_MAX + 1, 0))
        LOG_DEBUG("dev: memory stays where it is first touched: %s", strerror(errno));
}

uint32_t place_rank(const struct place_nodes *nodes, uint32_t rank, uint32_t n_rank, void *base, size_t bytes)
{
    uint64_t node[PLACE_NODES_MAX / 64] = { 0 };
    if (nodes->n < 2) return UINT32_MAX;
    if (n_rank < 2) {
        for (uint32_t i = 0; i < nodes->n; i++) node[nodes->id[i] / 64] |= UINT64_C(1) << nodes->id[i] % 64;
        bind_memory(MPOL_INTERLEAVE, node, base, bytes);
        return UINT32_MAX;
    }
    uint32_t at = (uint32_t)((uint64_t)rank * nodes->n / n_rank);
    if (!bind_thread(nodes->cpu[at])) return UINT32_MAX;
    node[nodes->id[at] / 64] |= UINT64_C(1) << nodes->id[at] % 64;
    bind_memory(MPOL_PREFERRED, node, base, bytes);
    LOG_DEBUG("dev: rank %" PRIu32 " works on memory node %" PRIu32, rank, nodes->id[at]);
    return at;
}
