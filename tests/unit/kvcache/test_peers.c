/* The row of peers, with a peer that answers as it is told: what it has is used, and no lie of it gives a wrong block.
 * Over 500 lines: one row of places; the tests share the peer that answers as it is told. */
#include "peer_world.h"

/* ---- asking */

static void what_a_peer_has_is_pulled_and_its_lease_goes_back(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    assert_int_equal(come(&w, 1, HONEST, &u), BLOCKS * BT);
    assert_int_equal(fake.n_ask, 1); /* one question for all blocks */
    for (int i = 0; i < 5; i++) turn(&w, 100);
    assert_int_equal(fake.n_give_back, 1);
    assert_int_equal(fake.n_taken, BLOCKS); /* and the peer learns that they were taken */
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_PEER].hit_blocks, BLOCKS);
    assert_int_equal(st.tier[KV_TIER_PEER].n_doubt, 0);
    finish_user(&w, &u);
    close_peers_world(&w);
}

/* try_admit compares each block that is used with what its tokens say: no lie passes. */
static void no_lie_of_a_peer_is_used(enum lie lie)
{
    struct world w;
    struct user  u;
    open_peers_world(&w);
    for (uint32_t f = 1; f < 6; f++) {
        assert_int_equal(come(&w, f, lie, &u), 0);
        finish_user(&w, &u);
        idle(&w, 50, 100);
    }
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    if (lie == HEAD) assert_true(st.doubt[KV_DOUBT_HEAD] >= PEER_BAD_MAX && st.doubt[KV_DOUBT_PAYLOAD] == 0);
    assert_int_equal(fake.n_drop, 1); /* after three of them it is left alone, and asked no more */
    assert_true(fake.n_ask <= 4);
    assert_int_equal(fake.n_give_back <= fake.n_ask, 1);
    close_peers_world(&w);
}

static void G4_blocks_that_are_not_what_was_asked_for_are_computed(void **state)
{
    (void)state;
    const enum lie lies[] = { OTHER_BLOCK, OTHER_TENANT, OTHER_MODEL, OTHER_SEED, STALE, NOTHING };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) no_lie_of_a_peer_is_used(lies[i]);
}

/* The lane's queue is full when it is to be told: it is told later, and once. */
static void a_peer_is_left_alone_also_if_the_lane_is_busy(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    fake.n_full = 3;
    assert_int_equal(come(&w, 1, FLIPPED, &u), 0);
    finish_user(&w, &u);
    idle(&w, 50, 100);
    assert_int_equal(fake.n_full, 0);
    assert_int_equal(fake.n_drop, 1);
    close_peers_world(&w);
}

static void G5_blocks_that_came_damaged_are_computed(void **state)
{
    (void)state;
    no_lie_of_a_peer_is_used(FLIPPED);
    no_lie_of_a_peer_is_used(TRUNCATED);
    no_lie_of_a_peer_is_used(HEAD);
}

static void G7_answers_that_are_lost_doubled_or_of_another_question_harm_nobody(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    assert_int_equal(come(&w, 1, TWICE, &u), BLOCKS * BT);
    finish_user(&w, &u);
    assert_int_equal(come(&w, 2, SILENT, &u), 0); /* waited for, not for long */
    finish_user(&w, &u);
    assert_int_equal(come(&w, 3, OTHER_LEASE, &u), 0);
    finish_user(&w, &u);
    idle(&w, 30, 100000); /* and what was asked in vain is given up */
    assert_false(kv_tiers_busy(w.t));
    assert_int_equal(fake.n_give_back, fake.n_ask);
    assert_int_equal(come(&w, 4, FAR_SLOT, &u), 0);
    finish_user(&w, &u);
    close_peers_world(&w);
}

