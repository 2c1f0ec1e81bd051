/* store: blocks in a folder, in log-structured segments.   Thread: one owner (engine); the store's own thread does the
 * blocking work.
 *
 *   DIR/LOCK                              one server per folder (flock)
 *   DIR/quarantine/                       a few damaged segments, kept for inspection, never read
 *   DIR/model-<fingerprint>/seg-<seq>.kv  [header page][record 0][record 1]...[footer pages]; records as in record.h,
 *     of one size
 *
 * Segments are append only. A segment is filled record by record, then sealed with a footer that lists its keys. Space
 * is freed by whole segments, the one of least value first. The store never syncs: a cache may lose data, and the
 * records' digests reveal torn ones. At open the thread reads the footers, or the heads of records where a footer is
 * missing. The owner learns them step by step in kv_store_turn, while the server serves. A file that could not be read
 * (too many open files, a failing disk) stays, and is tried again. A file is removed only after it was read and found
 * not to be ours; damaged files go into quarantine. Each fingerprint has its own sub-folder (store_models.h). A server
 * with another model, type or block size therefore removes no more of the others' blocks than it needs room for.
 * The cap covers all sub-folders together and is never exceeded: files are preallocated whole, with header and footer,
 * and unused files count too. Room is made before a file is made: from other models' segments first, beginning with the
 * model that was used longest ago, then from the own segments.
 * With a secret every file is sealed (transfer/seal.h): heads, payloads and footers. Files of another secret, and plain
 * files, stay unused until their room is needed.
 * A failed write (ENOSPC, EIO, EROFS) pauses writing. The store resumes by itself; each further failure makes the pause
 * longer. */
#pragma once
#include "kvcache/below.h"

struct kv_store;
struct kv_store_cfg {
    const char          *dir;
    uint64_t             cap_bytes, segment_bytes; /* segment_bytes 0: 256 MiB, less where the cap is small */
    uint64_t             payload_bytes;
    uint32_t             block_tokens;
    struct kv_key        fingerprint;
    struct digest_key    key;
    struct xfer         *xfer;
    bool                 read_only; /* for tools: takes no lock and changes nothing */
    const unsigned char *secret;    /* [SEAL_SECRET], valid until close; NULL: plain files */
    /* The previous keys while keys are being changed: for reading only. Valid until close. NULL: none. */
    const struct digest_key *old_key;
    const unsigned char     *old_secret;
    /* Several servers share the folder, possibly over a network file system. No file has two writers. Each server has
     * its own sub-folder srv-HOST-<boot id> with a LEASE, which it rewrites with a rising count. All servers read all
     * complete segments. If a lease does not change for grace_us of the reader's clock, or says that its server has
     * left, any server with room takes the segments over, by one rename each. This needs no comparison of clocks and no
     * locks of the file system. It needs a MAC key, because others write here. */
    bool shared;
    /* The name of this server; NULL: the host's name. Servers of one name share one budget: segments of earlier starts
     * count against cap_bytes and are taken over as soon as their server is known to be gone. A server that crashes
     * repeatedly therefore does not fill the disk. */
    const char *name;
    uint32_t    scan_us, grace_us; /* 0: 5 s between rounds, 120 s */
    bool        ephemeral;         /* the secret ends with this start: nothing is kept at close */
    bool        prove;             /* found blocks are hidden until kv_store_believe */
    uint32_t    retry_us;          /* first pause after a failed write or read; 0: 1 s */
    uint32_t    n_store;           /* number of stores in this process, which share its file descriptors; 0: 1 */
    uint64_t (*clock)(void);       /* NULL: the monotonic clock */
    struct kv_events *events;      /* as in kv_below_cfg */
    uint32_t          place;
};
/* Allocates all memory that it needs. The thread finds out whether the folder is usable, and kv_store_degraded reports
 * it. A folder that is missing, full, in use by another server, or writable by others (store_folder.c) is tried again
 * as long as the store is open. err: one line. ST_CONFIG: as kv_store_fits; ST_NOMEM. */
enum status kv_store_open(const struct kv_store_cfg *cfg, struct kv_store **s_out, char *err, size_t err_bytes);
/* True if the cap holds the smallest number of segments that a store can work with. err: one line. */
bool kv_store_fits(const char *dir, uint64_t cap_bytes, uint64_t segment_bytes, uint64_t payload_bytes, char *err,
                   size_t err_bytes);
