/* store_dump: what a segment's bytes say, and what is wrong with them at which byte. For tools: any bytes will do.
 * Thread: any. */
#pragma once
#include "kvcache/folder/store_file.h"
#include <stdio.h>

struct store_dump {
    struct store_keys *keys; /* without a secret: of a sealed file what stands in the clear is said */
    bool               all;  /* what is right as well, not just what is wrong */
    FILE              *out;
    uint64_t n_record, n_empty, n_wrong; /* out: whole records; places that were never written; things that are wrong */
};
/* file [bytes] is changed (what is sealed is opened in place). Where the header is of no use, every page is asked
 * whether it is a record. */
void store_dump(struct store_dump *d, unsigned char *file, uint64_t bytes);
