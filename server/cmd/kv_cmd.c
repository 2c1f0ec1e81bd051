#include "server/cmd/kv_cmd.h"
#include "base/status.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/folder/store_models.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: spillway kv ls DIR [--blocks]     segments of a --kv-nvme or --kv-shared folder, and with --blocks every record\n"
    "       spillway kv verify DIR            reads every record and checks it; exit 1 when one is in doubt\n"
    "       spillway kv gc DIR [--all]        removes segments that hold nothing sound and what is in quarantine, or all of them; not while a server runs\n"
    "                                         each of them goes through all models that DIR holds KV of\n"
    "  --mac-key-file FILE                    the secret of --kv-mac-key-file, where one was used; either may be given twice\n"
    "  --encrypt-key-file FILE                the key of --kv-encrypt-key-file, where one was used; of sealed files without it\n"
    "                                         nothing but the header can be said\n";

struct kv_opts {
    const char       *verb, *dir;
    bool              blocks, all;
    struct digest_key mac[STORE_KEYS_MAX];
    unsigned char     secret[STORE_KEYS_MAX][SEAL_SECRET];
    struct seal_key   file_key;
    struct store_keys keys; /* without a secret: none was given */
};
struct kv_counts {
    uint64_t n_segment, n_foreign, n_block, n_doubt, n_removed, n_locked, n_damaged, bytes;
};

static int complain(const char *what, const char *value)
{
    fprintf(stderr, "spillway kv: %s%s%s\n", what, *value ? ": " : "", value);
    return EXIT_USAGE;
}

static int read_secret(struct kv_opts *o, const char *path)
{
    struct store_keys *k = &o->keys;
    if (k->n_mac == STORE_KEYS_MAX) return complain("--mac-key-file may be given twice, found once more", path);
    enum status st = digest_key_read(&o->mac[k->n_mac], path);
    if (st == ST_IO) return complain(path, strerror(errno));
    if (st) return complain("--mac-key-file needs at least 16 bytes", "");
    k->mac[k->n_mac] = &o->mac[k->n_mac];
    k->n_mac++;
    return 0;
}

static int read_encrypt_key(struct kv_opts *o, const char *path)
{
    struct store_keys *k = &o->keys;
    char               why[400];
    if (k->n_secret == STORE_KEYS_MAX) return complain("--encrypt-key-file may be given twice, found once more", path);
    if (seal_secret_read(path, o->secret[k->n_secret], why, sizeof why)) return complain("--encrypt-key-file", why);
    k->secret[k->n_secret] = o->secret[k->n_secret];
    k->n_secret++;
    return k->sealer || !seal_open(&k->sealer) ? 0 : EXIT_SOFTWARE;
}

static int parse(struct kv_opts *o, int argc, char **argv)
{
    *o = (struct kv_opts){ .verb = NULL };
    o->keys.key = &o->file_key;
    for (int i = 1; i < argc; i++) {
        int code = 0;
        if (!strcmp(argv[i], "--blocks"))
            o->blocks = true;
        else if (!strcmp(argv[i], "--all"))
            o->all = true;
        else if (!strcmp(argv[i], "--mac-key-file") && i + 1 < argc)
            code = read_secret(o, argv[++i]);
        else if (!strcmp(argv[i], "--encrypt-key-file") && i + 1 < argc)
            code = read_encrypt_key(o, argv[++i]);
        else if (*argv[i] == '-')
            code = complain("no such option", argv[i]);
        else if (!o->verb)
            o->verb = argv[i];
        else if (!o->dir)
            o->dir = argv[i];
        else
            code = complain("one folder at a time", argv[i]);
        if (code) return code;
    }
    bool known = o->verb && (!strcmp(o->verb, "ls") || !strcmp(o->verb, "verify") || !strcmp(o->verb, "gc"));
    if (!o->keys.n_mac) { /* checksums without a key */
        o->keys.mac[0] = &o->mac[0];
        o->keys.n_mac = 1;
    }
    if (known && o->dir) return 0;
    fputs(USAGE, stderr);
    return EXIT_USAGE;
}

/* Everything of a record: its head by its own identity, its payload by its digest. page: record_bytes. */
static enum kv_doubt look(struct kv_opts *o, const struct store_about *a, int fd, uint64_t seq,
                          const struct store_row *row, unsigned char *page)
{
    const struct digest_key *mac = o->keys.mac[o->keys.mac_is];
    uint64_t                 off = store_record_off(&a->g, row->index);
    for (uint64_t at = 0; at < a->g.record_bytes;) {
        ssize_t n = pread(fd, page + at, a->g.record_bytes - at, (off_t)(off + at));
        if (n <= 0) return KV_DOUBT_PAYLOAD;
        at += (uint64_t)n;
    }
    if (a->sealed && !seal_blob_open(o->keys.sealer, o->keys.key, off, page, KV_RECORD_HEAD, a->g.record_bytes))
        return KV_DOUBT_PAYLOAD;
    enum kv_doubt d =
        kv_record_check(page, mac, &a->fingerprint, &row->key, NULL, a->block_tokens, a->payload_bytes, seq);
    if (d) return d;
    struct digest sum = digest_of(mac, page + KV_RECORD_HEAD, a->payload_bytes);
    return digest_equal(sum, kv_record_of(page)->payload) && digest_equal(sum, row->payload) ? KV_SURE
                                                                                             : KV_DOUBT_PAYLOAD;
}

