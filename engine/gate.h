/* gate: says where in a choice's tokens its grammar binds. A model may write freely (its reasoning) before the text
 * that the grammar describes; the gate finds the marker at which that ends. The floor above the engine, which knows
 * markers, makes the gate; a guide (guide.h) owns it and feeds it.
 *
 * The grammar of a guide with a gate describes the answer from the marker on that ends the free text, the marker
 * included.
 * Thread: the one that works on the guide. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gate_phase {
    GATE_FREE,  /* any token may come, except those that end a sequence (unless `again`) */
    GATE_WATCH, /* the grammar binds, and the gate must see the next token too */
    GATE_BOUND, /* the grammar binds from here on */
};

/* A marker that ends the free text. */
struct gate_mark {
    const char *text; /* [n] its bytes, of which `begun` have come; n = 0: it counts only as the token */
    uint32_t    n, begun;
    uint32_t    token; /* UINT32_MAX: no token is this marker */
    const char *open;  /* [n_open] what the grammar begins with there; NULL: the marker */
    uint32_t    n_open;
    bool        near; /* the next token may end it */
    /* [n_whole] tokens at whose end all its bytes stand, with other text before them or without; borrowed. */
    const uint32_t *whole;
    uint32_t        n_whole;
};
enum {
    GATE_MARKS = 24, /* of a gate whose markers are always the same */
    GATE_NEAR = 128, /* of a gate that is `late` */
};

/* What the grammar takes where the free text ends: a token, or the bytes of the marker and those behind it. */
struct gate_open {
    const unsigned char *bytes; /* [n] valid until the next push; NULL: the token that was pushed */
    size_t               n;
};

struct gate;
struct gate_ops {
    /* Takes the choice's next token and returns the phase of the token after it. *open_out is set where a free text
     * ends. Allocates nothing. */
    enum gate_phase (*push)(struct gate *g, uint32_t token, struct gate_open *open_out);
    /* The text of the grammar is complete, and a free text follows (`again`). false: it goes on all the same. */
    bool (*restart)(struct gate *g);
    /* Whether the free text has come to a bound, so that nothing but *token_out may come next. */
    bool (*forced)(const struct gate *g, uint32_t *token_out);
    /* Writes the markers that may end the free text here, at most GATE_MARKS (GATE_NEAR), and returns how many. */
    uint32_t (*marks)(const struct gate *g, struct gate_mark *out);
    /* A new gate at the beginning of a text, for another choice. NULL: no memory. */
    struct gate *(*fork)(const struct gate *g);
    void (*drop)(struct gate *g);
};
/* The beginning of every gate. */
struct gate {
    const struct gate_ops *ops;
    enum gate_phase        first; /* the phase of the first token */
    bool                   again; /* the text is free again where a text of the grammar has ended, and may end there */
    bool                   late;  /* its markers depend on the text, and it has none but those that are near */
    /* [n_odd] tokens that hold such a marker and more. They are never allowed in a free text; hardly a vocabulary has
     * one. Borrowed. */
    const uint32_t *odd;
    uint32_t        n_odd;
};
