# SPDX-License-Identifier: Apache-2.0
"""Bandwidth of memories by mix of reads and writes, and by threads per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count
from headrace_bench.predict.target import KINDS, Access, Estimate, Place, Target, exactly

COLUMNS = (Column("rate", "B/s"), Column("at memory", "B/s"), Column("latency", "ns"))
#: Parts of a byte of progress that are read, stored (the line is read first), and stored around the
#: caches.
MIXES: Mapping[str, tuple[float, float, float]] = {
    "read": (1.0, 0.0, 0.0), "write": (0.0, 1.0, 0.0), "nt_write": (0.0, 0.0, 1.0),
    "2:1": (2 / 3, 1 / 3, 0.0), "1:1": (0.5, 0.5, 0.0), "copy": (0.5, 0.0, 0.5),
}  # fmt: skip
PATTERNS = {"sequential": "sequential load", "random": "random load",
            "prefetched": "prefetched load"}  # fmt: skip


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    cpu_nodes = places.nodes(target, settings["nodes"]) if settings["nodes"] else target.cpu_nodes
    asked = places.place(target, settings["memory"])
    rows = [_row(target, cpu_nodes, settings, asked, given=True)]
    every = [places.near(kind) for kind in target.kinds]
    if len(every) > 1:
        first, second = target.kinds[:2]
        words = f"{KINDS[first]} and {KINDS[second]}, half each"
        every.append(places.mixed(first, 0.5, second, words))
    rows += [_row(target, cpu_nodes, settings, place) for place in every
             if place.words != asked.words]  # fmt: skip
    return rows


def _row(
    target: Target, cpu_nodes: Sequence[int], settings: Mapping[str, Any], place: Place, *,
    given: bool = False,
) -> Row:  # fmt: skip
    read, stored, around = MIXES[settings["mix"]]
    flight = PATTERNS[settings["pattern"]]
    if settings["mix"] == "nt_write":
        flight = "nt store"
    elif settings["mix"] == "write" and settings["pattern"] == "random":
        flight = "random update"
    accesses = [
        Access(place, kind, part)
        for kind, part in (("read", read), ("store", stored), ("write", around)) if part
    ]  # fmt: skip
    flows = []
    for node in cpu_nodes:
        cpus = sorted(target.nodes[node]["cpus"])
        threads = settings["threads"] or len(cpus)
        target.check_threads([node], threads)
        flow = target.flow(f"node {node}", node, threads, accesses, in_flight=flight)
        if threads < len(cpus):
            flow["cpus"] = ",".join(map(str, cpus[:threads]))
        flows.append(flow)
    speeds = target.solve(flows)
    rate = Estimate(
        *(sum(getattr(s.rate, end) for s in speeds) for end in ("value", "low", "high"))
    )
    slowest = min(speeds, key=lambda speed: speed.rate.value)
    values = {
        "rate": rate, "at memory": rate.scaled(read + 2 * stored + around),
        "latency": exactly(slowest.latency_ns),
    }  # fmt: skip
    return Row(place.words, values, slowest.binds, given)


WORKLOAD = Workload(
    "bandwidth",
    "Predict the bandwidth of memories by mix and threads.",
    """The rate counts bytes that the program reads and writes. At memory: with the
    lines that ordinary stores read first. Threads fill the CPUs of each node in
    their order.

    \b
    headrace predict bandwidth --machine xeon-max
    headrace predict bandwidth --machine epyc-9354p --mix write --threads 4""",
    (
        Axis("memory", "PLACE", str, "dram", "Memory: a kind, nodes, or both by weights."),
        Axis("mix", "MIX", tuple(MIXES), "read", "Mix: " + ", ".join(MIXES) + "."),
        Axis("pattern", "PATTERN", tuple(PATTERNS), "sequential", "Order: "
             + ", ".join(PATTERNS) + "."),
        Axis("threads", "NUMBER", count, None, "Number of threads per node (default: its CPUs)."),
        Axis("nodes", "LIST", str, None, "Nodes whose CPUs run them (default: all)."),
    ),
    COLUMNS,
    predict,
)  # fmt: skip
command = command_of(WORKLOAD)
