#!/bin/bash
# Inside a guest: runs the part of the test program that is about its topology.
# Usage: in_guest.sh PART PROGRAM      beside whose folder lies workload_test
# PART is xeon-max, cxl, or, with the Python of the checkout, run (headrace run and where) or bench
# (the histogram and STREAM by placement).
set -euo pipefail
part=$1
here=$(dirname "$(realpath "$0")")
# From tmpfs: pages of a program on 9p would be fetched one by one, and must not land in CXL memory.
cp "$2" /tmp/guest_test
workload_test=$(dirname "$2")/../workload_test
cd /tmp
export RC_PARAMS="max_success=40"
# A filter that matches nothing is a failure too.
run() {
  ./guest_test --gtest_brief=1 --gtest_color=no --gtest_filter="$1" | tee /tmp/run.log
  grep -q 'PASSED  \] [1-9]' /tmp/run.log
}

# Runs a part in a cgroup of its own: run_in NAME FILE VALUE FILTER.
run_in() {
  local group=/sys/fs/cgroup/$1
  mkdir "$group"
  echo "$3" >"$group/$2"
  (echo 0 >"$group/cgroup.procs" && run "$4")
}

case $part in
  xeon-max)
    run 'XeonMax.*'
    # A query whose columns are fetched ahead from DRAM into HBM; its answer is checked exactly.
    "$workload_test" --gtest_brief=1 --gtest_color=no \
      --gtest_filter='QueryTest.MemoryIs*:QueryDsa.*' | tee /tmp/run.log
    grep -q 'PASSED  \] 2 tests' /tmp/run.log
    mount -t cgroup2 none /sys/fs/cgroup
    echo "+cpuset +memory" >/sys/fs/cgroup/cgroup.subtree_control
    run_in mems cpuset.mems 0-7 'Cpuset.*'
    run_in limit memory.max 64M 'Cgroup.*'
    ;;
  placement)
    run 'XeonMaxPlacement.*'
    ;;
  run)
    # By its place under /run/host, where the guest's own /tmp does not hide it.
    "$here/../../.venv/bin/python" "$here/run_and_where.py"
    ;;
  bench)
    "$here/../../.venv/bin/python" "$here/placed_benches.py"
    ;;
  cxl)
    "$here/cxl-online"
    run 'CxlPlacement.*:Cxl.*'
    ;;
esac
