/* rank: one thread per device; all run the same batches in lockstep.   Thread: engine calls, ranks run.
 * rank_team_create loads the model on every rank in parallel; rank_team_runner is what an engine runs its steps on. */
#pragma once
#include "engine/engine.h"
#include "engine/model/model.h"
#include "transfer/xfer.h"

struct rank_team;
struct rank_cfg {
    uint32_t              n_rank;         /* over all nodes */
    uint32_t              first, n_local; /* of this process: ranks [first, first + n_local); n_local 0: all */
    enum dev_kind         device;
    uint64_t              memory_bytes; /* per rank; 0: what model_plan says plus kv_bytes  */
    uint64_t              kv_bytes;     /* per rank, for the KV pool; 0 on a GPU: what is left of `utilization` */
    uint32_t              blocks_min;   /* of the pool; fewer: ST_CONFIG before anything is read */
    uint32_t              n_thread;     /* cpu threads over all ranks; 0: auto                */
    uint32_t              depth;        /* steps in flight; 0: 2 where the device works by itself, else 1 */
    const char           *simd;         /* as in dev_cfg */
    struct model_load_cfg load;         /* n_block 0: as many blocks as kv_bytes holds         */
    /* cuda */
    const int         *ordinal; /* [n_ordinal] GPUs, given to the ranks in turn; none: as dev_cfg.ordinal below 0 */
    uint32_t           n_ordinal;
    double             utilization; /* as in dev_cfg, like what follows */
    bool               deterministic, eager, pdl;
    const char        *gemm_file, *cublaslt;
    enum dev_comm      comm;
    enum dev_symmetric symmetric;
    /* ranks on other nodes too: agree is called between planning and loading, with the blocks that fit here; it says
     * how many all take, and names the group (dev_cfg.comm_id). group: of n_local ranks, the caller's.
     * engine/nodes.h */
    enum status (*agree)(void *ctx, uint32_t *n_block, unsigned char comm_id[DEV_COMM_ID], char *err, size_t err_bytes);
    void                  *agree_ctx;
    const struct dev_vote *vote; /* with agree: as in dev_cfg */
    struct dev_group      *group;
};
/* n_block_out: blocks of the pool. err as in model_load. */
enum status       rank_team_create(const struct model_spec *spec, const struct source *src, const struct rank_cfg *cfg,
                                   uint32_t *n_block_out, struct rank_team **t_out, char *err, size_t err_bytes);
struct eng_runner rank_team_runner(struct rank_team *t);
const float      *rank_team_logits(struct rank_team *t); /* tests: rank 0's model_logits */
/* Which model the ranks of this process have loaded (engine/model/ident.h), with cfg.load.ident set. */
void           rank_team_ident(const struct rank_team *t, unsigned char out[32]);
struct device *rank_team_device(struct rank_team *t);             /* tools: rank 0's */
uint64_t       rank_team_weight_bytes(const struct rank_team *t); /* over all ranks */
uint64_t       rank_team_work_bytes(const struct rank_team *t);   /* workspaces, likewise */
/* The pools of KV blocks of all ranks, for a segment of transfer/; the team's, as long as it is. NULL: ranks on other
 * nodes have parts of them. */
const struct xfer_ranks *rank_team_kv(struct rank_team *t, uint32_t *n_block_out);
enum dtype               rank_team_kv_dtype(const struct rank_team *t);
/* What the ranks do, for whoever asks while they hang: any thread; lines, each with an end; bytes of text. */
size_t rank_team_dump(struct rank_team *t, uint64_t now_us, char *text, size_t text_bytes);
void   rank_team_free(struct rank_team *t);
