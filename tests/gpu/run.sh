#!/usr/bin/env bash
# Proves the CUDA backend on a GPU and measures it: run.sh [--dry-run] [OUT.json]. Builds; compares the emulation's assumptions with the device;
# runs the kernel, model and engine tests of tests/unit/cuda on it; measures bytes a second of each kernel beside a copy, and prompt and
# decode speed of models with random weights made on the spot. About 8 minutes where the build is there. Everything goes to OUT.json
# (gpu.json). --dry-run: builds all and lists what would run. Exit status: 0 all passed, 1 something failed, 2 no GPU or no nvcc.
set -u
cd "$(dirname "$0")/../.."
root=$PWD dry=0 out=gpu.json
for a in "$@"; do case $a in --dry-run) dry=1 ;; -*) echo "usage: run.sh [--dry-run] [OUT.json]" >&2; exit 2 ;; *) out=$a ;; esac; done
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
[ -n "$nvcc" ] || { echo "run.sh: there is no nvcc: install the CUDA toolkit" >&2; exit 2; }
gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || [ $dry = 1 ] || { echo "run.sh: there is no GPU here (nvidia-smi lists none): nothing was run" >&2; exit 2; }

programs="layouts test_rows test_linear test_large test_calibration test_attention test_attention_wide test_sample test_moe test_model test_engine_cuda test_ranks kernels throughput"
arch=()
[ -z "$gpu" ] || case ${gpu##*, } in 9.0) arch=(-DCMAKE_CUDA_ARCHITECTURES=90a-real) ;; *) c=${gpu##*, }; arch=("-DCMAKE_CUDA_ARCHITECTURES=${c/./}-real") ;; esac
echo "building build/gpu${gpu:+ for $gpu}"
mkdir -p build
{ cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O3 -g1" -DDEJA_CUDA=ON -DDEJA_TESTS=OFF -DDEJA_GPU_TESTS=ON \
    -DCMAKE_CUDA_COMPILER="$nvcc" -DDEJA_LLHTTP_DIR="${DEJA_CACHE:-$HOME/.cache/deja}/llhttp/usr/share" ${arch[@]+"${arch[@]}"} &&
    cmake --build build/gpu -j "${JOBS:-$(nproc)}" --target gpu_tests; } >build/gpu.log 2>&1 ||
    { grep -E 'error|FAILED|undefined|CMake Error' build/gpu.log | head -n 20 >&2; echo "run.sh: the build failed; build/gpu.log has all of it" >&2; exit 1; }
for p in $programs; do [ -x build/gpu/gpu/gpu_$p ] || { echo "run.sh: build/gpu/gpu/gpu_$p was not built" >&2; exit 1; }; done

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failed=0 tests='' models=''
json_lines() { paste -sd, "$1" 2>/dev/null; }
run_test() { # name
    local log=$work/$1.log status=0 last
    if [ $dry = 1 ]; then echo "would run gpu_$1"; return; fi
    timeout 120 build/gpu/gpu/gpu_$1 >"$log" 2>&1 || status=$?
    last=$(tail -n 1 "$log")
    echo "$1: $last"
    [ $status = 0 ] || { failed=1; grep -v '^ok' "$log" | head -n 20; }
    tests+="${tests:+,}{\"name\":\"$1\",\"status\":$status,\"last_line\":\"${last//[\"\\]/}\"}"
}
run_model() { # size type sequences prompt said
    local file=$work/$1-$2.gguf line
    if [ $dry = 1 ]; then echo "would run gpu_throughput on random $1 $2: $3 sequences, $4 + $5 tokens"; return; fi
    [ -f "$file" ] || { rm -f "$work"/*.gguf; python3 tests/gpu/make_model.py "$1" "$2" "$file" || { failed=1; return; }; }
    if line=$(timeout 100 build/gpu/gpu/gpu_throughput "$file" cuda "$3" "$4" "$5" 2>>"$work/throughput.log"); then :; else failed=1; tail -n 3 "$work/throughput.log"; fi
    [ -z "$line" ] || { echo "$line"; models+="${models:+,}$line"; }
}
for t in layouts test_rows test_linear test_large test_calibration test_attention test_attention_wide test_sample test_moe test_model test_engine_cuda test_ranks; do run_test $t; done
if [ $dry = 1 ]; then echo "would run gpu_kernels"; else timeout 120 build/gpu/gpu/gpu_kernels >"$work/kernels" 2>"$work/kernels.log" || { failed=1; cat "$work/kernels.log"; }; fi
for size in 135m 1b moe-quarter 8b; do
    for type in q8_0 q4_0; do
        [ "$size$type" != 135mq4_0 ] || continue
        run_model $size $type 1 512 128
        run_model $size $type 64 256 128
    done
done
if [ $dry = 1 ]; then
    python3 tests/gpu/make_model.py tiny q4_0 "$work/tiny.gguf" && echo "dry run: all is built, nothing was run on a GPU"
    exit $?
fi
printf '{"gpu":"%s","driver":"%s","commit":"%s","tests":[%s],"kernels":[%s],"models":[%s]}\n' "$gpu" \
    "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null)" \
    "$tests" "$(json_lines "$work/kernels")" "$models" >"$out"
echo "written: $out"
exit $failed
