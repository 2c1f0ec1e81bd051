/* bench_serve: load for a server that speaks OpenAI's API, over one epoll loop in one thread. --help lists the options.
 *
 * Load    closed loop: --concurrency clients, each asks again when it has its answer
 *         --rate R: Poisson arrivals, R a second; a request's time counts from when it should have been sent
 * Work    prompts of --prompt-tokens that all differ
 *         --shared-prefix N: the first N tokens are those of one of --prefix-groups
 *         --turns N: conversations, each turn sends all that was said before
 *
 * Prompts are token ids (completions), or words whose number is set by two requests ahead of the measurement (--chat).
 * Tokens are those of the server's usage; where an answer has no usage, its content events count. TTFT: request to
 * first content. ITL: gap between content events. TPOT: (last - first content) / (tokens - 1). E2E: request to end. The
 * last line is JSON. Over 500 lines: one program: its work, clients and results share the options and one loop. */
#include "load.h"
#include "base/log.h"
#include "base/rng.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_WORDS = 6, PROBE_SHORT = 8, PROBE_LONG = 72, READ_BYTES = 1 << 16, ID_FIRST = 300, ID_SPAN = 2000 };

struct opts {
    char     host[128], port[8], key[256], model[256], extra[1024];
    uint32_t concurrency, requests, warmup, prompt_tokens, output_tokens, shared_prefix, prefix_groups, turns,
        timeout_s;
    uint64_t seed;
    double   rate, seconds, slo_ttft_ms, slo_tpot_ms, slo_e2e_ms;
    bool     chat, fresh, whole, may_end;
    double   words_per_token, overhead_tokens; /* chat: from the probes */
    uint32_t probe_words;                      /* 0: not probing */
};

enum slot_state { SLOT_FREE, SLOT_SEND, SLOT_READ };

/* One client: a connection, a conversation, at most one request. */
struct slot {
    int             fd;
    enum slot_state state;
    bool            reused, again; /* of a connection that served before; was sent a second time over a new one */
    bool            counted;       /* among those that receive */
    struct buf      out;
    size_t          out_at;
    uint32_t        turn;
    struct buf      said; /* the conversation so far, as JSON messages with a comma behind each */
    uint64_t        t_due_us;
    struct answer   a;
    struct load    *load;
};

struct load {
    const struct opts *o;
    int                epoll;
    struct slot       *slot;
    uint32_t           n_slot, *free_slot, n_free, free_at; /* a ring of free ones */
    struct addrinfo   *address;
    uint32_t           to_start, n_started, n_done, n_ok, n_refused, n_error, n_unlike, n_good, n_reconnect;
    uint32_t           n_receiving, receiving_max, n_no_usage;
    uint64_t           t0_us, t_receiving_us, n_content, prompt_tokens, cached_tokens, output_tokens;
    struct samples     ttft, itl, tpot, e2e;
    char               complaint[300]; /* the first */
};

/* ---- what is asked ---- */

static const char *const words[32] = { "time",  "year",  "people", "way",  "day",   "man",   "thing",  "woman",
                                       "life",  "child", "world",  "hand", "part",  "place", "case",   "week",
                                       "work",  "fact",  "group",  "home", "water", "room",  "mother", "area",
                                       "money", "story", "book",   "eye",  "job",   "word",  "house",  "side" };

/* n words, of which the first few say which prompt it is. */
static void put_words(struct buf *b, uint64_t seed, uint64_t which, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i) buf_putc(b, ' ');
        buf_puts(b, i < HEAD_WORDS ? words[rng_philox(seed, which, i).x[0] % 32] : "the");
    }
}

static void put_ids(struct buf *b, uint64_t seed, uint64_t which, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        buf_printf(b, "%s%u", i ? "," : "", ID_FIRST + rng_philox(seed, which, i).x[0] % ID_SPAN);
}

static uint32_t words_for(const struct opts *o, double tokens)
{
    double n = o->probe_words ? o->probe_words : tokens * o->words_per_token + 0.5;
    return n < 1 ? 1 : (uint32_t)n;
}

