# SPDX-License-Identifier: Apache-2.0
"""The model of a machine, learned from the rows of its profile: no counters, no root.

Ceilings of single memories come first. Then rows in which several memories, clusters of cores or
CPU nodes work together are predicted from what is known so far, the smallest groups first. A row
that is slower than predicted shows a ceiling that the group shares. Noise makes none: the upper end
of the measured interval must be below the lower end of the prediction by `MARGIN`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import headrace
from headrace._run.plan import numbers, ranges
from headrace_bench.predict import learned_devices
from headrace_bench.predict.target import KINDS, LINE, Target

Document = dict[str, Any]
#: A claim of a shared ceiling needs this distance beyond intervals: predictions of machines without
#: one are nearer than this to what they stand for (tests/python/predict/test_learned.py).
MARGIN = 0.1
#: Half the interval of a row with fewer than three samples, and of the lines that threads keep in
#: flight, both relative (assumed).
DOUBT, LINES_DOUBT = 0.1, 0.05
#: Least rows of `loaded` for a queue.
_LOADS = 4
#: Steps that raise a ceiling from the measured rate, which a full load nearly reaches, to its own.
_STEPS = 8
#: A queue that is empty until its ceiling is full, as those of fabrics and links: see machines/.
_SHARP = [[0.9, 3], [0.97, 10], [1, 40]]
#: Mixes of `measure bandwidth`: share of writes in the bytes at the memory, and these bytes by
#: those of the row, which leave out the reads that ordinary stores cause.
MIXES = {
    "read": (0.0, 1.0), "3:1": (1 / 5, 5 / 4), "2:1": (1 / 4, 4 / 3), "1:1": (1 / 3, 3 / 2),
    "write": (1 / 2, 2.0), "nt_write": (1.0, 1.0),
}  # fmt: skip
_PURE = {"read": ("read", "sequential load"), "nt_write": ("write", "nt store")}
#: Lines by kind of access, of those of a thread that reads in order: the proportions of Sapphire
#: Rapids (assumed).
_PARTS = {"random load": 0.5, "random update": 0.4, "prefetched load": 0.7, "nt store": 1.4}
_COUNTS = {"read": "reads", "nt_write": "writes"}
_MEASURED = {"basis": "measured", "source": "the profile"}
_NEEDED = {
    "latency": ("cpu_node", "memory_node"),
    "bandwidth": ("cpu_node", "memory_node", "mix", "threads"),
    "split": ("cpu_node", "memory_node", "other_memory_node", "ratio", "threads"),
}
_RATIO = "(?!0+:0+$)[0-9]+:[0-9]+"


@dataclass(frozen=True)
class Rate:
    """A measured rate in bytes per second at the memory, and the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def doubt(self) -> float:
        return (self.high - self.low) / 2 / self.value


@dataclass(frozen=True)
class Shared:
    """A shared ceiling that the profile shows."""

    name: str
    experiment: str  #: of the rows that show it
    bandwidth: float  #: the most that was measured through it, bytes per second
    apart: float  #: what the group would reach without it
    counts: str  #: reads, writes, both

    def __str__(self) -> str:
        what = "reads and writes" if self.counts == "both" else self.counts
        return (
            f"{self.name} share a ceiling of {headrace.format_rate(self.bandwidth)} ({what}): "
            f"{1 - self.bandwidth / self.apart:.0%} below the {headrace.format_rate(self.apart)} "
            "that threads and memories would reach without it."
        )


@dataclass
class _Threads:
    """Threads of one node with the memories that each reads, and their parts of its bytes."""

    node: int
    threads: int
    parts: Mapping[int, float]
    cpus: str = ""


@dataclass
class _Group:
    """Rows of the same threads and memories."""

    name: str
    kind: str
    experiment: str
    #: For each mix: what ran together and its rate. `split` gives one for each ratio.
    rows: dict[str, list[tuple[list[_Threads], Rate]]] = field(default_factory=dict)
    #: Paths of the ceiling, one for each part of the machine that is like this one.
    paths: list[Document] = field(default_factory=list)
    order: tuple[int, int] = (0, 0)


