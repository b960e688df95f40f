# SPDX-License-Identifier: Apache-2.0
"""What the control groups of this process let it have of the CPUs' time and of memory.

Version 2 (cpu.max, memory.max) and version 1 (cpu.cfs_quota_us, memory.limit_in_bytes); the least
of a group and those around it counts. In a container the group's path may be the host's, which is
not there: then the root of the mount counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace._doctor.host import Host

_MOUNT = "sys/fs/cgroup"
#: Version 1 has no word for "no limit" but the largest number of pages.
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Limit:
    value: float
    file: str
    text: str


def cpus(host: Host) -> Limit | None:
    """How many CPUs' time it may use; None without a limit."""
    limits: list[Limit] = []
    for version, folder in _groups(host, "cpu"):
        file = f"{folder}/{'cpu.max' if version == 2 else 'cpu.cfs_quota_us'}"
        text = host.read(file) or ""
        if version == 1:
            text = f"{text} {host.read(f'{folder}/cpu.cfs_period_us') or ''}"
        quota, _, period = text.partition(" ")
        if quota.isdecimal() and period.strip().isdecimal() and int(period) > 0:
            limits.append(Limit(int(quota) / int(period), f"/{file}", text.strip()))
    return min(limits, key=lambda limit: limit.value, default=None)


def memory(host: Host) -> Limit | None:
    """How many bytes it may have; None without a limit."""
    limits: list[Limit] = []
    for version, folder in _groups(host, "memory"):
        file = f"{folder}/{'memory.max' if version == 2 else 'memory.limit_in_bytes'}"
        text = host.read(file) or ""
        if text.isdecimal() and int(text) < _NO_LIMIT:
            limits.append(Limit(int(text), f"/{file}", text))
    return min(limits, key=lambda limit: limit.value, default=None)


def _groups(host: Host, controller: str) -> Iterator[tuple[int, str]]:
    """The version and the folder of each group that this process is in."""
    for line in (host.read("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = f"{_MOUNT}/{controllers}" if controllers else _MOUNT
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield (1 if controllers else 2), "/".join([mount, *parts[:depth]])
