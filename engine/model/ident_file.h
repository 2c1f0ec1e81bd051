/* ident_file: the digest of a checkpoint's weights from an earlier load, so that a start from packed weights need not
 * read the checkpoint. It is a small file NAME.ident in the folder of packed weights. It contains a key: name, size,
 * inode, times and device of every file of the checkpoint; name, type, shape, place and 4 KiB from the middle of every
 * tensor; and the part that a rank reads. The digest is used if the key is unchanged, if only this user and root could
 * have written the file, and if the file is complete. Otherwise it is ignored.
 * A file that changed a moment ago may change again without a change of its times, so making the key waits until the
 * clock has moved on. If times lie ahead of this machine's clock, no digest is kept or used.
 * The device number counts only for disks; other file systems (overlay, NFS, FUSE) get a new number with every mount.
 * Private to engine/model/.   Thread: the one that loads. */
#pragma once
#include "engine/model/ident.h"

struct ident_file {
    unsigned char key[IDENT_BYTES];
    char          name[48]; /* of the file; it depends on which files the checkpoint has, not on their content */
    bool          certain;  /* the times are a reliable sign of changes */
};

/* share: a number for the part of the checkpoint that this rank reads. ST_IO, ST_NOMEM. */
enum status ident_file_key(const struct st_set *set, uint64_t share, struct ident_file *f_out);
/* True if the checkpoint is unchanged. */
bool ident_file_same(const struct ident_file *a, const struct ident_file *b);
/* False: there is none, or it cannot be trusted (the reason is logged). */
bool ident_file_read(const char *dir, const struct ident_file *f, unsigned char root_out[IDENT_BYTES]);
/* A failure is logged and has no other effect. */
void ident_file_write(const char *dir, const struct ident_file *f, const unsigned char root[IDENT_BYTES]);