static void put_body(struct slot *s, struct buf *b, uint32_t index)
{
    const struct opts *o = s->load->o;
    uint32_t           shared = o->shared_prefix < o->prompt_tokens ? o->shared_prefix : o->prompt_tokens,
             own = o->prompt_tokens - shared;
    uint64_t group = ((uint64_t)1 << 40) + index % o->prefix_groups;
    buf_putc(b, '{');
    if (*o->model) {
        buf_puts(b, "\"model\":");
        json_put_str(b, o->model, strlen(o->model));
        buf_putc(b, ',');
    }
    if (o->chat) {
        if (s->turn == 0) {
            buf_clear(&s->said);
            if (shared) {
                buf_puts(&s->said, "{\"role\":\"system\",\"content\":\"");
                put_words(&s->said, o->seed, group, words_for(o, shared));
                buf_puts(&s->said, "\"},");
            }
        }
        buf_puts(&s->said, "{\"role\":\"user\",\"content\":\"");
        put_words(&s->said, o->seed, index, words_for(o, own - o->overhead_tokens));
        buf_puts(&s->said, "\"},");
        buf_puts(b, "\"messages\":[");
        buf_put(b, s->said.data, s->said.n - 1);
        buf_putc(b, ']');
    } else {
        buf_puts(b, "\"prompt\":[");
        put_ids(b, o->seed, group, shared);
        if (shared && own) buf_putc(b, ',');
        put_ids(b, o->seed, index, own);
        buf_putc(b, ']');
    }
    buf_printf(b, ",\"max_tokens\":%u,\"temperature\":0", o->probe_words ? 1 : o->output_tokens);
    if (!o->may_end) buf_puts(b, ",\"ignore_eos\":true");
    if (!o->whole) buf_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    if (*o->extra) buf_printf(b, ",%s", o->extra);
    buf_putc(b, '}');
}

static void put_request(struct slot *s, uint32_t index)
{
    const struct opts *o = s->load->o;
    struct buf         body;
    buf_init(&body, 64 << 20);
    put_body(s, &body, index);
    buf_clear(&s->out);
    buf_printf(&s->out,
               "POST /v1/%s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n",
               o->chat ? "chat/completions" : "completions", o->host, o->port, body.n);
    if (*o->key) buf_printf(&s->out, "Authorization: Bearer %s\r\n", o->key);
    if (o->fresh) buf_puts(&s->out, "Connection: close\r\n");
    buf_puts(&s->out, "\r\n");
    buf_put(&s->out, body.data, body.n);
    if (body.failed || s->out.failed) exit(EXIT_SOFTWARE);
    buf_free(&body);
}

/* ---- one client ---- */

static void complain(struct load *l, const char *what, const char *more, size_t n)
{
    if (!*l->complaint) snprintf(l->complaint, sizeof l->complaint, "%s%.*s", what, (int)(n > 200 ? 200 : n), more);
}

static void slot_close(struct slot *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

static void slot_finish(struct slot *s, bool ok, const char *why);

static void slot_send(struct slot *s)
{
    while (s->out_at < s->out.n) {
        ssize_t n = send(s->fd, s->out.data + s->out_at, s->out.n - s->out_at, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
            struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = s };
            epoll_ctl(s->load->epoll, EPOLL_CTL_MOD, s->fd, &ev);
            return;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return; /* what the server said about it is read, or its end is seen */
        s->out_at += (size_t)n;
    }
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };
    epoll_ctl(s->load->epoll, EPOLL_CTL_MOD, s->fd, &ev);
    s->state = SLOT_READ;
}

static void slot_connect(struct slot *s)
{
    const struct addrinfo *a = s->load->address;
    int                    one = 1;
    s->reused = s->fd >= 0;
    s->out_at = 0;
    s->state = SLOT_SEND;
    if (s->fd < 0) {
        s->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->fd < 0) {
            slot_finish(s, false, strerror(errno));
            return;
        }
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = s };
        epoll_ctl(s->load->epoll, EPOLL_CTL_ADD, s->fd, &ev);
        if (connect(s->fd, a->ai_addr, a->ai_addrlen)) {
            if (errno != EINPROGRESS) slot_finish(s, false, strerror(errno));
            return;
        }
    }
    slot_send(s);
}

