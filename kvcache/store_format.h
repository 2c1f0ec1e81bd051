/* store_format: the bytes of a segment's first and last page, between store_file.c that writes them and store_dump.c that looks at them.
 * Private to kvcache/. */
#pragma once
#include "kvcache/store_file.h"

struct store_header {
    unsigned char magic[8];
    uint32_t      version, block_tokens;
    uint64_t      seq, record_bytes, segment_bytes, payload_bytes;
    uint32_t      n_record, sealed; /* sealed: 0, or STORE_SEALED.. */
    struct kv_key fingerprint;
    unsigned char random[32];
    unsigned char check[SEAL_TAG]; /* sealed: the tag of nothing, under the key that all before it makes */
    uint64_t      sum;             /* of everything before it */
};
struct store_trailer {
    unsigned char magic[8];
    uint32_t      version, n;
    uint64_t      seq, rows_sum; /* rows_sum: of the rows as they lie there */
    unsigned char tag[SEAL_TAG]; /* sealed: of the rows, bound to what stands before it */
    uint64_t      sum;
};
/* AES-256-GCM as in transfer/seal.h, under the key of a file, or of the start that made it */
enum { STORE_SEALED = 1, STORE_SEALED_START = 2 };
enum { STORE_PART_FOOTER = 2, STORE_PART_CHECK = 3 }; /* of what is sealed, beside a blob's two */
static const unsigned char STORE_HEADER[8] = { 'S', 'P', 'W', 'K', 'V', 'S', 'E', 'G' };
static const unsigned char STORE_TRAILER[8] = { 'S', 'P', 'W', 'K', 'V', 'F', 'T', 'R' };

/* Whether the file is of the kind that crypt says (NULL: plain), and of its secret. Sets the key. */
bool store_header_opens(const struct store_header *h, const struct store_crypt *crypt);
