/* fuzz_segment: any bytes as a segment of a KV folder, for what dumps it and for what a store reads at its start. The
 * first byte says which sums are put right first, so that what lies behind them is reached; the second how the bytes
 * are spread over the file. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/folder/store_dump.h"
#include "kvcache/folder/store_format.h"
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { PAYLOAD = 100, TOKENS = 4, BYTES = 1 << 16 };
static struct store_geometry   g;
static const struct digest_key key = { .seed = 7 };
static const struct kv_key     fingerprint = { { 9 } };
static const unsigned char     secret[SEAL_SECRET] = { 4 };
static struct seal_key         file_key;
static struct store_keys       with_key = {
          .mac = { &key }, .n_mac = 1, .secret = { secret }, .n_secret = 1, .key = &file_key
};
static struct store_keys without = { .mac = { &key }, .n_mac = 1 };
static unsigned char     good[2][BYTES], *page; /* a plain and a sealed segment of two records */
static struct store_row *row;
static FILE             *nothing;
static int               memory;

static const struct store_form form = { &g, &fingerprint, PAYLOAD, TOKENS };

static void make(bool sealed, unsigned char *out)
{
    struct store_keys *c = sealed ? &with_key : &without;
    char               dir[] = "/tmp/fuzz-segment-XXXXXX", name[32];
    bool               direct = false;
    int                fd, error, at;
    CHECK(mkdtemp(dir));
    at = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(!store_file_make(at, 1, &form, c, &direct, &fd, &error));
    static unsigned char blob[2 * 8192] __attribute__((aligned(4096)));
    struct store_row     rows[2] = { 0 };
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t      ids[TOKENS] = { i, 1, 2, 3 };
        struct kv_key k = { { (unsigned char)i } };
        memset(blob, 0, sizeof blob);
        struct digest sum = digest_of(&key, blob + KV_RECORD_HEAD, PAYLOAD);
        kv_record_make(blob, &key,
                       &(struct kv_record_facts){ .fingerprint = &fingerprint,
                                                  .key = &k,
                                                  .parent = &k,
                                                  .ids = ids,
                                                  .block_tokens = TOKENS,
                                                  .payload_bytes = PAYLOAD,
                                                  .seq = 1,
                                                  .payload = sum });
        if (sealed)
            seal_blob(with_key.sealer, &file_key, store_record_off(&g, i), blob, KV_RECORD_HEAD, g.record_bytes,
                      blob + 8192);
        CHECK(pwrite(fd, sealed ? blob + 8192 : blob, g.record_bytes, (off_t)store_record_off(&g, i)) ==
              (ssize_t)g.record_bytes);
        rows[i] = (struct store_row){ .key = k, .payload = sum, .index = i, .block_tokens = TOKENS };
    }
    CHECK(!store_footer_write(fd, &g, 1, rows, 2, c, page, &error));
    CHECK(pread(fd, out, g.segment_bytes, 0) == (ssize_t)g.segment_bytes);
    store_name(name, sizeof name, 1);
    unlinkat(at, name, 0);
    rmdir(dir);
    close(fd);
    close(at);
    struct store_dump d = { .keys = c, .out = nothing };
    unsigned char    *copy = malloc(g.segment_bytes);
    memcpy(copy, out, g.segment_bytes);
    store_dump(&d, copy, g.segment_bytes);
    CHECK(d.n_wrong == 0 && d.n_record == 2);
    free(copy);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    g = store_geometry(PAYLOAD, BYTES);
    CHECK(g.n_record > 2 && g.segment_bytes <= BYTES);
    CHECK(!seal_open(&with_key.sealer));
    page = aligned_alloc(4096, store_footer_bytes(&g));
    row = calloc(g.n_record, sizeof *row);
    nothing = fopen("/dev/null", "w");
    memory = memfd_create("segment", MFD_CLOEXEC);
    CHECK(page && row && nothing && memory >= 0);
    make(false, good[0]);
    make(true, good[1]);
    return 0;
}

static void put_right(unsigned char *f, size_t bytes, unsigned how)
{
    struct store_header  h;
    struct store_trailer t;
    if (how & 1 && bytes >= sizeof h) {
        memcpy(&h, f, sizeof h);
        h.mac = digest_of(&key, &h, offsetof(struct store_header, mac));
        h.sum = XXH3_64bits(&h, offsetof(struct store_header, sum));
        memcpy(f, &h, sizeof h);
    }
    if (how & 2 && bytes >= g.segment_bytes) {
        memcpy(&t, f + g.segment_bytes - STORE_PAGE, sizeof t);
        if (t.n <= g.n_record)
            t.rows = digest_of(&key, f + g.segment_bytes - store_footer_bytes(&g), t.n * sizeof(struct store_row));
        t.mac = digest_of(&key, &t, offsetof(struct store_trailer, mac));
        t.sum = XXH3_64bits(&t, offsetof(struct store_trailer, sum));
        memcpy(f + g.segment_bytes - STORE_PAGE, &t, sizeof t);
    }
    for (uint32_t i = 0; how & 4 && i < g.n_record; i++) {
        struct kv_record r;
        uint64_t         off = store_record_off(&g, i);
        if (bytes < off + sizeof r) break;
        memcpy(&r, f + off, sizeof r);
        r.head = digest_of(&key, &r, offsetof(struct kv_record, head));
        memcpy(f + off, &r, sizeof r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 4) return 0;
    unsigned how = data[0];
    bool     sealed = how & 8;
    size_t   bytes = how & 16 ? (size_t)data[1] << 8 | data[2] : g.segment_bytes;
    if (bytes > BYTES) bytes = BYTES;
    unsigned char *f = malloc(bytes + 1); /* of its own: what is read behind it is noticed */
    CHECK(f);
    memset(f, 0, bytes);
    memcpy(f, good[sealed], bytes < g.segment_bytes ? bytes : g.segment_bytes);
    for (size_t i = 3; i + 3 < n; i += 3) { /* edits: a place, a byte */
        size_t at = (size_t)data[i] << 8 | data[i + 1];
        if (how & 32) at &= 0x10ff | (g.segment_bytes - STORE_PAGE); /* near what has a meaning */
        if (at < bytes) f[at] = data[i + 2];
    }
    put_right(f, bytes, how);

    /* what a store reads at its start */
    CHECK(ftruncate(memory, 0) == 0 && ftruncate(memory, (off_t)bytes) == 0);
    CHECK(pwrite(memory, f, bytes, 0) == (ssize_t)bytes);
    struct store_scan found;
    store_file_scan(memory, &form, 1, sealed ? &with_key : &without, page, row, &found);
    CHECK(found.n + found.n_damaged <= g.n_record);
    for (uint32_t i = 0; i < found.n; i++) CHECK(row[i].index < g.n_record && row[i].block_tokens == TOKENS);

    struct store_dump d = { .keys = how & 64 || !sealed ? &without : &with_key, .all = how & 128, .out = nothing };
    store_dump(&d, f, bytes);
    CHECK(d.n_record <= BYTES / 4096);
    free(f);
    return 0;
}
