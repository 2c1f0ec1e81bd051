/* list: intrusive doubly linked ring. An unlinked node points to itself.   Thread: one owner. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

#define LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))
#define LIST_EACH(it, head) \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); it = it##_next, it##_next = it->next)

/* An empty list, or a node that is in none. */
static inline void list_init(struct list *l) { l->prev = l->next = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }
/* Adds a node that is in no list, as the last one, or as the first one. */
static inline void list_add_tail(struct list *head, struct list *n)
{
    n->prev = head->prev;
    n->next = head;
    head->prev->next = n;
    head->prev = n;
}
static inline void list_add_head(struct list *head, struct list *n) { list_add_tail(head->next, n); }
/* Takes a node out of its list; no-op if it is in none. */
static inline void list_del(struct list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    list_init(n);
}
