#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`headrace tier attach` beside the kernel's own reclaim, with as much DRAM for each.

    sudo .venv/bin/python benchmarks/studies/lru_tier.py --minutes 10 --writes 0.1
        # takes swap, root, redis

Two redis-servers with the same values are asked the same, by popularity
(benchmarks/studies/soak_tier.py), in turn: so that both see the same machine, and each gets the
half of the time. One is kept within half
of its memory by headrace, the other by a limit of a memory cgroup. A line a minute tells the major
faults per operation and the CPU time per operation of each since the line before, that of headrace
apart, and what is in DRAM. The exit code is 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from soak_tier import Store, Tier, _status

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
#: Batches of one server before it is the other's turn.
IN_TURN = 100


@contextmanager
def cgroup() -> Iterator[tuple[Path, str]]:
    """One of its own, and the file that limits it (v1, else v2)."""
    first = Path("/sys/fs/cgroup/memory")
    parent, limit = (
        (first, "memory.limit_in_bytes") if first.is_dir() else (first.parent, "memory.max")
    )
    made = parent / f"headrace-lru-{os.getpid()}"
    made.mkdir()
    try:
        yield made, limit
    finally:
        made.rmdir()


def used(pid: int) -> tuple[int, float]:
    """Major faults, and seconds of CPU time."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(words[9]), (int(words[11]) + int(words[12])) / TICKS


class Told:
    """CPU time and faults of a server and its tiering program since the last line."""

    def __init__(self, name: str, store: Store, others: list[int]) -> None:
        self._name, self._store, self._others = name, store, others
        self._before = self._now()

    def _now(self) -> tuple[int, int, float, float]:
        faults, cpu = used(self._store.server.pid)
        return self._store.operations, faults, cpu, sum(used(pid)[1] for pid in self._others)

    def line(self) -> str:
        now, before = self._now(), self._before
        self._before = now
        operations, faults, cpu, others = (a - b for a, b in zip(now, before, strict=True))
        if operations == 0:
            return f"{self._name}: nothing done"
        beside = f" + {others / operations * 1e6:.1f} of headrace" if self._others else ""
        return (
            f"{self._name}: {faults / operations:.3f} faults/op, "
            f"{cpu / operations * 1e6:.1f}{beside} us of CPU time/op, "
            f"{_status(self._store.server.pid, 'VmRSS') // MIB} MiB in DRAM"
        )


def compare(options: argparse.Namespace, folder: Path, group: Path, limit: str) -> None:
    stores: list[Store] = []
    tier = None
    try:
        for name in ("tier", "lru"):
            (folder / name).mkdir()
            stores.append(Store(folder / name, options.values))
            if name == "lru":  # before it has any memory
                (group / "cgroup.procs").write_text(str(stores[-1].server.pid))
            stores[-1].load()
        budget = _status(stores[0].server.pid, "VmRSS") // 2
        (group / limit).write_text(str(budget))
        tier = Tier(options.headrace, stores[0].server.pid, budget, folder / "headrace.log")
        told = [
            Told("headrace", stores[0], [tier.process.pid]),
            Told("kernel", stores[1], []),
        ]
        in_turn(stores, options, lambda: [each.line() for each in told])
    finally:
        try:
            if tier is not None:
                tier.end()
        finally:
            for store in stores:
                store.end()


def in_turn(
    stores: list[Store], options: argparse.Namespace, lines: Callable[[], list[str]]
) -> None:
    begin = told = time.monotonic()
    seconds = options.minutes * 60
    while (now := time.monotonic()) - begin < seconds:
        for store in stores:
            for _ in range(IN_TURN):
                store.some(options.writes)
        if now - told >= min(60.0, seconds / 5):
            told = now
            print(f"{now - begin:.0f} s: " + "; ".join(lines()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--values", type=int, default=400_000, help="of 1 KiB each")
    parser.add_argument("--writes", type=float, default=0.0, help="share of operations")
    parser.add_argument("--headrace", default=str(Path(sys.executable).parent / "headrace"))
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder, cgroup() as (group, limit):
            compare(options, Path(folder), group, limit)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        sys.exit(f"lru_tier: {error}; it takes root, swap and a memory cgroup")
    return 0


if __name__ == "__main__":
    sys.exit(main())
