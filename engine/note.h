/* note: describes the step in flight, for a dump while the engine hangs.   Thread: engine writes, any reads.
 * It holds numbers only, no token and no text. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct flight;
enum { NOTE_SEQS_MAX = 16 };
struct note {
    _Atomic uint64_t step, submit_us; /* the step's number, from 1; 0: no step here */
    _Atomic uint32_t n_row, n_seq, n_sample, n_lp;
    struct {
        _Atomic uint64_t request;
        _Atomic uint32_t choice, first, n, n_prompt; /* rows [first, first + n) of the sequence */
    } seq[NOTE_SEQS_MAX];                            /* the first of n_seq */
};

/* Records step number `step` with the first NOTE_SEQS_MAX sequences of its flight. */
void note_take(struct note *n, const struct flight *f, uint64_t step);
void note_drop(struct note *n); /* the step has ended */
/* Writes complete lines of at most text_bytes in all; returns the number of bytes; 0 if no step is in flight. */
size_t note_print(const struct note *n, uint64_t now_us, char *text, size_t text_bytes);
