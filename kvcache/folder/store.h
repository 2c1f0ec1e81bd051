/* store: blocks in a folder, in log-structured segments.   Thread: one owner (engine); a thread of its own does what may block.
 *
 *   DIR/LOCK                              one server per folder (flock)
 *   DIR/quarantine/                       a few segments that were damaged, for whoever wants to know why; never read
 *   DIR/model-<fingerprint>/seg-<seq>.kv  [header page][record 0][record 1]...[footer pages]; records as in record.h, of one size
 *
 * Append only: a segment is filled record by record, then sealed with a footer that lists its keys; space comes back a whole
 * segment at a time, the one of least value first. Nothing is ever synced: a cache may lose data, and what is torn is noticed by the
 * record's digests. At open the thread reads footers, and heads where a footer is missing, and the owner learns them by and by in
 * kv_store_turn: a server serves meanwhile. What could not be read (too many open files, a disk that fails) stays and is tried again:
 * only what was read and is none of ours goes, and what is damaged goes into quarantine.
 * Another fingerprint has another sub-folder (store_models.h): a server of another model, type or
 * block size, and the way back from it, lose nothing but what the new one needs room for.
 * The cap is of all sub-folders together and is never exceeded by one byte: files are preallocated whole, header and footer included, and
 * what lies there unused counts.
 * Room is made before a file is: of other models' segments first, the model that was used longest ago, then of the own ones.
 * With a secret every file is sealed (transfer/seal.h): heads, payloads and footers; files of another secret, and plain ones, stay
 * unused until their room is needed.
 * A write that fails (ENOSPC, EIO, EROFS) pauses writing; it is tried again by itself after a while, longer each time. */
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
    bool                 read_only; /* tools: no lock, nothing is changed */
    const unsigned char *secret;    /* [SEAL_SECRET], lives as long as the store; NULL: plain files */
    /* A key that is being changed: nothing is written under the old one, what lies there under it is read. NULL: none.
     * Live as long. */
    const struct digest_key *old_key;
    const unsigned char     *old_secret;
    /* The folder is shared by servers, over a network file system too: no file of it has two writers. Each server has a
     * sub-folder srv-HOST-<boot id> of its own, with a LEASE that it rewrites with a rising count; segments that are
     * whole are read by all. When a lease does not change for grace_us on the reader's own clock, or says that it was
     * left, whoever has room takes the segments over, one rename each; nobody compares clocks, and no lock of the file
     * system is needed. Wants a MAC key: others write here. */
    bool shared;
    /* Which of the servers this is; NULL: the host's name. One name, one budget: what earlier starts of the same name
     * have left there counts against cap_bytes, and is taken over as soon as it is seen to be left, so that a server
     * that crashes again and again fills nothing. */
    const char *name;
    uint32_t    scan_us, grace_us; /* 0: 5 s between rounds, 120 s */
    bool        ephemeral;         /* the secret is this boot's: nothing is kept at the end */
    bool        prove;             /* blocks that are found are hidden until kv_store_believe */
    uint32_t retry_us; /* first pause after a failed write, and before what could not be read is tried again; 0: 1 s */
    uint32_t n_store;  /* stores of this process, which share its file descriptors; 0: this one */
    uint64_t (*clock)(void); /* NULL: the monotonic clock */
};
/* Takes all memory that it needs. Whether the folder can be used is found by its thread and said by kv_store_degraded:
 * one that is away, full, another server's, or that others could write to (store_folder.c) is tried again for as long
 * as the store is open. err: one line. ST_CONFIG: as kv_store_fits; ST_NOMEM. */
enum status kv_store_open(const struct kv_store_cfg *cfg, struct kv_store **s_out, char *err, size_t err_bytes);
/* Whether a cap holds the fewest segments that a store works with. err: one line. */
bool kv_store_fits(const char *dir, uint64_t cap_bytes, uint64_t segment_bytes, uint64_t payload_bytes, char *err,
                   size_t err_bytes);
