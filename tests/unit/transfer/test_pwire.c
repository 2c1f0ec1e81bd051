/* Control messages between servers that share blocks, and what hostile bytes do to them. */
#include "base/hash.h"
#include "base/rng.h"
#include "test.h"
#include "transfer/peer/pwire.h"

static const unsigned char secret[PWIRE_SECRET] = "of both sides, 32 bytes or fewer";

static struct pwire_seal sealed(bool from_server)
{
    struct pwire_seal   s = { .on = true, .from_server = from_server };
    const unsigned char a[PWIRE_RANDOM] = { 1 }, b[PWIRE_RANDOM] = { 2 };
    pwire_session_key(s.key, secret, a, b);
    return s;
}

/* A message of each type, with as much in it as it can hold. */
static void make(struct pwire_msg *m, enum pwire_type type)
{
    memset(m, 0, sizeof *m);
    m->type = type;
    memset(m->random, 7, sizeof m->random);
    memset(m->id, 9, sizeof m->id);
    memset(&m->fingerprint, 3, sizeof m->fingerprint);
    m->record_bytes = 12345;
    m->transport = 1;
    m->verdict = PWIRE_NOT_NOW;
    m->epoch = 0x1122334455667788u;
    m->slab_base = 1u << 30;
    m->slab_bytes = 77;
    m->n_address = PWIRE_ADDRESS_MAX;
    m->n_rkey = 10;
    m->address[PWIRE_ADDRESS_MAX - 1] = 5;
    m->rkey[9] = 6;
    m->lease = 42;
    m->n = type == PWIRE_RELEASE || type == PWIRE_CLAIM ? 100000 : PWIRE_KEYS_MAX;
    m->lease_ms = 9000;
    m->done = true;
    for (uint32_t i = 0; i < PWIRE_KEYS_MAX; i++) {
        m->key[i].b[31] = (unsigned char)i;
        if (i % 3) m->where[i] = (struct pwire_where){ .found = true, .slot = i * 5, .payload = { i, ~(uint64_t)i } };
    }
}

static void assert_same(const struct pwire_msg *a, const struct pwire_msg *b)
{
    assert_int_equal(a->type, b->type);
    switch (a->type) {
    case PWIRE_HELLO:
    case PWIRE_CHALLENGE:
        assert_memory_equal(a->random, b->random, sizeof a->random);
        assert_memory_equal(a->id, b->id, sizeof a->id);
        break;
    case PWIRE_PROOF:
        assert_memory_equal(&a->fingerprint, &b->fingerprint, 32);
        assert_int_equal(a->record_bytes, b->record_bytes);
        assert_int_equal(a->transport, b->transport);
        break;
    case PWIRE_WELCOME:
        assert_int_equal(a->verdict, b->verdict);
        assert_true(a->epoch == b->epoch && a->slab_base == b->slab_base && a->slab_bytes == b->slab_bytes);
        assert_int_equal(a->n_address, b->n_address);
        assert_int_equal(a->n_rkey, b->n_rkey);
        assert_memory_equal(a->address, b->address, a->n_address);
        assert_memory_equal(a->rkey, b->rkey, a->n_rkey);
        break;
    case PWIRE_LOOKUP:
        assert_true(a->lease == b->lease && a->n == b->n);
        assert_memory_equal(a->key, b->key, a->n * 32);
        break;
    case PWIRE_FOUND:
        assert_true(a->lease == b->lease && a->n == b->n && a->lease_ms == b->lease_ms);
        for (uint32_t i = 0; i < a->n; i++) {
            assert_int_equal(a->where[i].found, b->where[i].found);
            if (!a->where[i].found) continue;
            assert_int_equal(a->where[i].slot, b->where[i].slot);
            assert_true(digest_equal(a->where[i].payload, b->where[i].payload));
        }
        break;
    case PWIRE_CLAIM:
        assert_memory_equal(a->id, b->id, sizeof a->id);
        assert_memory_equal(a->key, b->key, sizeof *a->key);
        assert_true(a->n == b->n && a->done == b->done);
        break;
    case PWIRE_RELEASE: assert_int_equal(a->n, b->n); /* fallthrough */
    case PWIRE_PING:
    case PWIRE_PONG: assert_true(a->lease == b->lease); break;
    }
}

static unsigned char    frame[PWIRE_FRAME_MAX], wrong[PWIRE_FRAME_MAX + 1];
static struct pwire_msg sent, got;

static bool is_open(enum pwire_type t) { return t == PWIRE_HELLO || t == PWIRE_CHALLENGE; }

static void what_is_written_is_read_and_no_prefix_of_it(void **state)
{
    (void)state;
    for (enum pwire_type type = PWIRE_HELLO; type <= PWIRE_CLAIM; type++) {
        struct pwire_seal a = { 0 }, b = { 0 };
        uint32_t          used = 0;
        if (!is_open(type)) a = b = sealed(true);
        make(&sent, type);
        uint32_t n = pwire_put(frame, &sent, &a);
        assert_true(n <= PWIRE_FRAME_MAX);
        for (uint32_t cut = 0; cut < n; cut++) {
            struct pwire_seal c = b;
            if (cut > 64 && cut % 97 && cut + 64 < n) continue;
            assert_int_equal(pwire_get(frame, cut, &c, &got, &used), ST_AGAIN);
        }
        assert_int_equal(pwire_get(frame, n, &b, &got, &used), ST_OK);
        assert_int_equal(used, n);
        assert_same(&sent, &got);
    }
}

