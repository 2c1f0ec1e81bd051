#include "kvcache/folder/store_file.h"
#include "base/check.h"
#include "base/hash.h"
#include "kvcache/folder/store_format.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t rows_pages(uint32_t n)
{
    return ((uint64_t)n * sizeof(struct store_row) + STORE_PAGE - 1) / STORE_PAGE;
}

struct store_geometry store_geometry(uint64_t payload_bytes, uint64_t segment_bytes)
{
    struct store_geometry g = { 0 };
    if (!payload_bytes || payload_bytes > STORE_PAYLOAD_MAX || segment_bytes > STORE_SEGMENT_MAX)
        return g; /* a header that lies */
    g.record_bytes = kv_record_bytes(payload_bytes);
    g.segment_bytes = segment_bytes / STORE_PAGE * STORE_PAGE;
    uint64_t n = g.segment_bytes / g.record_bytes;
    while (n && STORE_PAGE + n * g.record_bytes + (rows_pages((uint32_t)n) + 1) * STORE_PAGE > g.segment_bytes) n--;
    g.n_record = (uint32_t)n;
    if (n)
        g.segment_bytes =
            STORE_PAGE + n * g.record_bytes + (rows_pages(g.n_record) + 1) * STORE_PAGE; /* no byte that nobody uses */
    return g;
}

void store_name(char *out, size_t bytes, uint64_t seq) { snprintf(out, bytes, "seg-%016" PRIx64 ".kv", seq); }

bool store_seq_of(const char *name, uint64_t *seq_out)
{
    char     again[32];
    uint64_t seq;
    if (sscanf(name, "seg-%16" SCNx64 ".kv", &seq) != 1) return false;
    store_name(again, sizeof again, seq);
    *seq_out = seq;
    return strcmp(name, again) == 0;
}

/* ---- whole pages at a place */

