/* fuzz_wire: any bytes as what another node says. The first byte picks the message; what is taken as a step keeps every
 * bound. */
#include "base/check.h"
#include "base/log.h"
#include "engine/wire.h"
#include "transfer/link.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct wire_limits lim = {
    .b = { .rows_max = 24,
           .seqs_max = 6,
           .pages_max = 20,
           .hist_max = 16,
           .ban_max = 4,
           .allow_max = 4,
           .mask_max = 8,
           .bias_max = 4 },
    .n_block = 40,
    .block_tokens = 16,
    .vocab = 200,
    .context = 96,
};
static struct batch   batch, again;
static unsigned char *out;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    out = malloc(wire_step_bytes_max(&lim.b));
    CHECK(out);
    CHECK(!batch_init(&batch, &lim.b));
    CHECK(!batch_init(&again, &lim.b));
    return 0;
}

static void step(const uint8_t *p, size_t n)
{
    struct wire_steps    s = { .n_drawn = 3 }, s2 = { .n_drawn = 3 };
    char                 why[WIRE_TEXT_MAX] = "";
    const struct batch  *b = &batch;
    const unsigned char *number = p;
    for (size_t i = 0; i < 8 && i < n; i++) s.n |= (uint64_t)number[i] << 8 * i; /* the number is always right */
    s.n--;
    s2.n = s.n;
    if (wire_step_get(p, n, &lim, &s, &batch, why, sizeof why)) {
        CHECK(why[0]);
        return;
    }
    CHECK(b->n_row <= lim.b.rows_max);
    CHECK(b->n_seq <= lim.b.seqs_max);
    for (uint32_t i = 0; i < b->n_row; i++) {
        CHECK(b->id[i] < lim.vocab);
        CHECK(b->row_seq[i] < b->n_seq);
        uint32_t seq = b->row_seq[i];
        CHECK(b->pos[i] / lim.block_tokens < b->page_start[seq + 1] - b->page_start[seq]);
    }
    for (uint32_t i = 0; i < b->page_start[b->n_seq]; i++) CHECK(b->page[i] < lim.n_block);
    for (uint32_t i = 0; i < b->n_logit; i++) CHECK(b->logit_row[i] < b->n_row);
    CHECK(wire_step_put(out, b, &s2) == n); /* what was taken is what was sent, byte for byte */
    CHECK(!memcmp(out, p, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const unsigned char nonce[WIRE_NONCE];
    struct wire_hello          h;
    struct wire_welcome        w;
    struct link_head           head;
    if (!n) return 0;
    switch (data[0] % 4) {
    case 0: (void)wire_hello_get(data + 1, n - 1, nonce, "", &h); break;
    case 1: (void)wire_welcome_get(data + 1, n - 1, nonce, "", &w); break;
    case 2:
        if (n > LINK_HEAD && !link_head_get(data + 1, 1000, &head)) CHECK(head.bytes <= 1000);
        break;
    default: step(data + 1, n - 1); break;
    }
    return 0;
}
