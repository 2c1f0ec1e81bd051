/* file: small files of state that outlive the process. A reader finds the old bytes or the new ones, whole, whatever kills the writer
 * and whenever.   Thread: any; several processes may write the same file. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Puts data [bytes] in the place of dir/name (dir: of openat, AT_FDCWD too), or makes the file: a temporary file beside it, written and
 * synced, then renamed, then the folder synced. The temporary file is dir/name.new: one that a killed writer left is used again, so there
 * is never more than one. mode: of the new file. Returns 0, or errno; the old file is then as it was. */
int file_replace(int dir, const char *name, const void *data, size_t bytes, mode_t mode);
/* Reads a regular file of at most bytes_max bytes, not through a link and never waiting (a pipe of that name is EINVAL). Returns 0 and the
 * bytes that it has, or errno; EFBIG: it has more. */
int file_read(int dir, const char *name, void *data_out, size_t bytes_max, size_t *bytes_out);
/* Whether nobody but this process's user (and root) can put files into an open folder: it is theirs, and neither its group nor others may
 * write. A folder above it need not be looked at: who may rename ours away can put only one of his own in its place. why: what is wrong. */
bool file_folder_is_ours(int dir, char *why, size_t why_bytes);
