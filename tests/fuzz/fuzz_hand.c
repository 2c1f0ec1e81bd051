/* fuzz_hand: any bytes as what the process before says of its host tier. The first byte picks whether its digest is
 * made right, so that what lies behind it is reached; what is taken keeps every bound. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/tier_hand.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_SLOT = 40 };
static struct kv_tiers_cfg  cfg = { .block_bytes = 600,
                                    .host_bytes = (uint64_t)N_SLOT * 8192,
                                    .ident = { .block_tokens = 4 } };
static struct kv_hand_shape shape;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    kv_hand_shape_of(&cfg, &shape);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct kv_hand_index found;
    bool                 seen[N_SLOT] = { false };
    char                 why[160] = "";
    struct digest        d, stores = { 1, 2 };
    if (!n) return 0;
    uint8_t        how = data[0];
    size_t         bytes = n - 1;
    unsigned char *p = malloc(bytes ? bytes : 1);
    CHECK(p);
    memcpy(p, data + 1, bytes);
    if (how & 1 && bytes >= kv_hand_bytes(0)) { /* well made: rows of whatever they say */
        uint32_t rows = (uint32_t)((bytes - kv_hand_bytes(0)) / sizeof *found.row);
        kv_hand_finish(p, rows, &shape, &cfg.key, stores);
        bytes = kv_hand_bytes(rows);
    } else if (how & 2 && bytes >= sizeof d) { /* anything, under a right digest */
        d = digest_of(&cfg.key, p, bytes - sizeof d);
        memcpy(p + bytes - sizeof d, &d, sizeof d);
    }
    if (kv_hand_read(p, bytes, &shape, &cfg.key, stores, &found, why, sizeof why)) {
        CHECK(why[0]);
    } else {
        CHECK(found.n <= N_SLOT);
        CHECK(kv_hand_bytes(found.n) == bytes);
        CHECK((const unsigned char *)(found.row + found.n) + sizeof d == p + bytes);
        for (uint32_t i = 0; i < found.n; i++) {
            CHECK(found.row[i].slot < N_SLOT);
            CHECK(!seen[found.row[i].slot]);
            seen[found.row[i].slot] = true;
        }
    }
    free(p);
    return 0;
}
