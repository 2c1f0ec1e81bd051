#include "engine/note.h"
#include "engine/flight.h"
#include <inttypes.h>
#include <stdio.h>

#define PUT(field, v) atomic_store_explicit(&(field), (v), memory_order_relaxed)
#define GET(field)    atomic_load_explicit(&(field), memory_order_relaxed)

void note_take(struct note *n, const struct flight *f, uint64_t step)
{
    PUT(n->submit_us, f->submit_us);
    PUT(n->n_row, f->batch.n_row);
    PUT(n->n_seq, f->n_seq);
    PUT(n->n_sample, f->n_sample);
    PUT(n->n_lp, f->batch.n_lp);
    for (uint32_t i = 0; i < f->n_seq && i < NOTE_SEQS_MAX; i++) {
        const struct flight_seq *x = &f->seq[i];
        PUT(n->seq[i].request, x->s->r->id);
        PUT(n->seq[i].choice, x->s->choice);
        PUT(n->seq[i].first, x->first);
        PUT(n->seq[i].n, x->n);
        PUT(n->seq[i].n_prompt, x->s->n_prompt);
    }
    atomic_store_explicit(&n->step, step, memory_order_release);
}

void note_drop(struct note *n) { PUT(n->step, 0); }

#define LINE(...)                                                                                                \
    do {                                                                                                         \
        int n_ = at < text_bytes ? snprintf(text + at, text_bytes - at, __VA_ARGS__) : 0;                        \
        at += n_ > 0 && (size_t)n_ < text_bytes - at ? (size_t)n_ : 0; /* what does not fit whole is left out */ \
    } while (0)

size_t note_print(const struct note *n, uint64_t now_us, char *text, size_t text_bytes)
{
    uint64_t step = atomic_load_explicit(&n->step, memory_order_acquire), submit_us = GET(n->submit_us);
    uint32_t n_row = GET(n->n_row), n_seq = GET(n->n_seq);
    size_t   at = 0;
    if (!step) return 0;
    LINE("step %" PRIu64 ", submitted %.1f s ago: %s, %u rows of %u sequences, %u sampled, %u prompt logprobs\n", step,
         now_us > submit_us ? (double)(now_us - submit_us) / 1e6 : 0.0, n_row > n_seq ? "prompts" : "decode alone",
         n_row, n_seq, GET(n->n_sample), GET(n->n_lp));
    for (uint32_t i = 0; i < n_seq && i < NOTE_SEQS_MAX; i++) {
        uint32_t first = GET(n->seq[i].first), k = GET(n->seq[i].n), n_prompt = GET(n->seq[i].n_prompt);
        LINE("  request %016" PRIx64 ".%u: tokens %u to %u, its prompt has %u\n", GET(n->seq[i].request),
             GET(n->seq[i].choice), first, first + k - 1, n_prompt);
    }
    if (n_seq > NOTE_SEQS_MAX) LINE("  and %u more\n", n_seq - NOTE_SEQS_MAX);
    return at;
}
