#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs Headrace into .venv, in steps that the Makefile orders and repeats when needed.
# Usage: install.sh STEP
#   venv              the virtual environment
#   requirements      the packages of python/requirements.txt
#   environment FILE  writes the compiler and the optional libraries to FILE, if they changed
#   package           the packages headrace and headrace-bench
#   programs          the same, with the programs of `headrace bench` and headrace-dsa-sim
set -euo pipefail
cd -P -- "$(dirname -- "$0")/.."
python=.venv/bin/python
log=build/logs/install.log

die() { echo "install: $*" >&2; exit 1; }
[ -w . ] || die "$PWD is read-only, and Headrace is built in its clone; clone it elsewhere"
for folder in build build/logs .venv; do
  [ ! -e "$folder" ] || [ -w "$folder" ] ||
    die "$folder belongs to another user; remove it as that user, or clone elsewhere"
done
mkdir -p build/logs

# One installation at a time, because all of them use build/python.
exec 9>build/logs/install.lock
if ! flock -n 9; then
  echo "setup: waiting for another installation in $PWD"
  flock -w 3600 9 || die "it does not end; end it, and run this again"
fi

# Runs pip; a failure is one line that says what to do, after the end of what pip said.
pip() {
  "$python" -m pip --disable-pip-version-check install -q "$@" >"$log" 2>&1 && return
  if grep -q 'Operation cancelled by user' "$log"; then
    echo "install: interrupted; run it again to go on" >&2
    exit 130
  fi
  if grep -qE 'NewConnectionError|name resolution|timed out' "$log"; then
    die "PyPI does not answer, which is needed once; run it again when online"
  fi
  tail -n 40 "$log" >&2
  die "pip failed, see $log"
}

new_enough() {
  [ "$("$1" -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null)" = True ]
}

# Makes the environment, also again if it is incomplete, its Python is gone or too old, or the clone
# was moved.
venv() {
  local base=${PYTHON:-/usr/bin/python3}
  if here && new_enough "$python" && "$python" -m pip --version >/dev/null 2>&1; then return; fi
  new_enough "$base" ||
    die "Headrace needs Python 3.11, which $base is not; name another by PYTHON="
  "$base" -m venv --clear .venv || die "no virtual environment; install the package python3-venv"
}

# Succeeds unless pyvenv.cfg names another place than this clone.
here() { ! grep -qs '^command = ' .venv/pyvenv.cfg || grep -qF " $PWD/.venv" .venv/pyvenv.cfg; }

requirements() {
  venv
  echo "setup: installing Python packages into .venv"
  pip -r python/requirements.txt
}

environment() {
  local file=$1 header now
  command -v cmake >/dev/null || die "no cmake; install the packages that README names"
  "$python" -c '' 2>/dev/null || die "the Python of .venv is gone; rm -rf .venv, then run it again"
  here || die "this clone was moved; rm -rf .venv build, then run it again"
  command -v "${CXX:-c++}" >/dev/null || die "no compiler ${CXX:-c++}; unset CXX, or install it"
  now=$("${CXX:-c++}" -v 2>&1 | tail -n 1)$'\n'$(cmake --version | head -n 1)
  now+=$'\n'$("$python" -VV)$'\n'$(uname -m)
  for header in CLI/CLI.hpp fuse3/fuse.h hiredis/hiredis.h rocksdb/cache.h tbb/tbb.h; do
    if [ -e "/usr/include/$header" ]; then now+=$'\n'"with $header"; fi
  done
  [ "$now" = "$(cat "$file" 2>/dev/null)" ] || echo "$now" >"$file"
}

# Never takes away programs that are there.
package() {
  local wheels programs=()
  if [ "$1" = programs ] || [ -e .venv/bin/headrace-bench-cache ]; then
    programs=(--config-settings=build.targets="headrace_bench_core;headrace_programs"
      --config-settings=install.components="bench;programs")
  fi
  mapfile -t wheels < <(tools/wheel.sh --matching)
  if [ ${#programs[@]} = 0 ] && [ ${#wheels[@]} = 2 ]; then
    echo "setup: installing ${wheels[*]}"
    pip --no-deps --force-reinstall "${wheels[@]}"
    return
  fi
  echo "setup: building headrace"
  # CMake searches again only for libraries that it did not find, so its cache goes.
  tools/fresh.sh build/python
  # The folder was built before ccache was installed. ccache would hash its old precompiled headers
  # as inputs, and every lookup would miss.
  if command -v ccache >/dev/null &&
    grep -qs '^CCACHE:FILEPATH=CCACHE-NOTFOUND' build/python/CMakeCache.txt; then
    rm -rf build/python
  fi
  rm -f build/python/CMakeCache.txt
  CMAKE_BUILD_PARALLEL_LEVEL=$(tools/jobs.sh)
  export CMAKE_BUILD_PARALLEL_LEVEL
  pip --no-build-isolation --no-deps .
  pip --no-build-isolation --no-deps "${programs[@]}" ./benchmarks
}

case ${1-} in
  venv) venv ;;
  requirements) requirements ;;
  environment) environment "$2" ;;
  package | programs) package "$1" ;;
  *) sed -n '4,9p' "$0" >&2; exit 2 ;;
esac