static void a_peer_that_goes_takes_what_is_known_of_it_along(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    ask_for(&u, 1, TOKENS, 1000);
    asked_by = &u;
    fill_slab(&w, &u, HONEST);
    assert_false(try_admit(&w, &u)); /* has asked */
    note_to(PEER_DOWN, 2);           /* behind the answer */
    while (!try_admit(&w, &u)) turn(&w, 100);
    assert_int_equal(u.n_hit, 0);
    finish_user(&w, &u);
    fake.epoch = 8; /* the same address, another process */
    note_to(PEER_UP, 2)->bytes = sizeof slab;
    turn(&w, 100);
    assert_int_equal(come(&w, 2, HONEST, &u), BLOCKS * BT);
    finish_user(&w, &u);
    close_peers_world(&w);
}

/* One in sixteen operations fails, half done and with wrong bytes; the peer is connected again whenever it was
 * dropped. */
static void G6_failing_operations_cost_time_alone(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    uint32_t     n_hit = 0, n_drop = 0;
    open_peers_world(&w);
    lane.fail_in = 16;
    for (uint32_t f = 1; f < 80; f++) {
        n_hit += come(&w, f, HONEST, &u); /* which is admitted, and compares */
        finish_user(&w, &u);
        idle(&w, 50, 100);
        if (fake.n_drop == n_drop) continue;
        n_drop = fake.n_drop;
        fake.epoch++;
        note_to(PEER_UP, 2)->bytes = sizeof slab;
        turn(&w, 100);
    }
    assert_true(lane.n_failed > 10);
    assert_true(n_hit > 20 * BLOCKS * BT);
    assert_int_equal(w.t->host.n_lent, 0);
    lane.fail_in = 0;
    close_peers_world(&w);
}

/* The client hangs up while its blocks are on their way. */
static void G10_nothing_is_left_of_a_prompt_that_went_while_it_waited(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    uint32_t free_before = kv_available_count(w.kv);
    for (uint64_t after = 0; after < 8; after++) { /* turns after its question */
        ask_for(&u, (uint32_t)after + 1, TOKENS, 1000);
        asked_by = &u;
        fake.lie = HONEST;
        fill_slab(&w, &u, HONEST);
        lane.stall_us = 5000;
        assert_false(try_admit(&w, &u));
        for (uint64_t i = 0; i < after; i++) {
            turn(&w, 300);
            if (try_admit(&w, &u)) break;
        }
        if (u.running)
            finish_user(&w, &u);
        else
            kv_tiers_forget(w.t, &u.want);
        idle(&w, 200, 10000); /* and what was out comes in */
        kv_evict_all(w.kv);
        assert_false(kv_tiers_busy(w.t));
        assert_int_equal(kv_available_count(w.kv), free_before);
    }
    lane.stall_us = 0;
    close_peers_world(&w);
}

static void G14_a_peer_that_is_slower_than_computing_is_not_waited_for(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    ask_for(&u, 1, TOKENS, 100); /* 4 ms to compute */
    asked_by = &u;
    fill_slab(&w, &u, HONEST);
    lane.stall_us = 50000;
    uint64_t begin = w.now;
    while (!try_admit(&w, &u)) {
        turn(&w, 100);
        assert_true(w.now - begin < 20000); /* asking, computing's time, and slack */
    }
    finish_user(&w, &u);
    lane.stall_us = 0;
    close_peers_world(&w);
}

/* ---- lending */

static struct peer_note *guest_asks(struct world *w, const struct user *u, uint64_t lease)
{
    struct kv_key     k = kv_key_root(&w->t->fingerprint, u->salt);
    struct peer_note *n = note_to(PEER_ASKED, 3);
    n->lease = lease;
    n->n = 3;
    for (int b = 0; b < 3; b++) {
        k = kv_key_next(&k, u->ids + b * BT, BT);
        memcpy(&n->key[b], &k, sizeof k);
    }
    fake.last_answer.n = 0;
    turn(w, 100);
    assert_int_equal(fake.last_answer.lease, lease);
    assert_int_equal(fake.last_answer.n, 3);
    return &fake.last_answer;
}