static void on_content(void *ctx, uint64_t gap_us, bool first)
{
    struct slot *s = ctx;
    struct load *l = s->load;
    if (!first) sample_add(&l->itl, (double)gap_us / 1e3);
    if (!first || s->counted) return;
    s->counted = true;
    if (++l->n_receiving > l->receiving_max) {
        l->receiving_max = l->n_receiving;
        l->t_receiving_us = s->a.now_us;
    }
}

static void slot_ask(struct load *l, uint64_t due_us)
{
    struct slot *s = &l->slot[l->free_slot[l->free_at++ % l->n_slot]];
    l->n_free--;
    s->t_due_us = due_us;
    s->again = false;
    s->a.content = on_content;
    s->a.ctx = s;
    answer_begin(&s->a, l->o->turns > 1);
    put_request(s, l->n_started++);
    l->to_start--;
    slot_connect(s);
}

static void slot_count(struct slot *s)
{
    struct load       *l = s->load;
    const struct opts *o = l->o;
    struct answer     *a = &s->a;
    if (!a->has_usage) {
        l->n_no_usage++;
        a->output_tokens = a->n_content;
    }
    l->n_ok++;
    l->n_content += a->n_content;
    l->prompt_tokens += a->prompt_tokens;
    l->cached_tokens += a->cached_tokens;
    l->output_tokens += a->output_tokens;
    if (!o->may_end && a->output_tokens != o->output_tokens) l->n_unlike++;
    double e2e = (double)(a->now_us - s->t_due_us) / 1e3,
           ttft = a->t_first_us ? (double)(a->t_first_us - s->t_due_us) / 1e3 : e2e;
    double tpot = a->output_tokens > 1 ? (double)(a->t_last_us - a->t_first_us) / 1e3 / (a->output_tokens - 1) : 0;
    sample_add(&l->e2e, e2e);
    sample_add(&l->ttft, ttft);
    if (a->output_tokens > 1) sample_add(&l->tpot, tpot);
    if ((o->slo_ttft_ms <= 0 || ttft <= o->slo_ttft_ms) && (o->slo_tpot_ms <= 0 || tpot <= o->slo_tpot_ms) &&
        (o->slo_e2e_ms <= 0 || e2e <= o->slo_e2e_ms))
        l->n_good++;
}

static void slot_finish(struct slot *s, bool ok, const char *why)
{
    struct load   *l = s->load;
    struct answer *a = &s->a;
    if (s->counted) l->n_receiving--;
    s->counted = false;
    l->n_done++;
    if (ok) {
        slot_count(s);
    } else if (a->complete && (a->status == 429 || a->status == 503)) {
        l->n_refused++;
        complain(l, "refused: ", a->line.data, a->line.n);
    } else {
        l->n_error++;
        complain(l, why, a->line.data, a->line.n);
    }
    s->turn = ok && s->turn + 1 < l->o->turns ? s->turn + 1 : 0;
    if (s->turn) {
        buf_puts(&s->said, "{\"role\":\"assistant\",\"content\":\"");
        buf_put(&s->said, a->text.data, a->text.n);
        buf_puts(&s->said, "\"},");
    }
    if (!ok || l->o->fresh || !a->keep_alive) slot_close(s);
    s->state = SLOT_FREE;
    l->free_slot[(l->free_at + l->n_free++) % l->n_slot] = (uint32_t)(s - l->slot);
}

