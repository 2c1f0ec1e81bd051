/* arrays: what one step consists of: a line for each size, each array that goes to a device, each result.   Data only.
 *
 * Each list is a macro that calls X once for every line. From the lists follow
 *   the members of struct dev_batch, dev_step, dev_out, dev_limits (kernels/device.h) and of struct batch
 *   (engine/batch.h),
 *   how arrays are taken, cleared and freed, and the device's view of them (engine/batch.c),
 *   how a step travels to other nodes and what is checked there (engine/wire.c),
 *   how a step is packed for a GPU and its results are unpacked (kernels/cuda/pack.c).
 * docs/CONTRIBUTING.md says how to add an array. The order of lines is the order of bytes between nodes and in a GPU's
 * slab. */
#pragma once

/* clang-format off */

/* Bounds of a step, set once by the engine (eng_batch_cfg).   X(name, enough)
 * enough: taken by a model that is loaded without bounds; 0: as many as its rows. */
#define DEV_BOUNDS(X)     \
    X(rows_max,  0)       \
    X(seqs_max,  0)       \
    X(pages_max, 1 << 14) \
    X(hist_max,  1 << 16) \
    X(ban_max,   1 << 14) \
    X(allow_max, 1 << 14) \
    X(bias_max,  1 << 14) \
    X(mask_max,  1 << 14) \
    X(states_max, 1)      /* numbers of the rows' states: 1 where the model has logits */

/* Sizes of a step.   X(name, most, padded) most: its bound, an expression of the bounds m. padded: a decode step that a
 * GPU runs as a graph has as many as its bucket. */
#define DEV_BATCH_SIZES(X)                                                                                 \
    X(n_row,        m->rows_max,               true)  /* rows of all sequences                          */ \
    X(n_seq,        m->seqs_max,               true)                                                       \
    X(n_page,       m->pages_max,              false) /* entries of all page tables                     */
#define DEV_HOST_SIZES(X)                                                                                  \
    X(n_copy,       m->seqs_max,               false) /* block copies before the forward                */
#define DEV_STEP_SIZES(X)                                                                                  \
    X(n_logit,      m->seqs_max + m->rows_max, true)  /* rows whose logits are wanted: n_sample, then n_lp */ \
    X(n_sample,     m->seqs_max,               true)  /* rows to draw from                              */ \
    X(n_hist,       m->hist_max,               false)                                                      \
    X(n_ban,        m->ban_max,                false)                                                      \
    X(n_allow,      m->allow_max,              false)                                                      \
    X(n_bias,       m->bias_max,               false)                                                      \
    X(n_mask,       m->mask_max,               false)                                                      \
    X(n_lp,         m->rows_max,               false) /* rows whose logprob of a given id is wanted     */ \
    X(lp_top,       OP_SAMPLE_TOP_MAX,         false) /* how many tops those want: the most of them     */ \
    X(n_state,      m->states_max,             false) /* numbers of the wanted rows' states: n_logit * hidden */ \
    X(n_patch_id,   m->seqs_max,               true)  /* entries of id that the step before draws       */ \
    X(n_patch_hist, m->seqs_max,               true)  /* the same in hist                               */
#define DEV_SIZES(X) DEV_BATCH_SIZES(X) DEV_HOST_SIZES(X) DEV_STEP_SIZES(X)

/* Arrays of a step.   X(name, type, size, extra, pack, values, noun) An array has size + extra entries, each of whole
 * 32-bit words. pack: how a GPU gets it (enum dev_pack). values: what another node checks (enum dev_values). noun: what
 * that node's error calls the entries. BATCH arrays are members of struct dev_batch, which ops on rows read. HOST
 * arrays are in struct batch alone. The others are members of struct dev_step. Of the lists of sampling, row r has
 * hist[r.hist_start ..), r.n_hist entries, and so on. */
