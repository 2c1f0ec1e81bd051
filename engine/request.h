/* request: the fields of a request to the engine, and of its answer.   Thread: see each part.
 *
 * The submitter (an io thread) owns the request's memory. It fills the first part, calls eng_submit, and from ST_OK on
 * must not change or free anything until it pops the request with ENG_FINAL from its outbox ring. Meanwhile the engine
 * writes tokens straight into the choices' arrays, stores n_out, and pushes at most one notification at a time, so the
 * outbox never needs more than 2 slots per request and a slow reader costs the engine nothing. */
#pragma once
#include "base/ring.h"
#include "base/status.h"
#include "engine/guide.h"
#include "engine/model/adapter.h"
#include "kvcache/below.h"
#include "kvcache/device/kv.h"
#include "kvcache/parcel.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum eng_finish {
    ENG_NONE = 0, /* still running                                        */
    ENG_STOP,     /* an end-of-sequence id or one of stop_id              */
    ENG_LENGTH,   /* max_tokens or the context is full                    */
    ENG_CANCELED, /* eng_cancel                                           */
    ENG_TIMEOUT,  /* its deadline has passed                              */
    ENG_ERROR,    /* NaN logits, device lost: see eng_request.status      */
    ENG_UNCACHED, /* less of its prompt is cached than hit_share asks for: it was not begun */
    ENG_FINISHES
};

struct eng_bias {
    uint32_t id;
    float    bias;
};
struct eng_top {
    uint32_t id;
    float    logprob;
};
enum { ENG_TOP_MAX = 20 };

/* Which rows of a prompt make its state, where the engine pools. */
enum eng_state_of { ENG_STATE_LAST, ENG_STATE_FIRST, ENG_STATE_SUM };

struct eng_sampling {
    float temperature;  /* 0: greedy                             */
    float top_p, min_p; /* 1 and 0: off                          */
    float presence, frequency,
        repetition;               /* 0, 0 and 1: off; presence and frequency count output, repetition prompt + output */
    uint32_t               top_k; /* 0: off                                */
    uint64_t               seed;  /* the submitter draws one when the client gave none; choice i uses stream i */
    uint32_t               max_tokens; /* >= 1, n_prompt + max_tokens <= context */
    uint32_t               min_tokens;
    bool                   ignore_eos;
    bool                   logprobs;        /* fill eng_choice.logprob (and top)     */
    uint32_t               n_top;           /* <= ENG_TOP_MAX                        */
    bool                   prompt_logprobs; /* fill prompt_logprob (no prefix match then) */
    enum eng_state_of      state_of;        /* not LAST: as eng_cfg.state_of (no prefix match then) */
    uint32_t               n_prompt_top;
    const uint32_t        *stop_id; /* besides the model's EOS ids     */
    const struct eng_bias *bias;
    const uint32_t        *allowed_id; /* n_allowed > 0: nothing else     */
    const uint32_t        *bad_word;   /* token sequences back to back: bad_word_start[n_bad_word + 1] */
    const uint32_t        *bad_word_start;
    uint32_t               n_stop_id, n_bias, n_allowed, n_bad_word;
};

/* One of n completions. Arrays are the submitter's: id[max_tokens]; logprob, rank (may be NULL) alike; top[max_tokens *
 * n_top]. */
struct eng_choice {
    uint32_t        *id;
    float           *logprob;
    struct eng_top  *top;
    _Atomic uint32_t n_out;       /* release after the arrays are written                       */
    _Atomic int      finish;      /* enum eng_finish; read it BEFORE n_out, both with acquire   */
    uint32_t         stop_id;     /* valid with ENG_STOP: the id that ended it (it is the last of id[]) */
    bool             stop_is_eos; /* it was an EOS id of the model, not one of stop_id       */
    struct guide    *guide;       /* or NULL: its grammar (guide.h), the submitter's; one for each choice */
    _Atomic bool     canceled;    /* submitter: this choice alone is enough (stop string found) */
};

enum { ENG_TENANT_ANY = 0 };

