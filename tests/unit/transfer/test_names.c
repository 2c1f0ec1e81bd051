/* The names of peers: a resolver that hangs holds nobody up, and one that fails takes no address away. The resolver is
 * this program's own. */
#include "transfer/peer/names.h"
#include "base/clock.h"
#include "test.h"
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            hangs;
    int             error; /* EAI_..; 0: it answers */
    uint32_t        n_call, n_address;
} dns = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
static _Atomic uint32_t n_wake;

static void set(bool hangs, int error, uint32_t n_address)
{
    pthread_mutex_lock(&dns.lock);
    dns.hangs = hangs;
    dns.error = error;
    dns.n_address = n_address;
    pthread_cond_broadcast(&dns.changed);
    pthread_mutex_unlock(&dns.lock);
}

static struct addrinfo *address(uint32_t number)
{
    struct addrinfo    *a = calloc(1, sizeof *a);
    struct sockaddr_in *in = calloc(1, sizeof *in);
    *in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(9000), .sin_addr = { htonl(number) } };
    a->ai_addr = (struct sockaddr *)in;
    a->ai_addrlen = sizeof *in;
    return a;
}

int getaddrinfo(const char *restrict host, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict out)
{
    (void)host;
    (void)port;
    (void)hints;
    pthread_mutex_lock(&dns.lock);
    dns.n_call++;
    while (dns.hangs) pthread_cond_wait(&dns.changed, &dns.lock);
    int e = dns.error;
    *out = NULL;
    for (uint32_t i = 0; !e && i < dns.n_address; i++) {
        struct addrinfo *a = address(0x0a000001 + i);
        a->ai_next = *out;
        *out = a;
    }
    pthread_mutex_unlock(&dns.lock);
    return e;
}

void freeaddrinfo(struct addrinfo *a)
{
    while (a) {
        struct addrinfo *next = a->ai_next;
        free(a->ai_addr);
        free(a);
        a = next;
    }
}

static void wake(void *arg)
{
    (void)arg;
    n_wake++;
}

static uint32_t calls(void)
{
    pthread_mutex_lock(&dns.lock);
    uint32_t n = dns.n_call;
    pthread_mutex_unlock(&dns.lock);
    return n;
}

/* Waits for a round that began after now; returns how many addresses it found. */
static uint32_t next_round(struct names *n)
{
    struct names_found found[8];
    uint64_t           round, now;
    names_get(n, found, 8, &now);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u;; usleep(1000)) {
        uint32_t k = names_get(n, found, 8, &round);
        if (round >= now + 2) return k;
        assert_true(clock_us() < end);
    }
}

static void G18_a_resolver_that_hangs_or_fails_holds_nobody_up(void **state)
{
    (void)state;
    const char        *name[] = { "peers.example:9000" };
    struct names      *n;
    struct names_found found[8];
    uint64_t           round;
    set(true, 0, 3);
    assert_int_equal(names_start(name, 1, 1, wake, NULL, &n), ST_OK);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !calls(); usleep(1000)) assert_true(clock_us() < end);
    assert_int_equal(names_get(n, found, 8, &round), 0); /* at once: the resolver still hangs */
    assert_int_equal(round, 0);
    set(false, 0, 3);
    assert_int_equal(next_round(n), 3);
    assert_true(n_wake > 0);
    set(false, EAI_AGAIN, 0); /* the servers of names are gone, the peers are not */
    assert_int_equal(next_round(n), 3);
    set(true, EAI_AGAIN, 0);
    assert_int_equal(names_get(n, found, 8, &round), 3);
    set(false, EAI_NONAME, 0); /* somebody knows that there are none */
    assert_int_equal(next_round(n), 0);
    set(false, 0, 1);
    assert_int_equal(next_round(n), 1);
    assert_string_equal((names_get(n, found, 8, &round), found[0].text), "10.0.0.1:9000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G18_a_resolver_that_hangs_or_fails_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
