/* near: the lent memory of a peer on this machine, mapped for reading, so that one memcpy moves a block. UCX maps only
 * memory that it has allocated itself, and sends all other memory in pieces of 8 KiB through buffers of its own.
 * The lender says where its memfd is found (near_say), the reader opens it through /proc and maps it (near_map). That
 * works for processes of one user in one namespace of process ids; where it does not, UCX moves the bytes.
 * What is read this way is whatever lies there, also after the lender's death: the caller asks the connection whether
 * the peer lives, and the digest whether the bytes are the block.   Thread: any. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NEAR_BYTES = 48 };

/* Writes where the memory behind fd is found. The caller keeps fd open while others may read. ST_IO: errno. */
enum status near_say(int fd, unsigned char out[NEAR_BYTES]);
/* Maps `bytes` from the begin of what a peer has said, read-only; *p_out is the caller's, for near_unmap. ST_INVALID:
 * these bytes are none of near_say. ST_NOT_FOUND: the memory is not reached from here, is another one, is shorter, or
 * could become shorter while it is read. */
enum status near_map(const unsigned char said[NEAR_BYTES], uint64_t bytes, const unsigned char **p_out);
void        near_unmap(const unsigned char *p, uint64_t bytes); /* NULL is allowed */
