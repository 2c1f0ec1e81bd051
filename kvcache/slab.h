/* slab: the host's memory for KV, mapped and every page of it taken before anybody is served.   Thread: any, while starting.
 * Huge pages where the system allows them for shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled): a GPU's driver pins, and
 * a disk's ring registers, 512 times fewer of them. Pages are taken by several threads, for the kernel clears each. */
#pragma once
#include "base/status.h"
#include <stdint.h>

enum { SLAB_PIECE = 64 << 20 }; /* that one thread takes at a time */
/* All of the file, shared, read and write; what is in it stays. ST_NOMEM: there is no memory for all of it, errno says why. munmap ends it. */
enum status slab_map(int fd, uint64_t bytes, void **slab_out);
