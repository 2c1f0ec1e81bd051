/* sse: frames of a stream: "data: {json}\n\n", and the parts of chunks that never change.   Thread: the call's owner.
 * Text is escaped so that no frame holds a raw control byte. */
#pragma once
#include "base/buf.h"
#include "base/json.h"

/* data: {"id":..,"object":..,"created":..,"model":..,"choices":[    (system_fingerprint: only in the last chunk of a choice) */
void               sse_head(struct buf *head, const char *id, const char *object, int64_t created, const char *model);
static inline void sse_end(struct buf *out) { buf_put(out, "}\n\n", 3); }
static inline void sse_done(struct buf *out) { buf_put(out, "data: [DONE]\n\n", 14); }

/* A plain chunk in one go: head, {"index":i, open, text, close and tail. */
struct sse_form {
    const struct buf *head, *tail;
    const char       *open;
    size_t            n_open;
};
void sse_chunk(struct buf *out, const struct sse_form *f, uint32_t index, const char *text, size_t n);
