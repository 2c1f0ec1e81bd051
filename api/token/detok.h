/* detok: turns ids into text one id at a time. It never emits half a character or part of a stop string.
 * detok_init -> (detok_push, detok_put)* -> detok_finish -> detok_free.   Thread: the call's owner.
 * The emitted texts together equal the decoding of the whole id sequence by the `tokenizers` library, cut at the stop
 * string. The one exception is a run of more than RUN_MAX byte tokens that is not valid UTF-8 (detok.c). */
#pragma once
#include "api/token/tokenizer.h"
#include "base/buf.h"

struct detok_stop {
    const char *text;
    size_t      n;
};
struct detok_cfg {
    bool skip_special;           /* true: special tokens give no text */
    bool spaces_between_special; /* no effect: only the library's slow tokenizers use it */
    /* [n_stop], borrowed until detok_free. The match that ends first wins; among those, the one that begins first. */
    const struct detok_stop *stop;
    uint32_t                 n_stop;
    bool                     include_stop; /* true: the stop string itself is emitted too */
};
struct detok {
    const struct tok *tok;
    struct detok_cfg  cfg;
    struct buf        held;    /* decoded text that is not emitted yet, because it may begin a stop string */
    struct buf        run;     /* bytes of the unfinished run of byte tokens (ByteFallback); last token (BPEDecoder) */
    struct buf        work[2]; /* scratch of one token */
    unsigned char     tail[8]; /* bytes of an unfinished UTF-8 character */
    uint32_t          n_tail;
    uint32_t          strip;      /* number of leading characters that the decoder may still remove */
    uint32_t          n_end;      /* number of held trailing characters that it removes if no other text follows */
    bool              begun;      /* a token has given text */
    bool              run_bad;    /* the run is not valid UTF-8, whatever follows */
    bool              check;      /* the last push searched for stop strings */
    bool              stopped;    /* a stop string was found */
    int32_t           stop_index; /* index of that stop string; -1: none was found */
};

/* Prepares d; cfg NULL: no stop strings, special tokens are left out. t and cfg's strings are borrowed. detok_free
 * ends it. */
void detok_init(struct detok *d, const struct tok *t, const struct detok_cfg *cfg);
/* Appends to out the text that is certain now. check_stop false (min_tokens is not reached): held text is emitted
 * first, and this token's text is not searched for stop strings. Returns true once a stop string was found: from then
 * on nothing more is emitted. */
bool detok_push(struct detok *d, uint32_t id, bool check_stop, struct buf *out);
/* The same for text that is already decoded: it is only searched for stop strings. */
bool detok_put(struct detok *d, const char *s, size_t n, bool check_stop, struct buf *out);
/* Appends the held text to out; an unfinished character becomes U+FFFD. */
void detok_finish(struct detok *d, struct buf *out);
void detok_free(struct detok *d);

/* Appends the text of n ids to out (for /detokenize). */
void detok_all(const struct tok *t, const uint32_t *id, size_t n, bool skip_special, struct buf *out);
/* Appends the bytes of one id as logprobs show them: the id is decoded alone. The bytes of a byte token or of a
 * byte-level token may be invalid UTF-8. An unknown id has no bytes. */
void detok_one(const struct tok *t, uint32_t id, struct buf *bytes_out);