/* Writes the footer of the open segment, which makes the next start quick, and waits for it. The owner must have polled
 * all its jobs before. */
void kv_store_close(struct kv_store *s);

bool kv_store_find(struct kv_store *s, const struct kv_key *key, struct kv_place *place_out); /* counts as a use */
/* True if the index has the block, hidden or not, written or being written: it need not be written again. */
bool kv_store_has(const struct kv_store *s, const struct kv_key *key);
/* As in kv_below_row. */
bool     kv_store_holds(const struct kv_store *s, const struct kv_key *key);
uint64_t kv_store_each(const struct kv_store *s, uint64_t at);
/* Posts the read of a record; the lane checks its payload. The place is pinned until kv_store_read_done. ST_NOT_FOUND:
 * the block is not there; ST_AGAIN: too much is in flight. */
enum status kv_store_read(struct kv_store *s, const struct kv_read *r, struct kv_place *place_out,
                          uint64_t *ticket_out);
/* bad: the record was doubted; its entry is removed from the index. */
void kv_store_read_done(struct kv_store *s, struct kv_place place, bool bad);
/* Posts the write of a record, whose head is sealed here (kv_record_seal). The record must not change until the
 * completion; then call kv_store_write_done. ST_AGAIN: no room is prepared, writing is paused, or too much is in
 * flight; the head is unchanged and nothing is written. */
enum status kv_store_write(struct kv_store *s, const struct kv_write *w, struct kv_place *place_out);
void        kv_store_write_done(struct kv_store *s, struct kv_place place, enum status st);

/* With cfg.prove (store_prove.c). Unproven: blocks are hidden, and at least one begins a prompt, so that it can be
 * computed from its record alone. kv_store_canary returns such a block, which can be read like any other; false: none
 * is known yet. kv_store_believe unhides all blocks. */
bool kv_store_unproven(const struct kv_store *s);
bool kv_store_canary(struct kv_store *s, struct kv_key *key_out);
void kv_store_believe(struct kv_store *s);
/* True if everything in the folder is known and no found block begins a prompt: nothing can be proven. */
bool kv_store_hopeless(const struct kv_store *s);
/* Removes found blocks from the index; the files stay until their room is needed. Returns the number of blocks. */
uint64_t kv_store_forget_found(struct kv_store *s);
/* Removes index and files, blocks written by this process included, and ignores everything found later. No reads or
 * writes may be in flight. Returns the number of blocks. */
uint64_t kv_store_purge(struct kv_store *s);

bool kv_store_paused(const struct kv_store *s); /* writing is paused */
/* Reason for reduced service, without the folder's name; NULL: none. Valid until the owner's next call. */
const char *kv_store_degraded(const struct kv_store *s);
/* True while the content of the folder is not fully known; further turns continue. */
bool kv_store_recovering(const struct kv_store *s);
/* Takes over what the thread has found, made or removed; pauses and resumes writing. Cheap when there is nothing to
 * do. */
void kv_store_turn(struct kv_store *s);

struct kv_store_stats {
    uint64_t n_record, n_segment, used_bytes, cap_bytes; /* used_bytes: preallocated on disk, of all models */
    uint64_t other_bytes,
        n_other_removed; /* other_bytes: part of used_bytes, of other models; n_other_removed: their segments that were removed for room */
    uint64_t    n_write, n_read, n_evicted, n_lost_records, n_recovered, n_foreign_segments, n_pauses;
    uint64_t    n_locked_segments;    /* present, of another secret */
    uint64_t    n_dead_segments;      /* removed, of the key of an earlier start */
    uint64_t    n_damaged_segments;   /* in quarantine */
    uint64_t    n_unread_segments;    /* not readable so far */
    uint64_t    n_foreign, n_claimed; /* segments of other servers; segments taken over from servers that are gone */
    bool        recovering, paused;
    enum status last_error;
};
/* Counters and sizes now. */
void kv_store_stats(const struct kv_store *s, struct kv_store_stats *out);
/* Verifies every link and count; ST_INVALID after logging the first fault. */
enum status kv_store_check(const struct kv_store *s);

/* The row of below.h for folders; kv_below_cfg.where is the folder. */
extern const struct kv_below_row kv_folder;
struct kv_store                 *kv_store_of(struct kv_below *b); /* the store of a place that kv_folder opened */
