# SPDX-License-Identifier: Apache-2.0
"""Curves of latency by bandwidth, of many mixes of reads and writes: fitted on five mixes, compared
on all others. The files are those of bsc-mem/Mess-Results (processed/memory_curves.csv, renamed).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import headrace
from headrace_bench.predict.target import Estimate
from headrace_bench.predict.validate import Figure, Group

Points = list[tuple[float, float]]  #: bandwidth in GB/s and latency in ns, ascending
#: Mixes to fit on.
_FIT = 5


def groups(folder: Path) -> list[Group]:
    """A group for the largest bandwidths, and one for latencies below them."""
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise headrace.AbsentError(f"{folder} has no curves (*.csv); give the directory of them")
    peaks: list[Figure] = []
    latencies: list[Figure] = []
    for path in paths:
        _system(path, peaks, latencies)
    source = f"bsc-mem/Mess-Results, {len(paths)} curve families; fitted on {_FIT} mixes of each"
    return [
        Group("V6, largest bandwidth by mix", source, "", tuple(peaks), parts=True),
        Group("V6, latency at 30, 50, 70 and 90 % of it", source, "", tuple(latencies), parts=True),
    ]


def _system(path: Path, peaks: list[Figure], latencies: list[Figure]) -> None:
    curves = read(path)
    mixes = sorted(curves)
    step = (len(mixes) - 1) / (_FIT - 1)
    known = [mixes[round(i * step)] for i in range(_FIT)]
    for mix in mixes:
        if mix in known:
            continue
        below = max(k for k in known if k < mix)
        above = min(k for k in known if k > mix)
        part = (mix - below) / (above - below)
        pair = (curves[below], curves[above])
        peak = _between([each[-1][0] for each in pair], part)
        name = f"{path.stem}, {mix} % reads"
        _add(peaks, "V6, largest bandwidth by mix", name, "B/s",
             curves[mix][-1][0] * 1e9, peak * 1e9, 0.05)  # fmt: skip
        for share in (0.3, 0.5, 0.7, 0.9):
            predicted = _between([_at(each, share * each[-1][0]) for each in pair], part)
            measured = _at(curves[mix], share * curves[mix][-1][0])
            _add(latencies, "V6, latency", f"{name}, {share:.0%}", "ns", measured, predicted, 0.1)


def _add(
    to: list[Figure], group: str, name: str, unit: str, published: float, predicted: float,
    doubt: float,
) -> None:  # fmt: skip
    estimate = Estimate(predicted, predicted * (1 - doubt), predicted * (1 + doubt))
    to.append(Figure(group, name, "predicted", unit, published, estimate))


def _between(ends: Sequence[float], part: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * part


def read(path: Path) -> Mapping[int, Points]:
    """Curves by percentage of reads. InvalidError: not such a file."""
    found: dict[int, Points] = defaultdict(list)
    try:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found[round(float(row["read_pct_rounded"]))].append(
                    (float(row["bandwidth_mean"]), float(row["latency_mean"]))
                )
    except (KeyError, ValueError) as error:
        raise headrace.InvalidError(f"{path} has no curves: {error}") from None
    return {mix: _rising(points) for mix, points in found.items() if len(points) >= 4}


def _rising(points: Points) -> Points:
    """Up to the largest bandwidth; beyond it curves fold back."""
    points = sorted(points)
    least = [min(latency for _, latency in points[i:]) for i in range(len(points))]
    return [(bandwidth, latency) for (bandwidth, _), latency in zip(points, least, strict=True)]


def _at(points: Points, bandwidth: float) -> float:
    for (b0, l0), (b1, l1) in pairwise(points):
        if bandwidth <= b1:
            return l0 + (l1 - l0) * (bandwidth - b0) / max(b1 - b0, 1e-9)
    return points[-1][1]