static void a_lease_keeps_blocks_where_they_are_until_it_ends(void **state)
{
    (void)state;
    struct world w;
    struct user  u, more;
    open_peers_world(&w);
    fake.lie = SILENT;
    asked_by = &u;
    run_alone(&w, 1, 17, &u);
    struct kv_host         *h = &w.t->host;
    const struct peer_note *a = guest_asks(&w, &u, 5);
    for (int b = 0; b < 3; b++) {
        assert_true(a->where[b].found);
        const struct host_slot *s = &h->slot[a->where[b].slot];
        assert_true(digest_equal(s->payload, a->where[b].payload));
        assert_int_equal(s->readers, 1);
        assert_int_equal(kv_record_check(slot_page(h, (int32_t)a->where[b].slot), &w.t->cfg.key, &w.t->fingerprint,
                                         NULL, u.ids + b * BT, BT, BLOCK, KV_SEQ_ANY),
                         KV_SURE);
    }
    assert_int_equal(h->n_lent, 3);
    uint32_t slot = a->where[0].slot;
    for (uint32_t f = 2; f < 14; f++) { /* far more than the host holds: what is lent stays */
        run_alone(&w, f, 17, &more);
        assert_int_equal(h->slot[slot].readers, 1);
    }
    note_to(PEER_GAVE_BACK, 3)->lease = 5;
    turn(&w, 100);
    assert_int_equal(h->n_lent, 0);

    run_alone(&w, 20, 17, &u);
    guest_asks(&w, &u, 6);
    assert_int_equal(h->n_lent, 3);
    turn(&w, PEER_LEASE_MS * 1000 + 1000); /* never given back: it ends by itself */
    assert_int_equal(h->n_lent, 0);
    guest_asks(&w, &u, 7);
    assert_int_equal(h->n_lent, 3);
    note_to(PEER_GONE, 3); /* the guest died */
    turn(&w, 100);
    assert_int_equal(h->n_lent, 0);
    for (uint64_t i = 0; i < 10; i++) guest_asks(&w, &u, 100 + i); /* no guest gets more than its share */
    assert_true(h->n_lent <= h->n_slot / 4);
    close_peers_world(&w);
}

/* ---- parcels (kvcache/parcel.h) */

static const unsigned char engine_of_peer[KV_PARCEL_ID] = "the peer's own";

/* A prompt runs here, and ends with its blocks kept for another server. */
static void publish(struct world *w, uint32_t family, struct kv_parcel *p, struct user *u)
{
    ask_for(u, family, 18, 100);
    for (int i = 0; !try_admit(w, u); i++) {
        assert_true(i < 10000);
        turn(w, 100);
    }
    kv_tiers_publish(w->t, &u->s, u->n, p);
    finish_user(w, u);
    for (int i = 0; p->state == KV_PARCEL_MAKING; i++) {
        assert_true(i < 1000);
        turn(w, 100);
    }
    assert_int_equal(p->state, KV_PARCEL_MADE);
}

/* A guest says that it wants a parcel, or is done with it. The salt is that of its own client. */
static void guest_claims(struct world *w, const struct kv_parcel *p, const struct user *u, uint64_t salt, bool done)
{
    struct kv_key     k = kv_key_root(&w->t->fingerprint, (struct kv_salt){ salt, u->salt.hi });
    struct peer_note *n = note_to(PEER_CLAIMED, 3);
    k = kv_key_next(&k, u->ids, BT);
    memcpy(n->id, p->id, sizeof n->id);
    memcpy(&n->first, &k, sizeof k);
    n->done = done;
    turn(w, 100);
}

