# SPDX-License-Identifier: Apache-2.0
"""Cases of the Unified Memory experiment of C. Lutz (um_reprex), and their published rates.

A kernel reads an array of host memory several times. Its rate depends on the kind of memory, on the
advice to the driver, and on where the pages are.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import headrace

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
#: The original kernel has 2 blocks of 128 threads for each multiprocessor, with 4 bytes in flight
#: each.
KERNELS = ("reprex", "wide")
OPS = ("read", "write")
#: Rates of all documents on this experiment, as the original prints them.
UNIT = "GiB/s"


@dataclass(frozen=True)
class Case:
    """The original's parameters with its defaults, except PREFERRED_LOCATION_CPU."""

    memory: str = "managed"  #: or system, which is near the GPU, or node:N
    accessed_by: bool = False
    read_mostly: bool = False
    preferred_location_cpu: bool = False
    touch_on_host: bool = False  #: before each run but the first
    op: str = "read"
    size: int = 32 * GIB
    runs: int = 5
    prefetch_block: int | None = None  #: bytes fetched at once, ahead of the kernel
    streams: int = 2  #: that take turns to prefetch
    kernel: str = "reprex"
    #: The node that runs the case, and so touches managed memory first; None: nearest to the GPU.
    cpu_node: int | None = None

    @property
    def managed(self) -> bool:
        return self.memory == "managed"

    @property
    def node(self) -> int | None:
        """The array's node, or the node whose CPUs run the case."""
        word = self.memory.removeprefix("node:")
        return self.cpu_node if word == self.memory else int(word)

    @property
    def name(self) -> str:
        """ "managed + accessed-by"; without size, runs and kernel."""
        told = [self.memory]
        for name in ("accessed_by", "read_mostly", "preferred_location_cpu", "touch_on_host"):
            if getattr(self, name):
                told.append(name.replace("_", "-"))
        if self.prefetch_block is not None:
            told.append(f"prefetch {headrace.format_bytes(self.prefetch_block)} x {self.streams}")
        if self.op == "write":
            told.append("write")
        if self.cpu_node is not None:
            told.append(f"from node {self.cpu_node}")
        return " + ".join(told)


@dataclass(frozen=True)
class Published:
    """GiB/s by run, or the range of the runs after the first where no runs were published."""

    machine: str
    case: Case
    runs: tuple[float, ...]
    source: str
    range: tuple[float, float] | None = None

    @property
    def first(self) -> tuple[float, float] | None:
        return (self.runs[0], self.runs[0]) if self.runs else None

    @property
    def steady(self) -> tuple[float, float] | None:
        late = steady(self.runs)
        return self.range if late is None else (late, late)

    def matches(self, asked: Case, *, sizes: bool = True) -> bool:
        """Any number of runs; without `sizes` any size, kernel and node."""
        own = self.case
        if not sizes:
            own = replace(own, size=asked.size, kernel=asked.kernel, cpu_node=asked.cpu_node)
        return replace(own, runs=0) == replace(asked, runs=0)


def figure(told: tuple[float, float] | None) -> float | list[float] | None:
    """One figure, or the two ends of a range, as documents have them."""
    return None if told is None else told[0] if told[0] == told[1] else list(told)


def steady(rates: Sequence[float]) -> float | None:
    """The median of all runs except the first; None if there is only one."""
    return statistics.median(rates[1:]) if len(rates) > 1 else None


LUTZ = "C. Lutz, unified-memory-debugging, README (2019): driver 418.67, CUDA 10.1"
DNHKNG = "dnhkng, blog of 2026-04-25: dual-module GH200, driver 580.105, CUDA 13.0"
_GB = 1e9 / GIB


def _lutz(machine: str, case: Case, *runs: float) -> Published:
    return Published(machine, case, runs, LUTZ)


def _ac922(case: Case, *runs: float) -> Published:
    return _lutz("ac922", case, *runs)


def _x86(case: Case, *runs: float) -> Published:
    return _lutz("x86-pcie3", case, *runs)


def _gh200(case: Case, least: float, most: float) -> Published:
    return Published("gh200", case, (), DNHKNG, (least * _GB, most * _GB))


_PREFETCHED = Case(prefetch_block=16 * MIB)
#: Published cases. The first twelve are all those of the original.
PUBLISHED = (
    _ac922(Case(memory="system"), 63.4921, 63.5247, 63.5517, 63.5563, 63.5397),
    _ac922(Case(size=GIB), 5.23589, 207.725, 207.317, 207.346, 207.523),
    _ac922(Case(accessed_by=True, size=GIB), 53.2082, 13.9365, 197.721, 198.054, 198.611),
    _ac922(Case(), 1.87802, 2.15174, 1.49559, 1.51264, 0.99124),
    _ac922(Case(accessed_by=True), 28.4424, 1.8726, 1.06627, 1.49521, 0.94333),
    _ac922(Case(preferred_location_cpu=True), 1.11503, 63.4069, 63.4517, 63.4277, 63.4083),
    _ac922(
        Case(accessed_by=True, preferred_location_cpu=True), 63.41, 63.41, 63.43, 63.42, 63.40
    ),
    _ac922(_PREFETCHED, 3.06, 1.691, 1.691, 1.691, 1.691),
    _x86(Case(), 2.16685, 2.17654, 2.16583, 3.09534, 2.15913),
    _x86(Case(accessed_by=True), 11.2909, 10.8055, 10.7137, 11.4643, 11.0659),
    _x86(Case(preferred_location_cpu=True), 0.530865, 10.8151, 11.0768, 11.4706, 11.4655),
    _x86(_PREFETCHED, 8.96, 7.59, 7.59, 7.55, 7.53),
    _gh200(Case(memory="system", size=4_000_000_000, kernel="wide"), 331, 339),
    _gh200(Case(touch_on_host=True, size=4_000_000_000, kernel="wide"), 18, 29),
)
