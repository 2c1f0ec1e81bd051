/* kvdump: a segment of a KV folder, byte by byte: header, records, footer, and what is wrong with each at which byte.
 *   kvdump FILE [--wrong] [--mac-key-file FILE] [--encrypt-key-file FILE]
 * Reads offline and changes nothing; damaged files are what it is for. Exit 1: something is wrong. */
#include "kvcache/folder/store_dump.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "kvdump: %s: %s\n", what, why);
    return 2;
}

static int mac_key(const char *path, struct digest_key *k)
{
    enum status st = digest_key_read(k, path);
    if (st == ST_IO) return fail(path, strerror(errno));
    return st ? fail("--mac-key-file", "at least 16 bytes are needed") : 0;
}

/* The whole of it, in memory that may be written. NULL: errno. */
static unsigned char *whole(const char *path, uint64_t *bytes_out)
{
    struct stat    st;
    int            fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *p = MAP_FAILED;
    uint64_t       n = 0;
    if (fd < 0 || fstat(fd, &st)) return NULL;
    if (st.st_size > 0) p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (p != MAP_FAILED && n < (uint64_t)st.st_size) {
        ssize_t got = read(fd, p + n, (size_t)st.st_size - n);
        if (got <= 0) break;
        n += (uint64_t)got;
    }
    close(fd);
    *bytes_out = n;
    if (st.st_size == 0) errno = ENODATA;
    return p == MAP_FAILED ? NULL : p;
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: kvdump FILE [--wrong] [--mac-key-file FILE] [--encrypt-key-file FILE]\n"
                                "  FILE                      seg-*.kv of a --kv-nvme or --kv-shared folder\n"
                                "  --wrong                   only what is wrong\n"
                                "  --mac-key-file FILE       the secret of --kv-mac-key-file, where one was used\n"
                                "  --encrypt-key-file FILE   the key of --kv-encrypt-key-file, where one was used\n";
    const char       *path = NULL;
    struct digest_key key = { 0 };
    unsigned char     secret[SEAL_SECRET];
    struct seal_key   file_key;
    struct store_keys keys = { .mac = { &key }, .n_mac = 1, .key = &file_key };
    struct store_dump d = { .keys = &keys, .all = true, .out = stdout };
    char              why[400];
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--help")) return fputs(usage, stdout) < 0;
        if (!strcmp(argv[i], "--wrong")) {
            d.all = false;
        } else if (v && !strcmp(argv[i], "--mac-key-file")) {
            if (mac_key(v, &key)) return 2;
            i++;
        } else if (v && !strcmp(argv[i], "--encrypt-key-file")) {
            if (seal_secret_read(v, secret, why, sizeof why)) return fail("--encrypt-key-file", why);
            if (!keys.sealer && seal_open(&keys.sealer)) return fail("AES-256-GCM", "this OpenSSL has none");
            keys.secret[0] = secret;
            keys.n_secret = 1;
            i++;
        } else if (!path && *argv[i] != '-') {
            path = argv[i];
        } else {
            fputs(usage, stderr);
            return 64;
        }
    }
    if (!path) {
        fputs(usage, stderr);
        return 64;
    }
    uint64_t       bytes;
    unsigned char *file = whole(path, &bytes);
    if (!file) return fail(path, strerror(errno));
    store_dump(&d, file, bytes);
    printf("%" PRIu64 " records are whole, %" PRIu64 " places are empty, %" PRIu64 " things are wrong\n", d.n_record,
           d.n_empty, d.n_wrong);
    seal_close(keys.sealer);
    return d.n_wrong ? 1 : 0;
}