/* A sealed frame with any bit changed is refused; so are one of the other direction, one that is repeated, one under
 * another key, and one that is sealed where none may be. */
static void G12_a_frame_of_somebody_without_the_key_is_refused(void **state)
{
    (void)state;
    struct pwire_seal a = sealed(false);
    uint32_t          used = 0;
    make(&sent, PWIRE_RELEASE);
    uint32_t n = pwire_put(frame, &sent, &a);
    for (uint32_t bit = 0; bit < n * 8; bit++) {
        struct pwire_seal b = sealed(false);
        memcpy(wrong, frame, n);
        wrong[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(pwire_get(wrong, n, &b, &got, &used), ST_OK);
    }
    struct pwire_seal other = sealed(true), none = { 0 }, key = sealed(false), again = sealed(false);
    key.key[0] ^= 1;
    assert_int_equal(pwire_get(frame, n, &other, &got, &used), ST_INVALID);
    assert_int_equal(pwire_get(frame, n, &none, &got, &used), ST_INVALID);
    assert_int_equal(pwire_get(frame, n, &key, &got, &used), ST_INVALID);
    assert_int_equal(pwire_get(frame, n, &again, &got, &used), ST_OK);
    assert_int_equal(pwire_get(frame, n, &again, &got, &used), ST_INVALID);
}

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static void G11_lengths_counts_types_and_versions_are_bounded(void **state)
{
    (void)state;
    struct pwire_seal none = { 0 };
    uint32_t          used = 0;
    make(&sent, PWIRE_HELLO);
    uint32_t n = pwire_put(frame, &sent, &none);
    assert_int_equal(pwire_get((const unsigned char *)"GET / HTTP/1.1\r\n", 16, &none, &got, &used), ST_INVALID);
    assert_int_equal(pwire_get((const unsigned char *)"G", 1, &none, &got, &used), ST_INVALID);
    memcpy(wrong, frame, n);
    wrong[4] = PWIRE_VERSION + 1;
    assert_int_equal(pwire_get(wrong, n, &none, &got, &used), ST_CONFIG);
    memcpy(wrong, frame, n);
    wrong[6] = 99; /* type */
    assert_int_equal(pwire_get(wrong, n, &none, &got, &used), ST_INVALID);
    const uint32_t lengths[] = { 0, 47, 49, 1u << 20, 0xffffffffu, 0x7fffffffu };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(wrong, frame, n);
        put32(wrong + 8, lengths[i]);
        assert_int_not_equal(pwire_get(wrong, n, &none, &got, &used), ST_OK);
    }
    /* Counts that do not fit their body, from a peer that knows the key. */
    const uint32_t counts[] = { 0, PWIRE_KEYS_MAX + 1, 0xffffffffu, 5 };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (enum pwire_type type = PWIRE_LOOKUP; type <= PWIRE_FOUND; type++) {
            struct pwire_seal s = sealed(true), t = sealed(true);
            unsigned char     body[64] = { 0 };
            make(&sent, PWIRE_PING);
            uint32_t m = pwire_put(frame, &sent, &s); /* a frame whose body is as long as it says */
            assert_true(m < sizeof body);
            make(&sent, type);
            sent.n = 3;
            s = sealed(true);
            m = pwire_put(frame, &sent, &s);
            if (counts[i] == sent.n) continue;
            put32(frame + PWIRE_FRAME_HEAD + (type == PWIRE_LOOKUP ? 8 : 12), counts[i]);
            assert_int_not_equal(pwire_get(frame, m, &t, &got, &used), ST_OK);
        }
}

/* Random changes to sealed frames whose seal is off, as a peer with the key could send: nothing is read beyond the
 * bytes (under ASan), and a count is never above its bound. */
static void bodies_of_any_bytes_are_survived(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 20000; round++) {
        struct rng_block  r = rng_philox(5, 2, round);
        enum pwire_type   type = (enum pwire_type)(PWIRE_HELLO + r.x[0] % 2);
        struct pwire_seal none = { 0 };
        uint32_t          used = 0;
        make(&sent, type);
        uint32_t n = pwire_put(frame, &sent, &none);
        for (int i = 1; i < 4; i++) frame[r.x[i] % n] = (unsigned char)(r.x[i] >> 16);
        unsigned char *exact = malloc(n);
        memcpy(exact, frame, n);
        if (pwire_get(exact, n, &none, &got, &used) == ST_OK) assert_int_equal(used, n);
        free(exact);
        unsigned char *body = malloc(1 + r.x[2] % 200);
        for (uint32_t k = 0; k < 1 + r.x[2] % 200; k++) body[k] = (unsigned char)hash_u64(round * 256 + k);
        body[0] = (unsigned char)(PWIRE_HELLO + r.x[3] % PWIRE_CLAIM);
        if (r.x[2] % 200 > 12) memset(body + 1 + r.x[0] % 12, 0, 12 - r.x[0] % 12);
        if (pwire_get_body(body, 1 + r.x[2] % 200, &got))
            assert_true(got.type == PWIRE_RELEASE || got.n <= PWIRE_KEYS_MAX);
        free(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_and_no_prefix_of_it),
        cmocka_unit_test(G12_a_frame_of_somebody_without_the_key_is_refused),
        cmocka_unit_test(G11_lengths_counts_types_and_versions_are_bounded),
        cmocka_unit_test(bodies_of_any_bytes_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
