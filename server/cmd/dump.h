/* dump: reports the state of an engine that makes no progress any more.   Thread: main. */
#pragma once
#include "server/boot.h"

/* Logs the steps in flight and the ranks, as error lines. */
void dump_log(struct boot *b);
/* Writes the same to stderr as one block, and the stacks of the threads that compute and copy. It takes at most 10 s,
 * even if other threads hang. The block has no tokens and no text of requests. */
void dump_all(struct boot *b);
