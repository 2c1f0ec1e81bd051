/* room_note: the ring of notes from the room to its lane. */
#include "transfer/peer/room_impl.h"
#include <stdio.h>

struct peer_note *note_new(struct room *l, bool urgent, enum peer_note_type type, const struct speaker *s)
{
    if (l->n_note == NOTES_MAX || (!urgent && notes_wait(l))) return NULL;
    struct peer_note *n = &l->note[(l->note_first + l->n_note++) % NOTES_MAX];
    n->type = type;
    n->peer = s->index;
    n->epoch = s->epoch;
    n->n = 0;
    snprintf(n->name, sizeof n->name, "%s", s->at.text);
    return n;
}
