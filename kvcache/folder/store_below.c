/* store_below: a folder as one of the things that lie below the host: the row of below.h over the functions of
 * store.h. */
#include "kvcache/folder/store_impl.h"

struct kv_store *kv_store_of(struct kv_below *b) { return (struct kv_store *)b; } /* below is its first member */

static const struct kv_store *store_in(const struct kv_below *b) { return (const struct kv_store *)b; }

static enum status open_folder(const struct kv_below_cfg *c, struct kv_below **b_out, char *err, size_t err_bytes)
{
    struct kv_store_cfg sc = { .dir = c->where,
                               .cap_bytes = c->bytes,
                               .segment_bytes = c->segment_bytes,
                               .payload_bytes = c->payload_bytes,
                               .block_tokens = c->block_tokens,
                               .fingerprint = c->fingerprint,
                               .key = c->key,
                               .xfer = c->xfer,
                               .secret = c->secret,
                               .old_key = c->old_key,
                               .old_secret = c->old_secret,
                               .ephemeral = c->ephemeral,
                               .shared = c->shared,
                               .name = c->name,
                               .scan_us = c->scan_us,
                               .grace_us = c->grace_us,
                               .n_store = c->n_below,
                               .prove = c->prove,
                               .clock = c->clock,
                               .events = c->events,
                               .place = c->place };
    struct kv_store    *s;
    enum status         st = kv_store_open(&sc, &s, err, err_bytes);
    if (st) return st;
    s->below.row = &kv_folder;
    *b_out = &s->below;
    return ST_OK;
}

static void close_folder(struct kv_below *b) { kv_store_close(kv_store_of(b)); }

static bool find(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out)
{
    return kv_store_find(kv_store_of(b), key, place_out);
}

static bool has(const struct kv_below *b, const struct kv_key *key) { return kv_store_has(store_in(b), key); }

static bool holds(const struct kv_below *b, const struct kv_key *key) { return kv_store_holds(store_in(b), key); }

static uint64_t each(const struct kv_below *b, uint64_t at) { return kv_store_each(store_in(b), at); }

static enum status read_record(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out,
                               uint64_t *ticket_out)
{
    return kv_store_read(kv_store_of(b), r, place_out, ticket_out);
}

static void read_done(struct kv_below *b, struct kv_place place, bool bad)
{
    kv_store_read_done(kv_store_of(b), place, bad);
}

static enum status write_record(struct kv_below *b, const struct kv_write *w, struct kv_place *place_out)
{
    return kv_store_write(kv_store_of(b), w, place_out);
}

static void write_done(struct kv_below *b, struct kv_place place, enum status st)
{
    kv_store_write_done(kv_store_of(b), place, st);
}

static bool takes(const struct kv_below *b) { return !kv_store_paused(store_in(b)); }

static void turn(struct kv_below *b) { kv_store_turn(kv_store_of(b)); }

static bool busy(const struct kv_below *b) { return kv_store_recovering(store_in(b)); }

static void stats(const struct kv_below *b, struct kv_below_stats *out)
{
    struct kv_store_stats s;
    kv_store_stats(store_in(b), &s);
    *out = (struct kv_below_stats){ .used_bytes = s.used_bytes,
                                    .cap_bytes = s.cap_bytes,
                                    .n_block = s.n_record,
                                    .n_evicted = s.n_evicted,
                                    .degraded = kv_store_degraded(store_in(b)),
                                    .counts = { .n_pauses = s.n_pauses,
                                                .n_recovered = s.n_recovered,
                                                .n_removed = s.n_foreign_segments + s.n_dead_segments,
                                                .n_gave_way = s.n_other_removed,
                                                .n_claimed = s.n_claimed,
                                                .n_paused = s.paused,
                                                .n_locked = s.n_locked_segments,
                                                .n_damaged = s.n_damaged_segments,
                                                .n_unread = s.n_unread_segments,
                                                .n_foreign = s.n_foreign } };
}

static enum status check(const struct kv_below *b) { return kv_store_check(store_in(b)); }

static uint64_t purge(struct kv_below *b) { return kv_store_purge(kv_store_of(b)); }

static bool unproven(const struct kv_below *b) { return kv_store_unproven(store_in(b)); }

static bool canary(struct kv_below *b, struct kv_key *key_out) { return kv_store_canary(kv_store_of(b), key_out); }

static void believe(struct kv_below *b) { kv_store_believe(kv_store_of(b)); }

static bool hopeless(const struct kv_below *b) { return kv_store_hopeless(store_in(b)); }

static uint64_t forget_found(struct kv_below *b) { return kv_store_forget_found(kv_store_of(b)); }

static const struct kv_below_proof proof = {
    .unproven = unproven, .canary = canary, .believe = believe, .hopeless = hopeless, .forget_found = forget_found
};

const struct kv_below_row kv_folder = { .name = "a folder",
                                        .tier = KV_TIER_STORE,
                                        .kind = XFER_FILE,
                                        .open = open_folder,
                                        .close = close_folder,
                                        .find = find,
                                        .has = has,
                                        .read = read_record,
                                        .read_done = read_done,
                                        .write = write_record,
                                        .write_done = write_done,
                                        .takes = takes,
                                        .turn = turn,
                                        .busy = busy,
                                        .stats = stats,
                                        .check = check,
                                        .purge = purge,
                                        .proof = &proof,
                                        .holds = holds,
                                        .each = each };
