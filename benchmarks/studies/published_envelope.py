#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the least loaded latencies of the CXL machine's preset from the published logs.

    benchmarks/studies/published_envelope.py DATA.tsv
        rewrites rows loaded_least in machines/cxl-a1000.json

DATA.tsv is the table that benchmarks/studies/fit_published.py reads. What these rows are, and how
few points stand for how many: docs/design/published.md.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from fit_published import MACHINE, MIXES, number, text_of

EXPERIMENT = "loaded_least"
SOURCE = (
    "MLC 3.10 logs, the least latency over all thread counts (Tang et al., EuroSys 2024, artifact; "
    "docs/design/published.md)"
)
#: Memory of the log -> memory node. The load ran on CPUs of node 0, as did the latency thread.
MEMORIES = {"ddr5": 0, "cxl": 8}
#: Latencies below this are of one run whose latency thread did not reach the memory.
LEAST_NS = 60
#: Points closer than this are one, GB/s.
STEP = 0.3
#: Allowed error of a line between two kept points, as a share of the latency.
TOLERANCE = 0.005

Points = list[tuple[float, float]]


def logged(table: Path) -> dict[tuple[str, str], Points]:
    points: dict[tuple[str, str], Points] = {}
    with table.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            latency = float(row["lat_ns"])
            if row["src_cpus"] == "d0" and row["random"] == "0" and latency > LEAST_NS:
                point = (float(row["bw_MBps"]) / 1e3, latency)
                points.setdefault((row["mem"], row["W"]), []).append(point)
    return points


def envelope(points: Points) -> Points:
    """The least latency at which at least this bandwidth was reached, in steps."""
    least = float("inf")
    falling = []
    for bandwidth, latency in sorted(points, reverse=True):
        least = min(least, latency)
        falling.append((bandwidth, least))
    kept: Points = []
    for bandwidth, latency in reversed(falling):
        if not kept or bandwidth - kept[-1][0] > STEP:
            kept.append((bandwidth, latency))
    return kept if kept[-1] == falling[0] else [*kept, falling[0]]


def within(points: Points, first: int, last: int) -> bool:
    """Whether the line between two points is near enough to all that lie between them."""
    (b0, l0), (b1, l1) = points[first], points[last]
    return all(
        abs((l0 + (l1 - l0) * (b - b0) / (b1 - b0)) / latency - 1) <= TOLERANCE
        for b, latency in points[first + 1 : last]
    )


def fewest(points: Points) -> Points:
    """As few of the points as lines within the tolerance can join: the shortest path over them."""
    before: list[tuple[int, int]] = [(0, -1)]
    for last in range(1, len(points)):
        reach = (first for first in range(last) if within(points, first, last))
        before.append(min((before[first][0] + 1, first) for first in reach))
    kept, at = [], len(points) - 1
    while at >= 0:
        kept.append(points[at])
        at = before[at][1]
    return kept[::-1]


def rows(memory: str, code: str, points: Points) -> Iterator[dict[str, Any]]:
    mix, bus = MIXES[code]
    for index, (reached, latency) in enumerate(points):
        yield {
            "experiment": EXPERIMENT,
            "parameters": {
                "cpu_node": 0, "memory_node": MEMORIES[memory], "mix": mix, "point": index,
            },
            "unit": "ns", "median": number(latency),
            "details": {"bandwidth": number(reached / bus * 1e9), "bus": number(reached * 1e9)},
            "source": SOURCE,
        }  # fmt: skip


def main(table: Path) -> None:
    document = json.loads(MACHINE.read_text())
    kept = [row for row in document["rows"] if row["experiment"] != EXPERIMENT]
    points = logged(table)
    for memory in MEMORIES:
        for code in MIXES:
            whole = envelope(points[memory, code])
            few = fewest(whole)
            print(f"{memory} {MIXES[code][0]}: {len(few)} of {len(whole)} points")
            assert all(below[0] < above[0] for below, above in pairwise(few))
            kept += rows(memory, code, few)
    MACHINE.write_text(text_of(document | {"rows": kept}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
