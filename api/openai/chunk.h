/* chunk: the events of a stream of chat.completion.chunk or text_completion objects, which differ in what stands around
 * the text. Frames are "data: {json}\n\n"; text is escaped so that no frame holds a raw control byte.   Thread: the
 * call's owner. */
#pragma once
#include "api/openai/openai.h"

/* What differs. */
struct chunk_form {
    const char *object;       /* "chat.completion.chunk" */
    const char *open, *close; /* around a chunk's text: ,"delta":{"content":"  and  "} */
    const char *empty;        /* in their place in a last chunk that has no text */
    void (*logprobs)(struct call *c, uint32_t i, uint32_t from, uint32_t to,
                     struct buf *out); /* of tokens [from, to), a JSON value */
};
/* A call's own copy of the JSON around the text of its plain chunks; c->own of both dialects while streaming. The
 * strings are const or lie in the call's arena. */
struct chunk_frame {
    const struct chunk_form *form;
    const char              *head, *open, *tail;
    size_t                   n_head, n_open, n_tail;
    bool                     plain; /* the request asks for nothing that a plain chunk has no place for */
};

/* data: {"id":..,"object":..,"created":..,"model":..,"choices":[{"index":    (system_fingerprint: only in the last
 * chunk of a choice) */
void chunk_head(struct buf *head, const char *id, const char *object, int64_t created, const char *model);
/* Fills c->own where the call streams; form must outlive the call. ST_NOMEM. */
enum status chunk_prepare(struct call *c, const struct chunk_form *form);
/* A plain chunk in one go: head, index, open, text, tail. */
void chunk_plain(struct buf *out, const struct chunk_frame *f, uint32_t index, const char *text, size_t n);

/* For a chunk of the dialect's own: head and index; then, behind "choices":[..], usage and the end of the frame. */
void chunk_open(struct call *c, uint32_t i, struct buf *out);
void chunk_close(struct call *c, uint32_t i, struct buf *out);

/* Columns of both dialects' stream writer. */
void chunk_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void chunk_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
void chunk_usage(struct call *c, struct buf *out);
/* data: {"error":..}; no [DONE] follows. */
void chunk_error(struct call *c, struct buf *out, const struct api_error *e);
