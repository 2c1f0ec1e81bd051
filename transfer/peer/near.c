#include "transfer/peer/near.h"
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* As bytes, because both ends run on one machine: magic, then five numbers of 8 bytes. */
static const char magic[8] = "SPWNEAR1";

struct place { /* of a memfd */
    uint64_t pid, fd, device, inode, bytes;
};
static_assert(sizeof magic + sizeof(struct place) == NEAR_BYTES, "near_say fills its bytes");

enum status near_say(int fd, unsigned char out[NEAR_BYTES])
{
    struct stat s;
    if (fstat(fd, &s)) return ST_IO;
    struct place at = { .pid = (uint64_t)getpid(),
                        .fd = (uint64_t)fd,
                        .device = s.st_dev,
                        .inode = s.st_ino,
                        .bytes = (uint64_t)s.st_size };
    memcpy(out, magic, sizeof magic);
    memcpy(out + sizeof magic, &at, sizeof at);
    return ST_OK;
}

/* Is this the file that the peer meant? Its process id may be another one's here. */
static bool is_meant(const struct stat *s, const struct place *at, uint64_t bytes)
{
    return S_ISREG(s->st_mode) && s->st_dev == at->device && s->st_ino == at->inode &&
           (uint64_t)s->st_size == at->bytes && bytes <= at->bytes;
}

/* A read behind the end of a file that was cut short would end this process. */
static bool stays_long(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK);
}

enum status near_map(const unsigned char said[NEAR_BYTES], uint64_t bytes, const unsigned char **p_out)
{
    struct place at;
    char         path[64];
    if (memcmp(said, magic, sizeof magic) != 0) return ST_INVALID;
    memcpy(&at, said + sizeof magic, sizeof at);
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/fd/%" PRIu64, at.pid, at.fd);
    struct stat s;
    if (stat(path, &s) || !is_meant(&s, &at, bytes)) return ST_NOT_FOUND; /* to open a device may do something */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return ST_NOT_FOUND;
    void *p = MAP_FAILED;
    if (!fstat(fd, &s) && is_meant(&s, &at, bytes) && stays_long(fd))
        p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) return ST_NOT_FOUND;
    *p_out = p;
    return ST_OK;
}

void near_unmap(const unsigned char *p, uint64_t bytes)
{
    if (p) munmap((void *)(uintptr_t)p, bytes);
}
