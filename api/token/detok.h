/* detok: ids -> text as they come: never half a character, never part of a stop string.
 * detok_init -> detok_push* -> detok_finish -> detok_free.   Thread: the call's owner.
 * The concatenation of all that is emitted equals the decoding of the whole id sequence by the `tokenizers` library,
 * cut at the stop. */
#pragma once
#include "api/token/tokenizer.h"
#include "base/buf.h"

struct detok_stop {
    const char *text;
    size_t      n;
};
struct detok_cfg {
    bool                     skip_special;           /* special tokens give no text */
    bool                     spaces_between_special; /* no effect: the library has it for its slow tokenizers alone */
    const struct detok_stop *stop; /* borrowed; the match that ends first wins, of those the one that begins first */
    uint32_t                 n_stop;
    bool                     include_stop; /* emit the stop string itself too */
};
struct detok {
    const struct tok *tok;
    struct detok_cfg  cfg;
    struct buf        held;    /* text decoded and not yet emitted: a possible stop prefix */
    struct buf        run;     /* byte tokens of a run that is not over (ByteFallback); the last token (BPEDecoder) */
    struct buf        work[2]; /* scratch of one token */
    unsigned char     tail[8]; /* bytes of an unfinished UTF-8 character */
    uint32_t          n_tail;
    uint32_t          strip;   /* leading characters that the decoder may still take away */
    uint32_t          n_end;   /* characters held that it takes away if nothing follows */
    bool              begun;   /* a token came already */
    bool              run_bad; /* the run is no valid UTF-8, whatever follows */
    bool              check;   /* the last push looked for stop strings */
    bool              stopped;
    int32_t           stop_index; /* which stop string; -1 */
};

void detok_init(struct detok *d, const struct tok *t, const struct detok_cfg *cfg);
/* Appends to out the text that is certain now. With check_stop false, stop strings are not looked for in this token's
 * text (min_tokens not reached). Returns true when a stop string was found: nothing after it is ever emitted. */
bool detok_push(struct detok *d, uint32_t id, bool check_stop, struct buf *out);
/* The same of text that was decoded before: it goes through the stop strings alone. */
bool detok_put(struct detok *d, const char *s, size_t n, bool check_stop, struct buf *out);
void detok_finish(struct detok *d, struct buf *out); /* what was held; an unfinished character becomes U+FFFD */
void detok_free(struct detok *d);

/* All at once (/detokenize). */
void detok_all(const struct tok *t, const uint32_t *id, size_t n, bool skip_special, struct buf *out);
/* Text and raw bytes of one id as logprobs show it (standing alone; invalid UTF-8 as U+FFFD in text). */
void detok_one(const struct tok *t, uint32_t id, struct buf *bytes_out);