def machine_of(profile: headrace.Profile) -> Document:
    """The machine of a profile with its model, or one that is learned from its rows.
    InvalidError: too few rows to learn from.
    """
    found = dict(profile.machine.asdict())
    return found if found.get("model") else learn(profile)[0]


def learn(profile: headrace.Profile) -> tuple[Document, list[Shared]]:
    """The machine with a model from the rows, and the shared ceilings among its own.
    InvalidError: no bandwidths, no latencies, or no rate of one thread.
    """
    made = dict(profile.machine.asdict())
    nodes = {node["id"] for node in made["nodes"]}
    rows = [row for row in profile.rows if row.median and _is_whole(row, nodes)]
    latencies = _latencies(rows)
    alone = _alone(rows)
    cores = _cores(made, rows, latencies)
    if not cores:
        missing = " and no ".join(
            word for word, found in (("latencies", latencies), ("bandwidths", alone)) if not found
        ) or "rate of one thread in local memory"  # fmt: skip
        raise headrace.InvalidError(
            f"the profile has no {missing} to predict from; run: headrace measure latency "
            "bandwidth split --out profile.json"
        )
    made["model"] = {
        "ceilings": [_controller(node, by_mix) for node, by_mix in sorted(alone.items())],
        "latencies": [
            {"from": [cpu], "to": [memory], "read_ns": ns, "uncertainty": 0.05, **_MEASURED}
            for (cpu, memory), ns in sorted(latencies.items())
        ],
        "cores": cores,
    }
    for ceiling in made["model"]["ceilings"]:
        _fit_queue(made, ceiling, rows)
    for part, of_devices in learned_devices.learn(made, rows).items():
        made["model"][part] += of_devices
    groups = _groups(made, rows, latencies)
    shared = [(group, found) for group in groups if (found := _shared(made, group))]
    # The path between two nodes is no news; that several of them share it is.
    return made, [found for group, found in shared if group.order[0] > 0]


def findings(profile: headrace.Profile, experiment: str) -> list[str]:
    """Sentences on the shared ceilings that the rows of an experiment show."""
    of_groups = any(r.experiment == "split" or "on" in r.parameters for r in profile.rows)
    if experiment not in ("bandwidth", "split") or not of_groups:
        return []
    try:
        shared = learn(profile)[1]
    except headrace.InvalidError:  # too few rows
        return []
    return [str(each) for each in shared if each.experiment == experiment]


def _is_whole(row: headrace.Row, nodes: Iterable[int]) -> bool:
    """Whether a row has the parameters of its experiment, and its nodes are the machine's."""
    at, needed = row.parameters, _NEEDED.get(row.experiment, ())
    if not set(needed) <= at.keys():
        return False
    named = [node for name in needed if name.endswith("node") for node in _numbers(at[name])]
    ratio = str(at.get("ratio", "1:0"))
    return set(named) <= set(nodes) and re.fullmatch(_RATIO, ratio) is not None


def _rate(row: headrace.Row, factor: float = 1.0) -> Rate:
    value = float(row.median or 0.0)
    low, high = row.low, row.high
    if low is None or high is None:
        low, high = value * (1 - DOUBT), value * (1 + DOUBT)
    return Rate(value * factor, float(low) * factor, float(high) * factor)


def _latencies(rows: Iterable[headrace.Row]) -> dict[tuple[int, int], float]:
    """Rows of memory in huge pages, where that was measured: without misses of the TLB."""
    found: dict[tuple[int, int], tuple[bool, float]] = {}
    for row in rows:
        at = row.parameters
        if row.experiment == "latency":
            key = int(at["cpu_node"]), int(at["memory_node"])
            huge = at.get("pages") == "huge" and at.get("window") in (None, "all")
            found[key] = max(found.get(key, (False, 0.0)), (huge, float(row.median or 0.0)))
    return {key: ns for key, (_, ns) in found.items()}


