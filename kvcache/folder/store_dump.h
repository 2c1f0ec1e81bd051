/* store_dump: prints the contents of a segment and its faults, each with its byte. For tools: any bytes will do.
 * Thread: any. */
#pragma once
#include "kvcache/folder/store_file.h"
#include <stdio.h>

struct store_dump {
    struct store_keys *keys; /* without a secret: of a sealed file only the part in the clear is printed */
    bool               all;  /* prints sound records too, not only faults */
    FILE              *out;
    uint64_t           n_record, n_empty, n_wrong; /* out: whole records; places that were never written; faults */
};
/* file [bytes] is changed: sealed parts are opened in place. Without a usable header every page is tried as a
 * record. */
void store_dump(struct store_dump *d, unsigned char *file, uint64_t bytes);
