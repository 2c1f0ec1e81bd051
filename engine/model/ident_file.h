/* ident_file: the digest of a checkpoint's weights as an earlier load found it, so that a start from packed weights
 * need not read them. A small file NAME.ident in the folder of packed weights. It says under which key it was found: of
 * every file of the checkpoint the name, size, inode, times and device, of every tensor the name, type, shape, place
 * and 4 KiB from the middle, and which part of them a rank reads. It is believed when all of that is the same, when
 * nobody but this user and root could have written it, and when it is whole; anything else is as if it were not there.
 * A file that changed a moment ago may change again and keep its times, so the key waits until the clock has moved on;
 * where it cannot tell (times that lie ahead of this machine's clock), nothing is kept and nothing believed.
 * The device counts where its number is a disk's. Numbers of other file systems (overlay, NFS, FUSE) are given anew
 * with every mount. Private to engine/model/.   Thread: the one that loads. */
#pragma once
#include "engine/model/ident.h"

struct ident_file {
    unsigned char key[IDENT_BYTES];
    char          name[48]; /* of the file: which files, whatever is in them */
    bool          certain;  /* the times say whether the checkpoint changed */
};

/* share: a number for what this rank reads of the checkpoint. ST_IO, ST_NOMEM. */
enum status ident_file_key(const struct st_set *set, uint64_t share, struct ident_file *f_out);
/* Is the checkpoint still what it was? */
bool ident_file_same(const struct ident_file *a, const struct ident_file *b);
/* False: there is none, or it is not to be believed (then a line in the log says why). */
bool ident_file_read(const char *dir, const struct ident_file *f, unsigned char root_out[IDENT_BYTES]);
/* What cannot be kept is a line in the log. */
void ident_file_write(const char *dir, const struct ident_file *f, const unsigned char root[IDENT_BYTES]);
