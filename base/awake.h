/* awake: the time since which this process runs without a break. A break is a SIGSTOP, a frozen cgroup or a suspended
 * machine: time passes in which no thread can make progress. So a watchdog must count progress from the end of the last
 * break.
 * Thread: awake_tick: one thread, regularly; awake_since: any. */
#pragma once
#include <stdint.h>

/* Times are in us of clock_us(). A gap of more than AWAKE_BREAK_US between two ticks is a break. */
enum { AWAKE_TICK_US = 500000, AWAKE_BREAK_US = 2000000, AWAKE_TRUST_US = 5000000 };
void awake_tick(uint64_t now_us);
/* The end of the last break; 0: no break so far. It is right also before the ticking thread has run after a break: a
 * missing tick counts as a break. If the ticking thread itself is stuck, its missing tick counts so for AWAKE_TRUST_US
 * only, and hides no hang. */
uint64_t awake_since(uint64_t now_us);
