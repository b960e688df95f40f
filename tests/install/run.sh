#!/usr/bin/env bash
# Installs Headrace, shared and static, each into a fresh prefix, and builds and runs the C
# and C++ examples against it as a user's project would.
# Usage: run.sh WORK_DIRECTORIES_PREFIX
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(realpath -m "$1")
for shared in ON OFF; do
  # Beside the other builds and with their flags, so that ccache has the library already.
  build=$work-shared-$shared prefix=$build/prefix user=$build/user
  rm -rf "$prefix" "$user"
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=$shared \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    >/dev/null
  cmake --build "$build" >/dev/null
  cmake --install "$build" --prefix "$prefix" >/dev/null
  # Where it is built, the program runs without the tree it was built in.
  if [ -e "$build/headrace-dsa-sim" ]; then "$prefix/bin/headrace-dsa-sim" --help >/dev/null; fi
  # Python and plug-ins load the library at run time, where there is little room for its TLS.
  if [ $shared = ON ]; then
    python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$prefix/lib/libheadrace.so"
  fi
  cmake -S "$root/tests/install" -B "$user" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "$user" >/dev/null
  ctest --test-dir "$user" --output-on-failure --no-tests=error
done
