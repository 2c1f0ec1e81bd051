#include "engine/sample.h"
#include "base/check.h"
#include <stdlib.h>
#include <string.h>

static bool wants_prompt(const struct eng_sampling *p) { return p->repetition != 0.0f && p->repetition != 1.0f; }
static bool wants_hist(const struct eng_sampling *p)
{
    return wants_prompt(p) || p->presence != 0.0f || p->frequency != 0.0f;
}

struct sample_need sample_need(const struct seq *s, uint32_t n_eos)
{
    const struct eng_sampling *p = &s->r->s;
    struct sample_need         n = { .allow = p->n_allowed, .bias = p->n_bias, .ban = p->n_bad_word };
    if (s->c->guide) {
        n.mask = guide_words(s->c->guide);
        n.ban += n_eos + GATE_MARKS; /* for a text that is free for now */
    }
    if (wants_hist(p)) n.hist = wants_prompt(p) ? seq_n_ahead(s) : seq_n_out_ahead(s);
    if (seq_n_out_ahead(s) < p->min_tokens) n.ban += p->n_stop_id + n_eos;
    return n;
}

bool sample_fits(const struct batch *b, struct sample_need used, struct sample_need n)
{
    bool fits = true;
#define FITS(name, ...) fits = fits && n.name <= b->max.name##_max - used.name;
    DEV_LISTS(FITS)
#undef FITS
    return fits;
}

void sample_use(struct sample_need *used, struct sample_need n)
{
#define USE(name, ...) used->name += n.name;
    DEV_LISTS(USE)
#undef USE
}

void sample_unuse(struct sample_need *used, struct sample_need n)
{
#define UNUSE(name, ...) used->name -= n.name;
    DEV_LISTS(UNUSE)
#undef UNUSE
}

bool sample_possible(const struct batch *b, const struct eng_request *r, uint32_t n_eos)
{
    const struct eng_sampling *p = &r->s;
    uint64_t                   ban = (uint64_t)p->n_bad_word + p->n_stop_id + n_eos;
    uint64_t                   hist = wants_hist(p) ? (uint64_t)r->n_prompt + p->max_tokens : 0;
    for (uint32_t i = 0; i < r->n_choice; i++) {
        if (!r->choice[i].guide) continue;
        if (guide_words(r->choice[i].guide) > b->max.mask_max || ban + n_eos + GATE_MARKS > b->max.ban_max)
            return false;
    }
    return hist <= b->max.hist_max && ban <= b->max.ban_max && p->n_allowed <= b->max.allow_max &&
           p->n_bias <= b->max.bias_max;
}

bool sample_on_host(const struct eng_sampling *p)
{
    for (uint32_t w = 0; w < p->n_bad_word; w++) /* one of a single id is banned whatever comes before */
        if (p->bad_word_start[w + 1] - p->bad_word_start[w] > 1) return true;
    return false;
}

static void ban(struct batch *b, uint32_t id, uint32_t vocab)
{
    if (id >= vocab) return; /* cannot be drawn anyway */
    CHECK(b->n_ban < b->max.ban_max);
    b->ban[b->n_ban++] = id;
}

/* A bad word's last token is banned where the output ends with the tokens before it. */
static void ban_words(struct batch *b, const struct eng_sampling *p, const uint32_t *out, uint32_t n_out,
                      uint32_t vocab)
{
    for (uint32_t w = 0; w < p->n_bad_word; w++) {
        const uint32_t *word = p->bad_word + p->bad_word_start[w];
        uint32_t        n = p->bad_word_start[w + 1] - p->bad_word_start[w];
        if (!n || n - 1 > n_out) continue;
        if (!memcmp(out + n_out - (n - 1), word, (n - 1) * sizeof *word)) ban(b, word[n - 1], vocab);
    }
}

static void ban_more(struct batch *b, struct op_sample_row *o, uint32_t id, uint32_t vocab)
{
    if (id >= vocab) return;
    CHECK(o->ban_start + o->n_ban < b->max.ban_max);
    b->ban[o->ban_start + o->n_ban++] = id;
}

/* While a choice with a grammar writes freely it may not end, nor begin what the grammar does not allow. */
static void ban_ends(struct batch *b, struct op_sample_row *o, const struct guide *guide, const struct seq_limits *lim,
                     uint32_t vocab)
{
    uint32_t        n_refused;
    const uint32_t *refused = guide_refused(guide, &n_refused);
    for (uint32_t i = 0; i < lim->n_eos && !guide_may_end(guide); i++) ban_more(b, o, lim->eos_id[i], vocab);
    for (uint32_t i = 0; i < n_refused; i++) ban_more(b, o, refused[i], vocab);
}

/* What the guide says of the next token, behind the entry's other bans and at the begin of its mask. */
static void add_guide(struct batch *b, struct op_sample_row *o, const struct seq *s, const struct seq_limits *lim,
                      uint32_t vocab)
{
    const struct guide *guide = s->c->guide;
    CHECK(guide_state(guide) == GUIDE_READY);
    const uint32_t *mask = guide_mask(guide, &o->n_mask);
    CHECK(o->n_mask <= b->max.mask_max - o->mask_start);
    memcpy(b->mask + o->mask_start, mask, o->n_mask * sizeof *mask);
    if (!o->n_mask && !s->r->s.ignore_eos) ban_ends(b, o, guide, lim, vocab);
}

