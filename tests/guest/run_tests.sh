#!/bin/bash
# Boots one guest of each topology and runs tests/guest_test in it, and two for what is run from
# Python. A line for each; what one that fails said follows it. Status 0 when all passed.
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
failed=0
parts=(xeon-max placement cxl)
# What users run needs the Python package (make install).
if [ -x "$here/../../.venv/bin/headrace" ]; then parts+=(run bench); fi
for part in "${parts[@]}"; do
  topology=$part
  if [ "$part" != cxl ]; then topology=xeon-max; fi
  begin=$SECONDS status=0
  log=$guest/$part.log
  "$here/boot.sh" "$guest" "$topology" "$in_guest $part '/run/host$program'" >"$log" 2>&1 ||
    status=$?
  if ((status == 0)); then
    echo "guest $part: passed in $((SECONDS - begin)) s"
  else
    echo "guest $part: FAILED with $status after $((SECONDS - begin)) s:"
    tail -n 60 "$log"
    failed=1
  fi
done
exit $failed
