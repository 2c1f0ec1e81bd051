# install: names what is missing to build, run and check Spillway, and installs exactly that through apt-get.
# Sourced by ./serve and ./check:  spillway_install build|check|aarch64|balancer|web|services|slurm
#
# Each row: what shows that it is there | the Debian and Ubuntu package. A package with "/" names alternatives: the first known to apt.

spillway_needs_build='
cmd:cmake|cmake
cmd:ninja|ninja-build
cmd:make|make
cmd:pkg-config|pkg-config
cmd:cc|gcc libc6-dev
pc:jansson|libjansson-dev
pc:libevent|libevent-dev
pc:openssl|libssl-dev
pc:libpcre2-8|libpcre2-dev
pc:libutf8proc|libutf8proc-dev
pc:libxxhash|libxxhash-dev
pc:liburing|liburing-dev
pc:libcurl|libcurl4-openssl-dev
pc:hiredis|libhiredis-dev
pc:ucx|libucx-dev
file:/usr/include/llhttp.h,/usr/share/include/llhttp/llhttp.h|libllhttp-dev/node-llhttp
cmd:ccache|ccache
'
spillway_needs_check='
cmd:git|git
cmd:curl|curl
cmd:redis-server|redis-server
cmd:ip|iproute2
cmd:strip|binutils
cmd:openssl|openssl
file:/etc/ssl/certs/ca-certificates.crt|ca-certificates
file:/usr/lib/x86_64-linux-gnu/libzmq.so.5,/usr/lib/aarch64-linux-gnu/libzmq.so.5|libzmq5
cmd:python3|python3
venv:|python3-venv
pc:cmocka|libcmocka-dev
cmd:g++|g++
cmd:clang|clang
cmd:clang-format|clang-format
cmd:ld.lld|lld
cmd:llvm-symbolizer|llvm
fuzzer:|libclang-rt-dev/libclang-rt-14-dev
'

# To build for 64-bit ARM and run that here (cmake/aarch64.cmake); the libraries are fetched by tools/aarch64_root.
spillway_needs_aarch64='
cmd:aarch64-linux-gnu-gcc|gcc-aarch64-linux-gnu
cmd:qemu-aarch64|qemu-user
'

# To replace replicas behind a load balancer (tests/e2e/rolling.py).
spillway_needs_balancer='
cmd:haproxy|haproxy
'

# For the playground in a browser (tests/web).
spillway_needs_web='
cmd:chromium|chromium
file:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf|fonts-dejavu-core
'

# For the unit of deploy/systemd (tests/deploy/systemd.py).
spillway_needs_services='
cmd:systemd-analyze|systemd
'

# For the files of deploy/slurm (tests/deploy/slurm.py), which runs daemons of its own.
spillway_needs_slurm='
cmd:sbatch|slurm-client
cmd:slurmctld|slurmctld
cmd:slurmd|slurmd
cmd:munged|munge
cmd:openssl|openssl
'

spillway_has() {
    case $1 in
    cmd:*) PATH=$PATH:/usr/sbin:/sbin command -v "${1#cmd:}" >/dev/null 2>&1 ;;
    pc:*) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "${1#pc:}" ;;
    file:*)
        for spillway_file in $(echo "${1#file:}" | tr , ' '); do
            [ -e "$spillway_file" ] && return 0
        done
        return 1
        ;;
    venv:) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    fuzzer:) ls "$(clang -print-resource-dir 2>/dev/null)"/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 ;;
    esac
}

# Prints the packages that are missing, one per line.
spillway_missing() {
    spillway_rows=$spillway_needs_build
    [ "$1" = check ] && spillway_rows="$spillway_rows$spillway_needs_check"
    [ "$1" = aarch64 ] && spillway_rows=$spillway_needs_aarch64
    [ "$1" = services ] && spillway_rows=$spillway_needs_services
    [ "$1" = slurm ] && spillway_rows=$spillway_needs_slurm
    [ "$1" = web ] && spillway_rows=$spillway_needs_web
    [ "$1" = balancer ] && spillway_rows=$spillway_needs_balancer
    echo "$spillway_rows" | while IFS='|' read -r spillway_what spillway_package; do
        [ -n "$spillway_what" ] || continue
        spillway_has "$spillway_what" || echo "$spillway_package"
    done
}

spillway_install() {
    spillway_list=$(spillway_missing "$1")
    [ -n "$spillway_list" ] || return 0
    spillway_flat=$(echo "$spillway_list" | tr '\n' ' ')
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "spillway: missing: $spillway_flat(Debian's names), and there is no apt-get here: install them by this system's own means" >&2
        return 1
    fi
    spillway_root=
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "spillway: missing: $spillway_flat; as root run: apt-get install -y $spillway_flat" >&2
            return 1
        fi
        # Without a terminal nobody can type a password.
        if [ -t 0 ]; then spillway_root=sudo; else spillway_root='sudo -n'; fi
    fi
    echo "spillway: installing what is missing: $spillway_flat" >&2
    $spillway_root apt-get update -qq >&2 || echo "spillway: apt-get update failed, trying with the lists at hand" >&2
    spillway_packages=
    for spillway_package in $spillway_list; do
        spillway_pick=
        for spillway_name in $(echo "$spillway_package" | tr / ' '); do
            [ -n "$spillway_pick" ] && break
            apt-cache show "$spillway_name" >/dev/null 2>&1 && spillway_pick=$spillway_name
        done
        spillway_packages="$spillway_packages ${spillway_pick:-${spillway_package%%/*}}"
    done
    # shellcheck disable=SC2086 # a list of words
    if ! $spillway_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends $spillway_packages >&2; then
        echo "spillway: apt-get could not install:$spillway_packages" >&2
        return 1
    fi
    spillway_list=$(spillway_missing "$1" | tr '\n' ' ')
    [ -z "$spillway_list" ] && return 0
    echo "spillway: still missing after the installation: $spillway_list" >&2
    return 1
}

# WITH_CUDA of a build for this machine: kernels take minutes to compile, so only where there is an NVIDIA driver to run them.
spillway_cuda() {
    if [ -e /dev/nvidiactl ] || [ -e /proc/driver/nvidia ]; then echo AUTO; else echo OFF; fi
}
