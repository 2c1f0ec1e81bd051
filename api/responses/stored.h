/* stored: what clients ask about a stored response.   Thread: any. Errors as those of the dialect. */
#pragma once
#include "api/call.h"

/* Which items of a response's input. */
struct stored_page {
    const char *after; /* id of the item before the first one; NULL: from the beginning */
    size_t      n_after;
    uint32_t    limit;
    bool        oldest_first;
};
enum { STORED_PAGE_MAX = 100, STORED_PAGE_DEFAULT = 20 };

/* Each appends a body to out. id: as in the path. ST_INVALID with *e. */
enum status api_response_get(const struct api_model *m, uint64_t tenant, const char *id, struct buf *out,
                             struct api_error *e);
enum status api_response_delete(const struct api_model *m, uint64_t tenant, const char *id, struct buf *out,
                                struct api_error *e);
enum status api_response_items(const struct api_model *m, uint64_t tenant, const char *id, const struct stored_page *p,
                               struct buf *out, struct api_error *e);
/* Always an error: a response that is stored has ended. */
enum status api_response_cancel(const struct api_model *m, uint64_t tenant, const char *id, struct api_error *e);
