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
/* Reads an open file from where it stands to its end, or until data_out is full: at most bytes_max bytes. A pipe is waited for. Returns 0 and
 * the bytes that were read, or errno. */
int file_read_fd(int fd, void *data_out, size_t bytes_max, size_t *bytes_out);
/* The same from the beginning of the file of that name, whatever it is and through links: for what an operator names (a mounted secret is
 * a link, a shell's substitution a pipe) and for files of the kernel. Whoever must know that there is no more gives room for one byte more. */
int file_read_first(const char *path, void *data_out, size_t bytes_max, size_t *bytes_out);
/* How many of n bytes are left without the line ends (\n and \r) that they end in. */
size_t file_without_line_end(const void *data, size_t n);
/* Whether nobody but this process's user (and root) can put files into an open folder: it is theirs, and neither its group nor others may
 * write. A folder above it need not be looked at: who may rename ours away can put only one of his own in its place. why: what is wrong. */
bool file_folder_is_ours(int dir, char *why, size_t why_bytes);