def _alone(rows: Iterable[headrace.Row]) -> dict[int, dict[float, Rate]]:
    """The most of each memory by share of writes, by the threads of one node."""
    found: dict[int, dict[float, Rate]] = {}
    for row in rows:
        at = row.parameters
        if row.experiment != "bandwidth" or at.get("mix") not in MIXES or "on" in at:
            continue
        share, factor = MIXES[str(at["mix"])]
        by_mix, rate = found.setdefault(int(at["memory_node"]), {}), _rate(row, factor)
        if share not in by_mix or rate.value > by_mix[share].value:
            by_mix[share] = rate
    return found


def _controller(node: int, by_mix: Mapping[float, Rate]) -> Document:
    return {
        "name": f"memory of node {node}", "kind": "controller", "to": [node],
        "bandwidth": [[share, rate.value] for share, rate in sorted(by_mix.items())],
        "uncertainty": min(0.5, max(0.02, *(rate.doubt for rate in by_mix.values()))), **_MEASURED,
    }  # fmt: skip


def _cores(
    machine: Document, rows: Sequence[headrace.Row], latencies: Mapping[tuple[int, int], float]
) -> list[Document]:
    """Lines that a thread has in flight, by Little's law from the rate of one alone."""
    cores = []
    for node in (each["id"] for each in machine["nodes"] if each["cpus"]):
        lines: dict[str, float] = {}
        for mix, (_, access) in _PURE.items():
            alone = [
                float(row.median or 0.0) for row in rows
                if row.experiment == "bandwidth" and row.parameters.get("threads") == 1
                and row.parameters.get("mix") == mix and "pattern" not in row.parameters
                and row.parameters["cpu_node"] == row.parameters["memory_node"] == node
            ]  # fmt: skip
            if alone and (node, node) in latencies:
                lines[access] = max(1.0, max(alone) * latencies[node, node] * 1e-9 / LINE)
        if "sequential load" in lines:
            one = lines["sequential load"]
            others = {name: max(1.0, one * part) for name, part in _PARTS.items()}
            cores.append({
                "nodes": [node], "lines_in_flight": others | lines | {"dependent load": 1.0},
                "uncertainty": LINES_DOUBT, **_MEASURED,
            })  # fmt: skip
    return cores


def _fit_queue(machine: Document, ceiling: Document, rows: Iterable[headrace.Row]) -> None:
    """The queue that `loaded` rows show; else the default or the sharp one, whichever fits reads by
    fewer threads, and the bandwidth so that all threads read as fast as they did.
    """
    node = ceiling["to"][0]
    found: dict[int, list[tuple[list[_Threads], Rate]]] = {}  # by CPU node
    for row in rows:
        at = row.parameters
        if row.experiment == "bandwidth" and at.get("mix") == "read" and at["memory_node"] == node:
            if "on" not in at and "pattern" not in at:
                threads = _Threads(int(at["cpu_node"]), int(at["threads"]), {node: 1.0})
                found.setdefault(threads.node, []).append(([threads], _rate(row)))
    if not found:
        return
    scaling = max(found.values(), key=lambda each: max(rate.value for _, rate in each))
    best = max(scaling, key=lambda each: each[1].value)
    plain, fits = ceiling["bandwidth"], []
    if points := _loaded_queue(node, best[1].value, rows):
        target, full = Target(machine), best[0][0]
        lines = full.threads * target.lines(full.node, "sequential load")[0]
        # All threads together: by Little's law.
        added = lines * LINE / best[1].value * 1e9 - target.latency(full.node, node)
        ceiling["queue"] = [*points, [1, max(added, 1.01 * points[-1][1])]]
        return
    for queue in ({}, {"queue": _SHARP}):
        ceiling |= queue | {"bandwidth": plain}
        _raise(machine, [ceiling], best[1].value, best[0], "read")
        target = Target(machine)
        errors = [math.log(_predicted(target, flows, "read") / rate.value) ** 2
                  for flows, rate in scaling]  # fmt: skip
        fits.append((sum(errors), ceiling["bandwidth"], queue))
    del ceiling["queue"]
    _, bandwidth, queue = min(fits, key=lambda each: each[0])
    ceiling |= queue | {"bandwidth": bandwidth}


