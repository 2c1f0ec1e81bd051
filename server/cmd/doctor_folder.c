/* doctor_folder: checks a folder's file system, its free space, and whether writes can bypass the page cache. */
#include "server/cmd/doctor.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { PAGE = 4096 };
#define GIB        ((uint64_t)1 << 30)
#define FREE_LEAST (4 * GIB)

enum kind { ON_DISK, ON_MEMORY, ON_LAYER, ON_NETWORK };

static const struct {
    uint32_t    magic;
    const char *name;
    enum kind   kind;
} systems[] = {
    { EXT4_SUPER_MAGIC, "ext4", ON_DISK },    { XFS_SUPER_MAGIC, "xfs", ON_DISK },
    { BTRFS_SUPER_MAGIC, "btrfs", ON_DISK },  { F2FS_SUPER_MAGIC, "f2fs", ON_DISK },
    { 0x2fc12fc1, "zfs", ON_DISK },           { TMPFS_MAGIC, "tmpfs", ON_MEMORY },
    { RAMFS_MAGIC, "ramfs", ON_MEMORY },      { OVERLAYFS_SUPER_MAGIC, "overlayfs", ON_LAYER },
    { NFS_SUPER_MAGIC, "nfs", ON_NETWORK },   { 0x0bd00bd0, "lustre", ON_NETWORK },
    { FUSE_SUPER_MAGIC, "fuse", ON_NETWORK }, { 0xfe534d42, "smb2", ON_NETWORK },
    { V9FS_MAGIC, "9p", ON_NETWORK },
};

/* Writes a page past the page cache into a file without a name, and reads it back. 0, or errno; EINVAL: it cannot be
 * opened that way. */
static int try_direct(int dir)
{
    char *page = NULL;
    int   error = 0, fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0) return errno;
    if (posix_memalign((void **)&page, PAGE, PAGE)) {
        close(fd);
        return ENOMEM;
    }
    memset(page, 0x5a, PAGE);
    errno = EIO;
    if (pwrite(fd, page, PAGE, 0) != PAGE || pread(fd, page, PAGE, 0) != PAGE) error = errno;
    free(page);
    close(fd);
    return error;
}

static void judge(struct doctor *d, const char *dir, int fd)
{
    struct statfs s;
    if (fstatfs(fd, &s)) {
        doctor_say(d, DOCTOR_FAIL, "folder", "another folder", "%s: %s", dir, strerror(errno));
        return;
    }
    const char *name = "another file system";
    enum kind   kind = ON_DISK;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if ((uint32_t)s.f_type == systems[i].magic) {
            name = systems[i].name;
            kind = systems[i].kind;
        }
    uint64_t left = (uint64_t)s.f_bavail * (uint64_t)s.f_bsize;
    double   gib = (double)left / (double)GIB;
    int      direct = try_direct(fd);
    if (kind == ON_MEMORY)
        doctor_say(d, DOCTOR_WARN, "folder", "a folder on a disk; for KV in memory give --kv-host-gib",
                   "%s: %s, %.1f GiB free: that is memory, gone after a reboot", dir, name, gib);
    else if (kind == ON_LAYER)
        doctor_say(d, DOCTOR_WARN, "folder", "mount a volume there",
                   "%s: %s, %.1f GiB free: it goes with the container", dir, name, gib);
    else if (kind == ON_NETWORK)
        doctor_say(d, DOCTOR_WARN, "folder", "for KV that servers share: --kv-shared; for --kv-nvme a local disk",
                   "%s: %s, %.1f GiB free: a network or a process is behind it", dir, name, gib);
    else if (left < FREE_LEAST)
        doctor_say(d, DOCTOR_WARN, "folder", "make room, or take another disk", "%s: %s, %.1f GiB free", dir, name,
                   gib);
    else if (direct)
        doctor_say(d, DOCTOR_WARN, "folder", "ext4 or xfs",
                   "%s: %s, %.1f GiB free, no O_DIRECT (%s): KV goes through the page cache", dir, name, gib,
                   strerror(direct));
    else
        doctor_say(d, DOCTOR_OK, "folder", "", "%s: %s, %.1f GiB free, O_DIRECT works", dir, name, gib);
}

void doctor_folder(struct doctor *d, const char *dir)
{
    struct stat st;
    int         fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        doctor_say(d, DOCTOR_FAIL, "folder", errno == ENOENT ? "mkdir -p it, or mount its volume" : "another folder",
                   "%s: %s", dir, strerror(errno));
        return;
    }
    if (faccessat(fd, ".", W_OK | X_OK, 0)) {
        doctor_say(d, DOCTOR_FAIL, "folder",
                   errno == EROFS ? "mount it read-write; for weights alone this is right"
                                  : "chown it to the server's user",
                   "%s: cannot be written to: %s", dir, strerror(errno));
    } else if (!fstat(fd, &st) && st.st_mode & 022 && st.st_uid != geteuid()) {
        doctor_say(d, DOCTOR_WARN, "folder", "chown it to the server's user, chmod 0700", "%s: others may write there",
                   dir);
    } else {
        judge(d, dir, fd);
    }
    close(fd);
}
