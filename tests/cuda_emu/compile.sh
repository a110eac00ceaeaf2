#!/usr/bin/env bash
# Every kernel compiles with nvcc for the supported architectures and the program links, where nvcc is there (what the kernels compute is
# checked on the CPU by tests/unit/cuda). Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -z "$nvcc" ]; then
    echo "skip the CUDA kernels compile: no nvcc here"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if cmake --preset cuda -DCMAKE_CUDA_COMPILER="$nvcc" -DDEJA_LLHTTP_DIR="${DEJA_CACHE:-$HOME/.cache/deja}/llhttp/usr/share" >build/cuda.log 2>&1 &&
    cmake --build build/cuda -j 2 --target deja >>build/cuda.log 2>&1; then
    echo "ok   the CUDA kernels compile"
    if tests/gpu/run.sh --dry-run >>build/cuda.log 2>&1; then
        echo "ok   what runs on a GPU builds (tests/gpu/run.sh --dry-run)"
        echo "2 passed, 0 failed, 0 skipped"
    else
        tail -n 30 build/cuda.log
        echo "FAIL what runs on a GPU builds (tests/gpu/run.sh --dry-run)"
        echo "1 passed, 1 failed, 0 skipped"
        exit 1
    fi
else
    tail -n 30 build/cuda.log
    echo "FAIL the CUDA kernels compile"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
