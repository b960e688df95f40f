# SPDX-License-Identifier: Apache-2.0
"""STREAM: four kernels over three arrays, each in a memory of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, size_of
from headrace_bench.predict.target import KINDS, Access, Estimate, Place, Speed, Target

#: Arrays that a kernel reads, and the one that it writes.
KERNELS = {"copy": ("a", "c"), "scale": ("c", "b"), "add": ("ab", "c"), "triad": ("bc", "a")}
COLUMNS = (Column("time", "s"), *(Column(kernel, "B/s") for kernel in KERNELS))


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    """Rows of the asked placement and of those that make sense beside it."""
    cpu_nodes = places.nodes(target, settings["nodes"]) if settings["nodes"] else target.cpu_nodes
    run = Stream(target, cpu_nodes, settings)
    places.check_fits(target, run.size)
    asked = {array: places.place(target, settings[array]) for array in "abc"}
    words = sorted({place.words for place in asked.values()})
    given = words[0] if len(words) == 1 else ", ".join(f"{k} {v.words}" for k, v in asked.items())
    rows = [run.row(given, asked, given=True)]
    for name, placement in alternatives(target, cpu_nodes, run.size):
        if name != given:
            rows.append(run.row(name, dict.fromkeys("abc", placement)))
    cached = target.in_cache_mode()
    if cached is not None:
        other = Stream(cached, cpu_nodes, settings)
        rows.append(other.row("cache mode", dict.fromkeys("abc", places.near("dram"))))
    if "hbm" in target.kinds and len(target.kinds) > 1:
        rows.append(run.best("dram", "hbm"))
    elif "cxl" in target.kinds:
        rows.append(run.best("dram", "cxl"))
    return rows


def alternatives(target: Target, cpu_nodes: Sequence[int], size: float) -> list[tuple[str, Place]]:
    """All in one kind of memory; what does not fit goes to the next."""
    found = []
    for kind in target.kinds:
        place = places.spilled(target, cpu_nodes, kind, size)
        found.append((place.words, place))
    return found


class Stream:
    def __init__(
        self, target: Target, cpu_nodes: Sequence[int], settings: Mapping[str, Any]
    ) -> None:
        self.target, self.cpu_nodes = target, list(cpu_nodes)
        cpus = sum(len(target.nodes[node]["cpus"]) for node in cpu_nodes)
        self.threads = settings["threads"] or cpus
        self.size = float(settings["size"] or self._usual_size())
        self.stores = settings["stores"]

    def _usual_size(self) -> float:
        """Bytes of three arrays: each four times the caches, together at least 3 GiB."""
        caches = self.target.document.get("caches", ())
        last = max((cache["level"] for cache in caches), default=0)
        every = sum(float(cache["size_bytes"]) for cache in caches if cache["level"] == last)
        return float(max(12.0 * every, 3.0 * 2**30))

    def row(self, name: str, arrays: Mapping[str, Place], *, given: bool = False) -> Row:
        speeds = {kernel: self.speed(kernel, arrays) for kernel in KERNELS}
        times = [speeds[k].rate.inverse(self._bytes(k)) for k in KERNELS]
        time = Estimate(
            sum(t.value for t in times), sum(t.low for t in times), sum(t.high for t in times)
        )
        values: dict[str, Estimate | None] = {"time": time}
        values |= {kernel: speed.rate for kernel, speed in speeds.items()}
        return Row(name, values, speeds["triad"].binds, given)

    def _bytes(self, kernel: str) -> float:
        return self.size / 3 * (len(KERNELS[kernel][0]) + 1)

    def speed(self, kernel: str, arrays: Mapping[str, Place]) -> Speed:
        """Bytes per second as STREAM counts them: each array once."""
        read, written = KERNELS[kernel]
        part = 1 / (len(read) + 1)
        ratio = self.target.cache_ratio(self.cpu_nodes, self.size)
        accesses = [Access(arrays[name], "read", part, ratio) for name in read]
        for kind, share in self.target.stores(self.cpu_nodes[0], arrays[written], self.stores):
            accesses.append(Access(arrays[written], kind, part * share, ratio))
        return self.target.together(self.cpu_nodes, self.threads, accesses, "sequential load")

    def best(self, first: str, second: str) -> Row:
        """The weights of two kinds, in eighths, with the shortest time."""
        found: list[Row] = []
        for weight in range(1, 8):
            words = f"{KINDS[first]}:{KINDS[second]} {8 - weight}:{weight}"
            place = places.mixed(first, (8 - weight) / 8, second, words)
            found.append(self.row(words, dict.fromkeys("abc", place)))
        return min(found, key=lambda row: row.values["time"].value)  # type: ignore[union-attr]


WORKLOAD = Workload(
    "stream",
    "Predict STREAM with each array in a chosen memory.",
    """PLACE is a kind (dram, hbm, cxl: the nearest of each CPU), nodes (8-15) or
    both by weights (dram=3,hbm=1). Rates count each array once, as STREAM does.

    \b
    headrace predict stream --machine xeon-max
    headrace predict stream --machine xeon-max --a hbm --c hbm
    headrace predict stream --machine xeon-max --sweep threads=12,24,48,96
    headrace predict stream --machine cxl-a1000 --set node:8.capacity=1TiB""",
    (
        Axis("a", "PLACE", str, "dram", "Memory of array a."),
        Axis("b", "PLACE", str, "dram", "Memory of array b."),
        Axis("c", "PLACE", str, "dram", "Memory of array c."),
        Axis("size", "SIZE", size_of, None, "Size of the arrays together (default: 12 x caches)."),
        Axis("threads", "NUMBER", count, None, "Number of threads (default: one per core)."),
        Axis("nodes", "LIST", str, None, "Nodes whose CPUs run them (default: all)."),
        Axis("stores", "KIND", ("ordinary", "nontemporal"), "ordinary",
             "Stores: ordinary (they read the line first) or nontemporal."),
    ),
    COLUMNS,
    predict,
)  # fmt: skip
command = command_of(WORKLOAD)
