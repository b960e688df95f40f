# SPDX-License-Identifier: Apache-2.0
"""Spark with its memory interleaved over main memory and CXL, promoted, or spilled
(docs/design/workloads/spark.md): every thread computes, waits for one line, and computes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace._cli import parse
from headrace_bench.predict import kv, places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import TWO_KINDS, Axis, Workload, command_of, number
from headrace_bench.predict.target import KINDS, Binding, Estimate, Speed, Target, exactly

COLUMNS = (Column("slowdown", "x"), Column("on slow", "x"))
#: A line is loaded, or loaded and stored later: 2 loads to a store in the traffic.
_MIX = {"read": 0.5, "store": 0.5}


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    constants = places.constants("spark")
    fast, slow = places.two_kinds(target, settings)
    cpu = settings["cpu"] or constants["cpu_ns"]["value"]
    fresh, touched = constants["fresh"]["value"], constants["touched"]["value"]
    fitted = tuple(constants["cpu_ns"]["fitted_to"])

    def speed(share: float) -> Speed:
        return kv.closed_loop(target, target.cpu_nodes, None, (fast, slow), share, cpu, _MIX)

    alone = speed(0.0).rate

    def row(name: str, share: float, *, given: bool = False) -> Row:
        found = speed(share)
        # Both ends of the interval come from the same machine, so they are compared like with like.
        ends = [alone.at(end) / found.rate.at(end) for end in ("value", "low", "high")]
        times = Estimate(ends[0], min(ends), max(ends))
        values = {"slowdown": times, "on slow": exactly(share)}
        return Row(name, values, replace(found.binds, fitted_to=fitted), given=given)

    names = KINDS[fast], KINDS[slow]
    rows = [row(f"all {names[0]}", 0.0)]
    for first, second in ((3, 1), (1, 1), (1, 3)):
        given = (first, second) == (1, 1)
        share = second / (first + second)
        rows.append(row(f"{':'.join(names)} {first}:{second}", share, given=given))
    rows.append(row("promotion from 1:1", 0.5 * fresh))
    # Each spilled byte is written and read.
    spilled = 2 * constants["spilled"]["value"] * alone.value / touched
    seconds = 1 + spilled / settings["ssd"]
    ssd = Binding("SSD", constants["spilled"]["basis"], constants["spilled"]["source"])
    rows.append(Row("spilled to SSD", {"slowdown": exactly(seconds), "on slow": None}, ssd))
    return rows


def rate_of_ssd(text: str) -> float:
    return float(parse.rate(text))


WORKLOAD = Workload(
    "spark",
    "Predict Spark with memory interleaved, promoted or spilled.",
    """Slowdown is relative to all data in main memory.

    \b
    headrace predict spark --machine cxl-a1000
    headrace predict spark --sweep cpu=40,80,160""",
    (
        Axis("cpu", "NS", number("time in ns", 63.8), None,
             "Computing per line of memory, ns (default: fitted)."),
        Axis("ssd", "RATE", rate_of_ssd, "1GB/s", "Rate of the SSD that spilled bytes go to."),
        *TWO_KINDS,
    ),
    COLUMNS,
    predict,
    "cxl-a1000",
)  # fmt: skip
command = command_of(WORKLOAD)
