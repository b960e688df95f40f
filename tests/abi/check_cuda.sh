#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles tests/abi/cuda_abi.cpp against NVIDIA's cuda.h, which comes from PyPI once and is kept in
# the folder DIR. Needs no CUDA.
#     tests/abi/check_cuda.sh DIR
set -eu
dir=${1:?usage: tests/abi/check_cuda.sh DIR}
here=$(dirname "$0")
python=$here/../../.venv/bin/python
[ -x "$python" ] || python=python3

header() { find "$dir" -name cuda.h -path '*/include/*' | head -n 1; }
mkdir -p "$dir"
# The pinned requirements are kept beside what they gave: another version is fetched anew.
if ! cmp -s "$here/requirements.txt" "$dir/requirements.txt" || [ -z "$(header)" ]; then
  rm -rf "$dir/wheels" "$dir/nvidia"
  # The header is the same for every machine; the hash is that of one wheel.
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux2014_x86_64 --require-hashes -r "$here/requirements.txt" \
    -d "$dir/wheels" || {
    echo "check_cuda: cuda.h cannot be fetched from PyPI; run this step again with a network" >&2
    exit 1
  }
  "$python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' \
    "$dir"/wheels/*.whl "$dir"
  rm -r "$dir/wheels"
  cp "$here/requirements.txt" "$dir/requirements.txt"
fi
"${CXX:-c++}" -std=c++23 -fsyntax-only -Wall -Werror -I "$here/../../src" \
  -isystem "$(dirname "$(header)")" "$here/cuda_abi.cpp"
echo "cuda.h agrees with src/backend/cuda/driver_api.h"
