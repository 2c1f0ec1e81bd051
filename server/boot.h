/* boot: makes a running engine from the options: source, hyperparameters, tokenizer, template, ranks, engine. Built
 * bottom-up, freed top-down. boot_text -> boot_engine -> boot_free.   Thread: the loader, then main. */
#pragma once
#include "api/call.h"
#include "api/family.h"
#include "api/pair.h"
#include "engine/engine.h"
#include "engine/model/dense.h"
#include "engine/model/head.h"
#include "engine/model/model.h"
#include "engine/model/prompts.h"
#include "engine/nodes.h"
#include "engine/probe.h"
#include "engine/rank.h"
#include "server/cluster.h"
#include "server/config.h"
#include "server/server.h"
#include "server/takeover.h"

/* The pool of layers with a window (docs/design/kv-groups.md). */
struct boot_windows {
    uint64_t            block_bytes; /* of a block there, on one rank; 0: there is no such pool */
    uint32_t            window, n_block;
    struct rank_windows share;
};

struct boot {
    const struct config *cfg;
    struct source        src;
    struct source_embed *embed;
    struct model_spec    spec;
    struct model_head   *head;    /* or NULL: of labels and scores (boot_task) */
    struct model_dense  *dense;   /* or NULL: layers between a state and its vector */
    struct model_prompts prompts; /* of a model that makes vectors or scores */
    struct pair_form     pair;    /* model.pair, if pairs become one prompt */
    struct tmpl         *pair_tmpl;
    bool                 pair_joins;  /* the folder says that no template makes pairs */
    json_t              *pair_module; /* a file that pair reads */
    struct tok          *tok;
    struct tmpl         *tmpl;
    struct family        family;
    struct api_model     model;
    struct api_peering   peering; /* model.peering, if there is a lane to peers */
    const char          *name[1]; /* default of --served-model-name */
    char                 fingerprint[80], own_name[256];
    struct cluster       cluster;  /* this and the next two: set by the caller before boot_text */
    struct takeover     *takeover; /* or NULL */
    struct auth         *auth;
    struct nodes        *nodes; /* atomic; NULL: one node */
    struct rank_team    *team;
    struct engine       *engine;
    struct probe        *probe; /* exists if engine does */
    struct boot_tiers   *tiers; /* or NULL */
    struct boot_events  *events;
    struct kv_events    *kv_events; /* of events; NULL: they are off */
    uint32_t             n_block;
    uint64_t             block_bytes, kv_bytes;
    struct boot_windows  windows;
    enum dev_kind        device;
    uint32_t             seqs, rows; /* from config_sizes */
    char                 cache_info[600];
    bool                 spec_loaded;
    char                 packed_dir[CONFIG_DIR_BYTES];
    char                 err[1024]; /* one line: the value found and the value needed */

    struct source_object *src_object; /* behind src; NULL: no object store */
};

/* Loads everything but the ranks: hyperparameters, tokenizer, template. b: zero, except the members that the caller
 * sets. Returns 0, or an exit code with b->err. */
int boot_text(struct boot *b, const struct config *cfg);
/* Loads the weights and starts the engine. progress may be NULL. */
typedef void boot_progress(void *ctx, uint64_t done, uint64_t total);
int          boot_engine(struct boot *b, boot_progress *progress, void *ctx);
/* boot_tiers.c */
int  boot_tiers_plan(struct boot *b); /* before the weights are loaded: keys, sizes, folders */
int  boot_tiers_open(struct boot *b, const struct kv_tiers_cfg **tiers_out);
void boot_tiers_free(struct boot *b); /* after the engine */
/* What blocks depend on beside tokens and salt; the ranks exist. */
void boot_tiers_ident(struct boot *b, struct kv_identity *out);
/* boot_events.c */
int  boot_events_plan(struct boot *b); /* before the weights are loaded; 0, or an exit code with b->err */
void boot_events_start(struct boot *b, struct eng_cfg *e); /* fills in what eng_create needs */
void boot_events_free(struct boot *b);                     /* after the engine */
/* boot_hand.c: asks the previous server for the KV in its host memory */
void boot_hand_ask(struct boot *b, struct kv_tiers_cfg *c);
/* The hand-over to the next server. Must stay valid until takeover_close. */
struct boot_hand {
    struct boot   *boot;
    struct server *srv;
};
struct takeover_ops boot_hand_ops(struct boot_hand *h);
struct gen_engine   boot_gen_engine(struct boot *b);
uint32_t            boot_ranks_here(const struct boot *b); /* ranks of this process */
bool boot_helps(const struct boot *b); /* true on nodes other than 0: no engine, node 0 sends the steps */
/* Any thread, also while loading. NODES_OK with one node. */
enum nodes_state boot_nodes_state(const struct boot *b);
void             boot_free(struct boot *b);
