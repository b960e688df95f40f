#!/bin/bash
# Boots one guest of each topology and runs the parts of the tests that are about it. A line for
# each part and each guest; what one that fails said follows it. Status 0 when all passed.
# Usage: run_tests.sh BUILD_DIR     after building the target guest_test there
set -euo pipefail
(($# == 1)) || { echo "run_tests.sh: usage: run_tests.sh BUILD_DIR" >&2; exit 2; }
here=$(dirname "$(realpath "$0")")
program=$(realpath -m "$1")/tests/guest_test
guest=$(realpath -m "$here/../../build/guest")
if [ ! -x "$program" ]; then
  echo "run_tests.sh: no $program; build the target guest_test first" >&2
  exit 2
fi
"$here/prepare.sh" "$guest"

# The guest's own /tmp hides the host's, which is where a checkout may lie: /run/host shows it.
in_guest="'/run/host$here/in_guest.sh'"
declare -A parts=([xeon-max]="memory query groups placement" [cxl]=cxl)
# What users run needs the Python package (make install).
if [ -x "$here/../../.venv/bin/headrace" ]; then parts[xeon-max]+=" run bench"; fi

boot() {
  HEADRACE_GUEST_SECONDS=${HEADRACE_GUEST_SECONDS:-900} "$here/boot.sh" "$guest" "$1" \
    "$in_guest '/run/host$program' ${parts[$1]}" >"$2" 2>&1
}

# Whether a guest that was stopped never got up, or had a thread that could not be woken after its
# kernel reported a stall: taken for the kernel's fault, not the program's.
kernel_hung() {
  ! grep -q "GUEST UP" "$1" ||
    { grep -q 'rcu: INFO\|blocked for more than' "$1" && grep -q 'State:.*D (disk' "$1"; }
}

failed=0
for topology in xeon-max cxl; do
  begin=$SECONDS status=0
  log=$guest/$topology.log
  rm -f "$log.hung"
  boot "$topology" "$log" || status=$?
  if ((status == 124)) && kernel_hung "$log"; then
    echo "note: guest $topology: the kernel itself hung, see $log.hung; booting once more"
    mv "$log" "$log.hung"
    begin=$SECONDS status=0
    boot "$topology" "$log" || status=$?
  fi
  grep '^part ' "$log" || true
  if ((status == 0)); then
    echo "guest $topology: passed in $((SECONDS - begin)) s"
  else
    echo "guest $topology: FAILED with $status after $((SECONDS - begin)) s:"
    tail -n 200 "$log"
    failed=1
  fi
done
exit $failed
