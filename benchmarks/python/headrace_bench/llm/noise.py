# SPDX-License-Identifier: Apache-2.0
"""Whether others used the CPUs while something was measured, by the kernel's counts."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: A row is noisy if other programs had more of the time of all CPUs, or the hypervisor of the time
#: for which CPUs had something to run; the latter as in `headrace measure`.
MOST_OTHERS, MOST_STEAL = 0.05, 0.02
#: In less CPU time one tick that was stolen would be more than that.
_LEAST_SECONDS = 0.5
#: What computes the same beside each store may differ by this.
_SAME = 1.1


@dataclass(frozen=True)
class Counts:
    """Seconds of all CPUs since some beginning."""

    every: float
    busy: float
    stolen: float
    own: float  #: of this process, its threads in the kernel too


def counts(root: Path = Path("/")) -> Counts | None:
    """None where the kernel does not tell."""
    try:
        name, *words = (root / "proc/stat").read_text().split("\n", 1)[0].split()
        ticks = [int(word) for word in words[:8]]
    except (OSError, ValueError):
        return None
    if name != "cpu" or len(ticks) < 8:
        return None
    user, nice, system, idle, waiting, interrupts, softly, stolen = ticks
    busy = user + nice + system + interrupts + softly
    hertz = os.sysconf("SC_CLK_TCK")
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Counts(
        (busy + idle + waiting + stolen) / hertz, busy / hertz, stolen / hertz,
        own.ru_utime + own.ru_stime,
    )  # fmt: skip


def between(before: Counts | None, after: Counts | None) -> Row:
    """Fields of a row: shares of CPU time, unknown where nothing tells, and the flag."""
    every = 0.0 if before is None or after is None else after.every - before.every
    if before is None or after is None or every <= 0:
        return {"others_share": None, "steal_share": None, "flags": []}
    busy = after.busy - before.busy
    others = max(0.0, busy - (after.own - before.own)) / every
    stolen = after.stolen - before.stolen
    stolen = stolen / (busy + stolen) if busy + stolen >= _LEAST_SECONDS else 0.0
    noisy = others > MOST_OTHERS or stolen > MOST_STEAL
    return {
        "others_share": others, "steal_share": stolen, "flags": ["noisy"] if noisy else []
    }  # fmt: skip


def control(rows: Sequence[Row]) -> Row | None:
    """What waits for no store has to wait alike beside each; where it does not, all rows become
    noisy. Nothing where fewer than two stores had it.
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