static void print_block(const struct store_row *row, const unsigned char *page, enum kv_doubt d)
{
    const struct kv_record *r = kv_record_of(page);
    printf("  %6u  ", row->index);
    for (int i = 0; i < 8; i++) printf("%02x", row->key.b[i]);
    if (d) {
        printf("  in doubt: %s\n", kv_doubt_name[d]);
        return;
    }
    printf("  after ");
    for (int i = 0; i < 8 && !kv_record_begins(r); i++) printf("%02x", r->parent.b[i]);
    if (kv_record_begins(r)) printf("nothing");
    printf("  tokens %u %u %u ...\n", r->ids[0], r->block_tokens > 1 ? r->ids[1] : 0,
           r->block_tokens > 2 ? r->ids[2] : 0);
}

/* Of a segment that no given key fits. */
static const char *key_is(const struct store_about *a)
{
    if (a->sealed) return a->keyed ? "sealed and with a MAC" : "sealed";
    return a->keyed ? "with a MAC" : "without a MAC";
}
static const char *key_given(const struct kv_opts *o, const struct store_about *a)
{
    if (a->sealed && !o->keys.n_secret) return "and no --encrypt-key-file was given";
    if (a->keyed && !o->mac[0].mac) return "and no --mac-key-file was given";
    return "not under this key";
}

/* One segment. Sound blocks in it are counted; gc removes it when there are none. */
static int segment(struct kv_opts *o, int dir, uint64_t seq, struct kv_counts *c)
{
    char               name[32];
    struct store_about a;
    int                fd;
    uint32_t           sound = 0;
    struct store_fault fault;
    struct store_scan  found = { 0 };
    store_name(name, sizeof name, seq);
    enum store_word word = store_file_about(dir, seq, &o->keys, &a, &fd, &fault);
    if (word == STORE_OTHER_KEY) {
        c->n_locked++;
        printf("%s  %s, %s\n", name, key_is(&a), key_given(o, &a));
        if (!strcmp(o->verb, "gc") && o->all) c->n_removed += unlinkat(dir, name, 0) == 0;
        return 0;
    }
    if (word == STORE_NOT_READ) {
        printf("%s  cannot be read: %s\n", name, strerror(fault.error));
        return EXIT_IO;
    }
    if (word) {
        c->n_foreign++;
        printf("%s  no segment of this version\n", name);
        if (!strcmp(o->verb, "gc") && word != STORE_NO_FILE) c->n_removed += unlinkat(dir, name, 0) == 0;
        return 0;
    }
    struct store_keys keys = o->keys;
    if (!a.sealed) keys.n_secret = 0;
    struct store_row *row = calloc(a.g.n_record, sizeof *row);
    unsigned char    *page = aligned_alloc(4096, a.g.record_bytes);
    void             *buffer = aligned_alloc(4096, store_footer_bytes(&a.g));
    bool              ok = row && page && buffer;
    struct store_form form = { &a.g, &a.fingerprint, a.payload_bytes, a.block_tokens };
    if (ok) store_file_scan(fd, &form, seq, &keys, buffer, row, &found);
    uint32_t n = found.n;
    ok = ok && !found.n_unread;
    bool deep = strcmp(o->verb, "ls") != 0;
    if (ok) {
        printf("%s  model ", name);
        for (int i = 0; i < 6; i++) printf("%02x", a.fingerprint.b[i]);
        printf("  %u of %u blocks, %u tokens and %" PRIu64 " KiB each, %s%s\n", n, a.g.n_record, a.block_tokens,
               a.payload_bytes >> 10, found.from_footer ? "sealed" : "open or torn", a.sealed ? ", encrypted" : "");
    }
    for (uint32_t i = 0; ok && i < n && (deep || o->blocks); i++) {
        enum kv_doubt d = look(o, &a, fd, seq, &row[i], page);
        sound += d == KV_SURE;
        if (o->blocks || d) print_block(&row[i], page, d);
    }
    c->n_segment++;
    c->n_block += n;
    c->bytes += a.g.segment_bytes;
    if (deep) c->n_doubt += n - sound;
    if (!strcmp(o->verb, "gc") && (o->all || !sound)) c->n_removed += unlinkat(dir, name, 0) == 0;
    free(row);
    free(page);
    free(buffer);
    close(fd);
    return ok ? 0 : EXIT_IO;
}

