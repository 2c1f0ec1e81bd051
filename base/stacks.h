/* stacks: prints the call stacks of all threads, for finding a hang.   Thread: any; one stacks_print at a time.
 * thread_start registers its threads. main calls stacks_init once, before the first thread; without that call nothing
 * is printed. */
#pragma once
#include "base/check.h"
#include <stddef.h>

/* Installs the handler; before other threads start. The calling thread is entered as "main". */
void stacks_init(void);
int  stacks_signal(void); /* the signal that makes a thread report its stack: no thread may block it */
void stacks_enter(const char *name, enum thread_role role); /* of the calling thread */
/* Takes the calling thread out again; before it ends. */
void stacks_leave(void);
/* Prints to fd the name, number, state and call stack of each thread whose bit (1u << role) is in roles, at most 32
 * threads. For a thread that does not answer (it hangs in the kernel, or is stopped) it prints name and state only. It
 * waits at most 200 ms per thread. Only public functions have names; other frames are offsets for addr2line. */
void stacks_print(int fd, unsigned roles);
