#!/bin/sh
# Assembles the file tree of the container image: the server, the libraries that it loads, and nothing that runs beside it.
#
#   deploy/rootfs.sh BINARY FOLDER [LIBRARY...]
#
# FOLDER is made anew. LIBRARY is a shared library that the server opens at run time (libcublasLt.so.13, libnccl.so.2); it lands beside
# the others, with the libraries that it loads itself. The Dockerfile copies FOLDER into an empty image; tests/deploy/container.py
# starts the server in it. deploy/sbom.py lists the files with the packages that they come from.
# Needed: ldd, strip, python3, and dpkg, which knows the packages.
set -eu
[ $# -ge 2 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
root=$2
shift 2
fail() { echo "rootfs: $*" >&2; exit 66; }
[ -x "$binary" ] || fail "$binary is no program"
bundle=/etc/ssl/certs/ca-certificates.crt
[ -s "$bundle" ] || fail "there is no $bundle (package ca-certificates)"

rm -rf "$root"
mkdir -p "$root/usr/local/bin" "$root/usr/lib" "$root/usr/share/doc/spillway" "$root/etc/ssl/certs"
# No /opt/ml: the server would take any engine for SageMaker (docs/OPERATIONS.md, "SageMaker"). Engines make the folders they mount at.
mkdir "$root/proc" "$root/sys" "$root/dev" "$root/tmp"
chmod 1777 "$root/tmp"
ln -s usr/lib "$root/lib"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/files"

# The package of Debian that a file comes from; nothing for a file of no package. A merged /usr is known under both names.
package_of() { # FILE
    awk -v a="$1" -v b="${1#/usr}" '$NF == a || $NF == b { sub(/[:,].*/, ""); print; exit }' "$work/owners"
}

# From SOURCE to DEST below the root; "DEST|SOURCE|PACKAGE" is noted for the list of packages.
add() { # SOURCE DEST [PACKAGE]
    source=$(readlink -f "$1")
    mkdir -p "$(dirname "$root$2")"
    cp "$source" "$root$2"
    chmod "$([ -x "$source" ] && echo 0755 || echo 0644)" "$root$2"
    package=${3:-$(package_of "$source")}
    echo "$2|$source|$package" >>"$work/files"
    if [ -n "$package" ] && [ -e "/usr/share/doc/$package/copyright" ] && [ ! -e "$root/usr/share/doc/$package" ]; then
        mkdir "$root/usr/share/doc/$package"
        cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
    fi
}

# The absolute paths of the libraries that FILE loads, the loader among them.
closure() { # FILE
    ldd "$1" >"$work/ldd" || fail "ldd cannot read $1"
    if grep -F 'not found' "$work/ldd" >&2; then fail "$1 loads a library that is not here"; fi
    awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' "$work/ldd"
}

# glibc opens libgcc_s by itself: for call stacks (base/stacks.c) and where a thread is cancelled.
gcc_s=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '$1 == "libgcc_s.so.1" { print $NF; exit }')
[ -n "$gcc_s" ] || fail "libgcc_s.so.1 is not here"
closure "$binary" >"$work/all"
# UCX, which the server opens for --kv-peer, where this machine has it (package libucx0): the part that speaks TCP and shared memory.
ucp=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '$1 == "libucp.so.0" { print $NF; exit }')
# ZeroMQ, which it opens for --kv-events-config, where this machine has it (package libzmq5).
zmq=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '$1 == "libzmq.so.5" { print $NF; exit }')
for library in "$gcc_s" $ucp $zmq "$@"; do
    [ -e "$library" ] || fail "there is no $library"
    echo "$library" >>"$work/all"
    closure "$library" >>"$work/all"
done
sort -u "$work/all" >"$work/libraries"
while read -r library; do
    source=$(readlink -f "$library")
    printf '%s\n%s\n' "$source" "${source#/usr}"
done <"$work/libraries" | xargs dpkg-query -S >"$work/owners" 2>/dev/null || true # of one of the two names nothing is known

strip -o "$work/spillway" "$binary"
chmod 0755 "$work/spillway"
add "$work/spillway" /usr/local/bin/spillway spillway
while read -r library; do
    name=$(basename "$library")
    case $library in
    /lib64/* | /usr/lib64/*)
        [ -e "$root/lib64" ] || { mkdir "$root/usr/lib64" && ln -s usr/lib64 "$root/lib64"; }
        add "$library" "/usr/lib64/$name"
        ;;
    /lib/ld-linux*) add "$library" "/usr/lib/$name" ;;
    *) add "$library" "/usr/lib/$(uname -m)-linux-gnu/$name" ;;
    esac
done <"$work/libraries"
# Certificates of public authorities, for stores and collectors that are named by https.
add "$bundle" "$bundle" ca-certificates

# The image's user. Any other number works too: no file here belongs to it.
cat >"$root/etc/passwd" <<'END'
root:x:0:0:root:/nonexistent:/nonexistent
spillway:x:10001:10001:Spillway:/nonexistent:/nonexistent
nobody:x:65534:65534:nobody:/nonexistent:/nonexistent
END
cat >"$root/etc/group" <<'END'
root:x:0:
spillway:x:10001:
nogroup:x:65534:
END
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
cp "$here/../LICENSE" "$root/usr/share/doc/spillway/LICENSE"
python3 "$here/sbom.py" "$root" "$work/files" >"$work/sbom"
cp "$work/sbom" "$root/usr/share/doc/spillway/SBOM.spdx.json"
find "$root" ! -type l ! -path "$root/tmp" -exec chmod go-w,a+rX {} +
echo "rootfs: $root, $(find "$root" -type f -printf '%s\n' | awk '{ n += $1 } END { printf "%d files, %.1f MB", NR, n / 1e6 }')"
