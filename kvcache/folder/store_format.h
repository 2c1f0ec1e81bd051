/* store_format: the bytes of a segment's first and last page, for store_file.c, which writes them, and store_dump.c,
 * which prints them. Private to kvcache/. */
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
    unsigned char
        check[SEAL_TAG]; /* sealed: the tag of an empty text, under the key that follows from all fields before it */
    struct digest mac;   /* of everything before it, under the store's key, so that a forged header fails */
    uint64_t      sum;   /* of everything before it, without a key: tells a damaged header from one under another key */
};
struct store_trailer {
    unsigned char magic[8];
    uint32_t      version, n;
    uint64_t      seq;
    struct digest rows;          /* of the rows as stored, under the store's key */
    unsigned char tag[SEAL_TAG]; /* sealed: of the rows, bound to the fields before `rows` */
    struct digest mac;           /* of everything before it, under the store's key */
    uint64_t      sum;
};
/* AES-256-GCM as in transfer/seal.h; under a secret from a file, or under one of the start that made the segment */
enum { STORE_SEALED = 1, STORE_SEALED_START = 2 };
enum { STORE_PART_FOOTER = 2, STORE_PART_CHECK = 3 }; /* numbers of the sealed parts, besides the two of a blob */
static const unsigned char STORE_HEADER[8] = { 'S', 'P', 'W', 'K', 'V', 'S', 'E', 'G' };
static const unsigned char STORE_TRAILER[8] = { 'S', 'P', 'W', 'K', 'V', 'F', 'T', 'R' };

/* True if the file's digests and seals match one of the keys, or lack a key as `keys` does. Sets keys->mac_is and the
 * file's key. */
bool store_header_opens(const struct store_header *h, struct store_keys *keys);
bool store_header_mac(const struct store_header *h, struct store_keys *keys); /* the part about digests */