def _loaded_queue(
    node: int, most: float, rows: Iterable[headrace.Row]
) -> list[list[float]]:
    """Added latency by utilisation, from a chase beside reads of the same memory by CPUs of one
    node. Empty: fewer than `_LOADS` such rows.
    """
    found: dict[int, list[tuple[float, float]]] = {}  # by CPU node
    for row in rows:
        at = row.parameters
        nodes = {at.get(name) for name in ("memory_node", "traffic_memory_node")}
        if row.experiment != "loaded" or at.get("mix") != "read" or nodes != {node}:
            continue
        near = at.get("cpu_node") == at.get("traffic_cpu_node")
        if near and {"bandwidth", "idle"} <= {*row.details}:
            added = float(row.median or 0.0) - float(row.details["idle"])
            of_node = found.setdefault(int(at["cpu_node"]), [])
            of_node.append((float(row.details["bandwidth"]), added))
    points: list[list[float]] = []
    curves: list[list[tuple[float, float]]] = sorted(found.values(), key=len)
    for rate, added in sorted(curves[-1] if curves else []):
        use = rate / most
        last = points[-1] if points else [0.0, 0.0]
        if last[0] < use < 1 and added > last[1]:
            points.append([use, added])
    return points if len(points) >= _LOADS else []


# Groups of rows


def _groups(
    machine: Document, rows: Iterable[headrace.Row], latencies: Mapping[tuple[int, int], float]
) -> list[_Group]:
    """Rows of all threads of a part, the smallest parts first."""
    cpus = {node["id"]: list(node["cpus"]) for node in machine["nodes"] if node["cpus"]}
    rows = list(rows)
    most: dict[Any, int] = {}  # threads of rows of a node
    for row in rows:
        at = row.parameters
        if row.experiment == "bandwidth" and "on" not in at:
            most[at["cpu_node"]] = max(most.get(at["cpu_node"], 0), int(at["threads"]))
    found: dict[tuple[Any, ...], _Group] = {}
    for row in rows:
        at = row.parameters
        made: _Made | None
        if row.experiment == "split":
            made = _of_split(machine, row)
        elif row.experiment == "bandwidth" and at.get("mix") in MIXES and "pattern" not in at:
            if "on" in at:
                made = _of_team(machine, row, cpus, latencies)
            else:
                made = _of_pair(row) if at["threads"] == most[at["cpu_node"]] else None
        else:
            continue
        if made is None:
            continue
        key, group, flows = made
        mix = str(at.get("mix", "read"))
        rate = _rate(row, MIXES[mix][1])
        found.setdefault(key, group).rows.setdefault(mix, []).append((flows, rate))
    return sorted(found.values(), key=lambda group: group.order)


_Made = tuple[tuple[Any, ...], _Group, list[_Threads]]


def _of_pair(row: headrace.Row) -> _Made:
    at = row.parameters
    cpu, memory = int(at["cpu_node"]), int(at["memory_node"])
    name = f"CPUs of node {cpu} and memory of node {memory}"
    group = _Group(name, "link", "bandwidth", paths=[{"from": [cpu], "to": [memory]}])
    return ("pair", cpu, memory), group, [_Threads(cpu, int(at["threads"]), {memory: 1.0})]


def _of_split(machine: Document, row: headrace.Row) -> _Made:
    at = row.parameters
    cpu, one, other = (int(at[n]) for n in ("cpu_node", "memory_node", "other_memory_node"))
    first, _, second = str(at["ratio"]).partition(":")
    share = float(row.details.get("share", int(second) / (int(first) + int(second))))
    parts = {node: part for node, part in ((one, 1 - share), (other, share)) if part > 0}
    kinds = {node["id"]: KINDS.get(node["kind"], node["kind"]) for node in machine["nodes"]}
    words = " and ".join(f"{kinds[node]} of node {node}" for node in sorted((one, other)))
    group = _Group(
        words, "fabric", "split", paths=[{"from": [cpu], "to": sorted((one, other))}], order=(2, 0)
    )
    return ("split", cpu, *sorted((one, other))), group, [_Threads(cpu, int(at["threads"]), parts)]


