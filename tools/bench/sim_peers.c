/* sim_peers: a fleet of 1 to 1,000 servers: hit rate and time to the first token, with and without a peer tier, behind
 * a router that knows prefixes by KV events or one that does not.
 *   sim_peers [--replicas 1,3,10,30,100,300,1000] [--agents 9] [--link-gbits 25,100] [--csv FILE] ...   (--help: all options)
 *   sim_peers --check     against closed forms
 *
 * Unlike sim_fleet this is a model of the servers as well: a server is a device that computes one prompt after the
 * other, and the tokens of KV that it holds, the least recently used talk going first. A link carries one pull after
 * the other, at both ends. The steps of answers take a share of the device's time. The same seed gives the same
 * figures. */
#include "base/check.h"
#include "base/hash.h"
#include "base/heap.h"
#include "sim_options.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8, LOOK = 8, SAMPLES_MAX = 1 << 22 };

/* ---- options */

enum {
    O_AGENTS,
    O_HELD,
    O_PREFILL,
    O_ATTEND,
    O_KV_BYTES,
    O_DECODE,
    O_TURN,
    O_TURNS,
    O_CONTEXT,
    O_ANSWER,
    O_THINK,
    O_STALE,
    O_LATENCY,
    O_SECONDS,
    O_SEED,
    O_N
};
static double opt[O_N] = { 9, 1.3e6, 44000, 6.8e8, 147456, 0.3, 2242, 33, 131072, 136, 6, 0.5, 500, 900, 1 };
static const struct sim_option option[O_N] = {
    [O_AGENTS] = { "agents", "talks per server", 1, 1024 },
    [O_HELD] = { "held-tokens", "tokens of KV that a server holds on device and host", 1, 1e12 },
    [O_PREFILL] = { "prefill-tok-s", "prompt tokens a second through the matrices", 1, 1e9 },
    [O_ATTEND] = { "attend-per-s", "pairs of a prompt's token and one before it, a second", 1, 1e15 },
    [O_KV_BYTES] = { "kv-bytes", "KV of a token, bytes", 1, 1e7 },
    [O_DECODE] = { "decode-share", "part of the device's time that answers take", 0, 0.95 },
    [O_TURN] = { "turn-tokens", "what a turn adds to a prompt, its answer included", 1, 1e6 },
    [O_TURNS] = { "turns", "mean turns of a talk", 1, 1e4 },
    [O_CONTEXT] = { "context-tokens", "longest prompt; then another talk begins", 1, 1e8 },
    [O_ANSWER] = { "answer-ms", "an answer after its first token, ms", 0, 1e6 },
    [O_THINK] = { "think-s", "mean pause after an answer, s", 0, 1e5 },
    [O_STALE] = { "stale-s", "age of what the router knows, s", 0, 1e5 },
    [O_LATENCY] = { "link-us", "latency of a pull, us", 0, 1e6 },
    [O_SECONDS] = { "seconds", "simulated, after a quarter of it to warm up", 1, 1e6 },
    [O_SEED] = { "seed", "of the talks", 0, 1e15 },
};
static struct {
    double      replicas[SIM_LIST_MAX], link[SIM_LIST_MAX];
    int         n_replicas, n_link;
    const char *csv;
    bool        check;
} o = { .replicas = { 1, 3, 10, 30, 100, 300, 1000 }, .n_replicas = 7, .link = { 25, 100 }, .n_link = 2 };

static void help(void)
{
    puts("sim_peers: hit rate and time to the first token of a fleet, against the number of servers\n\n"
         "  --replicas LIST            numbers of servers to try (1,3,10,30,100,300,1000)\n"
         "  --link-gbits LIST          links between them, Gbit/s each way (25,100)\n"
         "  --csv FILE                 the table once more\n"
         "  --check                    against closed forms, then exit");
    sim_help(option, opt, O_N);
}

