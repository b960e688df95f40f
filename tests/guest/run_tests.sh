#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots one guest of each topology and runs the parts of the tests that are about it. A line for
# each part and each guest; what one that fails said follows it. Status 0 when all passed.
# Usage: run_tests.sh BUILD_DIR [--all] [TOPOLOGY...]   after building the target guest_test there
# --all: every part, test and point, and the topology plain. Otherwise those that `make test` has.
# HEADRACE_GUEST_RELEASE is the Debian release whose kernel boots (see prepare.sh); cxl and slow are
# for the default's and later ones.
set -euo pipefail
usage="usage: run_tests.sh BUILD_DIR [--all] [TOPOLOGY...]"
(($# >= 1)) || { echo "run_tests.sh: $usage" >&2; exit 2; }
here=$(dirname "$(realpath "$0")")
program=$(realpath -m "$1")/tests/guest_test
guest=$(realpath -m "$here/../../build/guest")${HEADRACE_GUEST_RELEASE:+-$HEADRACE_GUEST_RELEASE}
shift
all=
if [ "${1-}" = --all ]; then
  all=1
  shift
fi
if [ ! -x "$program" ]; then
  echo "run_tests.sh: no $program; build the target guest_test first" >&2
  exit 2
fi
"$here/prepare.sh" "$guest"

# The guest's own /tmp hides the host's, which is where a checkout may lie: /run/host shows it.
in_guest="${all:+HEADRACE_GUEST_ALL=1 }'/run/host$here/in_guest.sh'"
declare -A parts=([xeon-max]="memory query groups placement tier" [plain]=plain [cxl]=cxl)
topologies=(xeon-max ${all:+plain} cxl)
# Tests of the command need the Python package (make install).
if [ -x "$here/../../.venv/bin/headrace" ]; then
  parts[xeon-max]+=" run${all:+ bench}"
  parts[slow]="slow tier_kernel${all:+ tier_process}"
  topologies+=(slow)
fi
(($# == 0)) || topologies=("$@")
for topology in "${topologies[@]}"; do
  if [ ! -v "parts[$topology]" ]; then
    echo "run_tests.sh: no topology $topology; there are: ${!parts[*]}" >&2
    exit 2
  fi
done

boot() {
  HEADRACE_GUEST_SECONDS=${HEADRACE_GUEST_SECONDS:-900} "$here/boot.sh" "$guest" "$1" \
    "$in_guest '/run/host$program' ${parts[$1]}" >"$2" 2>&1
}

# Prints why a guest ended (status, log), or nothing if a program in it is to blame. Other reasons:
# QEMU crashed; the guest was stopped and never got up; its kernel reported a stall and could not
# wake a thread.
fault_of_the_guest() {
  if (($1 == 125)); then
    echo "QEMU itself crashed"
  elif (($1 == 124)) && ! grep -q "GUEST UP" "$2"; then
    echo "the guest never got up"
  elif (($1 == 124)) && grep -q 'rcu: INFO\|blocked for more than' "$2" &&
    grep -q 'State:.*D (disk' "$2"; then
    echo "the kernel itself hung"
  fi
}

TIMEFORMAT='%0U + %0S s of CPU'  # in QEMU's process, of the user and of the host's kernel
failed=0
for topology in "${topologies[@]}"; do
  begin=$SECONDS status=0
  log=$guest/$topology.log
  rm -f "$log.first"
  took=$({ time boot "$topology" "$log"; } 2>&1) || status=$?
  fault=$(fault_of_the_guest "$status" "$log")
  if [ -n "$fault" ]; then
    echo "note: guest $topology: $fault, see $log.first; booting once more"
    mv "$log" "$log.first"
    begin=$SECONDS status=0
    took=$({ time boot "$topology" "$log"; } 2>&1) || status=$?
  fi
  grep '^part ' "$log" || true
  if ((status == 0)); then
    echo "guest $topology: passed in $((SECONDS - begin)) s, $took"
  else
    echo "guest $topology: FAILED with $status after $((SECONDS - begin)) s:"
    tail -n 200 "$log"
    failed=1
  fi
done
exit $failed