static void a_parcel_stays_in_its_slots_until_its_taker_is_done(void **state)
{
    (void)state;
    struct world     w;
    struct user      u, more;
    int32_t          slot[8];
    struct kv_parcel p = { .n_block_max = 8, .slot = slot };
    open_peers_world(&w);
    fake.lie = SILENT;
    struct kv_host *h = &w.t->host;
    publish(&w, 1, &p, &u);
    assert_int_equal(p.n_block, 18 / BT);
    assert_int_equal(h->n_kept, 18 / BT);
    for (uint32_t b = 0; b < p.n_block; b++)
        assert_int_equal(kv_record_check(slot_page(h, slot[b]), &w.t->cfg.key, &w.t->fingerprint, NULL, u.ids + b * BT,
                                         BT, BLOCK, KV_SEQ_ANY),
                         KV_SURE);
    for (uint32_t f = 2; f < 14; f++) { /* far more than the host holds */
        asked_by = &more;
        run_alone(&w, f, 17, &more);
        guest_claims(&w, &p, &u, u.salt.lo, false);
    }
    assert_int_equal(h->n_kept, 18 / BT);
    turn(&w, KV_PARCEL_US - 10000);
    guest_claims(&w, &p, &u, u.salt.lo, false); /* it still waits in a queue */
    turn(&w, KV_PARCEL_US - 10000);
    assert_int_equal(h->n_kept, 18 / BT);
    guest_claims(&w, &p, &u, u.salt.lo + 1, true); /* another tenant, who has seen the parcel's id */
    assert_int_equal(h->n_kept, 18 / BT);
    guest_claims(&w, &p, &u, u.salt.lo, true);
    assert_int_equal(h->n_kept, 0);
    guest_claims(&w, &p, &u, u.salt.lo, true); /* a repetition */
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_true(st.parcels.n_made == 1 && st.parcels.n_taken == 1 && st.parcels.n_lapsed == 0);
    close_peers_world(&w);
}

static void G10_a_parcel_that_nobody_claims_ends_by_itself(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    int32_t               slot[8];
    struct kv_parcel      p = { .n_block_max = 8, .slot = slot };
    struct kv_tiers_stats st;
    open_peers_world(&w);
    fake.lie = SILENT;
    asked_by = &u;
    publish(&w, 1, &p, &u);
    guest_claims(&w, &p, &u, u.salt.lo + 1, false); /* not its taker */
    turn(&w, KV_PARCEL_US);
    assert_int_equal(w.t->host.n_kept, 0);
    kv_tiers_stats(w.t, &st);
    assert_true(st.parcels.n_lapsed == 1 && st.parcels.n_now == 0 && st.parcels.n_block == 0);
    close_peers_world(&w);
}

/* The host holds no more of them than half of it: what has no room is kept in part, or not at all. */
static void parcels_leave_half_of_the_host_to_others(void **state)
{
    (void)state;
    struct world     w;
    struct user      u;
    int32_t          slot[8];
    struct kv_parcel p = { .n_block_max = 8, .slot = slot };
    uint32_t         n_kept = 0, n_none = 0;
    open_peers_world(&w);
    fake.lie = SILENT;
    asked_by = &u;
    for (uint32_t f = 1; f < 9; f++) {
        p.state = KV_PARCEL_NONE;
        publish(&w, f, &p, &u);
        n_kept += p.n_block;
        n_none += p.n_block == 0;
        assert_int_equal(w.t->host.n_kept, n_kept);
        assert_true(n_kept <= HOST_SLOTS / 2);
    }
    assert_true(n_kept == HOST_SLOTS / 2 && n_none > 0);
    struct kv_parcel gone = { .n_block_max = 8, .slot = slot };
    ask_for(&u, 20, 18, 100);
    while (!try_admit(&w, &u)) turn(&w, 100);
    kv_tiers_publish(w.t, &u.s, u.n, &gone);
    kv_tiers_unpublish(w.t, &gone); /* the engine stops */
    memset(&gone, 0xee, sizeof gone);
    finish_user(&w, &u);
    idle(&w, 50, 100);
    assert_int_equal(w.t->host.n_kept, n_kept);
    close_peers_world(&w);
}

