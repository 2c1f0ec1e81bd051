/* tier_price: whether loading blocks costs less than computing them, and trials of prices that were too high to be
 * paid.
 *
 * A price follows from the transfers that were done. Where it is too high no more of them are done, so one that was
 * measured on a busy machine, or from a single block, would hold for ever. Therefore some blocks that are not worth
 * loading are loaded all the same from time to time, while their prompt computes and nobody waits. */
#include "base/check.h"
#include "kvcache/tier_impl.h"

static const double MARGIN = 1.15; /* a load must be so much quicker: estimates are what they are */
enum { TRY_MIN_US = 1000000, TRY_DOUBLINGS = 6 };

double price_us(const struct kv_tiers *t, uint32_t n, uint32_t n_store, uint32_t below)
{
    double up = xfer_estimate_us(t->cfg.xfer, XFER_HOST, XFER_DEVICE, n * t->cfg.block_bytes);
    double in = n_store ? xfer_estimate_us(t->cfg.xfer, below_kind(t, below), XFER_HOST, n_store * t->host.stride) : 0;
    return up > in ? up + in / n : in + up / n; /* they run side by side, one block apart */
}

uint32_t price_decide(struct kv_tiers *t, uint32_t n, uint32_t n_host, uint32_t below, double us_per_token,
                      double *us_out)
{
    double block_us = us_per_token * t->cfg.block_tokens;
    for (uint32_t try = 0; try < 2; try++, n = n_host) { /* all of it; without what the slower tier holds */
        if (n * t->cfg.block_tokens < t->cfg.load_min_tokens) return 0;
        *us_out = price_us(t, n, n > n_host ? n - n_host : 0, below);
        if (us_per_token <= 0 || *us_out * MARGIN < n * block_us) {
            t->trial[price_place(n, n_host, below)].n_tried = 0;
            return n;
        }
        if (n_host == n) return 0;
    }
    return 0;
}

bool price_plan(struct kv_tiers *t, const struct up_plan *p, double us_per_token, double *us_out)
{
    uint32_t n = p->n_path + p->n_win, n_token = (p->end - p->base) * t->cfg.block_tokens;
    *us_out = price_us(t, n, p->n_store, p->below);
    if (n_token < t->cfg.load_min_tokens || (us_per_token > 0 && *us_out * MARGIN >= n_token * us_per_token))
        return false;
    t->trial[price_place(n, n - p->n_store, p->below)].n_tried = 0;
    return true;
}

bool price_try(struct kv_tiers *t, uint32_t place)
{
    CHECK(place <= KV_STORES_MAX);
    struct trial *r = &t->trial[place];
    uint64_t      now = t->cfg.clock();
    if (now < r->next_us) return false;
    r->next_us = now + ((uint64_t)TRY_MIN_US << r->n_tried);
    if (r->n_tried < TRY_DOUBLINGS) r->n_tried++;
    return true;
}
