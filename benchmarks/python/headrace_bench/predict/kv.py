# SPDX-License-Identifier: Apache-2.0
"""A key-value server in memory (Redis, KeyDB) whose data are on main memory and CXL by a policy.

An operation takes CPU time and some dependent misses, each a latency of the memory where its line
is. Which accesses meet which memory follows from the order of records by use and by insertion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import headrace
from headrace._cli import parse
from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import (
    TWO_KINDS,
    Axis,
    Workload,
    command_of,
    count,
    size_of,
)
from headrace_bench.predict.target import (
    KINDS,
    Access,
    Binding,
    Estimate,
    Place,
    Share,
    Speed,
    Target,
    exactly,
)

COLUMNS = (Column("slowdown", "x"), Column("operations", "/s"), Column("on slow", "x"))
DISTRIBUTIONS = ("zipfian", "latest", "uniform")
_ZIPF = 0.99


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    run = Server(target, settings)
    return run.rows()


def closed_loop(
    target: Target, nodes: Sequence[int], threads: int | None, kinds: tuple[str, str],
    share: float, cpu_ns: float, mix: Mapping[str, float],
) -> Speed:  # fmt: skip
    """Bytes awaited per second by threads (None: one per CPU) of some nodes. Each computes for
    `cpu_ns`, waits for one line, and computes again; `share` of the lines is in the second kind.
    """
    flows = []
    for node in nodes:
        target.cores(node)  # there are some
        accesses = [
            Access(Place(kind, (Share(part / len(near), node=each),)), word, of,
                   latency_ns=target.latency(node, each) + cpu_ns)
            for kind, part in zip(kinds, (1 - share, share), strict=True) if part
            for near in [target.near(node, kind)] for each in near for word, of in mix.items()
        ]  # fmt: skip
        number = len(target.nodes[node]["cpus"]) if threads is None else threads / len(nodes)
        flows.append(target.flow(f"node {node}", node, number, accesses, in_flight=1.0))
    speeds = target.solve(flows)
    rates = [sum(speed.rate.at(end) for speed in speeds) for end in ("value", "low", "high")]
    return replace(min(speeds, key=lambda speed: speed.rate.value), rate=Estimate(*rates))


class Server:
    def __init__(self, target: Target, settings: Mapping[str, Any]) -> None:
        self.target = target
        self.constants = places.constants("kv")
        self.fast, self.slow = places.two_kinds(target, settings)
        self.size = float(settings["size"])
        self.records = self.size / settings["value"]
        self.distribution = settings["distribution"]
        self.cold = float(settings["cold"] or 0)
        self.threads = settings["threads"]
        self.placed, self.reserved = settings["placed"], settings["reserved"]
        places.check_fits(target, self.size + self.cold, "the data with --cold")
        target.check_threads(target.cpu_nodes, self.threads)
        if settings["value"] > self.size:
            raise headrace.InvalidError("a record is larger than all data; give a smaller --value")
        lines = self.constants["lines"]
        self.lines = [float(lines[end]) for end in ("value", "low", "high")]
        self.times: dict[tuple[float, float], tuple[Estimate, Binding]] = {}

    def slow_pages(self) -> float:
        """Share of the data that first touch leaves to slow memory: what cold memory and others,
        which came first, leave of main memory.
        """
        there = self.target.capacity(self.target.of_kind(self.fast))
        if there is None:
            return 0.0
        reserved = self.reserved
        if reserved is None:
            reserved = there * float(self.constants["reserved"]["value"])
        room = max(0.0, there - reserved - self.cold)
        return float(max(0.0, 1 - room / self.size))

    def slow_accesses(self, pages: float) -> float:
        """Share of accesses, where the last `pages` of the records by insertion are on slow memory.

        zipfian: popularity is spread over records by a hash, so accesses are as pages. latest: the
        newest records are the most used.
        """
        if self.distribution != "latest" or pages <= 0:
            return pages
        return min(1.0, harmonic(pages * self.records) / harmonic(self.records))

    def cold_accesses(self, part: float) -> float:
        """Share of accesses to the first `part` of the records by insertion, which go to SSD."""
        if self.distribution != "latest":
            return part
        return 1 - harmonic((1 - part) * self.records) / harmonic(self.records)

    def time(self, lines: float, share: float) -> tuple[Estimate, Binding]:
        """Seconds of an operation with that share of its lines in slow memory."""
        found = self.times.get((lines, share))
        if found is None:
            cores = len(self.target.nodes[self.target.cpu_nodes[0]]["cpus"])
            nodes = self.target.cpu_nodes[: -(-self.threads // cores)]
            speed = closed_loop(
                self.target, nodes, self.threads, (self.fast, self.slow), share,
                self.constants["cpu_ns"]["value"] / lines, {"read": 1.0},
            )  # fmt: skip
            time = speed.rate.inverse(64 * lines * self.threads)
            found = self.times[lines, share] = time, speed.binds
        return found

    def row(self, name: str, share: float, *, more: Estimate | None = None, ssd: float = 0.0,
            given: bool = False) -> Row:  # fmt: skip
        """`more`: of a server's time, beside. `ssd`: share of operations with a record on SSD."""
        wait = self.constants["ssd_ns"]
        slowdowns, times = [], []
        # Both ends of a quotient come from one machine; the number of lines has ends of its own.
        ends = itertools.product(self.lines[1:], ("low", "high"))
        for lines, end in ((self.lines[0], "value"), *ends):
            alone, time = (self.time(lines, part)[0].at(end) for part in (0.0, share))
            time += ssd * wait[end] * 1e-9
            time *= 1 + (more.at(end) if more else 0.0)
            slowdowns.append(time / alone)
            times.append(time)
        rates = [self.threads / time for time in times]
        source = self.constants["lines"]
        _, binds = self.time(self.lines[0], share)
        if binds.name.startswith("core"):
            binds = Binding("dependent misses", source["basis"], source["source"],
                            tuple(source["fitted_to"]))  # fmt: skip
        if ssd:
            binds = Binding("SSD", wait["basis"], wait["source"], tuple(wait["fitted_to"]))
        values = {
            "slowdown": Estimate(slowdowns[0], min(slowdowns), max(slowdowns)),
            "operations": Estimate(rates[0], min(rates), max(rates)), "on slow": exactly(share),
        }  # fmt: skip
        return Row(name, values, binds, given)

    def rows(self) -> list[Row]:
        fast, slow = KINDS[self.fast], KINDS[self.slow]
        pages = self.slow_pages()
        found = [self.row(f"all {fast}", 0.0), self.row(f"all {slow}", 1.0)]
        for first, second in ((3, 1), (1, 1), (1, 3)):
            found.append(self.row(f"{fast}:{slow} {first}:{second}", second / (first + second)))
        found.append(self.row("first touch", self.slow_accesses(pages), given=self.placed is None))
        if self.placed is not None:
            found.append(self.row("given share", self.slow_accesses(self.placed), given=True))
        if pages > 0:
            cost = self.constants["promotion"]
            more = Estimate(cost["value"], cost["low"], cost["high"])
            found.append(self.row("promotion", self.constants["on_its_way"]["value"], more=more))
        times = {i / 20: self.time(self.lines[0], i / 20)[0].value for i in range(20)}
        best = min(times, key=lambda part: times[part])
        if best:
            found.append(self.row(f"best share, {best:.0%} on {slow}", best))
        for part in (0.2, 0.4):
            found.append(self.row(f"{fast}, {part:.0%} on SSD", 0.0, ssd=self.cold_accesses(part)))
        return found


