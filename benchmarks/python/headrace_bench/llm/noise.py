# SPDX-License-Identifier: Apache-2.0
"""Whether other programs used the CPUs during a measurement, from the kernel's counts."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: Limits beyond which a row is noisy: other programs' share of the time of all CPUs, and the stolen
#: share of the time in which CPUs had work (as in `headrace measure`).
MOST_OTHERS, MOST_STEAL = 0.05, 0.02
#: Stolen time is ignored below this CPU time, where one stolen tick would exceed the limit.
_LEAST_SECONDS = 0.5
#: Allowed ratio of equal computations that ran beside different stores.
_SAME = 1.1


@dataclass(frozen=True)
class Counts:
    """CPU time in seconds, summed over all CPUs since boot."""

    total: float
    busy: float
    stolen: float
    own: float  #: user and system time of this process


def counts(root: Path = Path("/")) -> Counts | None:
    """The counts now; None if /proc/stat cannot be read."""
    try:
        name, *words = (root / "proc/stat").read_text().split("\n", 1)[0].split()
        ticks = [int(word) for word in words[:8]]
    except (OSError, ValueError):
        return None
    if name != "cpu" or len(ticks) < 8:
        return None
    user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = ticks
    busy = user + nice + system + interrupts + soft_interrupts
    hertz = os.sysconf("SC_CLK_TCK")
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Counts(
        (busy + idle + waiting + stolen) / hertz, busy / hertz, stolen / hertz,
        own.ru_utime + own.ru_stime,
    )  # fmt: skip


def between(before: Counts | None, after: Counts | None) -> Row:
    """Fields of a row: shares of CPU time (None: unknown), and the flag `noisy`."""
    total = 0.0 if before is None or after is None else after.total - before.total
    if before is None or after is None or total <= 0:
        return {"others_share": None, "steal_share": None, "flags": []}
    busy = after.busy - before.busy
    others = max(0.0, busy - (after.own - before.own)) / total
    stolen = after.stolen - before.stolen
    stolen = stolen / (busy + stolen) if busy + stolen >= _LEAST_SECONDS else 0.0
    noisy = others > MOST_OTHERS or stolen > MOST_STEAL
    return {
        "others_share": others, "steal_share": stolen, "flags": ["noisy"] if noisy else []
    }  # fmt: skip


def control(rows: Sequence[Row]) -> Row | None:
    """Checks that `recompute`, which uses no store, took equally long beside each store.

    If not, all rows become noisy. None: fewer than two stores have a `recompute` row.
    """
    waits = {
        row["store"]: row["stall_p50_ms"]
        for row in rows
        if row["policy"] == "recompute" and row["stall_p50_ms"] and not row["reason"]
    }
    if len(waits) < 2:
        return None
    ratio = max(waits.values()) / min(waits.values())
    if ratio > _SAME:
        for row in rows:
            row["flags"] = list(dict.fromkeys([*row["flags"], "noisy"]))
    return {
        "policy": "recompute", "stall_p50_ms": waits, "ratio": ratio, "holds": ratio <= _SAME
    }  # fmt: skip
