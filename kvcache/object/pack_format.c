#include "kvcache/object/pack_format.h"
#include "base/check.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct table_head {
    unsigned char magic[8];
    uint32_t      version, n, n_row, block_tokens;
    uint64_t      seq, payload_bytes;
    struct kv_key fingerprint;
    unsigned char unused[40];
    struct digest sum; /* of all but these bytes, to the end of the table's last page */
};
_Static_assert(sizeof(struct table_head) == 128, "pack_table_bytes counts with it");
static const unsigned char MAGIC[8] = { 'S', 'P', 'W', 'K', 'V', 'P', 'C', 'K' };

uint32_t pack_records(uint64_t record_bytes, uint64_t bytes)
{
    uint64_t n = bytes / record_bytes; /* a table is shorter than a record, or a little longer */
    for (int i = 0; i < 80 && n > 0; i++, n--)
        if (n <= PACK_RECORDS_MAX && pack_bytes(record_bytes, (uint32_t)n) == bytes) return (uint32_t)n;
    return 0;
}

void pack_model(const struct kv_key *fingerprint, char out[PACK_MODEL])
{
    for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", fingerprint->b[i]);
}

void pack_name(const struct kv_key *fingerprint, struct pack_id id, char out[PACK_NAME])
{
    char model[PACK_MODEL];
    pack_model(fingerprint, model);
    snprintf(out, PACK_NAME, "%s/%012llx-%016llx.kv", model, (unsigned long long)(id.time_ms & 0xffffffffffff),
             (unsigned long long)id.seq);
}

static bool hex(const char *p, int n, uint64_t *out)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] >= '0' && p[i] <= '9')
            v = v << 4 | (uint64_t)(p[i] - '0');
        else if (p[i] >= 'a' && p[i] <= 'f')
            v = v << 4 | (uint64_t)(p[i] - 'a' + 10);
        else
            return false;
    }
    *out = v;
    return true;
}

bool pack_name_parse(const char *name, char model_out[PACK_MODEL], struct pack_id *id_out)
{
    uint64_t       half;
    struct pack_id id;
    if (strlen(name) != 65 || name[32] != '/' || name[45] != '-' || strcmp(name + 62, ".kv")) return false;
    if (!hex(name, 16, &half) || !hex(name + 16, 16, &half)) return false;
    if (!hex(name + 33, 12, &id.time_ms) || !hex(name + 46, 16, &id.seq)) return false;
    memcpy(model_out, name, 32);
    model_out[32] = 0;
    *id_out = id;
    return true;
}

static struct digest sum_of(const void *table, const struct digest_key *dk, uint32_t n)
{
    unsigned char both[2 * sizeof(struct digest)];
    size_t        head = offsetof(struct table_head, sum);
    struct digest a = digest_of(dk, table, head);
    struct digest b = digest_of(dk, (const unsigned char *)table + sizeof(struct table_head),
                                pack_table_bytes(n) - sizeof(struct table_head));
    memcpy(both, &a, sizeof a);
    memcpy(both + sizeof a, &b, sizeof b);
    return digest_of(dk, both, sizeof both);
}

void pack_table_make(void *table, const struct digest_key *dk, const struct pack_shape *shape, uint64_t seq, uint32_t n,
                     const struct pack_row *row, uint32_t n_row)
{
    struct table_head *h = table;
    CHECK(n_row <= n && n <= PACK_RECORDS_MAX);
    memset(table, 0, pack_table_bytes(n));
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    h->version = PACK_VERSION;
    h->n = n;
    h->n_row = n_row;
    h->block_tokens = shape->block_tokens;
    h->seq = seq;
    h->payload_bytes = shape->payload_bytes;
    h->fingerprint = shape->fingerprint;
    memcpy(h + 1, row, n_row * sizeof *row);
    h->sum = sum_of(table, dk, n);
}

const struct pack_row *pack_table_open(const void *table, const struct digest_key *dk, const struct pack_shape *shape,
                                       uint64_t seq, uint32_t n, uint32_t *n_row_out)
{
    const struct table_head *h = table;
    const struct pack_row   *row = (const struct pack_row *)(const void *)(h + 1);
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->version != PACK_VERSION || h->n != n || h->n_row > n) return NULL;
    if (!digest_equal(h->sum, sum_of(table, dk, n))) return NULL;
    if (h->seq != seq || h->payload_bytes != shape->payload_bytes || h->block_tokens != shape->block_tokens ||
        !kv_key_equal(&h->fingerprint, &shape->fingerprint))
        return NULL;
    for (uint32_t i = 0; i < h->n_row; i++)
        if (row[i].index >= n || row[i].begins > 1) return NULL;
    *n_row_out = h->n_row;
    return row;
}