def _of_team(
    machine: Document, row: headrace.Row, cpus: Mapping[int, list[int]],
    latencies: Mapping[tuple[int, int], float],
) -> _Made | None:  # fmt: skip
    """None: only some of its CPUs work, or one core alone."""
    at = row.parameters
    on, placed = str(at["on"]), str(at.get("placed", "near"))
    if "order" in at or on == "core":
        return None
    homes, memories = _numbers(at["cpu_node"]), _numbers(at["memory_node"])
    used = numbers(row.cpus) if row.cpus else [c for n in homes for c in cpus[n]]
    sockets = {node["id"]: node.get("socket") for node in machine["nodes"]}
    flows = []
    for home in homes:
        mine = [cpu for cpu in used if cpu in cpus[home]]
        beside = [each for each in homes if sockets[each] == sockets[home]]
        # As src/place/team.cpp: of equally far nodes each CPU node begins with another.
        turn = range(beside.index(home), len(mine) * len(beside), len(beside))
        chosen = [memories] if placed == "interleave" else [
            [near[i % len(near)]] for near in [_by_latency(home, memories, latencies, placed)]
            for i in (turn if placed == "far" else range(len(mine)))
        ]  # fmt: skip
        parts: dict[int, float] = {}
        for nodes in chosen:
            for node in nodes:
                parts[node] = parts.get(node, 0.0) + 1 / len(nodes) / len(chosen)
        flows.append(_Threads(home, len(mine), parts, ranges(mine) if on == "cluster" else ""))
    path: list[Document]
    if on == "cluster":
        path, order = [{"cpus": ranges(each)} for each in _clusters(machine, used)], (1, 0)
        name = f"CPUs {ranges(used)}"
    else:
        path, order = [{"from": homes, "to": memories}], (3, len(homes))
        kinds = {node["id"]: node["kind"] for node in machine["nodes"]}
        alike = [node for node in kinds if kinds[node] == kinds[memories[0]]]
        for text in row.stands_for:
            parameter, _, cpu_nodes = text.partition("=")
            if parameter == "cpu_node" and placed != "interleave":
                others = numbers(cpu_nodes)
                to = {
                    n for each in others for n in _by_latency(each, alike, latencies, placed)
                }
                path.append({"from": others, "to": sorted(to)})
        name = f"CPUs of nodes {ranges(homes)} with {placed} memory of nodes {ranges(memories)}"
    group = _Group(name, "cluster" if on == "cluster" else "fabric", "bandwidth", paths=path,
                   order=order)  # fmt: skip
    return ("team", on, placed, tuple(used), tuple(memories)), group, flows


def _by_latency(
    home: int, memories: Sequence[int], latencies: Mapping[tuple[int, int], float], placed: str
) -> list[int]:
    """The memories that are nearest, or farthest, from the CPUs of a node."""
    ns = {node: latencies.get((home, node), 0.0 if node == home else 1e9) for node in memories}
    chosen = max(ns.values()) if placed == "far" else min(ns.values())
    return [node for node in memories if abs(ns[node] - chosen) <= 0.03 * chosen]


def _clusters(machine: Document, cpus: Sequence[int]) -> list[list[int]]:
    """The CPUs, and those of every other cache like theirs."""
    caches = [c for c in machine.get("caches", ()) if set(c["cpus"]) == set(cpus)]
    if not caches:
        return [list(cpus)]
    level = caches[-1]["level"]
    return [c["cpus"] for c in machine["caches"]
            if c["level"] == level and len(c["cpus"]) == len(cpus)]  # fmt: skip


