/* awake: since when this process runs without a break. A process that was stopped (SIGSTOP, a frozen cgroup, a suspended machine) finds after
 * it that minutes have passed in which nothing can have made progress; who watches for progress counts from the end of the break.
 * Thread: awake_tick: one thread, regularly; awake_since: any. */
#pragma once
#include <stdint.h>

/* Times in us of clock_us(). A break is a time between two ticks that is longer than AWAKE_BREAK_US. */
enum { AWAKE_TICK_US = 500000, AWAKE_BREAK_US = 2000000, AWAKE_TRUST_US = 5000000 };
void awake_tick(uint64_t now_us);
/* When the last break ended; 0: there was none. Also right after a break, before the ticking thread has had its turn; but a ticking thread that
 * is itself stuck is believed to be in a break for AWAKE_TRUST_US alone, so it hides nothing. */
uint64_t awake_since(uint64_t now_us);
