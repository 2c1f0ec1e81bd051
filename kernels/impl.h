/* impl: what every device begins with, and the doors that dev_open knows.   Private to kernels/. */
#pragma once
#include "kernels/device.h"

struct dev_impl {
    struct device dev; /* first: the public face */
    uint64_t (*weight_bytes)(enum dtype t, uint32_t n, uint32_t k);
    uint64_t (*step_bytes)(const struct device *d, const struct dev_limits *lim); /* NULL: 0 */
};

enum status ref_open(const struct dev_cfg *cfg, struct device **d_out);
enum status cpu_open(const struct dev_cfg *cfg, struct device **d_out);
#ifdef WITH_CUDA
enum status cuda_open(const struct dev_cfg *cfg, struct device **d_out);
uint32_t    cuda_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes);
#endif

/* group: publish my pointer and size, meet the others, look at theirs. Ranks are threads of one process. */
uint32_t group_n_rank(const struct dev_group *g);
void     group_publish(struct dev_group *g, uint32_t rank, void *x, size_t n);
void    *group_peek(const struct dev_group *g, uint32_t rank, size_t n); /* CHECKs that the sizes agree */
bool     group_meet(struct dev_group *g);                                /* false: the group was aborted */
