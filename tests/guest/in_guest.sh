#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Inside a guest: runs parts of the tests, one after the other, and says of each how it went.
# Usage: in_guest.sh PROGRAM PART...      PROGRAM is guest_test; next to its folder lies
# benchmarks_query_test. With HEADRACE_GUEST_ALL every test and point of each part.
# Parts are of the topology xeon-max: memory, query, groups, placement, tier and, with the Python of
# the checkout, run (headrace run and where) and bench (the histogram and STREAM by placement); of
# the topology plain: plain; of cxl: cxl; of slow: slow and, with that Python, tier_kernel and
# tier_process. Each begins with what a fresh boot has: no file cached, free memory in one piece.
# run_tests.sh says which of them need --all.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# From tmpfs: pages of a program on 9p would be fetched one by one, and must not land in CXL memory.
cp "$1" /tmp/guest_test
query_test=$(dirname "$1")/../benchmarks_query_test
shift
cd /tmp
export RC_PARAMS="max_success=40"

# A filter that matches nothing is a failure too.
run() {
  ./guest_test --gtest_color=no --gtest_filter="$1" | tee /tmp/run.log
  grep -q 'PASSED  \] [1-9]' /tmp/run.log
}

# Runs tests in a group that has nodes 0 to 7 and 64 MiB.
run_in_group() {
  local group=/sys/fs/cgroup/restricted
  mkdir "$group"
  echo 0-7 >"$group/cpuset.mems"
  echo 64M >"$group/memory.max"
  (echo 0 >"$group/cgroup.procs" && run "$1")
}

# Columns are fetched ahead from DRAM into HBM; the answer is checked exactly.
run_query() {
  local filter='QueryTest.MemoryIs*' passed='1 test'
  if [ -v HEADRACE_GUEST_ALL ]; then
    filter+=:QueryDsa.* passed='2 tests'
  fi
  "$query_test" --gtest_color=no --gtest_filter="$filter" | tee /tmp/run.log
  grep -q "PASSED  \] $passed" /tmp/run.log
}

part() {
  case $1 in
    memory) run 'XeonMax.*' ;;
    placement) run 'XeonMaxPlacement.*' ;;
    tier) run 'XeonMaxTier.*' ;;
    slow) run 'Slow*' ;;
    plain) run 'Plain.*' ;;
    query) run_query ;;
    groups) run_in_group 'Cpuset*:Cgroup.*' ;;
    # Path under /run/host: the guest's own /tmp does not hide it there.
    run) "$here/../../.venv/bin/python" "$here/run_and_where.py" | cat ;;  # no terminal
    bench) "$here/../../.venv/bin/python" "$here/placed_benches.py" | cat ;;
    tier_kernel) "$here/../../.venv/bin/python" "$here/tier_kernel.py" | cat ;;
    tier_process) "$here/../../.venv/bin/python" "$here/tier_process.py" | cat ;;
    cxl)
      "$here/cxl-online"
      run 'Cxl*'
      ;;
    *) echo "in_guest.sh: no part $1"; return 2 ;;
  esac
}

mount -t cgroup2 none /sys/fs/cgroup
echo "+cpuset +memory" >/sys/fs/cgroup/cgroup.subtree_control
failed=0
for name; do
  echo 3 >/proc/sys/vm/drop_caches
  echo 1 >/proc/sys/vm/compact_memory
  begin=$SECONDS status=0
  # Not as a condition: there `set -e` would be off within the part.
  set +e
  (set -e; part "$name")
  status=$?
  set -e
  if ((status == 0)); then
    echo "part $name: passed in $((SECONDS - begin)) s"
  else
    echo "part $name: FAILED with $status after $((SECONDS - begin)) s"
    failed=1
  fi
done
exit $failed
