/* lane_dev: between a device and host memory. Devices whose memory is the process's own are copied by the lane's thread. */
#include "base/check.h"
#include "transfer/lane.h"
#include <stdlib.h>
#include <string.h>

static bool dev_can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return (src == XFER_DEVICE || src == XFER_HOST) && (dst == XFER_DEVICE || dst == XFER_HOST);
}

static enum status dev_open_lane(struct xfer_lane *l)
{
    (void)l;
    return ST_OK;
}

static enum status dev_move(struct xfer_item *it)
{
    unsigned char       *dst = it->dst.base + it->job.dst_off;
    const unsigned char *src = it->src.base + it->job.src_off;
    if (it->src.kind == XFER_HOST && !lane_digest(it, src)) return ST_INVALID; /* a doubt: the device does not get it */
    memcpy(dst, src, it->job.bytes);
    if (it->src.kind != XFER_HOST && !lane_digest(it, dst)) return ST_INVALID;
    return ST_OK;
}

static void dev_begin(struct xfer_lane *l, struct xfer_item **item, uint32_t n)
{
    (void)l;
    for (uint32_t i = 0; i < n; i++) item[i]->done.st = dev_move(item[i]);
    for (uint32_t i = 0; i < n; i++) lane_done(item[i], item[i]->done.st); /* together: a sleeping owner is woken once, not n times */
}

static void dev_nothing(struct xfer_lane *l) { (void)l; }
static void dev_reap(struct xfer_lane *l, bool wait) { (void)l, (void)wait; }
static void dev_free(struct xfer_lane *l) { free(l); }

static const struct lane_ops dev_ops_table = { .name = "lane-dev",
                                               .depth = 8, /* what is begun is no longer canceled */
                                               .can = dev_can,
                                               .open = dev_open_lane,
                                               .begin = dev_begin,
                                               .reap = dev_reap,
                                               .close = dev_nothing,
                                               .free = dev_free };

struct xfer_lane *lane_dev_create(void)
{
    struct xfer_lane *l = calloc(1, sizeof *l);
    if (l) lane_init(l, &dev_ops_table);
    return l;
}