static void options(int argc, char **argv)
{
    enum { REPLICAS = O_N, LINK, CSV, CHECK_, HELP, ALL };
    static const char *const more[] = { "replicas", "link-gbits", "csv", "check", "help" };
    struct option            l[ALL + 1];
    sim_long_options(option, O_N, more, ALL - O_N, CHECK_ - O_N, l);
    for (int i; getopt_long(argc, argv, "", l, &i) == 0;) {
        if (i < O_N) opt[i] = sim_number("sim_peers", &option[i], optarg);
        if (i == REPLICAS)
            o.n_replicas = sim_list("sim_peers", "replicas", optarg, 1, 1000, "numbers from 1 to 1000", o.replicas);
        if (i == LINK)
            o.n_link = sim_list("sim_peers", "link-gbits", optarg, 0.001, 1e5, "numbers from 0.001 to 100000", o.link);
        if (i == CSV) o.csv = optarg;
        if (i == CHECK_) o.check = true;
        if (i == HELP) {
            help();
            exit(0);
        }
    }
    if (optind != argc) sim_stop("sim_peers", argv[optind], "not an option; --help names them");
}

/* ---- the fleet */

/* Where tokens of a talk lie. Entries of one server stand in a list by use. */
struct place {
    uint32_t server;         /* UINT32_MAX: none */
    double   tokens, before; /* before: what the router still believes */
    double   changed_s;      /* of tokens */
    uint32_t newer, older;   /* places of the same server, as talk * PLACES + index */
};
struct talk {
    uint64_t     dice;
    double       at_s, n; /* when it asks next; tokens of its prompt */
    struct place place[PLACES];
};
struct server {
    double   free_s;         /* when the device has computed all that was given to it */
    double   in_s, out_s;    /* when its link is free, each way */
    double   held;           /* tokens */
    uint32_t newest, oldest; /* places */
};
struct sums {
    uint64_t n;
    double   prompt, here, peer, could, ttft_p50, ttft_p99, busy_s;
};
struct way {
    bool   knows;        /* the router knows prefixes */
    double link_bytes_s; /* 0: no peers */
};
static struct {
    struct talk   *talk;
    struct server *server;
    uint32_t       n_talk, n_server;
    uint64_t      *heap;
    size_t         n_heap;
    double        *ttft;
    uint64_t       dice;
} f;

static double part(uint64_t *dice) { return (double)(hash_u64((*dice)++) >> 11) * 0x1p-53; }
static double spread(uint64_t *dice, double mean) { return mean > 0 ? -mean * log(1 - part(dice)) : 0; }

/* Of a prompt's tokens [from, to), with the answers' share of the device. */
static double compute_s(double from, double to)
{
    double n = to - from;
    return (n / opt[O_PREFILL] + n * (from + n / 2) / opt[O_ATTEND]) / (1 - opt[O_DECODE]);
}

static struct place *place_of(uint32_t id) { return &f.talk[id / PLACES].place[id % PLACES]; }

static void unlink_place(uint32_t id)
{
    struct place  *p = place_of(id);
    struct server *s = &f.server[p->server];
    if (p->newer == UINT32_MAX)
        s->newest = p->older;
    else
        place_of(p->newer)->older = p->older;
    if (p->older == UINT32_MAX)
        s->oldest = p->newer;
    else
        place_of(p->older)->newer = p->newer;
}

static void link_newest(uint32_t id)
{
    struct place  *p = place_of(id);
    struct server *s = &f.server[p->server];
    p->newer = UINT32_MAX;
    p->older = s->newest;
    if (s->newest == UINT32_MAX)
        s->oldest = id;
    else
        place_of(s->newest)->newer = id;
    s->newest = id;
}

static void set_tokens(struct place *p, double tokens, double now)
{
    f.server[p->server].held += tokens - p->tokens;
    p->before = p->tokens;
    p->tokens = tokens;
    p->changed_s = now;
}

/* What the router believes: the state before the last change as long as that is young. */
static double believed(const struct place *p, double now)
{
    return now - p->changed_s < opt[O_STALE] ? p->before : p->tokens;
}

static void forget(uint32_t id)
{
    struct place *p = place_of(id);
    unlink_place(id);
    f.server[p->server].held -= p->tokens;
    *p = (struct place){ .server = UINT32_MAX };
}

