#!/usr/bin/env python3
"""Starts a program in a file tree as a container engine would: the tree is its root and read-only, it is process 1 of its namespace, it has
no capability, a seccomp filter, /dev with the usual devices, /dev/shm of 64 MiB, and no other place to write but what is mounted.

    box.py [--uid N] [--shm MIB] [--mount DIR:PLACE[:ro]] [--tmp PLACE] [--env NAME[=VALUE]] [--loopback] ROOT PROGRAM [ARGUMENT...]

--mount   a folder of this machine; the program's user must be able to use it. A place that the tree lacks is made, but not inside one of its folders
--tmp     an empty tmpfs there
--env     for the program, which gets no other variable than PATH and those whose names begin as containers of servers are configured (PASSED)
--loopback  a network of its own, with nothing but loopback

SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on; the exit status is the program's, or 128 + the signal that ended it. Root is not needed
where users may make namespaces: then the program's user is this one under another number. `box.py` as a prefix makes a test that starts
a server start it in the tree.

# Run by: section rootfs alone, as a part of container.py
"""

import argparse
import ctypes
import os
import signal
import struct
import sys

PASSED = ("SPILLWAY_", "SAGEMAKER_", "SM_", "OPTION_", "SERVING_", "HF_", "AWS_", "TENSOR_PARALLEL_", "SLURM_", "LWS_")
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
# What the default profiles of the engines of today refuse to a process without capabilities, as far as a server could ask for it: io_uring,
# placement in memory nodes, namespaces, mounts, keys, tracing of others. By machine: (AUDIT_ARCH, numbers, pivot_root, capset).
REFUSED = {
    "x86_64": (0xC000003E, [425, 426, 427, 237, 238, 239, 256, 279, 165, 166, 155, 272, 308, 321, 298, 323, 248, 249, 250, 101, 310, 311], 155, 126),
    "aarch64": (0xC00000B7, [425, 426, 427, 235, 236, 237, 238, 239, 40, 39, 41, 97, 268, 280, 241, 282, 217, 218, 219, 117, 270, 271], 41, 91),
}

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        e = ctypes.get_errno()
        raise OSError(e, "box: %s%r: %s" % (name, args, os.strerror(e)))


