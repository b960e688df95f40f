# SPDX-License-Identifier: Apache-2.0
"""Spark in the configurations of a talk (P. Zhou, MemCon 2024), computed from loaded-latency curves
(docs/design/workloads/spark.md): threads compute, wait for one line of memory, and compute again.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import headrace
from headrace._model.constants import Constant
from headrace._model.memories import memories

LINE_BYTES = 64
#: Spark reads and writes what it shuffles.
_MIX = "2:1"
_INTERLEAVES = {"3:1": 0.25, "1:1": 0.5, "1:3": 0.75}
_NAIVE = "naive interleaving"
#: Words of the talk on each configuration.
TALK = {
    "MMEM": "",
    "3:1": _NAIVE,
    "1:1": _NAIVE,
    "1:3": _NAIVE,
    "Hot-Promote": "about 34 % slower than MMEM, faster than 3:1",
    "ssd-spill": "much worse than DRAM or CXL",
    "tmpfs-spill": "",
}


@dataclass(frozen=True)
class Constants:
    """The first two are fitted, the others assumed."""

    #: Computing for each line awaited: so that 3:1 is 1.4 times slower than MMEM.
    cpu_ns: float = 78.5
    #: The share of accesses to what was allocated after the promoter's last look, which lies where
    #: it was allocated: so that Hot-Promote is 1.34 times slower.
    fresh: float = 0.42
    #: Lines of traffic for each line shuffled: it is made, sorted, written, read, merged and used.
    touched: float = 8
    spilled: float = 0.2  #: of what is shuffled
    ssd_bytes_per_second: float = 1e9  #: while it writes and reads what is spilled

    def told(self) -> list[Constant]:
        return [
            Constant("computing per line", self.cpu_ns, "ns", "fitted",
                     "3:1 is 1.4 times slower than MMEM"),
            Constant("accesses to memory the promoter has not seen", self.fresh, "", "fitted",
                     "Hot-Promote is 1.34 times slower than MMEM"),
            Constant("lines of traffic per line shuffled", self.touched, "lines", "assumed",
                     "nobody reported it"),
            Constant("spilled part of what is shuffled", self.spilled, "", "assumed",
                     "nobody reported it"),
            Constant("rate of the SSD", self.ssd_bytes_per_second, "B/s", "assumed",
                     "nobody reported it"),
        ]  # fmt: skip


class Curve:
    """Latency by bandwidth: the least with at least that bandwidth, linear between points."""

    def __init__(self, points: list[tuple[float, float]]) -> None:
        least = float("inf")
        kept: list[tuple[float, float]] = []
        for bandwidth, latency in sorted(points, reverse=True):
            least = min(least, latency)
            kept.append((bandwidth, least))
        self.points = kept[::-1]
        self.most = self.points[-1][0]

    def latency(self, bandwidth: float) -> float:
        at = bisect_right(self.points, bandwidth, key=lambda point: point[0])
        if at == 0 or at == len(self.points):
            return self.points[max(at - 1, 0)][1]
        (low, below), (high, above) = self.points[at - 1 : at + 1]
        return below + (above - below) * (bandwidth - low) / (high - low)


def curve(profile: headrace.Profile, cpu: int, memory: int) -> Curve | None:
    """The curve of a memory from the CPUs of a node; None where nobody measured it."""
    for experiment in ("loaded_least", "loaded"):
        points = []
        for row in profile.rows:
            at = row.parameters
            seen = (at.get("cpu_node"), at.get("memory_node"), at.get("mix"))
            loads = (at.get("traffic_cpu_node", cpu), at.get("traffic_memory_node", memory))
            if row.experiment != experiment or seen != (cpu, memory, _MIX) or row.median is None:
                continue
            bandwidth = row.details.get("bus", row.details.get("bandwidth"))
            if loads == (cpu, memory) and bandwidth is not None:
                points.append((float(bandwidth), row.median))
        if points:
            return Curve(points)
    return None


@dataclass(frozen=True)
class Side:
    """Both memories, as the CPUs of one node of the fast memory reach them."""

    fast: Curve
    slow: Curve
    threads: int
    cards: float  #: of the slow memory for each node of the fast

    def bandwidth(self, share: float, cpu_ns: float) -> float:
        """Bytes per second with that share of accesses in the slow memory: a closed loop."""

        def line_ns(all_bytes: float) -> float:
            fast = self.fast.latency((1 - share) * all_bytes)
            slow = self.slow.latency(share * all_bytes / self.cards)
            return cpu_ns + (1 - share) * fast + share * slow

        low, high = 0.0, self.threads * LINE_BYTES * 1e9 / line_ns(0)
        if share < 1:
            high = min(high, self.fast.most / (1 - share))
        if share > 0:
            high = min(high, self.slow.most * self.cards / share)
        for _ in range(60):
            middle = (low + high) / 2
            if middle * line_ns(middle) * 1e-9 <= self.threads * LINE_BYTES:
                low = middle
            else:
                high = middle
        return low


def sides(profile: headrace.Profile) -> list[Side]:
    """Near the slow memory, and away from it where that was measured. AbsentError: no curves."""
    machine = profile.machine
    here = memories(machine)
    nodes = [node for node in (here.fast, here.slow) if node is not None]
    near = [curve(profile, nodes[0], node) for node in nodes]
    if len(near) < 2 or near[0] is None or near[1] is None:
        raise headrace.AbsentError(
            f"'{machine.name}' has no loaded latencies of two memories with mix {_MIX}; measure "
            "them (headrace measure loaded), or take --machine cxl-a1000"
        )
    kinds = {node.id: node.kind for node in machine.nodes}
    alike = [sum(kind == kinds[node] for kind in kinds.values()) for node in nodes]
    cpus = len(next(node.cpus for node in machine.nodes if node.id == nodes[0]))
    away = (curve(profile, n.id, nodes[1]) for n in machine.nodes if n.cpus and n.id != nodes[0])
    far = next((each for each in away if each is not None), None)
    # Each socket may use all of the slow memory, when the other does not.
    count = 1 if far is None else 2
    cards = alike[1] * count / alike[0]
    return [Side(near[0], slow, cpus, cards) for slow in (near[1], far) if slow is not None]


def model(name: str, constants: Constants | None = None) -> dict[str, Any]:
    """The fields of a document."""
    fixed = constants or Constants()
    profile = headrace.Profile.load(name)
    parts = sides(profile)
    fast_nodes = sum(bool(node.cpus) for node in profile.machine.nodes)

    def all_bytes(share: float) -> float:
        """The whole machine: tasks go to whoever is free, so that rates add up."""
        each = sum(side.bandwidth(share, fixed.cpu_ns) for side in parts) / len(parts)
        return each * fast_nodes

    fastest = all_bytes(0)
    promoted = 0.5 * fixed.fresh
    shares = {"MMEM": 0.0, **_INTERLEAVES, "Hot-Promote": promoted}
    found: list[tuple[str, float | None, float]] = [
        (config, share, fastest / all_bytes(share)) for config, share in shares.items()
    ]
    # Each byte is written and read.
    spilled = 2 * fixed.spilled * fastest / fixed.touched
    cards = parts[0].slow.most * parts[0].cards * fast_nodes / len(parts)
    for config, rate in (("ssd-spill", fixed.ssd_bytes_per_second), ("tmpfs-spill", cards)):
        found.append((config, None, 1 + spilled / rate))
    slower = {config: times for config, _, times in found}
    return {
        "machine": name,
        "threads": sum(side.threads for side in parts) * fast_nodes // len(parts),
        "first_memory_used": fastest / fast_nodes / parts[0].fast.most,
        "ssd_break_even_bytes_per_second": spilled / (slower["1:3"] - 1),
        "rows": [
            {"config": config, "slow_share": share, "slower": times, "basis": "modelled"}
            for config, share, times in found
        ],
    }
