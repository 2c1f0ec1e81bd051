#include "api/adapters.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct adapters {
    pthread_mutex_t  lock;
    uint32_t         n_max, n; /* n: known by name */
    uint32_t         n_gone;
    struct adapter **known; /* [n_max] */
    struct adapter **gone;  /* [n_max] removed, and still in use */
};

struct adapters *adapters_create(uint32_t n_max)
{
    struct adapters *all = calloc(1, sizeof *all);
    if (!all) return NULL;
    all->known = calloc(n_max, sizeof(struct adapter *));
    all->gone = calloc(n_max, sizeof(struct adapter *));
    if (!all->known || !all->gone) {
        free(all->known);
        free(all->gone);
        free(all);
        return NULL;
    }
    all->n_max = n_max;
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

void adapters_free(struct adapters *all)
{
    if (!all) return;
    for (uint32_t i = 0; i < all->n; i++) adapter_drop(all->known[i]);
    for (uint32_t i = 0; i < all->n_gone; i++) adapter_drop(all->gone[i]);
    pthread_mutex_destroy(&all->lock);
    free(all->known);
    free(all->gone);
    free(all);
}

uint32_t adapters_max(const struct adapters *all) { return all->n_max; }

/* The place of a name; n: it is not known. */
static uint32_t place_of(const struct adapters *all, const char *name, size_t n)
{
    uint32_t i = 0;
    while (i < all->n && (strlen(all->known[i]->name) != n || memcmp(all->known[i]->name, name, n) != 0)) i++;
    return i;
}

/* Lets those go that nobody else keeps. */
static void sweep(struct adapters *all)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < all->n_gone; i++) {
        if (atomic_load(&all->gone[i]->n_keep) > 1)
            all->gone[n++] = all->gone[i];
        else
            adapter_drop(all->gone[i]);
    }
    all->n_gone = n;
}

static enum status add(struct adapters *all, struct adapter *a, bool replace)
{
    uint32_t at = place_of(all, a->name, strlen(a->name));
    sweep(all);
    if (at < all->n) {
        if (!replace) return ST_INVALID;
        if (all->n_gone == all->n_max) return ST_AGAIN;
        all->gone[all->n_gone++] = all->known[at];
        all->known[at] = a;
        sweep(all);
        return ST_OK;
    }
    if (all->n == all->n_max) return ST_AGAIN;
    all->known[all->n++] = a;
    return ST_OK;
}

enum status adapters_add(struct adapters *all, struct adapter *a, bool replace)
{
    pthread_mutex_lock(&all->lock);
    enum status st = add(all, a, replace);
    pthread_mutex_unlock(&all->lock);
    return st;
}

enum status adapters_remove(struct adapters *all, const char *name)
{
    enum status st = ST_NOT_FOUND;
    pthread_mutex_lock(&all->lock);
    uint32_t at = place_of(all, name, strlen(name));
    sweep(all);
    if (at < all->n && all->n_gone == all->n_max) {
        st = ST_AGAIN;
    } else if (at < all->n) {
        all->gone[all->n_gone++] = all->known[at];
        all->n--;
        memmove(&all->known[at], &all->known[at + 1], (all->n - at) * sizeof(struct adapter *));
        sweep(all);
        st = ST_OK;
    }
    pthread_mutex_unlock(&all->lock);
    return st;
}

struct adapter *adapters_find(struct adapters *all, const char *name, size_t n)
{
    if (!all) return NULL;
    pthread_mutex_lock(&all->lock);
    uint32_t        at = place_of(all, name, n);
    struct adapter *a = at < all->n ? adapter_keep(all->known[at]) : NULL;
    pthread_mutex_unlock(&all->lock);
    return a;
}

bool adapters_has(struct adapters *all, const char *name, size_t n)
{
    struct adapter *a = adapters_find(all, name, n);
    adapter_drop(a);
    return a != NULL;
}

void adapters_each(struct adapters *all, void (*fn)(void *ctx, const struct adapter *a), void *ctx)
{
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    for (uint32_t i = 0; i < all->n; i++) fn(ctx, all->known[i]);
    pthread_mutex_unlock(&all->lock);
}

bool adapters_name_ok(const char *name, size_t n)
{
    if (!n || n >= LORA_NAME_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x21 || c == 0x7f || c == '"' || c == '\\' || c == ',') return false;
    }
    return true;
}
