#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs Headrace into .venv, in steps that the Makefile orders and repeats when needed.
# Usage: install.sh STEP
#   venv              the virtual environment
#   requirements      the packages of python/requirements.txt
#   environment FILE  writes the compiler and the optional libraries to FILE, if they changed
#   package           the Python extension, the package and the command
#   programs          the same, with the programs of `headrace bench` and headrace-dsa-sim
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
log=build/logs/install.log

die() { echo "install: $*" >&2; exit 1; }
[ -w . ] || die "$PWD is read-only, and Headrace is built in its clone; clone it elsewhere"
mkdir -p build/logs

# Runs pip; a failure is one line that says what to do, after the end of what pip said.
pip() {
  "$python" -m pip --disable-pip-version-check install -q "$@" >"$log" 2>&1 && return
  tail -n 40 "$log" >&2
  if grep -qE 'NewConnectionError|name resolution|No matching distribution|timed out' "$log"; then
    die "PyPI does not answer, which is needed once; run it again when online"
  fi
  die "pip failed, see $log"
}

# One that was only half made, or by a Python that is gone, is made again.
venv() {
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    "${PYTHON:-/usr/bin/python3}" -m venv --clear .venv ||
      die "no virtual environment; install the package python3-venv"
  fi
}

requirements() {
  echo "setup: installing Python packages into .venv"
  pip -r python/requirements.txt
}

environment() {
  local file=$1 header now
  command -v cmake >/dev/null || die "no cmake; install the packages that README names"
  "$python" -c '' 2>/dev/null || die "the Python of .venv is gone; rm -rf .venv, then run it again"
  now=$("${CXX:-c++}" -v 2>&1 | tail -n 1)$'\n'$(cmake --version | head -n 1)
  now+=$'\n'$("$python" -VV)$'\n'$(uname -m)
  for header in CLI/CLI.hpp fuse3/fuse.h hiredis/hiredis.h rocksdb/cache.h tbb/tbb.h; do
    if [ -e "/usr/include/$header" ]; then now+=$'\n'"with $header"; fi
  done
  [ "$now" = "$(cat "$file" 2>/dev/null)" ] || echo "$now" >"$file"
}

# Never takes away programs that are there.
package() {
  local wheel programs=OFF
  if [ "$1" = programs ] || [ -e .venv/bin/headrace-bench-cache ]; then programs=ON; fi
  wheel=$(tools/wheel.sh --matching)
  if [ $programs = OFF ] && [ -n "$wheel" ]; then
    echo "setup: installing $wheel"
    pip --no-deps --force-reinstall "$wheel"
    return
  fi
  echo "setup: building headrace"
  # CMake searches again only for libraries that it did not find, so its cache goes.
  tools/fresh.sh build/python
  rm -f build/python/CMakeCache.txt
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(tools/jobs.sh)} \
    pip --no-build-isolation --no-deps \
    "--config-settings=cmake.define.HEADRACE_PROGRAMS=$programs" .
}

case ${1-} in
  venv) venv ;;
  requirements) requirements ;;
  environment) environment "$2" ;;
  package | programs) package "$1" ;;
  *) sed -n '4,9p' "$0" >&2; exit 2 ;;
esac
