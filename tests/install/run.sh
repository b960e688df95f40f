#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is missing is one error of CMake with the command that installs it. Then installs Headrace,
# shared with all there is and static the libraries alone, each into a fresh prefix, and builds and
# runs the C and C++ examples against it as a user's project of C++20 would.
# Usage: run.sh WORK_DIRECTORIES_PREFIX
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(realpath -m "$1")
mkdir -p "$(dirname "$work")"

# refused PACKAGE COMMAND...: the command is CMake without something that comes from a package.
refused() {
  local package=$1 log=$work-refused.log
  shift
  rm -rf "$work-refused"
  if "$@" -S "$root" -B "$work-refused" -G Ninja >"$log" 2>&1; then
    echo "configured without $package"
    exit 1
  fi
  if ! grep -q "^ *sudo apt install .*$package" "$log" || [ "$(grep -c 'CMake Error' "$log")" != 1 ]
  then
    echo "not one error that says how to install $package:"
    cat "$log"
    exit 1
  fi
}
refused libfmt-dev cmake -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
refused libhwloc-dev env PKG_CONFIG_LIBDIR=/nonexistent cmake
tools=$work-tools
rm -rf "$tools"
mkdir "$tools"
ln -s "$(command -v cmake)" "$(command -v ninja)" "$(command -v uname)" "$tools"
refused g++ env -u CXX -u CC PATH="$tools" cmake

# only_ours LIBRARY...: nothing but names of headrace:: and of the C interface is exported.
only_ours() {
  local ours='^(headrace_|_Z(T[ISVTC]|T[hv].*_|GV|Z)*N[KRO]*8headrace)' others
  others=$(nm -D --defined-only --format=posix "$@" | grep -v ':$' | cut -d' ' -f1 |
    grep -vE "$ours" || true)
  if [ -n "$others" ]; then
    echo "exported beside headrace:: and headrace_*, see cmake/exports.map:"
    c++filt <<<"$others"
    exit 1
  fi
}

launcher="env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache"  # as in the presets
for shared in ON OFF; do
  # Next to the other builds and with their flags, so that ccache has the library already.
  # The user's programs are compiled once: ccache has them at the second prefix of the same name.
  build=$work-shared-$shared prefix=$work-prefix user=$work-user
  rm -rf "$build" "$prefix" "$user"
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=$shared \
    -DHEADRACE_BENCHMARKS=$shared -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" >/dev/null
  cmake --build "$build" >/dev/null
  cmake --install "$build" --prefix "$prefix" >/dev/null
  # Where it is built, the program runs without the tree it was built in.
  if [ -e "$build/headrace-dsa-sim" ]; then "$prefix/bin/headrace-dsa-sim" --help >/dev/null; fi
  if [ $shared = ON ]; then only_ours "$prefix"/lib/libheadrace*.so; fi
  # Python and plug-ins load the library at run time, where there is little room for its TLS.
  if [ $shared = ON ]; then
    python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$prefix/lib/libheadrace.so"
  fi
  cmake -S "$root/tests/install" -B "$user" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
  cmake --build "$user" >/dev/null
  ctest --test-dir "$user" --output-on-failure --no-tests=error
  # And without CMake.
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  static=()
  if [ $shared = OFF ]; then static=(--static); fi
  read -ra flags < <(pkg-config --cflags --libs "${static[@]}" headrace)
  g++ -std=c++20 -O1 "$root/examples/copy.cpp" -o "$build/by-pkg-config" "${flags[@]}"
  LD_LIBRARY_PATH=$prefix/lib "$build/by-pkg-config" >/dev/null
done