def _numbers(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else numbers(str(value))


# Claims


def _flows(target: Target, flows: Sequence[_Threads], mix: str) -> list[dict[str, Any]]:
    kind, access = _PURE[mix]
    made = []
    for each in flows:
        lines, doubt = target.lines(each.node, access)
        made.append({
            "name": f"node {each.node}", "threads": each.threads, "initiator": each.node,
            "accesses": [{"node": node, "kind": kind, "bytes": part}
                         for node, part in each.parts.items()],
            "in_flight_bytes": lines * LINE, "in_flight_uncertainty": doubt,
            **({"cpus": each.cpus} if each.cpus else {}),
        })  # fmt: skip
    return made


def _predicted(target: Target, flows: Sequence[_Threads], mix: str) -> float:
    return sum(speed.rate.value for speed in target.solve(_flows(target, flows, mix)))


def _shared(machine: Document, group: _Group) -> Shared | None:
    """Adds a ceiling to the machine where the group is slower than predicted without one."""
    short: dict[str, tuple[float, float]] = {}  # by mix: measured and predicted
    target = Target(machine)
    alone = [each for each in machine["model"]["ceilings"] if each["kind"] == "controller"]
    used = {node for rows in group.rows.values() for flows, _ in rows for each in flows
            for node in each.parts}  # fmt: skip
    doubts = {each["to"][0]: each["uncertainty"] for each in alone if each["to"][0] in used}
    if used > doubts.keys():
        return None  # nothing is known of one memory alone
    doubt = max(doubts.values())
    for mix in group.rows.keys() & _PURE.keys():
        for flows, rate in group.rows[mix]:
            expected = _predicted(target, flows, mix)
            if rate.high < (1 - MARGIN) * (1 - doubt) * expected:
                short[mix] = max(short.get(mix, (0.0, 0.0)), (rate.value, expected))
    if not short:
        return None
    most = {mix: max(each, key=lambda row: row[1].value) for mix, each in group.rows.items()}
    counts = "both" if len(short) == 2 or len(most) > 2 else _COUNTS[next(iter(short))]
    points = {MIXES[mix][0]: rate.value for mix, (_, rate) in most.items()}
    if counts != "both":
        points = {0.0: most[next(iter(short))][1].value}
    own = max(rate.doubt for each in group.rows.values() for _, rate in each)
    made = [{
        "name": f"CPUs {path['cpus']}" if "cpus" in path else group.name, "kind": group.kind,
        "paths": [path | {"counts": counts}], "queue": _SHARP,
        "bandwidth": [[share, rate] for share, rate in sorted(points.items())],
        "uncertainty": min(0.5, max(0.02, own)), **_MEASURED,
    } for path in group.paths]  # fmt: skip
    model = machine["model"]
    model["ceilings"] = [
        each for each in model["ceilings"] if not any(_within(each, other) for other in made)
    ] + made  # fmt: skip
    mix = max(short, key=lambda each: short[each][0])
    _raise(machine, made, most[mix][1].value, most[mix][0], mix)
    return Shared(group.name, group.experiment, *short[mix], counts)


def _within(one: Document, other: Document) -> bool:
    """Whether a path of two nodes is one of a shared ceiling that is as narrow."""
    if one["kind"] != "link":
        return False
    path, shared = one["paths"][0], other["paths"][0]
    if not all(set(path[key]) <= set(shared.get(key, ())) for key in ("from", "to")):
        return False
    if shared["counts"] not in ("both", path["counts"]):
        return False
    ends = dict(other["bandwidth"])
    share = {"writes": 1.0}.get(path["counts"], 0.0) if shared["counts"] == "both" else 0.0
    return bool(one["bandwidth"][0][1] >= (1 - MARGIN) * ends.get(share, math.inf))


def _raise(
    machine: Document, ceilings: Sequence[Document], measured: float, flows: Sequence[_Threads],
    mix: str,
) -> None:  # fmt: skip
    """Raises ceilings so far that the prediction is the measured rate, which is a little below what
    a full load would reach.
    """
    for _ in range(_STEPS):
        factor = measured / _predicted(Target(machine), flows, mix)
        if factor < 1.003:
            return
        for each in ceilings:
            each["bandwidth"] = [[share, rate * factor] for share, rate in each["bandwidth"]]
