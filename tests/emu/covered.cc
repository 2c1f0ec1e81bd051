/* covered: which kernels ran under which kinds of schedule, for tests/cuda/covered. Where the environment's EMU_COVERED
 * names a folder, a file of the program's name in it has a line for each kernel and kind: "mangled name, kind". Thread:
 * any; processes of one program, and children of one, share its file. */
#include <emu_kernel.h>
#include <errno.h>
#include <fcntl.h>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unordered_map>

namespace emu
{
/* lazy, eager, reversed, random, greedy: of emu_schedule. pdl: it was launched as one that may begin early. early: a
 * block of it ran before the kernel ahead of it on the stream did. */
static const char *const kinds[] = { "lazy", "eager", "reversed", "random", "greedy", "pdl", "early" };

static unsigned kinds_now(bool pdl, bool early)
{
    const emu_schedule &s = schedule;
    return (s.eager ? 2u : 1u) | (s.order == EMU_REVERSED ? 4u : 0) | (s.order == EMU_RANDOM ? 8u : 0) |
           (s.greedy ? 16u : 0) | (pdl ? 32u : 0) | (early ? 64u : 0);
}

static int file_of_program()
{
    const char *folder = getenv("EMU_COVERED");
    if (!folder || !*folder) return -1;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, program_invocation_short_name);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) die("EMU_COVERED names no folder that can be written");
    return fd;
}

/* mangled: without its _Z, or NULL: not a kernel of this program */
void covered(const void *kernel, const char *mangled, bool pdl, bool early)
{
    static const int fd = file_of_program();
    if (fd < 0 || !mangled) return;
    static std::mutex                                 m;
    static std::unordered_map<const void *, unsigned> seen;
    std::lock_guard<std::mutex>                       g(m);
    unsigned                                         &had = seen[kernel], more = kinds_now(pdl, early) & ~had;
    had |= more;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char line[4096];
        if (!(more >> i & 1)) continue;
        int n = snprintf(line, sizeof line, "_Z%s %s\n", mangled, kinds[i]);
        if (n >= (int)sizeof line || write(fd, line, (size_t)n) != n) die("EMU_COVERED: cannot write");
    }
}
} // namespace emu