void sample_mask(struct batch *b, uint32_t k, const struct seq *s, const struct seq_limits *lim, uint32_t vocab)
{
    add_guide(b, &b->sample[k], s, lim, vocab);
}

void sample_add(struct batch *b, const struct seq *s, const uint32_t *ids, uint32_t row, const struct seq_limits *lim,
                uint32_t vocab)
{
    const struct eng_sampling *p = &s->r->s;
    struct op_sample_row      *o = batch_add_sample(b, row);
    uint32_t                   n_out = seq_n_out_ahead(s);
    o->temperature = p->temperature;
    o->top_p = p->top_p;
    o->min_p = p->min_p;
    o->top_k = p->top_k;
    o->presence = p->presence;
    o->frequency = p->frequency;
    o->repetition = p->repetition == 0.0f ? 1.0f : p->repetition;
    /* The draw depends on (seed, choice, position) alone: the same in any batch, and again after a preemption. */
    o->seed = p->seed;
    o->stream = s->choice;
    o->counter = n_out;
    o->n_top = p->logprobs ? p->n_top : 0;

    o->hist_start = b->n_hist;
    if (wants_hist(p)) {
        o->n_prompt = wants_prompt(p) ? s->n_prompt : 0; /* the other two count output alone */
        o->n_hist = o->n_prompt + n_out;
        CHECK(o->n_hist <= b->max.hist_max - b->n_hist);
        memcpy(b->hist + b->n_hist, ids + s->n_prompt - o->n_prompt, o->n_hist * sizeof *ids);
        b->n_hist += o->n_hist;
        if (s->fly_token) batch_patch_hist(b, b->n_hist - 1, s->fly_sample);
    }
    o->ban_start = b->n_ban;
    if (n_out < p->min_tokens) {
        for (uint32_t i = 0; !p->ignore_eos && i < lim->n_eos; i++) ban(b, lim->eos_id[i], vocab);
        for (uint32_t i = 0; i < p->n_stop_id; i++) ban(b, p->stop_id[i], vocab);
    }
    ban_words(b, p, ids + s->n_prompt, n_out, vocab);
    o->n_ban = b->n_ban - o->ban_start;
    o->mask_start = b->n_mask;
    if (s->late) {
        struct sample_need room = { .ban = lim->n_eos + GATE_MARKS, .mask = guide_words(s->c->guide) };
        CHECK(room.ban <= b->max.ban_max - b->n_ban && room.mask <= b->max.mask_max - b->n_mask);
        memset(b->ban + b->n_ban, 0, room.ban * sizeof *b->ban); /* they travel, and nobody reads them */
        memset(b->mask + b->n_mask, 0, room.mask * sizeof *b->mask);
        b->n_ban += room.ban;
        b->n_mask += room.mask;
    } else if (s->c->guide) {
        add_guide(b, o, s, lim, vocab);
        b->n_ban = o->ban_start + o->n_ban;
        b->n_mask += o->n_mask;
    }

    o->allow_start = b->n_allow;
    o->n_allow = p->n_allowed;
    CHECK(p->n_allowed <= b->max.allow_max - b->n_allow);
    if (p->n_allowed) memcpy(b->allow + b->n_allow, p->allowed_id, p->n_allowed * sizeof *p->allowed_id);
    b->n_allow += p->n_allowed;

    o->bias_start = b->n_bias;
    o->n_bias = p->n_bias;
    CHECK(p->n_bias <= b->max.bias_max - b->n_bias);
    for (uint32_t i = 0; i < p->n_bias; i++) b->bias[b->n_bias++] = (struct op_bias){ p->bias[i].id, p->bias[i].bias };
}

bool sample_leaves_none(const struct batch *b, uint32_t k, uint32_t vocab)
{
    const struct op_sample_row *o = &b->sample[k];
    uint32_t                    n_word = (vocab + 31) / 32, any = 0;
    if (!o->n_allow && !o->n_mask && !o->n_ban) return false;
    uint32_t *left = calloc(n_word, sizeof *left); /* a bit for each id */
    if (!left) return false;
    for (uint32_t i = 0; i < o->n_allow; i++) {
        uint32_t id = b->allow[o->allow_start + i];
        if (id < vocab) left[id / 32] |= (uint32_t)1 << id % 32;
    }
    for (uint32_t id = 0; !o->n_allow && id < vocab; id++) left[id / 32] |= (uint32_t)1 << id % 32;
    for (uint32_t w = 0; o->n_mask && w < n_word; w++) left[w] &= w < o->n_mask ? b->mask[o->mask_start + w] : 0;
    for (uint32_t i = 0; i < o->n_ban; i++) {
        uint32_t id = b->ban[o->ban_start + i];
        if (id < vocab) left[id / 32] &= ~((uint32_t)1 << id % 32);
    }
    for (uint32_t w = 0; w < n_word; w++) any |= left[w];
    free(left);
    return !any;
}
