#!/bin/bash
# Boots one guest of each topology and runs tests/guest_test in it. Status 0 when all passed.
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
for topology in xeon-max cxl; do
  echo "guest $topology:"
  begin=$SECONDS
  if "$here/boot.sh" "$guest" $topology "$in_guest $topology '/run/host$program'"; then
    echo "guest $topology: passed in $((SECONDS - begin)) s"
  else
    echo "guest $topology: FAILED" >&2
    failed=1
  fi
done
exit $failed