static void slot_event(struct slot *s, uint32_t events, uint64_t now_us)
{
    static char bytes[READ_BYTES];
    if (s->state == SLOT_SEND && events & EPOLLOUT) slot_send(s);
    if (s->fd < 0 || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (s->state == SLOT_FREE) { /* the server ended an idle connection, or speaks unasked */
        slot_close(s);
        return;
    }
    if (n <= 0 && s->reused && !s->again && !s->a.headed) { /* it had ended it before this request came */
        s->load->n_reconnect++;
        s->again = true;
        slot_close(s);
        slot_connect(s);
        return;
    }
    int         error = errno;
    const char *why = n ? "not HTTP, or too long a line" : "the answer broke off";
    if (!answer_bytes(&s->a, bytes, n > 0 ? (size_t)n : 0, now_us))
        slot_finish(s, false, n < 0 ? strerror(error) : why);
    else if (s->a.complete)
        slot_finish(s, s->a.status == 200 && !s->a.cut_error, "error: ");
}

/* ---- the loop ---- */

static bool load_init(struct load *l, const struct opts *o)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    *l = (struct load){ .o = o, .n_slot = o->concurrency, .to_start = o->requests };
    if (l->n_slot > l->to_start) l->n_slot = l->to_start;
    int bad = getaddrinfo(o->host, o->port, &hints, &l->address);
    if (bad) {
        fprintf(stderr, "bench_serve: --url: cannot resolve %s: %s\n", o->host, gai_strerror(bad));
        return false;
    }
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->slot = calloc(l->n_slot, sizeof *l->slot);
    l->free_slot = calloc(l->n_slot, sizeof *l->free_slot);
    if (l->epoll < 0 || !l->slot || !l->free_slot) exit(EXIT_SOFTWARE);
    for (uint32_t i = 0; i < l->n_slot; i++) {
        l->slot[i].fd = -1;
        l->slot[i].load = l;
        buf_init(&l->slot[i].out, 64 << 20);
        buf_init(&l->slot[i].said, 64 << 20);
        l->free_slot[l->n_free++] = i;
    }
    return true;
}

static void load_free(struct load *l)
{
    for (uint32_t i = 0; i < l->n_slot; i++) {
        slot_close(&l->slot[i]);
        buf_free(&l->slot[i].out);
        buf_free(&l->slot[i].said);
        buf_free(&l->slot[i].a.line);
        buf_free(&l->slot[i].a.text);
    }
    free(l->slot);
    free(l->free_slot);
    free(l->ttft.v);
    free(l->itl.v);
    free(l->tpot.v);
    free(l->e2e.v);
    if (l->address) freeaddrinfo(l->address);
    if (l->epoll > 0) close(l->epoll);
}

static void expire(struct load *l, uint64_t now_us)
{
    for (uint32_t i = 0; i < l->n_slot; i++) {
        struct slot *s = &l->slot[i];
        if (s->state != SLOT_FREE && now_us > s->t_due_us + (uint64_t)l->o->timeout_s * 1000000)
            slot_finish(s, false, "no answer within --timeout ");
    }
}

/* Until all requests are answered; --seconds: no new ones after that time. */
static void load_run(struct load *l)
{
    struct epoll_event ev[512];
    const struct opts *o = l->o;
    uint64_t           now = clock_us(), due = now, expire_at = now;
    l->t0_us = now;
    while (l->to_start || l->n_free < l->n_slot) {
        if (o->seconds > 0 && now - l->t0_us >= (uint64_t)(o->seconds * 1e6)) l->to_start = 0;
        for (; l->to_start && l->n_free && (o->rate <= 0 || due <= now);) {
            slot_ask(l, o->rate > 0 ? due : clock_us());
            if (o->rate > 0)
                due += (uint64_t)(-log(rng_unit(rng_philox(o->seed, 1, l->n_started).x[0])) / o->rate * 1e6);
        }
        uint64_t        us = o->rate > 0 && l->to_start && l->n_free && due - now < 100000 ? due - now : 100000;
        struct timespec wait = { .tv_nsec = (long)us * 1000 };
        int             n = epoll_pwait2(l->epoll, ev, 512, &wait, NULL);
        now = clock_us();
        for (int i = 0; i < n; i++) slot_event(ev[i].data.ptr, ev[i].events, now);
        if (now > expire_at) {
            expire(l, now);
            expire_at = now + 1000000;
        }
    }
}

/* ---- ahead of the measurement ---- */

