/* slots: which adapters lie on the device, and who uses them.   Thread: engine.
 *
 * A sequence that runs with an adapter holds its slot. A slot that nobody holds keeps its adapter until another one
 * needs it: then the one whose last use lies furthest back gives way. The new adapter goes to the device with the next
 * step (batch_adapt), in order with the steps, so a step that was sent before reads what was there before.
 *
 * Where all slots are held, requests of further adapters wait, and others overtake them. One that was overtaken
 * SLOTS_PATIENCE times closes the slot with the fewest holders: nobody new may take it, so it becomes free when those
 * have ended, and nobody waits for ever. */
#pragma once
#include "engine/batch.h"
#include "engine/model/adapter.h"

enum { SLOTS_PATIENCE = 64 };

struct slot_use {
    uint64_t        serial; /* of the adapter that is there, or will be with the next step; 0: none */
    uint32_t        n_held;
    uint64_t        used; /* number of the last use */
    bool            closed;
    struct adapter *coming; /* kept: it goes with the next step; NULL: it is there */
};
struct slots {
    struct slot_use slot[LORA_SLOTS_MAX];
    uint32_t        n;
    uint64_t        n_use;
};

/* n slots, none of which has an adapter; at most LORA_SLOTS_MAX. slots_close lets go of what has not gone yet. */
void slots_init(struct slots *s, uint32_t n);
void slots_close(struct slots *s);
/* What lies on the device is in doubt: nothing counts as being there. No slot is held (CHECK). For tests whose engines
 * share a device. */
void slots_forget(struct slots *s);
/* Is there a slot for a sequence with this adapter (NULL: it needs none)? */
bool slots_allow(const struct slots *s, const struct adapter *a);
/* A request was refused by slots_allow for the n-th time. */
void slots_refused(struct slots *s, uint32_t n);
/* After slots_allow: the sequence holds a slot until slots_leave. Returns the slot's number + 1; 0: it needs none. */
uint32_t slots_enter(struct slots *s, struct adapter *a);
void     slots_leave(struct slots *s, uint32_t number);
/* Moves what is coming into the batch, whose adapters are then kept by it (slots_sent). */
void slots_fill(struct slots *s, struct batch *b);
/* The batch's step has ended: its adapters are let go. */
void slots_sent(struct batch *b);
