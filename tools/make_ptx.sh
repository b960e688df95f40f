#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes src/backend/cuda/kernels.ptx of kernels.cu, by clang 19 without a CUDA toolkit.
#     tools/make_ptx.sh            makes it anew
#     tools/make_ptx.sh --check    says whether it is what this would make
# PTX 6.0 for sm_70: what is older than a driver it takes, what is newer it refuses.
set -eu
cd -- "$(dirname -- "$0")/../src/backend/cuda"
case ${1:-} in
  "" | --check) ;;
  *) echo "make_ptx: unknown option $1; there is only --check" >&2; exit 2 ;;
esac
made=$(mktemp)
trap 'rm -f "$made"' EXIT
clang++-19 -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70 \
  --cuda-feature=+ptx60 -std=c++20 -O3 -fno-unroll-loops -S kernels.cu -o - |
  sed 's,[[:space:]]*//.*,,; /^$/d' >"$made"
if [ "${1:-}" = --check ]; then
  diff -u kernels.ptx "$made" || {
    echo "make_ptx: kernels.ptx is not of this kernels.cu; run tools/make_ptx.sh" >&2
    exit 1
  }
else
  cp "$made" kernels.ptx
fi