static bool probe(const struct opts *o, uint32_t n_word, double *tokens_out)
{
    struct opts one = *o;
    struct load l;
    one.concurrency = one.requests = 1;
    one.rate = one.seconds = 0;
    one.turns = 1;
    one.shared_prefix = 0;
    one.may_end = true;
    one.probe_words = n_word;
    one.seed = o->seed ^ (0x9e0b0000u + n_word);
    if (!load_init(&l, &one)) return false;
    load_run(&l);
    *tokens_out = (double)l.prompt_tokens;
    bool ok = l.n_ok && l.prompt_tokens;
    if (!ok) fprintf(stderr, "bench_serve: no answer with a usage: %s\n", l.complaint);
    load_free(&l);
    return ok;
}

static bool prepare(struct opts *o)
{
    if (o->chat) {
        double few, many;
        if (!probe(o, PROBE_SHORT, &few) || !probe(o, PROBE_LONG, &many) || many <= few) return false;
        o->words_per_token = (PROBE_LONG - PROBE_SHORT) / (many - few);
        o->overhead_tokens = few - PROBE_SHORT / o->words_per_token;
    }
    if (!o->warmup) return true;
    struct opts warm = *o;
    struct load l;
    warm.requests = o->warmup;
    warm.rate = warm.seconds = 0;
    warm.seed = o->seed ^ 0x77a26d5cu;
    if (!load_init(&l, &warm)) return false;
    load_run(&l);
    load_free(&l);
    return true;
}

/* ---- results ---- */

static void print_row(const char *name, struct samples *s)
{
    printf("%-10s mean %9.2f  p50 %9.2f  p90 %9.2f  p95 %9.2f  p99 %9.2f  max %9.2f\n", name, sample_mean(s),
           sample_at(s, .5), sample_at(s, .9), sample_at(s, .95), sample_at(s, .99), sample_at(s, 1));
}

static void json_row(const char *name, struct samples *s)
{
    printf(",\"%s\":{\"n\":%zu,\"mean\":%.4f,\"p50\":%.4f,\"p90\":%.4f,\"p95\":%.4f,\"p99\":%.4f,\"max\":%.4f}", name,
           s->n, sample_mean(s), sample_at(s, .5), sample_at(s, .9), sample_at(s, .95), sample_at(s, .99),
           sample_at(s, 1));
}

