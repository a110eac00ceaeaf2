#!/usr/bin/env bash
# Proves the CUDA backend on a GPU and measures it: run.sh [--dry-run] [OUT.json]. Builds; compares the emulation's assumptions with the device;
# runs the kernel, model and engine tests of tests/unit/cuda on it; measures each kernel beside a copy and the device's peak, what paging costs
# attention, the host's time a step, and prompts and decoding of models with random weights made on the spot, with and without graphs.
# Each test, kernel family and model is a process of its own with a time limit: what fails is told, and the rest goes on. After
# LIMIT_S seconds (450, the build included) nothing new is begun. Everything goes to OUT.json (gpu.json), and as a table to the output.
# --dry-run: builds all and lists what would run. Exit status: 0 all passed, 1 something failed, 2 no GPU or no nvcc.
# Needs nvcc, cmake, ninja, python3 and the libraries of `./dev setup`, or tests/gpu/deps.sh's folder .gpu-deps where nothing can be
# installed. DEJA_GPU_ARCH: what to build for (90a-real), instead of what is there.
set -u
cd "$(dirname "$0")/../.."
root=$PWD dry=0 out=gpu.json limit=${LIMIT_S:-450}
SECONDS=0
for a in "$@"; do
    case $a in
        --dry-run) dry=1 ;;
        -h | --help) sed -n '2,/^set/s/^# //p' tests/gpu/run.sh; exit 0 ;;
        -*) echo "run.sh: there is no option $a; usage: run.sh [--dry-run] [OUT.json]" >&2; exit 2 ;;
        *) out=$a ;;
    esac
done
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
[ -n "$nvcc" ] || { echo "run.sh: there is no nvcc: install the CUDA toolkit" >&2; exit 2; }
# cuBLASLt is opened by name, and the toolkit's folder is not always among those the loader knows
for d in lib64 lib targets/x86_64-linux/lib; do
    cuda_lib=$(dirname "$(readlink -f "$nvcc")")/../$d
    ! ls "$cuda_lib"/libcublasLt.so.* >/dev/null 2>&1 || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda_lib
done
llhttp=${DEJA_CACHE:-$HOME/.cache/deja}/llhttp/usr/share deps=()
if [ -d .gpu-deps ]; then
    lib=$root/.gpu-deps/usr/lib/x86_64-linux-gnu
    export PKG_CONFIG=$root/.gpu-deps/pkg-config PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root/.gpu-deps
    export CPATH=$root/.gpu-deps/usr/include/x86_64-linux-gnu
    llhttp=$root/.gpu-deps/usr/share
    deps=("-DOPENSSL_ROOT_DIR=$root/.gpu-deps/usr" "-DCMAKE_LIBRARY_PATH=$lib" "-DCMAKE_BUILD_RPATH=$lib" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$lib")
fi
gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || [ $dry = 1 ] || { echo "run.sh: there is no GPU here (nvidia-smi lists none): nothing was run" >&2; exit 2; }

tests="layouts test_rows test_linear test_large test_calibration test_attention test_attention_wide test_sample test_moe test_step test_model test_engine_cuda test_ranks"
arch=${DEJA_GPU_ARCH:-}
[ -n "$arch" ] || [ -z "$gpu" ] || case ${gpu##*, } in 9.0) arch=90a-real ;; *) arch=${gpu##*, } arch=${arch/./}-real ;; esac
echo "building build/gpu${gpu:+ for $gpu}"
mkdir -p build
{ cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O3 -g1" -DDEJA_CUDA=ON -DDEJA_TESTS=OFF -DDEJA_GPU_TESTS=ON \
    -DCMAKE_CUDA_COMPILER="$nvcc" -DDEJA_LLHTTP_DIR="$llhttp" ${deps[@]+"${deps[@]}"} ${arch:+"-DCMAKE_CUDA_ARCHITECTURES=$arch"} &&
    cmake --build build/gpu -j "${JOBS:-$(nproc)}" --target gpu_tests; } >build/gpu.log 2>&1 ||
    { grep -E 'error|FAILED|undefined|CMake Error' build/gpu.log | head -n 20 >&2; echo "run.sh: the build failed; build/gpu.log has all of it" >&2; exit 1; }
for p in $tests kernels throughput step; do [ -x build/gpu/gpu/gpu_$p ] || { echo "run.sh: build/gpu/gpu/gpu_$p was not built" >&2; exit 1; }; done
echo "built in $SECONDS s"

# models are some GB: in memory where there is room for the largest
work=$(mktemp -d -p "$([ "$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)" -gt 40000 ] 2>/dev/null && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
trap 'rm -rf "$work"' EXIT
failed=0
# run KIND NAME SECONDS COMMAND...: its output goes to NAME.log and, line by line, to the report. False: it failed, or there was no time.
run() {
    local kind=$1 name=$2 most=$3 left=$((limit - SECONDS)) status=0 from=$SECONDS
    shift 3
    if [ $dry = 1 ]; then echo "would run $*"; return; fi
    if [ $left -lt 5 ]; then
        echo "$kind $name: no time left"
        status=-1 failed=1
    else
        timeout -k 5 $((left < most ? left : most)) "$@" >"$work/out" 2>"$work/err" || status=$?
        [ $status = 0 ] || { failed=1; echo "$kind $name: ended with status $status"; grep -hv '^ok' "$work/out" "$work/err" | tail -n 15; }
    fi
    python3 tests/gpu/report.py add "$work/report" "$kind" "$name" $status $((SECONDS - from)) "$work/out" "$work/err"
    rm -f "$work/out" "$work/err"
    return $((status != 0))
}
model() { # SIZE TYPE: $file is there
    rm -f "$work"/*.gguf
    file=$work/$1-$2.gguf
    run "making a model" "$1 $2" 100 python3 tests/gpu/make_model.py "$1" "$2" "$file"
}
for t in $tests; do run test $t 60 build/gpu/gpu/gpu_$t; done
families=$(build/gpu/gpu/gpu_kernels --list) || failed=1
for f in $families; do run kernel $f 30 build/gpu/gpu/gpu_kernels $f; done
for size in 135m 1b moe-quarter 8b; do
    for type in q4_0 bf16; do
        [ $size$type != moe-quarterbf16 ] || continue
        model $size $type || continue
        run model "$size $type" 90 build/gpu/gpu/gpu_throughput "$file" cuda 512 128 1 64
        [ $size = 135m ] || [ $size = 1b ] || continue
        run model "$size $type, no graphs" 60 env DEJA_GPU_GRAPHS=no build/gpu/gpu/gpu_throughput "$file" cuda 512 128 1 64
        [ $type = q4_0 ] || continue
        for seqs in 1 64; do run step "$size $type $seqs" 40 build/gpu/gpu/gpu_step "$file" $seqs; done
        [ $size = 1b ] || continue
        run model "$size $type, attention by wgmma" 60 env DEJA_GPU_ATTENTION=wgmma build/gpu/gpu/gpu_throughput "$file" cuda 512 128 1 64
    done
done
if [ $dry = 1 ]; then
    python3 tests/gpu/make_model.py tiny bf16 "$work/tiny.gguf" && python3 tests/gpu/report.py try && echo "dry run: all is built, nothing was run on a GPU"
    exit $?
fi
python3 tests/gpu/report.py write "$work/report" "$out" "$gpu" "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" \
    "$(git -C "$root" rev-parse --short HEAD 2>/dev/null)" || failed=1
echo "written: $out, $SECONDS s"
exit $failed