/* A prompt that a peer computed comes, with a claim. Returns how the claim ended. */
static enum kv_claim_end come_with(struct world *w, uint32_t family, enum lie lie, struct kv_claim *c, struct user *u)
{
    struct kv_tiers_stats before, after;
    kv_tiers_stats(w->t, &before);
    ask_for(u, family, TOKENS, 1); /* computing would be quicker than any load */
    asked_by = u;
    fake.lie = lie;
    fill_slab(w, u, lie);
    u->want.claim = c;
    kv_tiers_claim(w->t, c, u->salt, u->ids, u->n);
    for (int i = 0; !try_admit(w, u); i++) {
        assert_true(i < 50000);
        turn(w, i < 100 ? 100 : 10000); /* who has not answered by then may take his second */
    }
    kv_tiers_claim_end(w->t, &u->want, u->n, u->n_hit, KV_CLAIM_ENDS);
    kv_tiers_stats(w->t, &after);
    for (int i = 0; i < KV_CLAIM_ENDS; i++)
        if (after.claim[i] != before.claim[i]) return (enum kv_claim_end)i;
    return KV_CLAIM_ENDS;
}

static struct kv_claim claim_of(const unsigned char engine[KV_PARCEL_ID], uint32_t n_block)
{
    struct kv_claim c = { .id = "its number", .n_block = n_block };
    memcpy(c.engine, engine, sizeof c.engine);
    return c;
}

static void meet_peer(struct world *w, uint32_t peer, const unsigned char engine[KV_PARCEL_ID])
{
    struct peer_note *n = note_to(PEER_UP, peer);
    n->bytes = sizeof slab;
    memcpy(n->id, engine, sizeof n->id);
    turn(w, 100);
}

static void what_is_claimed_is_pulled_from_the_engine_that_is_named(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    meet_peer(&w, 5, engine_of_peer); /* beside another one */
    struct kv_claim c = claim_of(engine_of_peer, BLOCKS);
    assert_int_equal(come_with(&w, 1, HONEST, &c, &u), KV_CLAIM_PULLED); /* whatever that costs */
    assert_true(fake.n_ask == 1 && fake.asked_peer == 5);
    assert_int_equal(u.n_hit, BLOCKS * BT);
    assert_true(fake.n_done == 1 && fake.last_claim.done && fake.last_claim.n == BLOCKS);
    assert_memory_equal(fake.last_claim.id, c.id, sizeof c.id);
    assert_int_equal(fake.last_claim.peer, 5);
    finish_user(&w, &u);
    c = claim_of(engine_of_peer, BLOCKS);
    assert_int_equal(come_with(&w, 1, HONEST, &c, &u), KV_CLAIM_HERE); /* replayed */
    finish_user(&w, &u);
    close_peers_world(&w);
}

static void a_claim_that_cannot_be_met_is_computed_and_counted(void **state)
{
    (void)state;
    struct world        w;
    struct user         u;
    const unsigned char stranger[KV_PARCEL_ID] = "nobody";
    const struct {
        enum lie          lie;
        uint32_t          n_block;
        bool              known;
        uint32_t          n_done; /* the peer is told, unless it was dropped for its lies */
        enum kv_claim_end end;
    } row[] = { { SILENT, BLOCKS, false, 0, KV_CLAIM_NO_PEER }, { SILENT, BLOCKS, true, 1, KV_CLAIM_MISSING },
                { FLIPPED, BLOCKS, true, 0, KV_CLAIM_LOST },    { OTHER_TENANT, BLOCKS, true, 0, KV_CLAIM_LOST },
                { HONEST, 10000, true, 1, KV_CLAIM_MISMATCH },  { SILENT, 0, true, 0, KV_CLAIM_HERE } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        open_peers_world(&w);
        meet_peer(&w, 5, engine_of_peer);
        struct kv_claim c = claim_of(row[i].known ? engine_of_peer : stranger, row[i].n_block);
        assert_int_equal(come_with(&w, (uint32_t)i + 1, row[i].lie, &c, &u), row[i].end);
        assert_true(fake.n_done == row[i].n_done || (row[i].end == KV_CLAIM_LOST && fake.n_drop == 0));
        finish_user(&w, &u);
        close_peers_world(&w);
    }
}

