/* store_file: the files of a store: names, header, footer, creation and reading back. Blocking I/O: the store's thread
 * and tools. A segment of n records: [header page][n records][footer: ceil(64 n / 4096) pages][trailer page]. */
#pragma once
#include "kvcache/record.h"

enum { STORE_PAGE = 4096, STORE_VERSION = 4 };
#define STORE_PAYLOAD_MAX ((uint64_t)1 << 31)
#define STORE_SEGMENT_MAX ((uint64_t)1 << 40)

enum { STORE_KEYS_MAX = 2 };

/* What a store's files are made and read with: written with the first of each, read with all, so that a key can be
 * changed. */
struct store_keys {
    const struct digest_key *mac[STORE_KEYS_MAX];    /* of digests: MACs, or without a key of the operator checksums */
    const unsigned char     *secret[STORE_KEYS_MAX]; /* [SEAL_SECRET]; the first NULL: files are plain */
    uint32_t                 n_mac, n_secret;
    struct sealer           *sealer;    /* the calling thread's */
    bool                     ephemeral; /* the secret is this start's: what make makes says so */
    /* of the file in hand: set by make and open */
    uint32_t         mac_is; /* which of mac it is under */
    struct seal_key *key;    /* in memory of seal_take */
};

/* What a segment's file is, as far as it was read. Only of what was read and is not ours may a file ever be removed. */
enum store_word {
    STORE_OURS,
    STORE_NOT_READ, /* it could not be opened or read (too many open files, a disk that fails): nothing is known of it; errno */
    STORE_NO_FILE,       /* it is gone, or is a link, a pipe, a folder: nobody's business */
    STORE_DAMAGED,       /* its header is none, or was changed; byte */
    STORE_OTHER_VERSION, /* of another version of this format */
    STORE_OTHER_MODEL,   /* another fingerprint or geometry */
    STORE_OTHER_KEY, /* its digests or its seals are of another key, or it has none where they are wanted, or the other way round */
    STORE_OTHER_START, /* sealed under the key of a start that is over: nobody will ever read it */
};
struct store_fault {
    int      error; /* STORE_NOT_READ: errno */
    uint64_t byte;  /* STORE_DAMAGED: where the first thing is that is wrong */
};

struct store_geometry {
    uint64_t record_bytes, segment_bytes; /* segment_bytes: of a file, header and footer included */
    uint32_t n_record;                    /* per segment */
};
/* As many records as fit; n_record 0: none, or more than the maxima above. */
struct store_geometry  store_geometry(uint64_t payload_bytes, uint64_t segment_bytes);
static inline uint64_t store_record_off(const struct store_geometry *g, uint32_t index)
{
    return STORE_PAGE + index * g->record_bytes;
}

struct store_row { /* of the footer, and of what a scan finds */
    struct kv_key key;
    struct digest payload;
    uint32_t      index, block_tokens;
    uint64_t      begins; /* 1: the first block of a prompt, 0: not */
};
_Static_assert(sizeof(struct store_row) == 64, "rows of a footer");

void store_name(char *out, size_t bytes, uint64_t seq); /* "seg-0000000000000001.kv" */
bool store_seq_of(const char *name, uint64_t *seq_out); /* false: not a segment's name */
/* Numbers of the segments that lie in a folder, in rising order; *seq_out: malloc'd, the caller frees it. Returns 0 or
 * errno. */
int store_list(int dir, uint64_t **seq_out, uint32_t *n_out);
/* Sub-folder for damaged segments, kept for whoever wants to know what damaged them. Never read; it counts against the
 * store's budget. */
#define STORE_QUARANTINE "quarantine"

/* The form of a segment, which all segments of one model and one geometry have. */
struct store_form {
    const struct store_geometry *g;
    const struct kv_key         *fingerprint;
    uint64_t                     payload_bytes;
    uint32_t                     block_tokens;
};
/* Makes the file, whole on disk, with its header. *direct: O_DIRECT wanted, and whether it is. errno in error_out on
 * ST_IO / ST_TOO_LARGE. */
enum status store_file_make(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys, bool *direct,
                            int *fd_out, int *error_out);
/* Opens an existing one for reading: *fd_out where it is ours. fault_out is set for the words that name it. */
enum store_word store_file_open(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys,
                                bool *direct, int *fd_out, struct store_fault *fault_out);
/* The same for one that another server made: it may have fewer records than ours: its_out. */
enum store_word store_file_open_foreign(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys,
                                        bool *direct, struct store_geometry *its_out, int *fd_out,
                                        struct store_fault *fault_out);
/* What the header of a segment says of it, for tools that know nothing else. STORE_OTHER_KEY: its
 * digests or seals are of another key than those given; about_out is set all the same. For a plain file no secret is
 * looked at. */
struct store_about {
    bool                  keyed, sealed;
    struct store_geometry g;
    struct kv_key         fingerprint;
    uint64_t              payload_bytes;
    uint32_t              block_tokens;
};
enum store_word store_file_about(int dir, uint64_t seq, struct store_keys *keys, struct store_about *about_out,
                                 int *fd_out, struct store_fault *fault_out);
/* The footer; buffer [store_footer_bytes] aligned to a page. row[n]: of records that are whole. */
uint64_t    store_footer_bytes(const struct store_geometry *g);
enum status store_footer_write(int fd, const struct store_geometry *g, uint64_t seq, const struct store_row *row,
                               uint32_t n, struct store_keys *keys, void *buffer, int *error_out);
/* ST_NOT_FOUND: there is none, or it is torn. */
enum status store_footer_read(int fd, const struct store_geometry *g, uint64_t seq, uint32_t block_tokens,
                              struct store_keys *keys, void *buffer, struct store_row *row, uint32_t *n_out);
/* What a segment holds: from its footer, or from the heads of its records. */
struct store_scan {
    uint32_t n; /* rows found */
    bool     from_footer;
    bool footer_damaged; /* there is one, or there was: the segment had been full, and fault says where it is wrong */
    uint32_t           n_damaged, n_unread; /* heads that are no empty page and no sound head; that could not be read */
    struct store_fault fault;               /* of the first of either */
};
/* row [form->g->n_record]: of records that are whole. buffer as for the footer. */
void store_file_scan(int fd, const struct store_form *form, uint64_t seq, struct store_keys *keys, void *buffer,
                     struct store_row *row, struct store_scan *scan_out);
