/* slab: the host's memory for KV. All its pages are taken before the server is ready.   Thread: any, while starting.
 * It uses huge pages if the system allows them for shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled):
 * then a GPU's driver pins, and a disk's ring registers, 512 times fewer pages. Several threads take the pages, because
 * the kernel clears each one. */
#pragma once
#include "base/status.h"
#include <stdint.h>

enum { SLAB_PIECE = 64 << 20 }; /* that one thread takes at a time */
/* Maps the whole file, shared, for reading and writing; its content stays. ST_NOMEM: not enough memory, errno has the
 * reason. munmap ends it. */
enum status slab_map(int fd, uint64_t bytes, void **slab_out);
