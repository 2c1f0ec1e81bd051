/* stacks: where every thread is, asked from outside while some of them hang.   Thread: any; one stacks_print at a time.
 * thread_start registers its threads by itself. stacks_init once, from main, before the first thread; without it nothing is printed. */
#pragma once
#include "base/check.h"
#include <stddef.h>

void stacks_init(void);
int  stacks_signal(void);                                   /* the signal that asks a thread: left open in every thread */
void stacks_enter(const char *name, enum thread_role role); /* of the calling thread */
void stacks_leave(void);
/* To fd: name, number, state and call stack of the threads whose bit (1u << role) is in roles, at most 32 of them. A thread that does not
 * answer (it is in the system, or stopped) is named with its state alone. Bounded in time: 200 ms for a thread. Names of functions are
 * the program's public ones; the rest is an offset for addr2line. */
void stacks_print(int fd, unsigned roles);