static uint32_t place_at(const struct talk *t, uint32_t server)
{
    uint32_t i = 0;
    while (i < PLACES && t->place[i].server != server) i++;
    return i;
}

/* The talk's tokens lie there now. The place of least worth gives way. */
static void keep(struct talk *t, uint32_t server, double now)
{
    uint32_t i = place_at(t, server), base = (uint32_t)(t - f.talk) * PLACES;
    if (i == PLACES) i = place_at(t, UINT32_MAX);
    if (i == PLACES) {
        i = 0;
        for (uint32_t k = 1; k < PLACES; k++)
            if (t->place[k].tokens < t->place[i].tokens) i = k;
        forget(base + i);
    }
    if (t->place[i].server == UINT32_MAX)
        t->place[i] = (struct place){ .server = server };
    else
        unlink_place(base + i);
    link_newest(base + i);
    set_tokens(&t->place[i], t->n, now);
    struct server *s = &f.server[server];
    while (s->held > opt[O_HELD] && s->oldest != base + i) {
        uint32_t old = s->oldest;
        set_tokens(place_of(old), 0, now);
        unlink_place(old);
        link_newest(old); /* empty: it takes no room, and the router learns of it later */
        if (s->held <= opt[O_HELD]) break;
    }
}

static double wait_s(uint32_t server, double now)
{
    double w = f.server[server].free_s - now;
    return w > 0 ? w : 0;
}

/* The server with the least time to the first token as far as the router knows, of those with a part of the prefix and
 * some others. A router that knows nothing takes any. */
static uint32_t route(const struct way *w, const struct talk *t, double now)
{
    uint32_t best = (uint32_t)(part(&f.dice) * f.n_server);
    if (!w->knows) return best;
    double most = 0, cost;
    for (uint32_t i = 0; i < PLACES; i++)
        if (t->place[i].server != UINT32_MAX && believed(&t->place[i], now) > most) most = believed(&t->place[i], now);
    double pull = w->link_bytes_s > 0 ? most * opt[O_KV_BYTES] / w->link_bytes_s : INFINITY, whole = compute_s(0, t->n);
    double brought = pull + compute_s(most, t->n), other = brought < whole ? brought : whole;
    double least = wait_s(best, now) + other;
    for (uint32_t i = 1; i < LOOK; i++) {
        uint32_t s = (uint32_t)(part(&f.dice) * f.n_server);
        cost = wait_s(s, now) + other;
        if (cost >= least) continue;
        least = cost;
        best = s;
    }
    for (uint32_t i = 0; i < PLACES; i++) {
        if (t->place[i].server == UINT32_MAX) continue;
        cost = wait_s(t->place[i].server, now) + compute_s(believed(&t->place[i], now), t->n);
        if (cost > least) continue;
        least = cost;
        best = t->place[i].server;
    }
    return best;
}

/* One turn of a talk. Returns the time to its first token. */
static double ask(const struct way *w, struct talk *t, double now, bool counts, struct sums *m)
{
    uint32_t       at = route(w, t, now), i = place_at(t, at), from = PLACES;
    double         here = i < PLACES ? t->place[i].tokens : 0, have = here, ready = now;
    double         asked = t->n, could = t->n - opt[O_TURN];
    struct server *s = &f.server[at];
    for (uint32_t k = 0; k < PLACES && w->link_bytes_s > 0; k++)
        if (t->place[k].server != UINT32_MAX && t->place[k].tokens > have) {
            have = t->place[k].tokens;
            from = k;
        }
    if (from < PLACES) {
        struct server *peer = &f.server[t->place[from].server];
        double         begin = now > s->in_s ? now : s->in_s;
        if (peer->out_s > begin) begin = peer->out_s;
        double end = begin + opt[O_LATENCY] * 1e-6 + (have - here) * opt[O_KV_BYTES] / w->link_bytes_s;
        if (end - now < compute_s(here, have)) { /* as the server decides: only what is quicker pulled than computed */
            s->in_s = peer->out_s = ready = end;
        } else {
            have = here;
        }
    }
    double took = compute_s(have, t->n), first = (s->free_s > ready ? s->free_s : ready) + took;
    /* While this one waits for its pull the device computes others. */
    s->free_s = (s->free_s > now ? s->free_s : now) + took;
    keep(t, at, first);
    if (counts) {
        m->n++;
        m->prompt += asked;
        m->here += here;
        m->peer += have - here;
        m->could += could;
        m->busy_s += took;
    }
    return first - now;
}