def harmonic(count_of: float) -> float:
    """Sum of 1 / rank^0.99 over the first ranks: the weight of the most used records."""
    if count_of < 1:
        return max(0.0, count_of)
    power = 1 - _ZIPF
    return 1.0 + (math.pow(count_of, power) - 1.0) / power


WORKLOAD = Workload(
    "kv",
    "Predict a key-value server with data on main memory and CXL.",
    """Slowdown is relative to all data in main memory. First touch: main memory
    is taken by --cold first; records follow in the order of insertion.

    \b
    headrace predict kv --machine cxl-a1000 --size 52GB --cold 980GB
    headrace predict kv --distribution latest --sweep cold=960GB,980GB,1000GB""",
    (
        Axis("size", "SIZE", size_of, "52GB", "Size of the data."),
        Axis("value", "SIZE", size_of, "1KiB", "Size of a record."),
        Axis("distribution", "WORD", DISTRIBUTIONS, "zipfian", "Use of records: "
             + ", ".join(DISTRIBUTIONS) + "."),
        Axis("cold", "SIZE", size_of, None, "Memory that was taken before the data."),
        Axis("reserved", "SIZE", size_of, None,
             "Main memory that others hold (default: 3 %)."),
        Axis("placed", "SHARE", parse.share, None,
             "Share of the data on slow memory (default: by first touch)."),
        Axis("threads", "NUMBER", count, "1", "Number of threads that serve."),
        *TWO_KINDS,
    ),
    COLUMNS,
    predict,
    "cxl-a1000",
)  # fmt: skip
command = command_of(WORKLOAD)
