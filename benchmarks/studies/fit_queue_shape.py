#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the default queue of a ceiling (src/model/queue.h) to measured curves, and prints errors.

    benchmarks/studies/fit_queue_shape.py FOLDER

FOLDER holds one CSV file per system: the files processed/memory_curves.csv of
github.com/bsc-mem/Mess-Results (commit 16ab1d60). They are not part of this project. Needs numpy.

A curve is one system and one share of reads; its bandwidths are divided by its largest. A point is
predicted from its requests in flight alone (bandwidth x latency, Little's law), as the solver does:
bandwidth x (least latency + queue(bandwidth)) must give the same number. The error is that of the
bandwidth, which is also that of the latency.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: Used by the library: its error is that of 2, and it goes less beyond the largest bandwidth.
POWER = 3

Array = npt.NDArray[np.float64]


@dataclass
class System:
    """The loaded points of one system."""

    used: Array  # bandwidth / largest of its curve
    latency: Array  # ns
    idle: Array  # least latency of its curve, ns
    reads: Array  # share of reads

    def mixes(self) -> int:
        return len(set(self.reads))


def read(path: Path) -> System:
    curves: defaultdict[float, list[tuple[float, float]]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            share = float(row["read_pct_rounded"]) / 100
            curves[share].append((float(row["bandwidth_mean"]), float(row["latency_mean"])))
    points = []
    for share, curve in curves.items():
        most = max(bandwidth for bandwidth, _ in curve)
        idle = min(latency for _, latency in curve)
        points += [(b / most, latency, idle, share) for b, latency in curve if b > 0]
    return System(*np.array(points).T)


def errors(system: System, most: float, scale: float, power: float) -> Array:
    """Relative errors of bandwidths with u = most * (1 - (1 + q / scale) ** -power)."""
    in_flight = system.used * system.latency
    low = np.zeros_like(in_flight)
    high = np.full_like(in_flight, 5000.0)
    for _ in range(24):
        middle = (low + high) / 2
        used = most * (1 - (1 + middle / scale) ** -power)
        above = used * (system.idle + middle) > in_flight
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return system.latency / (system.idle + (low + high) / 2) - 1


def rms(systems: Sequence[System], most: float, scale: float, power: float) -> float:
    """Each system counts the same, however many points it has."""
    each = [np.mean(errors(system, most, scale, power) ** 2) for system in systems]
    return float(np.sqrt(np.mean(each)))


def least(cost: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum is least (golden section)."""
    ratio = (5**0.5 - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = cost(a), cost(b)
    while high - low > 0.02 * low:
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = cost(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = cost(b)
    return (low + high) / 2


def fit(systems: Sequence[System], power: float) -> tuple[float, float, float]:
    """The error, the largest utilisation and the scale in ns that fit best."""
    best = (np.inf, 0.0, 0.0)
    for most in (1.0, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 1.15):
        scale = least(lambda s, most=most: rms(systems, most, s, power), 10, 200)
        best = min(best, (rms(systems, most, scale, power), most, scale))
    return best


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write(f"usage: {sys.argv[0]} FOLDER\n")
        return 2
    systems = {path.stem: read(path) for path in sorted(Path(sys.argv[1]).glob("*.csv"))}
    if len(systems) < 2:
        sys.stderr.write(f"{sys.argv[1]}: fewer than two CSV files; give the folder of curves\n")
        return 3
    print("family u = most * (1 - (1 + q / scale) ^ -power), fitted to all systems")
    for power in (1, 2, 3):
        error, most, scale = fit(list(systems.values()), power)
        print(f"  power {power}: rms {error:.1%}, most {most:.2f}, scale {scale:.0f} ns")
    print(f"power {POWER}, each system predicted from the others")
    print("  system                                   mixes  points  median    p90  own scale")
    every = []
    for name, system in systems.items():
        others = [each for other, each in systems.items() if other != name]
        _, most, scale = fit(others, POWER)
        found = np.abs(errors(system, most, scale, POWER))
        own = least(lambda s, one=system, most=most: rms([one], most, s, POWER), 5, 300)
        every.append(found)
        print(f"  {name:42} {system.mixes():3} {len(found):7} {np.median(found):7.1%}"
              f" {np.quantile(found, 0.9):6.1%} {own:7.0f} ns")
    found = np.concatenate(every)
    print(f"  all {np.median(found):.1%} median, {np.quantile(found, 0.9):.1%} p90")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
