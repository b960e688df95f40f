#!/bin/bash
# Inside a guest: runs parts of the tests, one after the other, and says of each how it went.
# Usage: in_guest.sh PROGRAM PART...      PROGRAM is guest_test; next to its folder lies
# workload_query_test
# Parts are of the topology xeon-max: memory, query, groups, placement, tier and, with the Python of
# the checkout, run (headrace run and where) and bench (the histogram and STREAM by placement); of
# the topology plain: plain; of cxl: cxl; of slow: slow and, with that Python, tier_kernel and
# tier_process. Each begins with what a fresh boot has: no file cached, free memory in one piece.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# From tmpfs: pages of a program on 9p would be fetched one by one, and must not land in CXL memory.
cp "$1" /tmp/guest_test
query_test=$(dirname "$1")/../workload_query_test
shift
cd /tmp
export RC_PARAMS="max_success=40"

# A filter that matches nothing is a failure too.
run() {
  ./guest_test --gtest_color=no --gtest_filter="$1" | tee /tmp/run.log
  grep -q 'PASSED  \] [1-9]' /tmp/run.log
}

# Runs tests in a cgroup of their own: run_in NAME FILE VALUE FILTER.
run_in() {
  local group=/sys/fs/cgroup/$1
  mkdir "$group"
  echo "$3" >"$group/$2"
  (echo 0 >"$group/cgroup.procs" && run "$4")
}

part() {
  case $1 in
    memory) run 'XeonMax.*' ;;
    placement) run 'XeonMaxPlacement.*' ;;
    tier) run 'XeonMaxTier.*' ;;
    slow) run 'Slow*' ;;
    plain) run 'Plain.*' ;;
    query)
      # Its columns are fetched ahead from DRAM into HBM; its answer is checked exactly.
      "$query_test" --gtest_color=no \
        --gtest_filter='QueryTest.MemoryIs*:QueryDsa.*' | tee /tmp/run.log
      grep -q 'PASSED  \] 2 tests' /tmp/run.log
      ;;
    groups)
      run_in mems cpuset.mems 0-7 'Cpuset*'
      run_in limit memory.max 64M 'Cgroup.*'
      ;;
    # By its place under /run/host, where the guest's own /tmp does not hide it.
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
