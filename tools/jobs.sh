#!/usr/bin/env bash
# Prints how many compilers may run at once: one per CPU, and one per GiB of memory that is free in
# this machine and control group. The largest source file takes 0.9 GiB.
set -euo pipefail

mib=$(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) / 1024))
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
if [ "$limit" != max ]; then
  free=$(((limit - $(cat /sys/fs/cgroup/memory.current)) >> 20))
  mib=$((free < mib ? free : mib))
fi
jobs=$((mib / 1024 > 0 ? mib / 1024 : 1))
cpus=$(nproc)
echo $((jobs < cpus ? jobs : cpus))