struct eng_request {
    /* submitter */
    uint64_t            id; /* for logs */
    const uint32_t     *prompt;
    uint32_t            n_prompt; /* >= 1 */
    struct eng_sampling s;
    uint32_t            n_choice; /* >= 1 */
    struct eng_choice  *choice;
    int32_t             priority; /* lower runs earlier; 0 default        */
    uint64_t            tenant;   /* fairness is between tenants           */
    struct kv_salt      salt;
    struct adapter *adapter; /* or NULL: the model alone; kept by the submitter, whose salt says so (adapter_salt) */
    struct kv_keep keep; /* how its prefix is kept; pin_s: for the prompt, counted from the first token of the answer */
    struct kv_parcel *parcel; /* or NULL: its prompt is kept for another server; MADE or NONE with the final message */
    struct kv_claim  *claim;  /* or NULL: its prompt was computed by another server */
    /* 0 .. 1: this share of the prompt, or all of it that can be cached, must be cached when the request is admitted,
     * or it ends with ENG_UNCACHED. Of a preempted request nothing is asked again. */
    double       hit_share;
    uint64_t     deadline_us; /* clock_us() time; 0: none            */
    struct ring *outbox;      /* of the submitting io thread            */
    void        *user;
    /* prompt_logprobs: index i is the logprob of prompt[i] given those before; [0] unused */
    float          *prompt_logprob;
    uint32_t       *prompt_rank;
    struct eng_top *prompt_top; /* [n_prompt * n_prompt_top] */
    /* of an engine that pools (eng_cfg.state_dim): [state_dim] zeros, which become the state of the prompt's last row,
     * of its first row that counts, or the sum of all such rows' states in their order (s.state_of); NULL: nobody
     * wants it */
    double *state;
    /* of s.state_of FIRST and SUM: the first row that counts; of SUM it may be n_prompt: then the sum is 0 */
    uint32_t state_from;
    uint32_t
        second; /* where the second text of a pair begins in the prompt, of a model that tells them apart; 0: nowhere */

    /* engine, readable by the submitter after ENG_FINAL (n_cached, t_first_us: once n_out > 0) */
    uint32_t n_cached;                /* prompt tokens that were not computed, from the prefix cache */
    uint32_t n_cached_from[KV_TIERS]; /* part of n_cached: loaded for this request, by tier */
    uint32_t n_pinned;                /* keep.pin_s: pinned prompt tokens; fewer than asked for if pins have no room */
    uint32_t n_preempted;
    uint64_t t_submit_us, t_load_us, t_sched_us, t_first_us,
        t_last_us;      /* t_load_us: it began to wait for lower tiers; 0: it did not */
    enum status status; /* ST_OK, or why it ended in ENG_ERROR */

    /* both */
    _Atomic bool canceled; /* set by eng_cancel */
    _Atomic bool notified; /* a notification is in the outbox; the reader clears it before it reads n_out */

    void *priv; /* engine */
};

/* Every row of its prompt must be computed here, once: a cached prefix has no results. */
static inline bool eng_wants_rows(const struct eng_request *r)
{
    return r->s.prompt_logprobs || r->s.state_of != ENG_STATE_LAST;
}

/* of: as eng_cfg.state_of, the rows that the engine has room for beside the last ones. */
static inline bool eng_state_fits(const struct eng_request *r, enum eng_state_of of)
{
    if (r->s.state_of == ENG_STATE_LAST) return !r->state_from;
    return r->s.state_of == of && r->state_from < r->n_prompt + (of == ENG_STATE_SUM);
}

/* Where cached prompt tokens were found. */
enum eng_source { ENG_FROM_DEVICE, ENG_FROM_TIER, ENG_SOURCES = ENG_FROM_TIER + KV_TIERS }; /* ENG_FROM_TIER + tier */
/* Requests that wait are counted by who asks (without a key, with one) and by priority (before others, plain,
 * after). */
enum { ENG_ASKERS = 2, ENG_RANKS = 3, ENG_CLASSES = ENG_ASKERS * ENG_RANKS };
static inline uint32_t eng_class_of(const struct eng_request *r)
{
    uint32_t rank = r->priority == 0 ? 1 : 2;
    if (r->priority < 0) rank = 0;
    return (r->tenant == ENG_TENANT_ANY ? 0 : ENG_RANKS) + rank;
}

/* Messages in the outbox are request pointers. If the lowest bit is set, the message is final: the engine no longer
 * uses the request. */
static inline bool                eng_msg_is_final(const void *msg) { return ((uintptr_t)msg & 1u) != 0; }
static inline struct eng_request *eng_msg_request(void *msg)
{
    return (struct eng_request *)((uintptr_t)msg & ~(uintptr_t)1u);
}