static void report(struct load *l)
{
    const struct opts *o = l->o;
    double             s = (double)(clock_us() - l->t0_us) / 1e6;
    bool               slo = o->slo_ttft_ms > 0 || o->slo_tpot_ms > 0 || o->slo_e2e_ms > 0;
    struct rusage      r;
    getrusage(RUSAGE_SELF, &r);
    double cpu =
        (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
    printf("requests   %u answered, %u refused, %u failed, %u with another number of tokens than asked for, %.2f s\n",
           l->n_ok, l->n_refused, l->n_error, l->n_unlike, s);
    if (*l->complaint) printf("first      %s\n", l->complaint);
    printf("throughput %.2f requests/s, %.1f output tokens/s, %.1f prompt tokens/s\n", l->n_ok / s,
           (double)l->output_tokens / s, (double)l->prompt_tokens / s);
    printf("tokens     %.1f prompt (%.1f of them cached) and %.1f output a request, in %.1f events%s\n",
           (double)l->prompt_tokens / (l->n_ok ? l->n_ok : 1), (double)l->cached_tokens / (l->n_ok ? l->n_ok : 1),
           (double)l->output_tokens / (l->n_ok ? l->n_ok : 1), (double)l->n_content / (l->n_ok ? l->n_ok : 1),
           l->n_no_usage ? "; some answers had no usage" : "");
    printf("receiving  %u at one time, after %.3f s\n", l->receiving_max, (double)(l->t_receiving_us - l->t0_us) / 1e6);
    if (slo)
        printf("goodput    %.2f requests/s, %.1f %% of the answers\n", l->n_good / s,
               100.0 * l->n_good / (l->n_ok ? l->n_ok : 1));
    print_row("TTFT ms", &l->ttft);
    print_row("ITL ms", &l->itl);
    print_row("TPOT ms", &l->tpot);
    print_row("E2E ms", &l->e2e);
    printf(
        "{\"ok\":%u,\"refused\":%u,\"errors\":%u,\"unlike\":%u,\"no_usage\":%u,\"reconnects\":%u,\"seconds\":%.4f,\"concurrency\":%u,\"rate\":%.4g,"
        "\"turns\":%u,\"chat\":%s,\"keep_alive\":%s,\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"output_tokens\":%llu,\"content_events\":%llu,"
        "\"requests_per_s\":%.3f,\"output_tokens_per_s\":%.2f,\"prompt_tokens_per_s\":%.2f,\"receiving_max\":%u,\"receiving_max_s\":%.4f,"
        "\"generator_cpu_s\":%.3f",
        l->n_ok, l->n_refused, l->n_error, l->n_unlike, l->n_no_usage, l->n_reconnect, s, o->concurrency, o->rate,
        o->turns, o->chat ? "true" : "false", o->fresh ? "false" : "true", (unsigned long long)l->prompt_tokens,
        (unsigned long long)l->cached_tokens, (unsigned long long)l->output_tokens, (unsigned long long)l->n_content,
        l->n_ok / s, (double)l->output_tokens / s, (double)l->prompt_tokens / s, l->receiving_max,
        (double)(l->t_receiving_us - l->t0_us) / 1e6, cpu);
    if (slo) printf(",\"goodput_per_s\":%.3f,\"good\":%u", l->n_good / s, l->n_good);
    json_row("ttft_ms", &l->ttft);
    json_row("itl_ms", &l->itl);
    json_row("tpot_ms", &l->tpot);
    json_row("e2e_ms", &l->e2e);
    puts("}");
}

/* ---- options ---- */

static const char usage[] =
    "bench_serve [--url http://127.0.0.1:8080] [options]\n"
    "load\n"
    "  --concurrency N       clients of the closed loop (16); with --rate the most requests at one time (1024)\n"
    "  --rate R              Poisson arrivals, R requests a second, instead of the closed loop\n"
    "  --requests N          requests in all (64)      --seconds S   send none after that time\n"
    "  --warmup N            requests ahead that do not count (0)\n"
    "  --new-connection      one connection per request, instead of keep-alive\n"
    "  --timeout SECONDS     longest wait for an answer (600)\n"
    "work\n"
    "  --chat                /v1/chat/completions with words; else /v1/completions with token ids\n"
    "  --prompt-tokens N     (256)                     --output-tokens N   (64)\n"
    "  --shared-prefix N     of the prompt, tokens that all requests of a group begin with (0)\n"
    "  --prefix-groups N     groups (1)\n"
    "  --turns N             of a conversation, with --chat (1): each says another --prompt-tokens\n"
    "  --no-stream           one JSON instead of SSE   --may-end           no ignore_eos\n"
    "  --model NAME  --key KEY  --extra JSON-MEMBERS (as '\"cache_prompt\":false')  --seed N\n"
    "goodput\n"
    "  --slo-ttft-ms X  --slo-tpot-ms X  --slo-e2e-ms X     an answer is good if it keeps all that are given\n";

static bool parse_url(struct opts *o, const char *url)
{
    if (strncmp(url, "http://", 7)) return false;
    const char *h = url + 7, *end = h + strcspn(h, "/"), *colon = memrchr(h, ':', (size_t)(end - h));
    if (colon && memchr(colon, ']', (size_t)(end - colon))) colon = NULL; /* [::1] */
    const char *to = colon ? colon : end;
    if (*h == '[' && to > h && to[-1] == ']') {
        h++;
        to--;
    }
    snprintf(o->host, sizeof o->host, "%.*s", (int)(to - h), h);
    if (colon)
        snprintf(o->port, sizeof o->port, "%.*s", (int)(end - colon - 1), colon + 1);
    else
        snprintf(o->port, sizeof o->port, "80");
    return *o->host && *o->port;
}

static bool parse_number(const char *v, uint32_t *out)
{
    char         *end;
    unsigned long n = strtoul(v, &end, 10);
    if (end == v || *end || *v == '-' || n > UINT32_MAX) return false;
    *out = (uint32_t)n;
    return true;
}

static bool parse_real(const char *v, double *out)
{
    char *end;
    *out = strtod(v, &end);
    return end != v && !*end && *out >= 0 && isfinite(*out);
}

/* The index after what was read; 0: not known, or its value is not allowed. */
static int parse_one(struct opts *o, int argc, char **argv, int i)
{
    const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
    uint32_t    seed;
    const struct {
        const char *name;
        uint32_t   *to;
    } numbers[] = { { "--concurrency", &o->concurrency },
                    { "--requests", &o->requests },
                    { "--warmup", &o->warmup },
                    { "--prompt-tokens", &o->prompt_tokens },
                    { "--output-tokens", &o->output_tokens },
                    { "--shared-prefix", &o->shared_prefix },
                    { "--prefix-groups", &o->prefix_groups },
                    { "--turns", &o->turns },
                    { "--timeout", &o->timeout_s } };
    const struct {
        const char *name;
        double     *to;
    } reals[] = { { "--rate", &o->rate },
                  { "--seconds", &o->seconds },
                  { "--slo-ttft-ms", &o->slo_ttft_ms },
                  { "--slo-tpot-ms", &o->slo_tpot_ms },
                  { "--slo-e2e-ms", &o->slo_e2e_ms } };
    const struct {
        const char *name;
        bool       *to;
    } flags[] = { { "--chat", &o->chat },
                  { "--new-connection", &o->fresh },
                  { "--no-stream", &o->whole },
                  { "--may-end", &o->may_end } };
    const struct {
        const char *name;
        char       *to;
        size_t      n;
    } texts[] = { { "--key", o->key, sizeof o->key },
                  { "--model", o->model, sizeof o->model },
                  { "--extra", o->extra, sizeof o->extra } };
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (!strcmp(a, numbers[k].name)) return parse_number(v, numbers[k].to) ? i + 2 : 0;
    for (size_t k = 0; k < sizeof reals / sizeof *reals; k++)
        if (!strcmp(a, reals[k].name)) return parse_real(v, reals[k].to) ? i + 2 : 0;
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        if (!strcmp(a, flags[k].name)) {
            *flags[k].to = true;
            return i + 1;
        }
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (!strcmp(a, texts[k].name))
            return (size_t)snprintf(texts[k].to, texts[k].n, "%s", v) < texts[k].n && i + 1 < argc ? i + 2 : 0;
    if (!strcmp(a, "--seed") && parse_number(v, &seed)) {
        o->seed = seed;
        return i + 2;
    }
    if (!strcmp(a, "--url") && parse_url(o, v)) return i + 2;
    return 0;
}

int main(int argc, char **argv)
{
    struct opts o = { .host = "127.0.0.1",
                      .port = "8080",
                      .requests = 64,
                      .prompt_tokens = 256,
                      .output_tokens = 64,
                      .prefix_groups = 1,
                      .turns = 1,
                      .timeout_s = 600,
                      .seed = 1 };
    for (int i = 1, next; i < argc; i = next) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(usage, stdout);
            return 0;
        }
        if (!(next = parse_one(&o, argc, argv, i))) {
            fprintf(stderr, "bench_serve: %s is unknown, or has no value that is allowed; see --help\n", argv[i]);
            return EXIT_USAGE;
        }
    }
    if (!o.concurrency) o.concurrency = o.rate > 0 ? 1024 : 16;
    if (!o.requests || !o.prompt_tokens || !o.output_tokens || !o.prefix_groups || !o.turns ||
        (o.turns > 1 && !o.chat)) {
        fprintf(stderr, "bench_serve: %s\n", o.turns > 1 && !o.chat ? "--turns needs --chat" : "a number is 0");
        return EXIT_USAGE;
    }
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    signal(SIGPIPE, SIG_IGN);
    log_init(LOG_LEVEL_WARN, STDERR_FILENO, false);
    struct load l;
    if (!prepare(&o) || !load_init(&l, &o)) return EXIT_IO;
    load_run(&l);
    report(&l);
    bool ok = l.n_ok && !l.n_error && !l.n_refused;
    load_free(&l);
    return ok ? 0 : 1;
}
