# SPDX-License-Identifier: Apache-2.0
"""A query over columns in main memory, with HBM beside it: read directly, prefetched by plans, all
in HBM, or with HBM as a cache. Cache, Mover, plans and pipeline are those of production, in virtual
time (benchmarks/query/simulated).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import headrace
from headrace._cli import parse
from headrace_bench import _core
from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, size_of
from headrace_bench.predict.target import Access, Binding, Estimate, Target, exactly

COLUMNS = (
    Column("time", "s"), Column("first pass", "s"), Column("data", "B/s"), Column("waited", "x"),
)  # fmt: skip
ENGINES = ("cpu", "dsa")
ROUTES = ("measured", "one", "brute_force", "smart")


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    if "hbm" not in target.kinds:
        raise headrace.UnsupportedError(
            f"{target.name} has no HBM to prefetch into; take --machine xeon-max"
        )
    size = settings["working_set"]
    places.check_fits(target, size)
    run = Query(settings)
    engines = {engine["kind"] for engine in target.document["engines"]}
    chosen = settings["engine"]
    if chosen == "dsa" and "dsa" not in engines:
        raise headrace.UnsupportedError(f"{target.name} has no DSA; add some: --add dsa:8")
    copying = chosen or ("dsa" if "dsa" in engines else "cpu")
    room = target.capacity(target.of_kind("dram"))
    rows = []
    if room is None or size <= room:
        rows.append(run.row("direct from DDR", target, "direct"))
        for engine in dict.fromkeys((copying, "cpu") if chosen is None else (copying,)):
            words = "prefetched by " + ("DSA" if engine == "dsa" else "cores")
            rows.append(run.row(words, target, "prefetch", engine, given=engine == copying))
    there = target.capacity(target.of_kind("hbm"))
    if there is None or size <= there:
        rows.append(run.row("all in HBM", target, "resident"))
    cached = target.in_cache_mode()
    if cached is not None and (room is None or size <= room):
        rows.append(run.row("HBM as a cache", cached, "cache"))
    return rows


@cache
def operators(query: str) -> Any:
    """Cost of the operators, measured once on a host and kept, so that predictions are the same
    everywhere.
    """
    kept = json.loads(files(__package__).joinpath("operators.json").read_text("utf-8"))
    return kept[query]


class Query:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.stop = settings.get("stop")
        self.progress = settings.get("progress") or (lambda done, total, what: None)
        options = {
            "query": settings["query"], "working_set_bytes": settings["working_set"],
            "passes": settings["passes"], "chunk_bytes": settings["chunk"],
            "lead_seconds": settings["lead"], "seed": settings["seed"],
            "window_bytes": settings["window"], "budget_bytes": settings["budget"],
            "groups": settings["groups"], "route": settings["route"],
            "workers": settings["workers"], "operators": operators(settings["query"]),
        }  # fmt: skip
        options["threads"], options["aggregators"] = settings["threads"] or (None, None)
        self.options = {name: value for name, value in options.items() if value is not None}

    def row(self, words: str, target: Target, mode: str, engine: str = "cpu", *,
            given: bool = False) -> Row:  # fmt: skip
        found = self._run(target.document, mode, engine, words)
        if not found["passes"]:  # stopped before the first was complete
            return Row(words, {"time": None}, Binding("stopped"), given)
        seconds, spread = _seconds(found), self._spread(target, mode)
        time = Estimate(seconds, seconds * spread.low, seconds * spread.high)
        waited = _waited(found)
        values = {
            "time": time, "first pass": exactly(float(found["passes"][0]["seconds"])),
            "data": time.inverse(float(found["working_set_bytes"])),
            "waited": Estimate(waited, waited, waited),
        }  # fmt: skip
        return Row(words, values, self._binds(target, found), given)

    def _run(
        self, machine: Mapping[str, Any], mode: str, engine: str, words: str
    ) -> dict[str, Any]:
        options = self.options | {"mode": mode}
        if mode == "prefetch":
            options["engine"] = engine
        kept = {k: v for k, v in machine.items() if k not in ("rows", "conditions")}
        found: dict[str, Any] = json.loads(
            _core.simulate_query(
                json.dumps(kept), json.dumps(options), stop=self.stop,
                progress=lambda done, total: self.progress(done, total, words),
            )  # fmt: skip
        )
        return found

    def _spread(self, target: Target, mode: str) -> Estimate:
        """Ends of times by the value, as reads of the memory that has the columns have them."""
        read = Access(places.near("hbm" if mode == "resident" else "dram"), "read", 1.0)
        cpus = sum(len(target.nodes[node]["cpus"]) for node in target.cpu_nodes)
        rate = target.together(target.cpu_nodes, cpus, [read], "sequential load").rate
        return Estimate(1.0, rate.value / rate.high, rate.value / rate.low)

    def _binds(self, target: Target, found: Mapping[str, Any]) -> Binding:
        """The limit that the query's threads met for the most time."""
        limits: dict[str, float] = {}
        for flow in found["flows"]:
            for each in flow["limited"]:
                limits[each["by"]] = limits.get(each["by"], 0.0) + each["seconds"]
        name = max(sorted(limits), key=lambda each: limits[each], default="nothing")
        return target.binding(name)


