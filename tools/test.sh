#!/usr/bin/env bash
# Runs every test of the project from nothing. Each step prints one line and the notes of its log;
# the log of a step that fails follows it. Exit status 1 if any failed.
# Usage: test.sh [STEP...]    all steps, or only those named (clang-tidy runs only when named)
set -uo pipefail
cd "$(dirname "$0")/.."

logs=build/logs
mkdir -p "$logs"
passed=0 failed=0

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS
  shift
  if [ ${#chosen[@]} -gt 0 ] && [[ " ${chosen[*]} " != *" $name "* ]]; then return; fi
  if "$@" >"$logs/$name.log" 2>&1; then
    passed=$((passed + 1))
    printf 'ok      %-10s %4d s\n' "$name" $((SECONDS - start))
    grep '^note: ' "$logs/$name.log" || true
  else
    failed=$((failed + 1))
    printf 'FAILED  %-10s %4d s\n' "$name" $((SECONDS - start))
    tail -n 120 "$logs/$name.log"
    echo "(whole log: $logs/$name.log)"
  fi
}

packages() {
  tools/setup.sh tools/packages.txt tools/packages-test.txt
}

format() {
  git ls-files -z -- '*.cpp' '*.h' | xargs -0 clang-format-19 --dry-run -Werror
}

# cpp PRESET: build and run the C++ tests.
cpp() {
  cmake --preset "$1" >/dev/null && cmake --build --preset "$1" && ctest --preset "$1" -j "$jobs"
}

# With a million random descriptors through the DSA backend, and as many through the device alone.
# hwloc's plugin for PCI, which comes with Open MPI, leaks when it is unloaded.
asan() {
  local -x HEADRACE_DSA_DESCRIPTORS=1000000 HWLOC_PLUGINS_BLACKLIST=hwloc_pci.so
  cpp asan
}

# Every public header compiles alone.
headers() {
  cmake --build --preset release --target all_verify_interface_header_sets
}

# The library and headrace-dsa-sim as clang 19 sees them: its warnings and the thread-safety
# analysis. Not a unity build, so that each file is compiled on its own once.
clang() {
  cmake --preset tidy >/dev/null && cmake --build --preset tidy --target headrace headrace-dsa-sim
}

# Minutes, so not part of the whole.
clang_tidy() {
  cmake --preset tidy >/dev/null
  git ls-files -z -- 'src/*.cpp' | grep -zvE '_(test|bench|fuzz)\.cpp$' |
    xargs -0 -n 2 -P "$jobs" clang-tidy-19 -p build/tidy --quiet
}

python_tests() {
  .venv/bin/python -m pytest -q tests/python
}

jobs=$(nproc)
chosen=("$@")
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

step packages packages
step house python3 tools/tidy.py
step format format
step release cpp release
step headers headers
step asan asan
step tsan cpp tsan
step clang clang
if [ ${#chosen[@]} -gt 0 ]; then step clang-tidy clang_tidy; fi
step install tests/install/run.sh build/install
step package make install
step types .venv/bin/python -m mypy --strict python/headrace
step python python_tests
step guest tests/guest/run_tests.sh build/release

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