def mount(source, target, kind, flags, data=None):
    call("mount", source and source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), data and data.encode())


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def enter_namespaces(a):
    """As another user than root, a namespace of users comes first: in it this user has the number asked for."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | (CLONE_NEWNET if a.loopback else 0)
    call("unshare", flags | (CLONE_NEWUSER if uid else 0))
    if uid:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", "%d %d 1" % (a.uid, uid))
        write("/proc/self/gid_map", "%d %d 1" % (a.uid, gid))
    if a.loopback:
        import fcntl
        import socket

        with socket.socket() as s:
            fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1 | 64))  # SIOCSIFFLAGS: up, running


def remount(place, flags):
    """Adds flags. What a mount of this machine forbids already stays forbidden: a namespace of users may not lift it."""
    have, kept = os.statvfs(place).f_flag, 0
    for bit, flag in ((os.ST_RDONLY, 1), (os.ST_NOSUID, 2), (os.ST_NODEV, 4), (os.ST_NOEXEC, 8), (os.ST_NOATIME, 1024),
                      (os.ST_NODIRATIME, 2048), (os.ST_RELATIME, 1 << 21)):
        kept |= flag if have & bit else 0
    mount(None, place, None, MS_REMOUNT | MS_BIND | kept | flags)


def bind(source, target, flags):
    mount(source, target, None, MS_BIND)
    remount(target, flags)


def bind_sys(target):
    """/sys with all that is mounted in it, each of them read-only by itself."""
    mount("/sys", target, None, MS_BIND | MS_REC)
    with open("/proc/self/mountinfo") as f:
        places = [line.split()[4] for line in f]
    for place in places:
        if place == target or place.startswith(target + "/"):
            remount(place, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def lay_out(a):
    """A tmpfs over the tree's folder, with each folder of the tree mounted in it read-only: in between, folders to mount at can be made, as an
    engine makes them in the container's own layer. The tmpfs becomes read-only at the end."""
    os.chdir(a.root)  # the tree, which the tmpfs covers for everybody else
    mount("tmpfs", a.root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for name in os.listdir("."):
        place = os.path.join(a.root, name)
        if os.path.islink(name):
            os.symlink(os.readlink(name), place)
        else:
            os.mkdir(place)
            bind(name, place, MS_RDONLY | MS_NOSUID | MS_NODEV)


def furnish(a):
    """Mounts everything and makes the tree the root of this process, which is the first of its namespace."""
    at = lambda place: a.root + "/" + place.lstrip("/")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    lay_out(a)
    mount("proc", at("proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    bind_sys(at("sys"))
    mount("tmpfs", at("dev"), "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k")
    for name in ("null", "zero", "full", "random", "urandom"):
        write(at("dev/" + name), "")
        mount("/dev/" + name, at("dev/" + name), None, MS_BIND)
    os.mkdir(at("dev/shm"))
    mount("tmpfs", at("dev/shm"), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=%dm" % a.shm)
    mount(None, at("dev"), None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC)
    for place in a.tmp:
        os.makedirs(at(place), exist_ok=True)
        mount("tmpfs", at(place), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for row in a.mount:
        source, place, *how = row.split(":")
        os.makedirs(at(place), exist_ok=True)
        bind(source, at(place), MS_NOSUID | MS_NODEV | (MS_RDONLY if how == ["ro"] else 0))
    mount(None, a.root, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(a.root)
    # Both arguments the same: the new root lies over the old one, which is then taken away from below it.
    call("syscall", ctypes.c_long(REFUSED[os.uname().machine][2]), b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def refuse_calls():
    arch, numbers, _, _ = REFUSED[os.uname().machine]
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, arch), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]  # another ABI: killed
    for i, n in enumerate(numbers):
        code.append((0x15, len(numbers) - i, 0, n))
    code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | 1)]  # allowed; EPERM
    rows = b"".join(struct.pack("HBBI", *row) for row in code)
    buf = ctypes.create_string_buffer(rows)
    prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(buf)))
    call("prctl", PR_SET_SECCOMP, ctypes.c_ulong(2), prog, 0, 0)


def drop_rights(a):
    with open("/proc/sys/kernel/cap_last_cap") as f:
        last = int(f.read())
    for cap in range(last + 1):
        call("prctl", PR_CAPBSET_DROP, ctypes.c_ulong(cap), 0, 0, 0)
    if os.getuid() != a.uid:
        os.setgroups([])
        os.setresgid(a.uid, a.uid, a.uid)
        os.setresuid(a.uid, a.uid, a.uid)
    header = struct.pack("Ii", 0x20080522, 0)
    call("syscall", ctypes.c_long(REFUSED[os.uname().machine][3]), header, bytes(24))
    call("prctl", PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)
    call("prctl", PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    refuse_calls()


def environment(a):
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    env.update((k, v) for k, v in os.environ.items() if k.startswith(PASSED))
    for row in a.env:
        name, equals, value = row.partition("=")
        env[name] = value if equals else os.environ[name]
    return env


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--uid", type=int, default=10001)
    ap.add_argument("--shm", type=int, default=64)
    ap.add_argument("--mount", action="append", default=[])
    ap.add_argument("--tmp", action="append", default=[])
    ap.add_argument("--env", action="append", default=[])
    ap.add_argument("--loopback", action="store_true")
    ap.add_argument("root")
    ap.add_argument("command", nargs=argparse.REMAINDER)
    a = ap.parse_args()
    a.root = os.path.realpath(a.root)
    a.mount = [os.path.realpath(row.split(":")[0]) + row[row.index(":") :] for row in a.mount]
    if not a.command:
        ap.error("which PROGRAM?")
    env = environment(a)
    enter_namespaces(a)
    wanted = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    pid = os.fork()
    if pid == 0:
        try:
            call("prctl", PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
            furnish(a)
            drop_rights(a)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)
            os.execve(a.command[0], a.command, env)
        except OSError as e:
            print(e if str(e).startswith("box:") else "box: %s" % e, file=sys.stderr, flush=True)
        os._exit(125)
    while True:
        sig = signal.sigwait(wanted)
        if sig != signal.SIGCHLD:
            os.kill(pid, sig)
            continue
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


if __name__ == "__main__":
    main()
