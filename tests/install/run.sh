#!/usr/bin/env bash
# Installs Headrace, shared and static, each into a fresh prefix, and builds and runs the C++
# examples against it as a user's project would.
# Usage: run.sh WORK_DIRECTORY
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(realpath -m "$1")
for shared in ON OFF; do
  build=$work/build-shared-$shared prefix=$work/prefix-shared-$shared user=$work/user-shared-$shared
  rm -rf "$prefix" "$user"
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=$shared \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
  cmake --build "$build" >/dev/null
  cmake --install "$build" --prefix "$prefix" >/dev/null
  cmake -S "$root/tests/install" -B "$user" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "$user" >/dev/null
  ctest --test-dir "$user" --output-on-failure --no-tests=error
done