static void talk_begin(struct talk *t)
{
    uint32_t base = (uint32_t)(t - f.talk) * PLACES;
    for (uint32_t i = 0; i < PLACES; i++)
        if (t->place[i].server != UINT32_MAX) forget(base + i);
    t->n = opt[O_TURN];
}

static bool earlier(const void *ctx, uint64_t a, uint64_t b)
{
    (void)ctx;
    return f.talk[a].at_s != f.talk[b].at_s ? f.talk[a].at_s < f.talk[b].at_s : a < b;
}
static void stands_at(void *ctx, uint64_t id, size_t at)
{
    (void)ctx;
    (void)id;
    (void)at;
}

static struct sums run(uint32_t n_server, const struct way *w)
{
    struct heap_order by_time = { earlier, stands_at, NULL };
    struct sums       m = { 0 };
    double            warm = opt[O_SECONDS] / 4, end = opt[O_SECONDS] + warm;
    f.n_server = n_server;
    f.n_talk = (uint32_t)(n_server * opt[O_AGENTS]);
    f.server = calloc(n_server, sizeof *f.server);
    f.talk = calloc(f.n_talk, sizeof *f.talk);
    f.heap = calloc(f.n_talk, sizeof *f.heap);
    f.n_heap = 0;
    f.dice = hash_u64((uint64_t)opt[O_SEED]);
    CHECK(f.server && f.talk && f.heap);
    for (uint32_t i = 0; i < n_server; i++) f.server[i].newest = f.server[i].oldest = UINT32_MAX;
    for (uint32_t i = 0; i < f.n_talk; i++) {
        struct talk *t = &f.talk[i];
        t->dice = hash_u64((uint64_t)opt[O_SEED] + hash_u64(i));
        for (uint32_t k = 0; k < PLACES; k++) t->place[k].server = UINT32_MAX;
        talk_begin(t);
        t->at_s = part(&t->dice) * (opt[O_THINK] + 1);
        heap_push(f.heap, &f.n_heap, i, by_time);
    }
    while (f.talk[f.heap[0]].at_s < end) {
        struct talk *t = &f.talk[heap_take(f.heap, &f.n_heap, 0, by_time)];
        bool         counts = t->at_s >= warm;
        double       ttft = ask(w, t, t->at_s, counts, &m);
        if (counts && m.n <= SAMPLES_MAX) f.ttft[m.n - 1] = ttft;
        t->at_s += ttft + opt[O_ANSWER] / 1e3 + spread(&t->dice, opt[O_THINK]);
        t->n += opt[O_TURN];
        if (part(&t->dice) * opt[O_TURNS] < 1 || t->n > opt[O_CONTEXT]) talk_begin(t);
        heap_push(f.heap, &f.n_heap, (uint64_t)(t - f.talk), by_time);
    }
    uint64_t n = m.n < SAMPLES_MAX ? m.n : SAMPLES_MAX;
    qsort(f.ttft, n, sizeof *f.ttft, sim_order);
    if (n) {
        m.ttft_p50 = f.ttft[n / 2];
        m.ttft_p99 = f.ttft[(uint64_t)(0.99 * (double)n)];
    }
    free(f.server);
    free(f.talk);
    free(f.heap);
    return m;
}

/* ---- against closed forms */

static bool close_to(const char *what, double sim, double closed, double within)
{
    bool ok = fabs(sim / closed - 1) <= within;
    printf("%-70s %9.4f simulated, %9.4f closed form%s\n", what, sim, closed, ok ? "" : "  WRONG");
    return ok;
}

/* Tokens found at a server that is chosen by chance among n, at turn k of a talk: those of the last visit. */
static double found_by_chance(double n, double turns)
{
    double found = 0, prompt = 0, alive = 1;
    for (int k = 1; k < 400; k++) {
        double never = 1;
        for (int back = 1; back < k; back++) {
            found += alive * never / n * (k - back);
            never *= 1 - 1 / n;
        }
        prompt += alive * k;
        alive *= 1 - 1 / turns;
    }
    return found / prompt;
}

