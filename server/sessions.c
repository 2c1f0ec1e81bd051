#include "server/sessions.h"
#include "base/list.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct session {
    unsigned char   id[16];
    uint64_t        end_us;
    struct list     age;  /* in sessions.open, the oldest first; or alone */
    struct session *next; /* of its bucket, or of the free ones */
};
struct sessions {
    pthread_mutex_t  lock;
    uint64_t         life_us;
    uint32_t         n_max, n_bucket; /* n_bucket: a power of two */
    struct list      open;
    struct session  *place, *free;
    struct session **bucket;
};

enum status sessions_create(uint32_t n_max, uint32_t seconds, struct sessions **s_out)
{
    struct sessions *s = calloc(1, sizeof *s);
    if (!s) return ST_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    list_init(&s->open);
    s->life_us = (uint64_t)seconds * 1000000u;
    s->n_max = n_max;
    s->n_bucket = 1;
    while (s->n_bucket < n_max) s->n_bucket *= 2;
    s->place = calloc(n_max, sizeof *s->place);
    s->bucket = calloc(s->n_bucket, sizeof *s->bucket);
    if (!s->place || !s->bucket) {
        sessions_free(s);
        return ST_NOMEM;
    }
    for (uint32_t i = n_max; i-- > 0;) {
        list_init(&s->place[i].age);
        s->place[i].next = s->free;
        s->free = &s->place[i];
    }
    *s_out = s;
    return ST_OK;
}

void sessions_free(struct sessions *s)
{
    if (!s) return;
    pthread_mutex_destroy(&s->lock);
    free(s->place);
    free(s->bucket);
    free(s);
}

uint32_t sessions_seconds(const struct sessions *s) { return (uint32_t)(s->life_us / 1000000u); }

/* ---- ids: RFC 9562, version 4 ---- */

static const char hex[] = "0123456789abcdef";

static bool is_dash(size_t at) { return at == 8 || at == 13 || at == 18 || at == 23; }

static void id_text(const unsigned char id[16], char out[SESSION_ID_BYTES])
{
    size_t k = 0;
    for (size_t i = 0; i < SESSION_ID_BYTES - 1; i++) {
        if (is_dash(i)) {
            out[i] = '-';
            continue;
        }
        out[i] = hex[k % 2 ? id[k / 2] & 15 : id[k / 2] >> 4];
        k++;
    }
    out[SESSION_ID_BYTES - 1] = 0;
}

static bool id_parse(const char *text, size_t n, unsigned char id_out[16])
{
    size_t k = 0;
    if (n != SESSION_ID_BYTES - 1) return false;
    memset(id_out, 0, 16);
    for (size_t i = 0; i < n; i++) {
        if (is_dash(i)) {
            if (text[i] != '-') return false;
            continue;
        }
        const char *digit = text[i] ? strchr(hex, text[i]) : NULL;
        if (!digit) return false;
        id_out[k / 2] = (unsigned char)(id_out[k / 2] << 4 | (digit - hex));
        k++;
    }
    return true;
}

/* ---- the table; the lock is held ---- */

/* Ids are random, so any of their bytes spread well. */
static struct session **bucket_of(struct sessions *s, const unsigned char id[16])
{
    uint32_t h;
    memcpy(&h, id, sizeof h);
    return &s->bucket[h & (s->n_bucket - 1)];
}

static struct session **find(struct sessions *s, const unsigned char id[16])
{
    struct session **at = bucket_of(s, id);
    while (*at && memcmp((*at)->id, id, 16) != 0) at = &(*at)->next;
    return at;
}

static void end(struct sessions *s, struct session **at)
{
    struct session *gone = *at;
    *at = gone->next;
    list_del(&gone->age);
    gone->next = s->free;
    s->free = gone;
}

/* All have the same life, so the oldest end first. */
static void expire(struct sessions *s, uint64_t now_us)
{
    while (!list_empty(&s->open)) {
        struct session *oldest = LIST_ENTRY(s->open.next, struct session, age);
        if (oldest->end_us > now_us) return;
        end(s, find(s, oldest->id));
    }
}

enum status sessions_open(struct sessions *s, uint64_t now_us, char id_out[SESSION_ID_BYTES])
{
    unsigned char id[16];
    if (getrandom(id, sizeof id, 0) != sizeof id) return ST_IO;
    id[6] = (unsigned char)((id[6] & 0x0f) | 0x40);
    id[8] = (unsigned char)((id[8] & 0x3f) | 0x80);
    pthread_mutex_lock(&s->lock);
    expire(s, now_us);
    struct session *fresh = s->free;
    if (fresh) {
        struct session **at = bucket_of(s, id);
        s->free = fresh->next;
        memcpy(fresh->id, id, sizeof id);
        fresh->end_us = now_us + s->life_us;
        fresh->next = *at;
        *at = fresh;
        list_add_tail(&s->open, &fresh->age);
    }
    pthread_mutex_unlock(&s->lock);
    if (!fresh) return ST_AGAIN;
    id_text(id, id_out);
    return ST_OK;
}

bool sessions_has(struct sessions *s, const char *text, size_t n, uint64_t now_us)
{
    unsigned char id[16];
    if (!id_parse(text, n, id)) return false;
    pthread_mutex_lock(&s->lock);
    expire(s, now_us);
    bool has = *find(s, id) != NULL;
    pthread_mutex_unlock(&s->lock);
    return has;
}

bool sessions_close(struct sessions *s, const char *text, size_t n, uint64_t now_us)
{
    unsigned char id[16];
    if (!id_parse(text, n, id)) return false;
    pthread_mutex_lock(&s->lock);
    expire(s, now_us);
    struct session **at = find(s, id);
    bool             was = *at != NULL;
    if (was) end(s, at);
    pthread_mutex_unlock(&s->lock);
    return was;
}