static enum status all_written(int fd, const void *p, uint64_t bytes, uint64_t off, int *error_out)
{
    for (const char *from = p; bytes;) {
        ssize_t n = pwrite(fd, from, bytes, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            *error_out = n < 0 ? errno : ENOSPC;
            return *error_out == ENOSPC || *error_out == EDQUOT ? ST_TOO_LARGE : ST_IO;
        }
        from += n;
        off += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return ST_OK;
}

enum { READ_ENDS = -1 }; /* the file ends before the last of these bytes */

/* 0, errno, or READ_ENDS. */
static int all_read(int fd, void *p, uint64_t bytes, uint64_t off)
{
    struct stat st;
    if (fstat(fd, &st)) return errno;
    if ((uint64_t)st.st_size < off + bytes)
        return READ_ENDS; /* with O_DIRECT the rest of a page is not read but refused */
    for (char *to = p; bytes;) {
        ssize_t n = pread(fd, to, bytes, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : READ_ENDS;
        to += n;
        off += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int open_direct(int dir, const char *name, int flags, bool *direct)
{
    int fd = *direct ? openat(dir, name, flags | O_DIRECT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 && (!*direct || errno == EINVAL)) {
        *direct = false; /* tmpfs, some network file systems */
        fd = openat(dir, name, flags | O_CLOEXEC, 0600);
    }
    return fd;
}

/* Every byte of the file has its place on the disk. Where the file system cannot promise that, a write may find it full
 * later. */
static int reserve(int fd, uint64_t bytes)
{
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0) return 0;
    if (errno != EOPNOTSUPP) return errno;
    return ftruncate(fd, (off_t)bytes) ? errno : 0;
}

/* ---- seals */

static const struct digest_key *mac_of(const struct store_keys *keys) { return keys->mac[keys->mac_is]; }

static void header_seal(struct store_header *h, struct store_keys *keys)
{
    h->sealed = keys->ephemeral ? STORE_SEALED_START : STORE_SEALED;
    CHECK(RAND_bytes(h->random, sizeof h->random) == 1); /* no key without it */
    seal_key_make(keys->secret[0], h, offsetof(struct store_header, check), keys->key);
    seal_piece(keys->sealer, keys->key, 0, STORE_PART_CHECK, NULL, 0, NULL, 0, NULL, h->check);
}

bool store_header_mac(const struct store_header *h, struct store_keys *keys)
{
    for (uint32_t i = 0; i < keys->n_mac; i++) {
        if (h->keyed != keys->mac[i]->mac) continue;
        if (!digest_equal(h->mac, digest_of(keys->mac[i], h, offsetof(struct store_header, mac)))) continue;
        keys->mac_is = i;
        return true;
    }
    return false;
}

static bool seal_fits(const struct store_header *h, struct store_keys *keys)
{
    if (!keys->n_secret || !h->sealed) return !keys->n_secret && !h->sealed;
    for (uint32_t i = 0; i < keys->n_secret; i++) {
        seal_key_make(keys->secret[i], h, offsetof(struct store_header, check), keys->key);
        if (seal_piece_open(keys->sealer, keys->key, 0, STORE_PART_CHECK, NULL, 0, NULL, 0, NULL, h->check))
            return true;
    }
    return false;
}

bool store_header_opens(const struct store_header *h, struct store_keys *keys)
{
    return store_header_mac(h, keys) && seal_fits(h, keys);
}

/* ---- segments */

enum status store_file_make(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys, bool *direct,
                            int *fd_out, int *error_out)
{
    const struct store_geometry *g = form->g;
    char                         name[32];
    store_name(name, sizeof name, seq);
    int fd = open_direct(dir, name, O_RDWR | O_CREAT | O_EXCL, direct);
    if (fd < 0) {
        *error_out = errno;
        return errno == ENOSPC || errno == EDQUOT ? ST_TOO_LARGE : ST_IO;
    }
    enum status st = ST_OK;
    void       *page = aligned_alloc(STORE_PAGE, STORE_PAGE);
    int         error = page ? reserve(fd, g->segment_bytes) : ENOMEM;
    if (error) {
        *error_out = error;
        st = error == ENOSPC || error == EDQUOT || error == EFBIG ? ST_TOO_LARGE : ST_IO;
    } else {
        struct store_header *h = page;
        memset(page, 0, STORE_PAGE);
        memcpy(h->magic, STORE_HEADER, sizeof h->magic);
        h->version = STORE_VERSION;
        h->block_tokens = form->block_tokens;
        h->seq = seq;
        h->record_bytes = g->record_bytes;
        h->segment_bytes = g->segment_bytes;
        h->payload_bytes = form->payload_bytes;
        h->n_record = g->n_record;
        h->fingerprint = *form->fingerprint;
        h->keyed = keys->mac[0]->mac;
        keys->mac_is = 0;
        if (keys->n_secret) header_seal(h, keys);
        h->mac = digest_of(keys->mac[0], h, offsetof(struct store_header, mac));
        h->sum = hash_bytes(h, offsetof(struct store_header, sum), 0);
        st = all_written(fd, page, STORE_PAGE, 0, error_out);
    }
    free(page);
    if (st) {
        close(fd);
        unlinkat(dir, name, 0);
        return st;
    }
    *fd_out = fd;
    return ST_OK;
}

static enum store_word open_failed(int error, struct store_fault *fault_out)
{
    switch (error) {
    case ENOENT:
    case ELOOP:  /* a link */
    case EISDIR: /* what somebody has put there: a folder, a socket, a device */
    case ENXIO:
    case ENODEV: return STORE_NO_FILE;
    default: fault_out->error = error; return STORE_NOT_READ;
    }
}

/* What is wrong with the header of segment seq. */
static enum store_word header_word(const struct store_header *h, uint64_t seq, struct store_fault *fault_out)
{
    if (memcmp(h->magic, STORE_HEADER, sizeof h->magic)) {
        fault_out->byte = 0;
        return STORE_DAMAGED;
    }
    if (h->version != STORE_VERSION) return STORE_OTHER_VERSION;
    if (h->seq != seq) {
        fault_out->byte = offsetof(struct store_header, seq);
        return STORE_DAMAGED;
    }
    if (h->sum != hash_bytes(h, offsetof(struct store_header, sum), 0)) {
        fault_out->byte = offsetof(struct store_header, sum);
        return STORE_DAMAGED;
    }
    return STORE_OURS;
}

/* fd and header of a segment; the header's own word for everything. */
static enum store_word open_header(int dir, uint64_t seq, bool *direct, struct store_header *h_out, int *fd_out,
                                   struct store_fault *fault_out)
{
    char            name[32];
    struct stat     st;
    enum store_word word = STORE_OURS;
    store_name(name, sizeof name, seq);
    *fault_out = (struct store_fault){ 0 };
    int fd = open_direct(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK,
                         direct); /* whatever somebody has put there: a link, a pipe */
    if (fd < 0) return open_failed(errno, fault_out);
    void *page = aligned_alloc(STORE_PAGE, STORE_PAGE);
    int   error = page ? 0 : ENOMEM;
    if (!error && fstat(fd, &st)) error = errno;
    if (!error && !S_ISREG(st.st_mode)) word = STORE_NO_FILE;
    if (!error && !word) error = all_read(fd, page, STORE_PAGE, 0);
    if (error == READ_ENDS) {
        word = STORE_DAMAGED;
        fault_out->byte = (uint64_t)st.st_size;
    } else if (error) {
        word = STORE_NOT_READ;
        fault_out->error = error;
    } else if (!word) {
        memcpy(h_out, page, sizeof *h_out);
        word = header_word(h_out, seq, fault_out);
    }
    free(page);
    if (word)
        close(fd);
    else
        *fd_out = fd;
    return word;
}

/* A segment is ours if its shape fits and a key of ours opens it; any other is closed. */
static enum store_word opened(int fd, const struct store_header *h, const struct kv_key *fingerprint, bool fits,
                              struct store_keys *keys)
{
    enum store_word word = STORE_OURS;
    if (!kv_key_equal(&h->fingerprint, fingerprint) || !fits)
        word = STORE_OTHER_MODEL;
    else if (!store_header_opens(h, keys))
        word = h->sealed == STORE_SEALED_START ? STORE_OTHER_START : STORE_OTHER_KEY;
    if (word) close(fd);
    return word;
}

enum store_word store_file_open(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys,
                                bool *direct, int *fd_out, struct store_fault *fault_out)
{
    const struct store_geometry *g = form->g;
    struct store_header          h;
    enum store_word              word = open_header(dir, seq, direct, &h, fd_out, fault_out);
    if (word) return word;
    bool fits = h.record_bytes == g->record_bytes && h.n_record == g->n_record && h.segment_bytes == g->segment_bytes;
    return opened(*fd_out, &h, form->fingerprint, fits, keys);
}

enum store_word store_file_open_foreign(int dir, uint64_t seq, const struct store_form *form, struct store_keys *keys,
                                        bool *direct, struct store_geometry *its_out, int *fd_out,
                                        struct store_fault *fault_out)
{
    const struct store_geometry *g = form->g;
    struct store_header          h;
    enum store_word              word = open_header(dir, seq, direct, &h, fd_out, fault_out);
    if (word) return word;
    *its_out = store_geometry(h.payload_bytes, h.segment_bytes);
    bool fits = h.record_bytes == g->record_bytes && its_out->record_bytes == h.record_bytes &&
                its_out->n_record == h.n_record && its_out->segment_bytes == h.segment_bytes && h.n_record &&
                h.n_record <= g->n_record;
    return opened(*fd_out, &h, form->fingerprint, fits, keys);
}

enum store_word store_file_about(int dir, uint64_t seq, struct store_keys *keys, struct store_about *about_out,
                                 int *fd_out, struct store_fault *fault_out)
{
    struct store_header h;
    bool                direct = false;
    enum store_word     word = open_header(dir, seq, &direct, &h, fd_out, fault_out);
    if (word) return word;
    *about_out = (struct store_about){ .keyed = h.keyed,
                                       .sealed = h.sealed,
                                       .g = { h.record_bytes, h.segment_bytes, h.n_record },
                                       .fingerprint = h.fingerprint,
                                       .payload_bytes = h.payload_bytes,
                                       .block_tokens = h.block_tokens };
    struct store_geometry g = store_geometry(h.payload_bytes, h.segment_bytes);
    if (g.record_bytes != h.record_bytes || g.n_record != h.n_record ||
        h.block_tokens > KV_RECORD_TOKENS_MAX) { /* a header that lies */
        fault_out->byte = offsetof(struct store_header, record_bytes);
        word = STORE_DAMAGED;
    } else if (!store_header_mac(&h, keys) || (h.sealed && !seal_fits(&h, keys))) {
        word = STORE_OTHER_KEY;
    }
    if (word) close(*fd_out);
    return word;
}

uint64_t store_footer_bytes(const struct store_geometry *g) { return (rows_pages(g->n_record) + 1) * STORE_PAGE; }

static uint64_t footer_off(const struct store_geometry *g) { return g->segment_bytes - store_footer_bytes(g); }

enum status store_footer_write(int fd, const struct store_geometry *g, uint64_t seq, const struct store_row *row,
                               uint32_t n, struct store_keys *keys, void *buffer, int *error_out)
{
    uint64_t bytes = store_footer_bytes(g);
    memset(buffer, 0, bytes);
    memcpy(buffer, row, n * sizeof *row);
    struct store_trailer *t = (struct store_trailer *)(void *)((char *)buffer + bytes - STORE_PAGE);
    memcpy(t->magic, STORE_TRAILER, sizeof t->magic);
    t->version = STORE_VERSION;
    t->n = n;
    t->seq = seq;
    if (keys->n_secret)
        seal_piece(keys->sealer, keys->key, footer_off(g), STORE_PART_FOOTER, t, offsetof(struct store_trailer, rows),
                   buffer, n * sizeof *row, buffer, t->tag);
    t->rows = digest_of(mac_of(keys), buffer, n * sizeof *row);
    t->mac = digest_of(mac_of(keys), t, offsetof(struct store_trailer, mac));
    t->sum = hash_bytes(t, offsetof(struct store_trailer, sum), 0);
    return all_written(fd, buffer, bytes, footer_off(g), error_out);
}

enum status store_footer_read(int fd, const struct store_geometry *g, uint64_t seq, uint32_t block_tokens,
                              struct store_keys *keys, void *buffer, struct store_row *row, uint32_t *n_out)
{
    uint64_t bytes = store_footer_bytes(g);
    if (all_read(fd, buffer, bytes, footer_off(g))) return ST_NOT_FOUND;
    struct store_trailer t;
    memcpy(&t, (char *)buffer + bytes - STORE_PAGE, sizeof t);
    if (memcmp(t.magic, STORE_TRAILER, sizeof t.magic) || t.version != STORE_VERSION || t.seq != seq ||
        t.n > g->n_record || !digest_equal(t.mac, digest_of(mac_of(keys), &t, offsetof(struct store_trailer, mac))) ||
        !digest_equal(t.rows, digest_of(mac_of(keys), buffer, t.n * sizeof *row)))
        return ST_NOT_FOUND;
    if (keys->n_secret &&
        !seal_piece_open(keys->sealer, keys->key, footer_off(g), STORE_PART_FOOTER, &t,
                         offsetof(struct store_trailer, rows), buffer, t.n * sizeof *row, buffer, t.tag))
        return ST_NOT_FOUND;
    memcpy(row, buffer, t.n * sizeof *row);
    for (uint32_t i = 0; i < t.n; i++)
        if (row[i].index >= g->n_record || row[i].block_tokens != block_tokens) return ST_NOT_FOUND;
    *n_out = t.n;
    return ST_OK;
}

static bool is_empty(const unsigned char *page)
{
    for (size_t i = 0; i < STORE_PAGE; i++)
        if (page[i]) return false;
    return true;
}

static void first_fault(struct store_scan *scan, struct store_fault fault)
{
    if (scan->n_damaged + scan->n_unread == 0 && !scan->footer_damaged) scan->fault = fault;
}

/* Tells apart why no footer was read: none was written yet, or it is damaged. */
static void look_at_footer(int fd, const struct store_geometry *g, void *page, struct store_scan *scan)
{
    struct stat st;
    uint64_t    at = g->segment_bytes - STORE_PAGE;
    int         error = all_read(fd, page, STORE_PAGE, at);
    if (error > 0 || (error == 0 && is_empty(page)) || fstat(fd, &st)) return;
    first_fault(scan, (struct store_fault){ .byte = error ? (uint64_t)st.st_size : at });
    scan->footer_damaged = true;
}

void store_file_scan(int fd, const struct store_form *form, uint64_t seq, struct store_keys *keys, void *buffer,
                     struct store_row *row, struct store_scan *scan_out)
{
    const struct store_geometry *g = form->g;
    struct store_scan           *scan = scan_out;
    *scan = (struct store_scan){ 0 };
    scan->from_footer = !store_footer_read(fd, g, seq, form->block_tokens, keys, buffer, row, &scan->n);
    if (scan->from_footer) return;
    scan->n = 0;
    look_at_footer(fd, g, buffer, scan);
    for (uint32_t i = 0; i < g->n_record; i++) {
        uint64_t off = store_record_off(g, i);
        int      error = all_read(fd, buffer, STORE_PAGE, off);
        if (error && error != READ_ENDS) {
            first_fault(scan, (struct store_fault){ .error = error, .byte = off });
            scan->n_unread++;
            continue;
        }
        if (!error && is_empty(buffer)) continue; /* never written */
        bool sound = !error &&
                     (!keys->n_secret || seal_head_open(keys->sealer, keys->key, off, buffer, KV_RECORD_HEAD)) &&
                     !kv_record_check(buffer, mac_of(keys), form->fingerprint, NULL, NULL, form->block_tokens,
                                      form->payload_bytes, seq);
        if (!sound) {
            first_fault(scan, (struct store_fault){ .byte = off });
            scan->n_damaged++;
            continue;
        }
        const struct kv_record *r = kv_record_of(buffer);
        row[scan->n++] = (struct store_row){ .key = r->key,
                                             .payload = r->payload,
                                             .index = i,
                                             .block_tokens = form->block_tokens,
                                             .begins = kv_record_begins(r) };
    }
}

/* ---- a folder */

static int by_seq(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum { NAMES_MAX = 1 << 16 };
int store_list(int dir, uint64_t **seq_out, uint32_t *n_out)
{
    uint32_t  n = 0, cap = 0;
    uint64_t *seq = NULL, one;
    int       fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR      *d = fd < 0 ? NULL : fdopendir(fd);
    int       error = d ? 0 : errno;
    if (!d && fd >= 0) close(fd);
    while (d && n < NAMES_MAX) { /* nobody of ours has made so many */
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            error = errno;
            break;
        }
        if (!store_seq_of(e->d_name, &one)) continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            uint64_t *more = realloc(seq, cap * sizeof *seq);
            if (!more) {
                error = ENOMEM;
                break;
            }
            seq = more;
        }
        seq[n++] = one;
    }
    if (d) closedir(d);
    if (error) {
        free(seq);
        return error;
    }
    if (n) qsort(seq, n, sizeof *seq, by_seq);
    *seq_out = seq;
    *n_out = n;
    return 0;
}