#define DEV_BATCH_ARRAYS(X)                                                                                \
    X(id,         uint32_t,             n_row,        0, DEV_PACK_ZERO, DEV_ROW_TOKEN,  "ids")             \
    X(pos,        uint32_t,             n_row,        0, DEV_PACK_ZERO, DEV_POSITION,   "positions")       /* of the row in its sequence     */ \
    X(row_seq,    uint32_t,             n_row,        0, DEV_PACK_SKIP, DEV_DERIVED,    "rows")            /* number of its sequence         */ \
    X(adapter,    uint32_t,             n_row,        0, DEV_PACK_ZERO, DEV_ANY,        "adapters")        /* 1 + the slot of its adapter (op lora); 0: none */ \
    X(type,       uint32_t,             n_row,        0, DEV_PACK_ZERO, DEV_ANY,        "types")           /* of models that have embeddings of types */ \
    X(row_start,  uint32_t,             n_seq,        1, DEV_PACK_LAST, DEV_ROW_START,  "rows")            /* first row of each sequence     */ \
    X(page_start, uint32_t,             n_seq,        1, DEV_PACK_LAST, DEV_PAGE_START, "pages")           /* first entry of each in page    */ \
    X(win_start,  uint32_t,             n_seq,        1, DEV_PACK_LAST, DEV_DERIVED,    "pages")           /* the same of the blocks of layers with a window; page_start where they have none of their own */ \
    X(page,       uint32_t,             n_page,       0, DEV_PACK_POOL, DEV_BLOCK,      "pages")           /* blocks in order of position, to the last row's */
#define DEV_HOST_ARRAYS(X)                                                                                 \
    X(copy_src,   uint32_t,             n_copy,       0, DEV_PACK_NOT,  DEV_BLOCK,      "copies")          \
    X(copy_dst,   uint32_t,             n_copy,       0, DEV_PACK_NOT,  DEV_BLOCK,      "copies")          \
    X(win_src,    uint32_t,             n_copy,       0, DEV_PACK_NOT,  DEV_DERIVED,    "copies")          /* the same copies of blocks of layers with a window */ \
    X(win_dst,    uint32_t,             n_copy,       0, DEV_PACK_NOT,  DEV_DERIVED,    "copies")
#define DEV_LISTS(X)                                                                                       \
    X(hist,       uint32_t,             n_hist,       0, DEV_PACK_POOL, DEV_ANY,        "lists")           \
    X(ban,        uint32_t,             n_ban,        0, DEV_PACK_POOL, DEV_ANY,        "lists")           \
    X(allow,      uint32_t,             n_allow,      0, DEV_PACK_POOL, DEV_ANY,        "lists")           \
    X(bias,       struct op_bias,       n_bias,       0, DEV_PACK_POOL, DEV_ANY,        "lists")           \
    X(mask,       uint32_t,             n_mask,       0, DEV_PACK_POOL, DEV_ANY,        "lists")
#define DEV_STEP_ARRAYS(X)                                                                                 \
    X(logit_row,  uint32_t,             n_logit,      0, DEV_PACK_SKIP, DEV_ROW,        "wanted rows")     /* to sample, then for prompt logprobs */ \
    X(sample,     struct op_sample_row, n_sample,     0, DEV_PACK_OWN,  DEV_SAMPLE,     "sampling rows")   \
    DEV_LISTS(X)                                                                                           \
    X(lp_id,      uint32_t,             n_lp,         0, DEV_PACK_ZERO, DEV_TOKEN,      "prompt ids")      /* whose logprob is wanted        */ \
    X(patch_id,   struct dev_patch,     n_patch_id,   0, DEV_PACK_OWN,  DEV_PATCH_ID,   "patches")         \
    X(patch_hist, struct dev_patch,     n_patch_hist, 0, DEV_PACK_OWN,  DEV_PATCH_HIST, "patches")
#define DEV_ARRAYS(X) DEV_BATCH_ARRAYS(X) DEV_HOST_ARRAYS(X) DEV_STEP_ARRAYS(X)

/* Results of a step: members of struct dev_out.   X(name, type, size, each, wanted) It has size * each entries. wanted:
 * when anybody reads it (enum dev_wanted); what is wanted more often comes first. */