def stages(text: str) -> tuple[int, int | None]:
    """Threads that take whole chunks; or threads that filter, and threads that aggregate."""
    one, plus, two = text.partition("+")
    return count(one), count(two) if plus else None


def _seconds(found: Mapping[str, Any]) -> float:
    """Seconds of the last pass, which finds what the passes before left in fast memory."""
    passes: Sequence[Mapping[str, float]] = found["passes"]
    return passes[-1]["seconds"]


def _waited(found: Mapping[str, Any]) -> float:
    """Share of the threads' time in which they waited for blocks."""
    waited = sum(each["waited_seconds"] for each in found["passes"])
    computed = sum(each["computed_seconds"] for each in found["passes"])
    return waited / (waited + computed) if waited + computed else 0.0


WORKLOAD = Workload(
    "query",
    "Predict a query whose columns are prefetched into HBM.",
    """Cache, plans, Mover and pipeline run as they are, in virtual time. Each node
    with CPUs scans its part of the columns. The time is that of the last pass.

    \b
    headrace predict query --machine xeon-max
    headrace predict query --machine xeon-max --sweep working_set=16GiB,256GiB
    headrace predict query --engine dsa --sweep window=16MiB,64MiB""",
    (
        Axis("query", "NAME", ("q6", "q1", "sum"), "q6", "Query: sum, q6 or q1."),
        Axis("working_set", "SIZE", size_of, "64GiB", "Size of all columns."),
        Axis("groups", "NUMBER", count, None, "Nodes with CPUs that scan a part (default: all)."),
        Axis("threads", "NUMBER", stages, None,
             "Threads per node (default: all but copying ones); 8+4: 8 filter, 4 aggregate."),
        Axis("passes", "NUMBER", count, "3", "Number of scans, one after another."),
        Axis("chunk", "SIZE", size_of, "4MiB", "Size of a chunk of the widest column."),
        Axis("lead", "TIME", parse.duration, None, "Time by which copies are ahead."),
        Axis("window", "SIZE", size_of, None, "Most bytes that a plan is ahead."),
        Axis("budget", "SIZE", size_of, None, "Cache per node (default: its HBM)."),
        Axis("engine", "ENGINE", ENGINES, None, "Engine that copies: dsa or cpu."),
        Axis("route", "ROUTE", ROUTES, None, "Route: " + ", ".join(ROUTES) + "."),
        Axis("workers", "NUMBER", count, None, "Number of cores per node that copy."),
    ),
    COLUMNS,
    predict,
)  # fmt: skip
command = command_of(WORKLOAD)
