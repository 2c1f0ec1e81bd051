/* detok: ids -> text as they come: never half a character, never part of a stop string.
 * detok_init -> detok_push* -> detok_finish -> detok_free.   Thread: the call's owner.
 * The concatenation of all that is emitted equals the decoding of the whole id sequence by the `tokenizers` library, cut at the stop. */
#pragma once
#include "api/tokenizer.h"
#include "base/buf.h"

struct detok_stop { const char *text; size_t n; };
struct detok_cfg {
    bool                     skip_special;    /* special tokens give no text */
    bool                     spaces_between_special;
    const struct detok_stop *stop;            /* borrowed; tried in order, earliest match in the text wins */
    uint32_t                 n_stop;
    bool                     include_stop;    /* emit the stop string itself too */
};
struct detok {
    const struct tok *tok;
    struct detok_cfg  cfg;
    struct buf        held;     /* bytes decoded and not yet emitted: an unfinished character, a possible stop prefix */
    unsigned char     tail[8];  /* bytes of an unfinished UTF-8 character */
    uint32_t          n_tail;
    bool              begun;    /* some text came already (leading-space strip of SentencePiece decoders) */
    bool              stopped;
    int32_t           stop_index; /* which stop string; -1 */
};

void detok_init(struct detok *d, const struct tok *t, const struct detok_cfg *cfg);
/* Appends to out the text that is certain now. With check_stop false, stop strings are not looked for in this token's text
 * (min_tokens not reached). Returns true when a stop string was found: nothing after it is ever emitted. */
bool detok_push(struct detok *d, uint32_t id, bool check_stop, struct buf *out);
void detok_finish(struct detok *d, struct buf *out); /* what was held; an unfinished character becomes U+FFFD */
void detok_free(struct detok *d);

/* All at once (/detokenize). */
void detok_all(const struct tok *t, const uint32_t *id, size_t n, bool skip_special, struct buf *out);
/* Text and raw bytes of one id as logprobs show it (standing alone; invalid UTF-8 as U+FFFD in text). */
void detok_one(const struct tok *t, uint32_t id, struct buf *bytes_out);