#define DEV_RESULTS(X)                                                       \
    X(id,          uint32_t, n_sample, 1,                 DEV_WANTED_ALWAYS) \
    X(rank,        uint32_t, n_sample, 1,                 DEV_WANTED_ALWAYS) \
    X(logprob,     float,    n_sample, 1,                 DEV_WANTED_ALWAYS) \
    X(lp,          float,    n_lp,     1,                 DEV_WANTED_ALWAYS) \
    X(lp_rank,     uint32_t, n_lp,     1,                 DEV_WANTED_ALWAYS) \
    X(state,       float,    n_state,  1,                 DEV_WANTED_ALWAYS) \
    X(top_id,      uint32_t, n_sample, OP_SAMPLE_TOP_MAX, DEV_WANTED_TOP)    \
    X(top_logprob, float,    n_sample, OP_SAMPLE_TOP_MAX, DEV_WANTED_TOP)    \
    X(lp_top_id,   uint32_t, n_lp,     OP_SAMPLE_TOP_MAX, DEV_WANTED_LP_TOP) \
    X(lp_top,      float,    n_lp,     OP_SAMPLE_TOP_MAX, DEV_WANTED_LP_TOP)

/* Fields of struct op_sample_row, in its order.   F: float, U: uint32_t, L: uint64_t
 * Each list of DEV_LISTS has its start and its size here. */
#define OP_SAMPLE_FIELDS(F, U, L)                                                                                 \
    F(temperature) F(top_p) F(min_p) F(presence) F(frequency) F(repetition) /* off: 0, 1, 0, 0, 0, 1           */ \
    U(top_k)                                                                /* 0: off                          */ \
    L(seed) L(stream) L(counter)                                            /* of the draw                     */ \
    U(n_top)                                                                /* top logprobs wanted, 0..OP_SAMPLE_TOP_MAX */ \
    U(hist_start) U(n_prompt) U(n_hist)                                     /* the first n_prompt of n_hist ids are the prompt */ \
    U(bias_start) U(n_bias)                                                                                       \
    U(ban_start) U(n_ban)                                                   /* ids that must not be drawn (stop ids before min_tokens, bad words) */ \
    U(allow_start) U(n_allow)                                               /* n_allow > 0: only these may be drawn */ \
    U(mask_start) U(n_mask)                                                 /* n_mask > 0: words of 32 bits; only ids whose bit is 1 may be drawn */

/* clang-format on */

/* How a GPU gets an array. Arrays of the fixed part lie at places that follow from the step's shape; the rest of their
 * room is filled. */
enum dev_pack {
    DEV_PACK_NOT,  /* not at all                                                        */
    DEV_PACK_ZERO, /* fixed part, filled with 0                                         */
    DEV_PACK_SKIP, /* fixed part, filled with UINT32_MAX: to be skipped                 */
    DEV_PACK_LAST, /* fixed part, filled with the last entry                            */
    DEV_PACK_POOL, /* behind the fixed part, as long as it is; found by starts          */
    DEV_PACK_OWN   /* fixed part; kernels/cuda/pack.c has a function for its entries    */
};

/* What an array's entries are: a node refuses a step whose entries are something else. */
enum dev_values {
    DEV_ANY,        /* words of any value                                       */
    DEV_DERIVED,    /* not sent: made from the others                           */
    DEV_TOKEN,      /* ids of the vocabulary                                    */
    DEV_ROW_TOKEN,  /* the same, or 0 where a patch brings it                   */
    DEV_POSITION,   /* below the context                                        */
    DEV_BLOCK,      /* block of the pool                                        */
    DEV_ROW,        /* row of the step                                          */
    DEV_ROW_START,  /* 0 rising to n_row                                        */
    DEV_PAGE_START, /* 0 rising to n_page                                       */
    DEV_SAMPLE,     /* struct op_sample_row                                     */
    DEV_PATCH_ID,   /* struct dev_patch of id                                   */
    DEV_PATCH_HIST  /* struct dev_patch of hist                                 */
};

enum dev_wanted {
    DEV_WANTED_ALWAYS,
    DEV_WANTED_TOP,   /* a sampled row asks for tops      */
    DEV_WANTED_LP_TOP /* the prompt's logprobs want tops  */
};

/* What most users make of a line: a member, or a pointer to what is read only. */
#define DEV_SIZE_MEMBER(name, ...)        uint32_t name;
#define DEV_ARRAY_MEMBER(name, type, ...) type *name;
#define DEV_ARRAY_VIEW(name, type, ...)   const type *name;
