#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints how many compilers may run at once: one per CPU, and one per GiB of memory that this
# machine has free and this control group, and those around it, may have. The largest source file
# takes 0.9 GiB. If JOBS is set, prints that.
set -euo pipefail

if [ -n "${JOBS-}" ]; then
  if ! [[ $JOBS =~ ^[1-9][0-9]*$ ]]; then
    echo "jobs: JOBS=$JOBS is no number of compilers; give one from 1 on" >&2
    exit 1
  fi
  echo "$JOBS"
  exit
fi
gib=$(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) >> 20))
# limits ROOT PATH FILE: prints the limits of a control group and of its parents.
limits() {
  local path=$2
  while :; do
    cat "$1$path/$3" 2>/dev/null || true
    [ -n "${path#/}" ] || break
    path=${path%/*}
  done
}
all_limits() {
  local controllers path
  while IFS=: read -r _ controllers path; do
    case ,$controllers, in
      ,,) limits /sys/fs/cgroup "$path" memory.max ;;
      *,memory,*) limits /sys/fs/cgroup/memory "$path" memory.limit_in_bytes ;;
    esac
  done </proc/self/cgroup
}
while read -r limit; do
  if [ "$limit" != max ] && ((limit >> 30 < gib)); then gib=$((limit >> 30)); fi
done < <(all_limits)
cpus=$(nproc)
jobs=$((gib < cpus ? gib : cpus))
echo $((jobs > 0 ? jobs : 1))
