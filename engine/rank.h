/* rank: a team of devices, one thread per device, that run the same batches in lockstep.   Thread: engine calls, ranks
 * run. rank_team_create loads the model on every rank in parallel; rank_team_runner is the engine's runner. */
#pragma once
#include "engine/engine.h"
#include "engine/model/model.h"
#include "transfer/xfer.h"

struct rank_team;
/* How the KV's memory is divided where layers with a window have a pool of their own. */
struct rank_windows {
    double   share;    /* of the bytes, for windows; 0: they have no pool */
    uint32_t least;    /* blocks of the other pool that come first, if windows still have `min` */
    uint32_t min, max; /* blocks of the windows' pool */
};
/* Blocks of the windows' pool, out of `room` bytes. */
uint32_t rank_windows_of(const struct rank_windows *w, uint64_t room, uint64_t block_bytes, uint64_t window_bytes);
struct rank_cfg {
    uint32_t              n_rank;         /* number of ranks on all nodes */
    uint32_t              first, n_local; /* ranks [first, first + n_local) are in this process; n_local 0: all */
    enum dev_kind         device;
    uint64_t              memory_bytes; /* per rank; 0: model_plan's bytes plus kv_bytes  */
    uint64_t              kv_bytes;     /* KV pool per rank; 0 on a GPU: the rest of the share `utilization` */
    uint32_t              blocks_min;   /* smallest pool; a smaller one is ST_CONFIG before anything is read */
    struct rank_windows   windows;      /* where load.n_block is 0; the team then sets load.n_window */
    uint32_t              n_thread;     /* cpu threads of all ranks together; 0: auto         */
    uint32_t              depth;        /* most steps in flight; 0: 2 on asynchronous devices, else 1 */
    const char           *simd;         /* as in dev_cfg */
    struct model_load_cfg load;         /* n_block 0: as many blocks as kv_bytes holds         */
    /* cuda */
    const int    *ordinal; /* [n_ordinal] GPUs, assigned to the ranks in turn; n_ordinal 0: as dev_cfg.ordinal -1 */
    uint32_t      n_ordinal;
    double        utilization; /* this and the following: as in dev_cfg */
    bool          deterministic, eager, pdl, wgmma, fp8_prefill;
    const char   *gemm_file, *cublaslt;
    enum dev_comm comm;
    enum dev_symmetric symmetric;
    /* With ranks on other nodes. agree is called between planning and loading, with the number of blocks that fit here;
     * it returns the number for all ranks and the name of the group (dev_cfg.comm_id). group: n_local ranks, owned by
     * the caller. See engine/nodes.h. */
    enum status (*agree)(void *ctx, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err, size_t err_bytes);
    void                  *agree_ctx;
    const struct dev_vote *vote; /* with agree: as in dev_cfg */
    struct dev_group      *group;
};
/* *n_block_out: blocks of the pool. err as in model_load. */
enum status rank_team_create(const struct model_spec *spec, const struct source *src, const struct rank_cfg *cfg,
                             uint32_t *n_block_out, struct rank_team **t_out, char *err, size_t err_bytes);
/* Blocks of the pool of layers with a window; 0: they have none of their own. */
uint32_t rank_team_windows(const struct rank_team *t);
/* Tests: that pool on rank i of this process. */
const struct dev_kv *rank_team_window_pool(const struct rank_team *t, uint32_t i);
struct eng_runner    rank_team_runner(struct rank_team *t);
const float         *rank_team_logits(struct rank_team *t); /* tests: rank 0's model_logits */
/* The identity of the model on the ranks of this process (engine/model/ident.h). Needs cfg.load.ident. */
void           rank_team_ident(const struct rank_team *t, unsigned char out[32]);
struct device *rank_team_device(struct rank_team *t); /* tools: rank 0's */
/* Where the GPU of this process's rank i is; false: i is beyond the ranks, or their devices are no GPUs. Any thread. */
bool     rank_team_place(const struct rank_team *t, uint32_t i, struct dev_place *out);
uint64_t rank_team_weight_bytes(const struct rank_team *t); /* over all ranks */
uint64_t rank_team_work_bytes(const struct rank_team *t);   /* of workspaces, over all ranks */
/* The KV pools of all ranks, for a segment of transfer/. Owned by the team. NULL: ranks on other nodes hold parts of
 * the blocks. */
const struct xfer_ranks *rank_team_kv(struct rank_team *t, uint32_t *n_block_out);
/* The same for the pool of layers with a window, in pieces that are as large as blocks of the other pool. NULL: there
 * is none, ranks are on other nodes, or the blocks of some rank are smaller than those of the other pool. */
const struct xfer_ranks *rank_team_kv_windows(struct rank_team *t, uint32_t *n_block_out);
enum dtype               rank_team_kv_dtype(const struct rank_team *t);
/* Any thread, even while ranks hang: one line per rank with its current work. Returns the length of text. */
size_t rank_team_dump(struct rank_team *t, uint64_t now_us, char *text, size_t text_bytes);
void   rank_team_free(struct rank_team *t);