/* Seals what is open (its footer makes the next start quick) and waits for it; jobs of the owner must be polled out
 * before. */
void kv_store_close(struct kv_store *s);

bool kv_store_find(struct kv_store *s, const struct kv_key *key, struct kv_place *place_out); /* counts as a use */
/* Of the index, hidden or not, written or about to be: it need not be written again. */
bool kv_store_has(const struct kv_store *s, const struct kv_key *key);
/* Posts the read of a record; the lane checks its payload. The place is pinned until kv_store_read_done. ST_NOT_FOUND,
 * ST_AGAIN. */
enum status kv_store_read(struct kv_store *s, const struct kv_read *r, struct kv_place *place_out,
                          uint64_t *ticket_out);
/* bad: what came back was doubted: the entry is forgotten. */
void kv_store_read_done(struct kv_store *s, struct kv_place place, bool bad);
/* Posts the write of a record, whose head is sealed here (kv_record_seal). The record must not change until the
 * completion, after which kv_store_write_done is called. ST_AGAIN: no room prepared, paused, or too much in flight: the
 * head is as it was, nothing is written. */
enum status kv_store_write(struct kv_store *s, const struct kv_write *w, struct kv_place *place_out);
void        kv_store_write_done(struct kv_store *s, struct kv_place place, enum status st);

/* cfg.prove (store_prove.c). Unproven: blocks are hidden, and one of them begins a prompt, so that it can be computed
 * from its record alone: kv_store_canary, which may be read like any other. false: none that is known yet. */
bool kv_store_unproven(const struct kv_store *s);
bool kv_store_canary(struct kv_store *s, struct kv_key *key_out);
void kv_store_believe(struct kv_store *s);
/* All is known that was found, and none of it begins a prompt: nothing of it can be proven. */
bool kv_store_hopeless(const struct kv_store *s);
/* leaves the index; the files stay until their room is wanted. How many blocks */
uint64_t kv_store_forget_found(struct kv_store *s);
/* Nothing in it is to be believed, what was written since included: index and files go, and nothing found later is
 * taken. No reads or writes may be in flight. How many blocks. */
uint64_t kv_store_purge(struct kv_store *s);

bool kv_store_paused(const struct kv_store *s); /* writes are refused for a while */
/* Why the folder is of less use than it should be, in words without its name; NULL: it is not. Until the next call of
 * the owner. */
const char *kv_store_degraded(const struct kv_store *s);
/* what lies in the folder is not all known yet: turns go on finding it */
bool kv_store_recovering(const struct kv_store *s);
/* Takes what the thread has found, made or removed; pauses and resumes. Cheap when there is nothing. */
void kv_store_turn(struct kv_store *s);

struct kv_store_stats {
    uint64_t    n_record, n_segment, used_bytes, cap_bytes; /* used: preallocated on disk, of all models */
    uint64_t    other_bytes, n_other_removed;               /* of other models: in used_bytes; segments that gave way */
    uint64_t    n_write, n_read, n_evicted, n_lost_records, n_recovered, n_foreign_segments, n_pauses;
    uint64_t    n_locked_segments;    /* of another secret, that lie there */
    uint64_t    n_dead_segments;      /* that were removed, of the key of a start that is over */
    uint64_t    n_damaged_segments;   /* in quarantine */
    uint64_t    n_unread_segments;    /* that could not be read so far */
    uint64_t    n_foreign, n_claimed; /* segments of other servers; taken over from some that are gone */
    bool        recovering, paused;
    enum status last_error;
};
void kv_store_stats(const struct kv_store *s, struct kv_store_stats *out);
/* Every link and count, as CHECKs would: ST_INVALID after logging the first fault. */
enum status kv_store_check(const struct kv_store *s);

/* The row of below.h for folders; kv_below_cfg.where is the folder. */
extern const struct kv_below_row kv_folder;
struct kv_store                 *kv_store_of(struct kv_below *b); /* what kv_folder has opened */
