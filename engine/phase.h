/* phase: tells how long the parts of an engine's turn take, how much of it is the host's own work, and how long the
 * device stands still between two steps.   Thread: engine; the atomics: any.
 * phase_begin -> phase_end, once for each part -> phase_turn. An engine that is stepped by hand has no clock and
 * measures nothing. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The parts of a turn, in their order, with the names that metrics give them. SUBMIT: a step is handed to the device.
 * WAIT: its results are waited for; where the engine's own thread computes them, that is the computing. */
#define PHASE_LIST(X)       \
    X(MESSAGES, "messages") \
    X(TIERS, "tiers")       \
    X(PLAN, "plan") X(FILL, "fill") X(SUBMIT, "submit") X(WAIT, "wait") X(APPLY, "apply") X(PUBLISH, "publish")
enum phase {
#define PHASE_ID(id, name) PHASE_##id,
    PHASE_LIST(PHASE_ID)
#undef PHASE_ID
        PHASES
};

enum { PHASE_TIMES = 14 };
extern const uint32_t phase_bound_us[PHASE_TIMES - 1]; /* upper bounds; the last class has none */

struct phase_times {
    _Atomic uint64_t time[PHASE_TIMES], sum_us; /* how many by their time; the time of all */
};
struct phases {
    bool               on;             /* there is a clock */
    uint64_t           at_us, host_us; /* of this turn: the last part's end; the host's time so far */
    _Atomic uint64_t   us[PHASES];
    struct phase_times host, gap; /* per step: the host's time; the device's time without work, though there was some */
};

/* A turn of the engine begins. */
void phase_begin(struct phases *p, uint64_t now_us);
/* The time since the last of these two calls belongs to part `which` of the turn. */
void phase_end(struct phases *p, enum phase which, uint64_t now_us);
/* The turn has ended. stepped: a step began or ended in it, so its time is one of a step. */
void phase_turn(struct phases *p, bool stepped);
/* The device had nothing to do for so long before a step. */
void phase_gap(struct phases *p, uint64_t us);