/* What a server has put away as damaged: nothing reads it, and it takes room. gc removes it. */
static void quarantine(struct kv_opts *o, int dir, struct kv_counts *c)
{
    uint64_t *seq = NULL, bytes = 0;
    uint32_t  n = 0;
    int       sub = openat(dir, STORE_QUARANTINE, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (sub < 0) return;
    if (store_list(sub, &seq, &n)) n = 0;
    for (uint32_t i = 0; i < n; i++) {
        char        name[32];
        struct stat st;
        store_name(name, sizeof name, seq[i]);
        if (fstatat(sub, name, &st, AT_SYMLINK_NOFOLLOW) == 0) bytes += (uint64_t)st.st_size;
        if (!strcmp(o->verb, "gc")) c->n_removed += unlinkat(sub, name, 0) == 0;
    }
    if (n) printf(STORE_QUARANTINE "  %u damaged segments, %" PRIu64 " KiB, which no server reads\n", n, bytes >> 10);
    c->n_damaged += n;
    free(seq);
    close(sub);
    if (!strcmp(o->verb, "gc")) (void)unlinkat(dir, STORE_QUARANTINE, AT_REMOVEDIR); /* where it is empty now */
}

static int folder(struct kv_opts *o, int dir, struct kv_counts *c)
{
    uint64_t *seq = NULL;
    uint32_t  n = 0;
    int       code = store_list(dir, &seq, &n) ? EXIT_IO : 0;
    for (uint32_t i = 0; i < n; i++) {
        int st = segment(o, dir, seq[i], c);
        if (st) code = st;
    }
    free(seq);
    quarantine(o, dir, c);
    return code;
}

/* The sub-folders: of models, and of the servers that share a folder. */
static int sub_folders(struct kv_opts *o, int dir, struct kv_counts *c)
{
    DIR           *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    int            code = 0;
    while (d && (e = readdir(d))) {
        bool model = models_is_name(e->d_name);
        if (!model && strncmp(e->d_name, "srv-", 4)) continue;
        int sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (sub < 0) continue;
        printf("%s", e->d_name);
        if (model) printf("  used %" PRIu64, models_used(sub));
        printf("\n");
        int st = folder(o, sub, c);
        if (st) code = st;
        close(sub);
    }
    if (d) closedir(d);
    return code;
}

/* One model's: what is removed there is up to whoever holds the lock of the folder above. */
static bool is_sub_folder(const char *dir)
{
    char        path[PATH_MAX];
    const char *slash = realpath(dir, path) ? strrchr(path, '/') : NULL;
    return slash && models_is_name(slash + 1);
}

static bool is_shared(int dir)
{
    DIR           *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    bool           shared = faccessat(dir, "LEASE", F_OK, 0) == 0;
    while (d && !shared && (e = readdir(d))) shared = !strncmp(e->d_name, "srv-", 4);
    if (d) closedir(d);
    return shared;
}

int kv_main(int argc, char **argv)
{
    struct kv_opts   o;
    struct kv_counts c = { 0 };
    if (argc > 1 && !strcmp(argv[1], "--help")) {
        fputs(USAGE, stdout);
        return 0;
    }
    int code = parse(&o, argc, argv);
    if (code) return code;
    int dir = open(o.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        complain(o.dir, strerror(errno));
        return EXIT_IO;
    }
    bool        shared = is_shared(dir), gc = !strcmp(o.verb, "gc");
    const char *why = NULL;
    if (gc) {
        bool sub = is_sub_folder(o.dir);
        int  lock = shared || sub
                        ? -1
                        : openat(dir, "LOCK", O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* held until the process ends */
        if (shared)
            why = "is shared by servers, which collect what one of them has left";
        else if (sub)
            why = "is one model's part of a folder: gc is for the whole folder";
        else if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB))
            why = "a server uses it";
    }
    if (why) {
        complain(o.dir, why);
        seal_close(o.keys.sealer);
        OPENSSL_cleanse(&o, sizeof o);
        return EXIT_CONFIG;
    }
    code = folder(&o, dir, &c);
    int st = sub_folders(&o, dir, &c);
    if (st) code = st;
    if (gc) models_tidy(dir);
    printf("%" PRIu64 " segments, %" PRIu64 " blocks, %.2f GiB", c.n_segment, c.n_block, (double)c.bytes / (1 << 30));
    if (c.n_foreign) printf(", %" PRIu64 " files that are no segments of this version", c.n_foreign);
    if (c.n_locked) printf(", %" PRIu64 " files that no key was given for", c.n_locked);
    if (c.n_damaged) printf(", %" PRIu64 " damaged files in quarantine", c.n_damaged);
    if (strcmp(o.verb, "ls")) printf(", %" PRIu64 " blocks in doubt", c.n_doubt);
    if (gc) printf(", %" PRIu64 " files removed", c.n_removed);
    printf("\n");
    bool verify = !strcmp(o.verb, "verify");
    seal_close(o.keys.sealer);
    OPENSSL_cleanse(&o, sizeof o);
    if (code) return code;
    return verify && (c.n_doubt || c.n_locked) ? 1 : 0;
}
