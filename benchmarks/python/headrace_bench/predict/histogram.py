# SPDX-License-Identifier: Apache-2.0
"""A histogram of doubles with bins of each thread: data read in order, bins updated at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, size_of
from headrace_bench.predict.target import KINDS, LINE, Access, Place, Target

COLUMNS = (Column("time", "s"), Column("data", "B/s"))
_DOUBLE = 8
#: Cycles of a value without misses: a division, a conversion, an addition (assumed).
_CYCLES = 6.0


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    run = Histogram(target, settings)
    places.check_fits(target, run.size + run.threads * run.bins, "data and bins")
    data, bins = (places.place(target, settings[name]) for name in ("data", "bins"))
    rows = [run.row(_words(data, bins), data, bins, given=True)]
    kinds = target.kinds
    pairs = [(places.near(a), places.near(b)) for a in kinds for b in kinds]
    for a, b in pairs:
        if _words(a, b) != rows[0].placement and _fits(run, a, b):
            rows.append(run.row(_words(a, b), a, b))
    cached = target.in_cache_mode()
    if cached is not None:
        near = places.near("dram")
        rows.append(Histogram(cached, settings).row("cache mode", near, near))
    return rows


def _words(data: Place, bins: Place) -> str:
    return f"all {data.words}" if data == bins else f"data {data.words}, bins {bins.words}"


def _fits(run: Histogram, data: Place, bins: Place) -> bool:
    for kind in {share.near for place in (data, bins) for share in place.shares}:
        there = places.room(run.target, run.cpu_nodes, kind or "")
        asked = sum(
            size for place, size in ((data, run.size), (bins, run.bins * run.threads))
            if place == places.near(kind or "")
        )  # fmt: skip
        if there is not None and asked > there:
            return False
    return True


class Histogram:
    def __init__(self, target: Target, settings: Mapping[str, Any]) -> None:
        self.target = target
        self.cpu_nodes: Sequence[int] = target.cpu_nodes
        cpus = sum(len(target.nodes[node]["cpus"]) for node in self.cpu_nodes)
        self.threads = settings["threads"] or cpus
        # Default: a quarter of memory is left for bins, and as much again.
        every = target.capacity(n for n in target.nodes if target.addressable(n))
        self.size = float(settings["size"] or min(1 << 34, (every or 1 << 36) // 4))
        self.bins = float(settings["bin_count"] * _DOUBLE)

    def missing(self) -> float:
        """Share of updates that miss the caches of a core and its part of the last level."""
        private = float(self.target.cores(self.cpu_nodes[0]).get("private_cache_bytes", 1 << 20))
        caches = self.target.document.get("caches", ())
        last = max((cache["level"] for cache in caches), default=0)
        shared = sum(float(cache["size_bytes"]) for cache in caches if cache["level"] == last)
        held = private + shared / self.threads
        return float(max(0.0, 1 - held / self.bins))

    def row(self, name: str, data: Place, bins: Place, *, given: bool = False) -> Row:
        """For a byte of data: its read, which prefetchers hide, and 1/8 of an update."""
        target, missing = self.target, self.missing()
        ratio = target.cache_ratio(self.cpu_nodes, self.size + self.threads * self.bins)
        accesses = [Access(data, "read", 1.0, ratio, latency_ns=1.0)]
        if missing:
            update = Access(bins, "store", LINE * missing / _DOUBLE, ratio, "random")
            accesses.append(update)
        cap = target.frequency(self.cpu_nodes[0]) / _CYCLES * _DOUBLE
        flight = "random update" if missing else "sequential load"
        if not missing:
            accesses = [replace(accesses[0], latency_ns=None)]
        speed = target.together(self.cpu_nodes, self.threads, accesses, flight, cap)
        return Row(
            name, {"time": speed.rate.inverse(self.size), "data": speed.rate}, speed.binds, given
        )


WORKLOAD = Workload(
    "histogram",
    "Predict a histogram with data and bins in chosen memories.",
    f"""PLACE is a kind ({', '.join(KINDS)}), nodes (8-15) or both by weights.

    \b
    headrace predict histogram --machine xeon-max
    headrace predict histogram --machine xeon-max --bins hbm
    headrace predict histogram --machine xeon-max --sweep bin_count=65536,1048576""",
    (
        Axis("data", "PLACE", str, "dram", "Memory of the data."),
        Axis("bins", "PLACE", str, "dram", "Memory of the bins."),
        Axis("size", "SIZE", size_of, None,
             "Size of the data (default: 16GiB, at most a quarter of memory)."),
        Axis("bin_count", "NUMBER", lambda text: int(size_of(text)), "1048576",
             "Number of bins of each thread."),
        Axis("threads", "NUMBER", count, None, "Number of threads (default: one per core)."),
    ),
    COLUMNS,
    predict,
)  # fmt: skip
command = command_of(WORKLOAD)
