# SPDX-License-Identifier: Apache-2.0
"""A key-value server in memory (Redis, KeyDB) whose data are on main memory and CXL by a policy.

An operation takes CPU time and some dependent misses, each a latency of the memory where its line
is. Which accesses meet which memory follows from the order of records by use and by insertion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import headrace
from headrace._cli import parse
from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, size_of
from headrace_bench.predict.target import KINDS, Access, Binding, Estimate, Target

COLUMNS = (Column("slowdown", "x"), Column("operations", "/s"), Column("on slow", "x"))
DISTRIBUTIONS = ("zipfian", "latest", "uniform")
#: CPU time of an operation (docs/design/workloads/kv-model.md: Redis 7.0.15 on a VM).
CPU = 10.4e-6
#: Lines awaited in turn by an operation, and the ends of its interval: 22 % longer with all data on
#: CXL (V7, zipfian), up to 1.5 times with three quarters (EuroSys 2024).
LINES, FEWEST, MOST = 17.0, 12.0, 45.0
#: Part of DRAM that kernel and other programs hold (assumed).
RESERVED = 0.03
#: Time that finding and moving pages takes of a server's, while pressure lasts (assumed: 0 to 6 %).
PROMOTION = Estimate(0.03, 0.0, 0.06)
#: Share of accesses to slow memory with promotion: demotion keeps main memory free, so new records
#: begin there (fitted to V7: 0.1 to 1.3 of 52.6 GB were on CXL).
ON_ITS_WAY = 0.01
_ZIPF = 0.99


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    run = Server(target, settings)
    return run.rows()


class Server:
    def __init__(self, target: Target, settings: Mapping[str, Any]) -> None:
        self.target = target
        self.fast = settings["fast"]
        slower = [kind for kind in target.kinds if kind != self.fast]
        self.slow = settings["slow"] or (slower[-1] if slower else None)
        if self.slow is None:
            raise headrace.UnsupportedError(
                f"{target.name} has one kind of memory, so a server's data have no choice; "
                "take --machine cxl-a1000"
            )
        self.cpu_node = target.cpu_nodes[0]
        self.size = float(settings["size"])
        self.records = self.size / settings["value"]
        self.distribution = settings["distribution"]
        self.cold = float(settings["cold"] or 0)
        self.threads = settings["threads"]
        self.placed, self.reserved = settings["placed"], settings["reserved"]
        places.check_fits(target, self.size + self.cold, "the data with --cold")
        fast, slow = (Access(places.near(kind), "read", 1.0) for kind in (self.fast, self.slow))
        self.latency = {True: self._latency(fast), False: self._latency(slow)}

    def _latency(self, access: Access) -> Estimate:
        """Seconds of one line alone."""
        speed = self.target.together([self.cpu_node], 1, [access], 1.0)
        rate = speed.rate
        return Estimate(64 / rate.value, 64 / rate.high, 64 / rate.low)

    def slow_pages(self) -> float:
        """Share of the data that first touch leaves to slow memory: what cold memory and others,
        which came first, leave of main memory.
        """
        there = self.target.capacity(self.target.of_kind(self.fast))
        if there is None:
            return 0.0
        reserved = there * RESERVED if self.reserved is None else float(self.reserved)
        room = max(0.0, there - reserved - self.cold)
        return max(0.0, 1 - room / self.size)

    def slow_accesses(self, pages: float) -> float:
        """Share of accesses, where the last `pages` of the records by insertion are on slow memory.

        zipfian: popularity is spread over records by a hash, so accesses are as pages. latest: the
        newest records are the most used.
        """
        if self.distribution != "latest" or pages <= 0:
            return pages
        return min(1.0, harmonic(pages * self.records) / harmonic(self.records))

    def row(self, name: str, share: float, extra: Estimate | None = None, *,
            given: bool = False) -> Row:  # fmt: skip
        near, far = self.latency[True], self.latency[False]

        def time(lines: float, end: str) -> float:
            a, b = near.at(end), far.at(end)
            more = 1 + (extra.at(end) if extra else 0.0)
            return (CPU + lines * (a + share * (b - a))) * more

        def slowdown(lines: float, end: str) -> float:
            return time(lines, end) / (CPU + lines * near.at(end))

        value = slowdown(LINES, "value")
        ends = [slowdown(lines, end) for lines in (FEWEST, MOST) for end in ("low", "high")]
        slow = Estimate(value, min([*ends, value]), max([*ends, value]))
        rate = self.threads / time(LINES, "value")
        operations = Estimate(
            rate, self.threads / time(MOST, "high"), self.threads / time(FEWEST, "low")
        )
        on = Estimate(share, share, share)
        binds = Binding(
            "dependent misses", "fitted", f"{LINES:.0f} lines in turn, 12 to 45",
            ("V7, zipfian with all data on CXL",),
        )  # fmt: skip
        return Row(name, {"slowdown": slow, "operations": operations, "on slow": on}, binds, given)

    def rows(self) -> list[Row]:
        fast, slow = KINDS[self.fast], KINDS[str(self.slow)]
        pages = self.slow_pages()
        found = [self.row(f"all {fast}", 0.0), self.row(f"all {slow}", 1.0)]
        for first, second in ((3, 1), (1, 1), (1, 3)):
            found.append(self.row(f"{fast}:{slow} {first}:{second}", second / (first + second)))
        found.append(self.row("first touch", self.slow_accesses(pages), given=self.placed is None))
        if self.placed is not None:
            found.append(self.row("given share", self.slow_accesses(self.placed), given=True))
        if pages > 0:
            found.append(self.row("promotion", ON_ITS_WAY, PROMOTION))
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
        Axis("fast", "KIND", tuple(KINDS), "dram", "Main memory."),
        Axis("slow", "KIND", tuple(KINDS), None, "Other memory (default: the slowest kind)."),
    ),
    COLUMNS,
    predict,
    "cxl-a1000",
)  # fmt: skip
command = command_of(WORKLOAD)