/* As many others are being loaded as can be: a prompt that another server has computed waits for its turn. */
static void a_claim_waits_for_a_load_to_end(void **state)
{
    (void)state;
    struct world    w;
    struct user     u;
    struct kv_claim c = claim_of(engine_of_peer, BLOCKS);
    open_peers_world(&w);
    meet_peer(&w, 5, engine_of_peer);
    for (int i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &w.t->load[i];
        l->used = l->settled = true;
        l->n_waiter = 1;
        l->hold_us = UINT64_MAX;
    }
    ask_for(&u, 1, TOKENS, 1);
    asked_by = &u;
    fake.lie = HONEST;
    fill_slab(&w, &u, HONEST);
    u.want.claim = &c;
    kv_tiers_claim(w.t, &c, u.salt, u.ids, u.n);
    for (int i = 0; i < 50; i++) {
        assert_false(try_admit(&w, &u));
        turn(&w, 10000);
    }
    for (int i = 0; i < KV_LOADS_MAX; i++) w.t->load[i].used = false;
    for (int i = 0; !try_admit(&w, &u); i++) {
        assert_true(i < 1000);
        turn(&w, 100);
    }
    assert_int_equal(u.n_hit, BLOCKS * BT);
    kv_tiers_claim_end(w.t, &u.want, u.n, u.n_hit, KV_CLAIM_ENDS);
    finish_user(&w, &u);
    close_peers_world(&w);
}

static void a_claim_is_repeated_while_its_prompt_waits(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_peers_world(&w);
    meet_peer(&w, 5, engine_of_peer);
    struct kv_claim c = claim_of(engine_of_peer, BLOCKS);
    ask_for(&u, 1, TOKENS, 1000);
    kv_tiers_claim(w.t, &c, u.salt, u.ids, u.n);
    assert_true(fake.n_claim == 1 && !fake.last_claim.done);
    idle(&w, 50, 100000); /* 5 s in a queue */
    assert_true(fake.n_claim >= 5 && fake.n_done == 0);
    uint32_t n = fake.n_claim;
    u.want.claim = &c;
    kv_tiers_claim_end(w.t, &u.want, u.n, 0, KV_CLAIM_UNUSED); /* its client went */
    assert_true(fake.n_claim == n + 1 && fake.n_done == 1);
    idle(&w, 30, 100000);
    assert_int_equal(fake.n_claim, n + 1);
    close_peers_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_peer_has_is_pulled_and_its_lease_goes_back),
        cmocka_unit_test(G4_blocks_that_are_not_what_was_asked_for_are_computed),
        cmocka_unit_test(a_peer_is_left_alone_also_if_the_lane_is_busy),
        cmocka_unit_test(G5_blocks_that_came_damaged_are_computed),
        cmocka_unit_test(G7_answers_that_are_lost_doubled_or_of_another_question_harm_nobody),
        cmocka_unit_test(G6_failing_operations_cost_time_alone),
        cmocka_unit_test(G10_nothing_is_left_of_a_prompt_that_went_while_it_waited),
        cmocka_unit_test(G14_a_peer_that_is_slower_than_computing_is_not_waited_for),
        cmocka_unit_test(a_peer_that_goes_takes_what_is_known_of_it_along),
        cmocka_unit_test(a_lease_keeps_blocks_where_they_are_until_it_ends),
        cmocka_unit_test(a_parcel_stays_in_its_slots_until_its_taker_is_done),
        cmocka_unit_test(G10_a_parcel_that_nobody_claims_ends_by_itself),
        cmocka_unit_test(parcels_leave_half_of_the_host_to_others),
        cmocka_unit_test(what_is_claimed_is_pulled_from_the_engine_that_is_named),
        cmocka_unit_test(a_claim_that_cannot_be_met_is_computed_and_counted),
        cmocka_unit_test(a_claim_is_repeated_while_its_prompt_waits),
        cmocka_unit_test(a_claim_waits_for_a_load_to_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
