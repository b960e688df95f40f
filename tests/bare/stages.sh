#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The stages of run.sh, in a clone of the tree inside the bare root.
# Usage: stages.sh STAGE
#   demo     make demo, twice
#   package  make install after optional packages came, the tests that failed without a rebuild, and
#            the README's Python example
#   unit     the C++ tests of the core by this system's compiler
#   wheel    make wheel; the wheel is left in dist/
#   alone    that wheel where python3-venv alone is installed: the README's example and the demo
set -euo pipefail
cd -- "$(dirname -- "$0")/../.."
export DEBIAN_FRONTEND=noninteractive
# As make has them, so that the objects of its builds serve.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CXX=/usr/bin/c++
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

install() {
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# timed WORDS COMMAND...: and a note of the time it took.
timed() {
  local TIMEFORMAT="note: bare $release: $1 %0R s, %0U + %0S s of CPU"
  time "${@:2}"
}

# The first Python block of the README prints True.
example() {
  awk '/^```python$/ {on = 1; next} /^```$/ && on {exit} on' README.md >/tmp/example.py
  [ "$("$1" /tmp/example.py)" = True ]
}

demo() {
  [ -z "${CCACHE_DIR-}" ] || install ccache
  timed "make demo" make demo DEMO_OPTIONS="--scale 0.1"
  test -s out/report.html
  timed "make demo again" make demo DEMO_OPTIONS="--scale 0.1"
}

package() {
  install libfuse3-dev libcli11-dev libhiredis-dev redis-server
  timed "make install" make install
  .venv/bin/python -m pytest -q -p no:xdist tests/python/tools/test_packages.py \
    tests/python/bench/test_bench_kv.py tests/python/bench/test_bench_spark.py \
    -k "emulator or measured or server or java or without_spark"
  example .venv/bin/python
}

unit() {
  local folders=(core topology topology_discovery place cache move backend_storage kvcache)
  timed "make install" make install
  install ccache libgtest-dev librapidcheck-dev
  cmake --preset release -DHEADRACE_BENCHES=OFF >/dev/null
  timed "build of the tests" cmake --build --preset release --target \
    "${folders[@]/%/_test}" conformance_test
  timed "tests" ctest --preset release -j "$(nproc)" --no-tests=error \
    -R "^($(IFS='|' && echo "${folders[*]}")|conformance)_test\."
}

wheel() {
  timed "make wheel" make wheel
}

alone() {
  local environment=/root/environment
  install python3-venv
  python3 -m venv $environment
  # headrace from here, all else from the index.
  $environment/bin/pip install -q --only-binary headrace --find-links dist 'headrace[demo]'
  (cd /root && timed "headrace demo" $environment/bin/headrace demo --scale 0.1)
  example $environment/bin/python
}

"$1"
