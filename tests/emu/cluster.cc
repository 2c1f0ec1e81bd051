/* cluster: blocks that are on the device at once and reach each other's shared memory.   See include/emu_hopper.h. Each
 * runs as far as it gets, then another of them.
 *
 * Reported by name: an mbarrier of another block that is not known to be set up, blocks that wait for each other in
 * vain, and a block that ends while others may still come to its barriers. */
#include <emu_hopper.h>
#include <stdio.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu
{
struct Cluster {
    struct Member {
        Block   *b;       /* NULL: it has ended */
        uint32_t arrived; /* of others at its mbarriers, since all have met */
    };
    std::vector<Member> member; /* by rank */
    int                 arrived = 0, threads = 0;
    uint32_t            rng = schedule.seed;
    size_t              in_vain = 0; /* blocks that were tried since a thread last got on */
};
std::shared_ptr<Cluster> cluster_of(size_t n)
{
    auto c = std::make_shared<Cluster>();
    c->member.resize(n);
    return c;
}
void cluster_join(const std::shared_ptr<Cluster> &c, Block &b)
{
    c->member[b.rank] = { &b, 0 };
    c->threads += b.n;
    b.cluster = c;
}
void cluster_ends()
{
    if (!B->cluster) return;
    Cluster::Member &m = B->cluster->member[B->rank];
    if (m.arrived)
        die("a block ends after others of its cluster have come to its mbarriers, with no cluster_sync() between");
    m.b = NULL;
    B->cluster.reset();
}

/* ---------------------------------------------------------------- waiting */

bool may_park()
{
    if (B->early) return true;
    if (!B->cluster) return false;
    for (const Cluster::Member &m : B->cluster->member)
        if (m.b && m.b != B) return true;
    return false;
}
/* In order: each runs until it must wait. Reversed: the first lets pass wherever it can. Random: each does every other
 * time. */
bool cluster_lets_pass()
{
    Cluster *c = B->cluster.get();
    if (!c || schedule.order == EMU_IN_ORDER) return false;
    if (schedule.order == EMU_REVERSED) return B->rank == 0;
    c->rng = c->rng * 1664525 + 1013904223;
    return c->rng >> 31;
}
void cluster_got_on()
{
    if (B->cluster) B->cluster->in_vain = 0;
}
void cluster_stuck()
{
    if (!B->cluster || B->early || ++B->cluster->in_vain <= 2 * B->cluster->member.size()) return;
    const char *why = hopper_stuck();
    die(why ? why : "deadlock: blocks of a cluster wait for each other in vain");
}

/* What stands here is done as in that block, by this thread. */
struct In {
    Block *was;
    explicit In(Block *b) : was(B) { B = b; }
    ~In() { B = was; }
};
void cluster_sync()
{
    Cluster *c = B->cluster.get();
    if (!c) {
        bar_sync(0, B->n);
        return;
    }
    if (++c->arrived < c->threads) {
        wait_at(B->at_cluster);
        return;
    }
    c->arrived = 0;
    for (Cluster::Member &m : c->member) {
        m.arrived = 0;
        if (!m.b) continue;
        In of(m.b);
        hopper_met();
        go_on(B->at_cluster);
    }
}

/* ---------------------------------------------------------------- shared memory of others */

uint32_t cluster_rank() { return B->cluster ? B->rank : 0; }

static Block *member_at(uint32_t rank)
{
    if (!B->cluster && !rank) return B;
    if (!B->cluster || rank >= B->cluster->member.size()) die("there is no such block in the cluster");
    Block *b = B->cluster->member[rank].b;
    if (!b) die("shared memory of a block of the cluster that has ended");
    return b;
}
/* What lies there in that block. */
template <class T> static T *there(Block *b, T *here)
{
    long at = (long)((const unsigned char *)here - B->dyn);
    if (at < 0 || at >= (long)B->dyn_bytes) die("what is of a cluster is not in dynamic shared memory");
    return (T *)(void *)(b->dyn + at);
}
static void must_know(Block *b, uint64_t *bar)
{
    if (b == B) return;
    In of(b);
    hopper_known(bar);
}
void mbar_arrive_at(uint64_t *bar, uint32_t rank)
{
    Block    *b = member_at(rank);
    uint64_t *at = there(b, bar);
    must_know(b, at);
    if (b != B) B->cluster->member[rank].arrived++;
    {
        In of(b);
        hopper_arrive(at);
    }
    give_way();
}
/* To all of the blocks with these ranks, at a moment of its own for each. */
void copy_to(void *smem, uint32_t bytes, uint64_t *bar, uint32_t ranks, const Fill &fill)
{
    if (!ranks) die("bulk copy: to no block");
    for (uint32_t rank = 0; rank < 32; rank++) {
        if (!(ranks >> rank & 1)) continue;
        Block    *b = member_at(rank);
        void     *to = there(b, smem);
        uint64_t *at = there(b, bar);
        must_know(b, at);
        In of(b);
        bulk_begin(to, bytes, at, fill);
    }
    give_way();
}
static Fill plain(const void *gmem, uint32_t bytes)
{
    if ((uintptr_t)gmem & 15) die("bulk copy: address not 16-byte aligned");
    if (bytes & 15 || !bytes) die("bulk copy: size no multiple of 16");
    return [gmem, bytes](void *to) { memcpy(to, gmem, bytes); };
}
void bulk_load(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar)
{
    bulk_begin(smem, bytes, bar, plain(gmem, bytes));
}
void bulk_load_to(void *smem, const void *gmem, uint32_t bytes, uint64_t *bar, uint32_t ranks)
{
    copy_to(smem, bytes, bar, ranks, plain(gmem, bytes));
}
} // namespace emu
