/* dump: what the engine was doing when it stopped to make progress.   Thread: main. */
#pragma once
#include "server/boot.h"

/* Into the log, as error lines: the steps in flight and the ranks. */
void dump_log(struct boot *b);
/* To stderr, one block: the same, and the stacks of the threads that compute and copy. Takes 10 s at most, whatever
 * hangs. No tokens, no text. */
void dump_all(struct boot *b);
