#include "server/cmd/devices.h"
#include "base/thread.h"
#include "kernels/device.h"
#include "server/config.h"
#include <stdio.h>

int devices_main(void)
{
    static const struct {
        enum dev_kind kind;
        const char   *name;
    } row[] = { { DEV_REF, "ref" }, { DEV_CPU, "cpu" } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct dev_cfg dc = { .kind = row[i].kind, .arena_bytes = 16 << 20, .n_thread = 1, .n_rank = 1 };
        struct device *d;
        if (dev_open(&dc, &d)) continue;
        printf("%-4s %s, %u thread%s\n", row[i].name, d->ops->name, row[i].kind == DEV_REF ? 1 : thread_cpu_count(),
               row[i].kind == DEV_REF || thread_cpu_count() == 1 ? "" : "s");
        dev_close(d);
    }
    struct dev_info gpu[CUDA_DEVICES_MAX];
    char            why[200] = "";
    uint32_t        n = dev_list(gpu, CUDA_DEVICES_MAX, why, sizeof why);
    for (uint32_t i = 0; i < n; i++) {
        const struct dev_info *g = &gpu[i];
        printf("cuda %d %s, sm_%d, %u SMs, %.1f of %.1f GiB free", g->ordinal, g->name, g->arch, g->n_sm,
               (double)g->free_bytes / 1073741824.0, (double)g->total_bytes / 1073741824.0);
        printf("%s%s\n", *g->refused ? ", cannot serve: " : "", g->refused);
    }
    if (!n) printf("cuda none: %s\n", why);
    return 0;
}
