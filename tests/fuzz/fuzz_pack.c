/* fuzz_pack: any bytes as the name of an object and as the table at its end. The first byte says how many records; what
 * is believed names records of the object alone. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/object/pack_format.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct pack_shape shape = { .payload_bytes = 600, .block_tokens = 4 };
    struct digest_key              key = { .seed = 1 };
    struct pack_id                 id;
    char                           model[PACK_MODEL], again[PACK_NAME];
    uint32_t                       n_row;
    if (n < 2) return 0;
    uint32_t       records = data[0] % 100 + 1;
    unsigned char *table = aligned_alloc(PACK_PAGE, pack_table_bytes(records));
    CHECK(table);
    memset(table, 0, pack_table_bytes(records));
    memcpy(table, data + 1, n - 1 < pack_table_bytes(records) ? n - 1 : pack_table_bytes(records));
    const struct pack_row *row = pack_table_open(table, &key, &shape, 7, records, &n_row);
    for (uint32_t i = 0; row && i < n_row; i++) CHECK(row[i].index < records);
    free(table);
    char *name = strndup((const char *)data + 1, n - 1);
    CHECK(name);
    if (pack_name_parse(name, model, &id)) {
        struct kv_key fingerprint = { { 0 } };
        pack_name(&fingerprint, id, again);
        CHECK(!strcmp(again + 32, name + 32));
    }
    free(name);
    uint32_t k = pack_records(8192, (uint64_t)data[0] << 20 | (uint64_t)data[1] << 12);
    CHECK(!k || pack_bytes(8192, k) == ((uint64_t)data[0] << 20 | (uint64_t)data[1] << 12));
    return 0;
}
