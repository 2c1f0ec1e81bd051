/* crash: the last word of a process whose thread did what no program may: which signal, at which address, in which
 * thread, and the calls that led there. No memory is shown, so no prompt and no key. Then the process ends with
 * EXIT_SOFTWARE.   Life: crash_init once in main; crash_enter and crash_leave in every thread that wants to be heard
 * even when its stack is full (thread_start does both). Thread: any. */
#pragma once

/* What the last word begins with; "spillway" without it. A constant text; before other threads are there. */
void crash_name(const char *process);
void crash_init(void);  /* without it the other two do nothing */
void crash_enter(void); /* gives the calling thread a stack for the handler */
/* Gives the stack back; the last call of a thread that has called crash_enter. */
void crash_leave(void);
