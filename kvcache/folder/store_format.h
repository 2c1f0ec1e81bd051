/* store_format: the bytes of a segment's first and last page, between store_file.c that writes them and store_dump.c
 * that looks at them. Private to kvcache/. */
#pragma once
#include "kvcache/folder/store_file.h"

struct store_header {
    unsigned char magic[8];
    uint32_t      version, block_tokens;
    uint64_t      seq, record_bytes, segment_bytes, payload_bytes;
    uint32_t      n_record, sealed; /* sealed: 0, or STORE_SEALED.. */
    uint32_t      keyed, unused;    /* keyed: 1: the digests of this file are MACs */
    struct kv_key fingerprint;
    unsigned char random[32];
    unsigned char check[SEAL_TAG]; /* sealed: the tag of nothing, under the key that all before it makes */
    struct digest mac; /* of everything before it, under the store's key: a header that was made up is none */
    uint64_t      sum; /* of everything before it, without a key: tells a damaged header from one under another key */
};
struct store_trailer {
    unsigned char magic[8];
    uint32_t      version, n;
    uint64_t      seq;
    struct digest rows;          /* of the rows as they lie there, under the store's key */
    unsigned char tag[SEAL_TAG]; /* sealed: of the rows, bound to what stands before the rows' digest */
    struct digest mac;           /* of everything before it, under the store's key */
    uint64_t      sum;
};
/* AES-256-GCM as in transfer/seal.h, under the key of a file, or of the start that made it */
enum { STORE_SEALED = 1, STORE_SEALED_START = 2 };
enum { STORE_PART_FOOTER = 2, STORE_PART_CHECK = 3 }; /* of what is sealed, beside a blob's two */
static const unsigned char STORE_HEADER[8] = { 'S', 'P', 'W', 'K', 'V', 'S', 'E', 'G' };
static const unsigned char STORE_TRAILER[8] = { 'S', 'P', 'W', 'K', 'V', 'F', 'T', 'R' };

/* Whether the file is under keys: of a MAC key of them, or without one as they are; sealed under a secret of them, or
 * plain as they are. Sets which of them, and the file's key. */
bool store_header_opens(const struct store_header *h, struct store_keys *keys);
bool store_header_mac(const struct store_header *h, struct store_keys *keys); /* the first half of that */
