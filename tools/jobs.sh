#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints how many compilers may run at once: one per CPU, and one per GiB of memory that this
# machine has free and this control group may have. The largest source file takes 0.9 GiB.
set -euo pipefail

gib=$(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) >> 20))
for file in memory.max memory/memory.limit_in_bytes; do
  limit=$(cat "/sys/fs/cgroup/$file" 2>/dev/null || echo max)
  if [ "$limit" != max ] && ((limit >> 30 < gib)); then gib=$((limit >> 30)); fi
done
cpus=$(nproc)
jobs=$((gib < cpus ? gib : cpus))
echo $((jobs > 0 ? jobs : 1))
