# SPDX-License-Identifier: Apache-2.0
"""Curves of latency by bandwidth, of many mixes of reads and writes: a ceiling is fitted on five
mixes, and the solver predicts all others. The files are those of bsc-mem/Mess-Results
(processed/memory_curves.csv, renamed).
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import headrace
from headrace_bench.predict.target import Estimate, Target
from headrace_bench.predict.validate import Figure, Group

Points = list[tuple[float, float]]  #: bandwidth in GB/s and latency in ns, ascending
#: Mixes to fit on.
_FIT = 5
_UTILISATIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


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
    known = {mix: curves[mix] for mix in (mixes[round(i * step)] for i in range(_FIT))}
    target = Target(machine(known))
    # Bytes in flight by Little's law, at the ends of the five curves.
    in_flight = statistics.median(points[-1][0] * points[-1][1] for points in known.values())
    for mix in mixes:
        if mix in known:
            continue
        name, most = f"{path.stem}, {mix} % reads", curves[mix][-1][0]
        _add(peaks, "V6, largest bandwidth by mix", name, "B/s", most * 1e9,
             loaded(target, mix, 1e12, in_flight)[0], 0.05)  # fmt: skip
        for share in (0.3, 0.5, 0.7, 0.9):
            _, predicted = loaded(target, mix, share * most * 1e9)
            measured = _at(curves[mix], share * most)
            _add(latencies, "V6, latency", f"{name}, {share:.0%}", "ns", measured, predicted, 0.1)


def machine(known: Mapping[int, Points]) -> dict[str, Any]:
    """One memory whose ceiling is fitted on curves of some mixes: bandwidth by share of writes, and
    one queue for all of them.
    """
    idle = statistics.median(points[0][1] for points in known.values())
    queue: list[list[float]] = []
    for u in _UTILISATIONS:
        added = statistics.median(_at(p, u * p[-1][0]) - p[0][1] for p in known.values())
        queue.append([u, max(added, queue[-1][1] + 0.01 if queue else 0.01)])
    basis = {"basis": "fitted", "source": "Mess curves", "fitted_to": ["five mixes"]}
    made = dict(headrace.Machine.load("one-node").asdict())
    made["model"] = {
        "ceilings": [{
            "name": "memory", "kind": "controller", "to": [0], "queue": queue,
            "bandwidth": [[1 - mix / 100, known[mix][-1][0] * 1e9]
                          for mix in sorted(known, reverse=True)], **basis,
        }],
        "latencies": [{"from": [0], "to": [0], "read_ns": idle, **basis}], "cores": [],
    }  # fmt: skip
    return made


def loaded(
    target: Target, mix: int, demand: float, in_flight: float = 1e6
) -> tuple[float, float]:
    """Bytes per second of traffic with `mix` % reads that wants `demand` with at most `in_flight`
    bytes in flight, and the latency in ns of a load beside it.
    """
    traffic = [{"node": 0, "kind": kind, "bytes": part / 100}
               for kind, part in (("read", mix), ("write", 100 - mix)) if part]  # fmt: skip
    flows = [
        {"name": "traffic", "initiator": 0, "accesses": traffic, "in_flight_bytes": in_flight,
         "cap_bytes_per_second": demand},
        {"name": "load", "initiator": 0, "in_flight_bytes": 1e-3,
         "accesses": [{"node": 0, "kind": "read", "bytes": 1.0}]},
    ]  # fmt: skip
    busy, load = target.solve(flows)
    return busy.rate.value, load.latency_ns


def _add(
    to: list[Figure], group: str, name: str, unit: str, published: float, predicted: float,
    doubt: float,
) -> None:  # fmt: skip
    estimate = Estimate(predicted, predicted * (1 - doubt), predicted * (1 + doubt))
    to.append(Figure(group, name, "predicted", unit, published, estimate))


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