static bool check(void)
{
    bool       ok = true;
    struct way chance = { .knows = false }, peers = { .knows = false, .link_bytes_s = 1e15 };
    opt[O_HELD] = 1e12;
    opt[O_CONTEXT] = 1e8;
    opt[O_TURNS] = 8;
    opt[O_THINK] = 100;
    opt[O_AGENTS] = 64;
    opt[O_SECONDS] = 40000;
    opt[O_LATENCY] = 0;
    for (double n = 2; n <= 8; n *= 2) {
        char        what[100];
        struct sums m = run((uint32_t)n, &chance);
        snprintf(what, sizeof what, "%g servers by chance, endless room: part of the prompts found", n);
        ok &= close_to(what, m.here / m.prompt, found_by_chance(n, opt[O_TURNS]), 0.03);
        m = run((uint32_t)n, &peers);
        ok &= close_to("the same with peers over an endless link", (m.here + m.peer) / m.prompt, m.could / m.prompt,
                       0.001);
    }
    /* A link at the break-even for this prompt: a little slower and nothing is pulled, a little faster and all is. */
    opt[O_SECONDS] = 20000;
    opt[O_ATTEND] = 1e15;
    double even = opt[O_KV_BYTES] * opt[O_PREFILL] * (1 - opt[O_DECODE]);
    peers.link_bytes_s = even * 0.98;
    struct sums slow = run(4, &peers);
    peers.link_bytes_s = even * 1.1;
    struct sums fast = run(4, &peers);
    printf("of all prompt tokens, pulled at 0.98 of the break-even %.4f, at 1.1 of it %.4f\n", slow.peer / slow.prompt,
           fast.peer / fast.prompt);
    return ok && slow.peer < 0.01 * slow.prompt && fast.peer > 0.8 * (fast.could - fast.here);
}

static void row(FILE *out, bool csv, double n, const char *name, const struct sums *m)
{
    fprintf(out, csv ? "%g,%s,%.4f,%.4f,%.4f,%.4f,%.4f\n" : "%8g  %-34s | %6.3f %6.3f (%.3f) | %8.3f %8.3f\n", n, name,
            m->here / m->prompt, m->peer / m->prompt, m->could / m->prompt, m->ttft_p50, m->ttft_p99);
    fflush(out);
}

int main(int argc, char **argv)
{
    options(argc, argv);
    f.ttft = calloc(SAMPLES_MAX, sizeof *f.ttft);
    CHECK(f.ttft);
    if (o.check) return check() ? 0 : 1;
    FILE *csv = o.csv ? fopen(o.csv, "w") : NULL;
    if (o.csv && !csv) sim_stop("sim_peers", o.csv, "cannot be written");
    if (csv) fputs("replicas,way,hit_here,hit_peer,could_hit,ttft_p50_s,ttft_p99_s\n", csv);
    printf("%8s  %-34s | %6s %6s %7s | %8s %8s\n", "servers", "", "here", "peers", "(of)", "TTFT p50", "p99 s");
    for (int i = 0; i < o.n_replicas; i++)
        for (int knows = 0; knows < 2; knows++)
            for (int l = -1; l < o.n_link; l++) {
                char        name[64], by[32] = "no peers";
                struct way  w = { .knows = knows, .link_bytes_s = l < 0 ? 0 : o.link[l] * 1e9 / 8 };
                struct sums m = run((uint32_t)o.replicas[i], &w);
                if (l >= 0) snprintf(by, sizeof by, "peers at %g Gbit/s", o.link[l]);
                snprintf(name, sizeof name, "%s; %s", knows ? "by prefix" : "by chance", by);
                row(stdout, false, o.replicas[i], name, &m);
                if (csv) row(csv, true, o.replicas[i], name, &m);
            }
    if (csv && fclose(csv)) sim_stop("sim_peers", o.csv, "cannot be written");
    free(f.ttft);
    return 0;
}
