#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Removes build folders whose compiler is gone or has another version now, or that were made in
# another place: CMake would go on with objects of both, or refuse.
# Usage: fresh.sh FOLDER...
set -euo pipefail

for folder; do
  made=$(sed -n 's/^CMAKE_CACHEFILE_DIR:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
  if [ -n "$made" ] && [ "$(realpath -m "$made")" != "$(realpath "$folder")" ]; then
    echo "note: $folder was made in $made; building anew"
    rm -rf "$folder"
  fi
  facts=$(ls "$folder"/CMakeFiles/*/CMakeCXXCompiler.cmake 2>/dev/null | tail -n 1 || true)
  [ -n "$facts" ] || continue
  compiler=$(sed -n 's/^set(CMAKE_CXX_COMPILER "\(.*\)")$/\1/p' "$facts")
  version=$(sed -n 's/^set(CMAKE_CXX_COMPILER_VERSION "\(.*\)")$/\1/p' "$facts")
  now=$("$compiler" -dumpfullversion 2>/dev/null || "$compiler" -dumpversion 2>/dev/null || true)
  if [ "$now" != "$version" ]; then
    echo "note: $folder is of $compiler $version, which is ${now:-gone} now; building anew"
    rm -rf "$folder"
  fi
done
