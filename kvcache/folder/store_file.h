/* store_file: the files of a store: names, header, footer, creation and reading back. Blocking I/O: the store's thread
 * and tools. A segment of n records: [header page][n records][footer: ceil(64 n / 4096) pages][trailer page]. */
#pragma once
#include "kvcache/record.h"

enum { STORE_PAGE = 4096, STORE_VERSION = 4 };
#define STORE_PAYLOAD_MAX ((uint64_t)1 << 31)
#define STORE_SEGMENT_MAX ((uint64_t)1 << 40)

enum { STORE_KEYS_MAX = 2 };

/* The keys of a store's files. Files are written with the first MAC key and the first secret, and read with any of
 * them, so that a key can be changed. */
struct store_keys {
    const struct digest_key *mac[STORE_KEYS_MAX];    /* for digests: MACs, or checksums without a key of the operator */
    const unsigned char     *secret[STORE_KEYS_MAX]; /* [SEAL_SECRET]; the first NULL: files are plain */
    uint32_t                 n_mac, n_secret;
    struct sealer           *sealer;    /* of the calling thread */
    bool                     ephemeral; /* the secret ends with this start; headers made here say so */
    /* of the current file; set by make and open */
    uint32_t         mac_is; /* index in mac of its key */
    struct seal_key *key;    /* in memory of seal_take */
};

/* What a segment's file was found to be. Only a file that was read and is not ours may be removed. */
enum store_word {
    STORE_OURS,
    /* could not be opened or read (too many open files, a failing disk), so nothing is known; errno in fault */
    STORE_NOT_READ,
    STORE_NO_FILE,       /* gone, or no regular file (a link, a pipe, a folder): left alone */
    STORE_DAMAGED,       /* the header is missing or was changed; byte in fault */
    STORE_OTHER_VERSION, /* of another version of this format */
    STORE_OTHER_MODEL,   /* another fingerprint or geometry */
    STORE_OTHER_KEY, /* digests or seals of another key; or sealed where plain is expected, or plain where sealed is */
    STORE_OTHER_START, /* sealed under the key of an earlier start: nobody can read it */
};
struct store_fault {
    int      error; /* STORE_NOT_READ: errno */
    uint64_t byte;  /* STORE_DAMAGED: offset of the first fault */
};

struct store_geometry {
    uint64_t record_bytes, segment_bytes; /* segment_bytes: of a file, header and footer included */
    uint32_t n_record;                    /* per segment */
};
/* The geometry with as many records as fit; n_record 0: none fit, or a size is above the maxima. */
struct store_geometry  store_geometry(uint64_t payload_bytes, uint64_t segment_bytes);
static inline uint64_t store_record_off(const struct store_geometry *g, uint32_t index)
{
    return STORE_PAGE + index * g->record_bytes;
}

struct store_row { /* one row of a footer, or of a scan */
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
/* Sub-folder for damaged segments, kept for inspection. Never read; its files count against the store's budget. */
#define STORE_QUARANTINE "quarantine"

/* The form of a segment, which all segments of one model and one geometry have. */
struct store_form {
    const struct store_geometry *g;
    const struct kv_key         *fingerprint;
    uint64_t                     payload_bytes;
    uint32_t                     block_tokens;
};
/* Makes the file with its header and reserves its whole size on disk. *direct: in: O_DIRECT is wanted; out: it is used.
 * On ST_IO and ST_TOO_LARGE *error_out is an errno. */
enum status store_file_make(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys, bool *direct,
                            int *fd_out, int *error_out);
/* Opens an existing file for reading; *fd_out is set for STORE_OURS. *fault_out is set for the words that mention
 * it. */
enum store_word store_file_open(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys,
                                bool *direct, int *fd_out, struct store_fault *fault_out);
/* The same for a file of another server, which may have fewer records than ours; *its_out is its geometry. */
enum store_word store_file_open_foreign(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys,
                                        bool *direct, struct store_geometry *its_out, int *fd_out,
                                        struct store_fault *fault_out);
/* What a segment's header says, for tools without a configuration. STORE_OTHER_KEY: its digests or seals are of another
 * key than those given; *about_out is set nevertheless. Secrets are not used for a plain file. */
struct store_about {
    bool                  keyed, sealed;
    struct store_geometry g;
    struct kv_key         fingerprint;
    uint64_t              payload_bytes;
    uint32_t              block_tokens;
};
enum store_word store_file_about(int dir, uint64_t seq, struct store_keys *keys, struct store_about *about_out,
                                 int *fd_out, struct store_fault *fault_out);
/* Writes the footer. buffer [store_footer_bytes], aligned to a page. row [n]: the complete records. */
uint64_t    store_footer_bytes(const struct store_geometry *g);
enum status store_footer_write(int fd, const struct store_geometry *g, uint64_t seq, const struct store_row *row,
                               uint32_t n, struct store_keys *keys, void *buffer, int *error_out);
/* ST_NOT_FOUND: there is no footer, or it is torn. */
enum status store_footer_read(int fd, const struct store_geometry *g, uint64_t seq, uint32_t block_tokens,
                              struct store_keys *keys, void *buffer, struct store_row *row, uint32_t *n_out);
/* The content of a segment, from its footer or from the heads of its records. */
struct store_scan {
    uint32_t           n; /* rows found */
    bool               from_footer;
    bool               footer_damaged;      /* the segment was full but its footer is damaged, at fault */
    uint32_t           n_damaged, n_unread; /* heads that are neither empty nor sound; heads that could not be read */
    struct store_fault fault;               /* the first fault of either kind */
};
/* row [form->g->n_record]: the complete records. buffer as for the footer. */
void store_file_scan(int fd, const struct store_form *form, uint64_t seq, struct store_keys *keys, void *buffer,
                     struct store_row *row, struct store_scan *scan_out);
