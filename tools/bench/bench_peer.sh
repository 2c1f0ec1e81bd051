#!/bin/bash
# bench_peer.sh: Spillway beside llama.cpp on the same machine, the same weights and the same work, by turns; prints the ratios.
#
#   tools/bench/bench_peer.sh [--work DIR] [--peer DIR] [--shape tiny|llama-3.2-1b|qwen3-8b] [--peer-format bf16|q8_0|q4_0]
#                       [options of tools/bench/bench_peer.py, such as --rows prefill:512,decode:1,chat1 --rounds 5 --json FILE]
#
# --work DIR   where llama.cpp, its models and a Python environment are kept (build/peer)
# --peer DIR   a folder with llama-server, llama-bench, llama-batched-bench and llama-quantize; without it llama.cpp is built from the
#              source that the package llama-cpp-python carries on PyPI, with cmake, ninja and -march=native (15 minutes on 2 cores)
# Spillway is taken from build/release, built by: cmake --preset release && ninja -C build/release spillway bench_serve bench_engine
set -euo pipefail
cd "$(dirname "$0")/../.."

work=build/peer peer="" shape=tiny format=bf16 rest=()
while [ $# -gt 0 ]; do
    case $1 in
    --work) work=$2 && shift 2 ;;
    --peer) peer=$2 && shift 2 ;;
    --shape) shape=$2 && shift 2 ;;
    --peer-format) format=$2 && shift 2 ;;
    -h | --help)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        python3 tools/bench/bench_peer.py --help
        exit 0
        ;;
    *) rest+=("$1") && shift ;;
    esac
done
mkdir -p "$work"

if [ -z "$peer" ]; then
    peer=$work/llama/bin
    if [ ! -x "$peer/llama-server" ] || [ ! -x "$peer/llama-batched-bench" ]; then
        if ! ls "$work"/llama_cpp_python-*/vendor/llama.cpp/CMakeLists.txt >/dev/null 2>&1; then
            echo "bench_peer: fetching the source of llama-cpp-python"
            pip download --quiet --no-deps --no-binary :all: --dest "$work" llama-cpp-python
            tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work"
        fi
        echo "bench_peer: building llama.cpp in $work/llama"
        cmake -S "$work"/llama_cpp_python-*/vendor/llama.cpp -B "$work/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
            -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF >"$work/llama.log"
        ninja -C "$work/llama" llama-server llama-bench llama-batched-bench llama-quantize >>"$work/llama.log"
    fi
fi

model=$work/$shape
if [ ! -f "$model/model.gguf" ]; then
    [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet numpy gguf
    "$work/venv/bin/python" tools/make_random_model.py --shape "$shape" --out "$model" --gguf
fi
gguf=$model/model.gguf
if [ "$format" != bf16 ]; then
    gguf=$model/model-$format.gguf
    [ -f "$gguf" ] || "$peer/llama-quantize" "$model/model.gguf" "$gguf" "$format" >"$work/quantize.log" 2>&1
fi

echo "bench_peer: $(git rev-parse --short HEAD 2>/dev/null || echo no commit), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo "bench_peer: $("$peer/llama-server" --version 2>&1 | grep -m1 version || true)"
exec python3 tools/bench/bench_peer.py --peer "$peer" --model "$model" --gguf "$gguf" --label "$shape, peer $format" "${rest[@]}"
