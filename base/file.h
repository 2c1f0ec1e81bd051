/* file: small files of state that outlive the process. If the writer is killed at any moment, a reader finds either the
 * old bytes or the new ones, complete.   Thread: any; several processes may write the same file. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Replaces or creates the file dir/name with data [bytes]. dir is a directory descriptor as for openat, or AT_FDCWD.
 * The function writes and syncs a temporary file dir/name.new, renames it, and syncs the folder. A temporary file left
 * by a killed writer is reused, so there is never more than one. mode: of the new file. Returns 0, or errno; then the
 * old file is unchanged. */
int file_replace(int dir, const char *name, const void *data, size_t bytes, mode_t mode);
/* Reads a regular file of at most bytes_max bytes. It follows no link and never waits (a pipe of that name is EINVAL).
 * Returns 0 and the file's size, or errno; EFBIG: the file is larger. */
int file_read(int dir, const char *name, void *data_out, size_t bytes_max, size_t *bytes_out);
/* Reads an open file from its current position to its end, at most bytes_max bytes. It waits for a pipe. Returns 0 and
 * the number of bytes that were read, or errno. */
int file_read_fd(int fd, void *data_out, size_t bytes_max, size_t *bytes_out);
/* The same from the beginning of the file `path`, which may be a link, a pipe or a file of the kernel. It is for files
 * that an operator names: a mounted secret is a link, a shell's substitution a pipe. A caller that must detect a longer
 * file passes room for one byte more. */
int file_read_first(const char *path, void *data_out, size_t bytes_max, size_t *bytes_out);
/* The number of bytes without the line ends (\n and \r) at their end. */
size_t file_without_line_end(const void *data, size_t n);
/* Makes the folder `path`, unless it is there. Its parents are never made: under a mount point that is empty because
 * its disk is missing they would fill another disk. Returns 0, or errno; why: the reason, with the first folder of the
 * path that is not there. */
int file_make_folder(const char *path, mode_t mode, char *why, size_t why_bytes);
/* True if only this process's user and root can create files in an open folder: the user owns it, and neither group nor
 * others may write. Parent folders need no check: a user who can rename our folder away can only replace it with a
 * folder of his own. why: the reason if false. */
bool file_folder_is_ours(int dir, char *why, size_t why_bytes);
