# SPDX-License-Identifier: Apache-2.0
"""The machine of a prediction: its memories by kind, and what the solver says of flows there."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import headrace
from headrace_bench import _core
from headrace_bench.predict.cache_mode import in_cache_mode

LINE = 64
#: Kinds of memory in words.
KINDS = {"dram": "DDR", "hbm": "HBM", "cxl": "CXL", "gpu": "GPU memory"}


@dataclass(frozen=True)
class Estimate:
    """A value and the two ends of its interval."""

    value: float
    low: float
    high: float

    def at(self, end: str) -> float:
        """`end`: value, low or high."""
        return {"value": self.value, "low": self.low, "high": self.high}[end]

    def scaled(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def inverse(self, factor: float = 1.0) -> Estimate:
        """`factor` / this: a time of a rate."""
        return Estimate(factor / self.value, factor / self.high, factor / self.low)


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


@dataclass(frozen=True)
class Share:
    """Part of an object's bytes on one node, or (`near`) on the node of a kind near each CPU."""

    part: float
    node: int | None = None
    near: str | None = None


@dataclass(frozen=True)
class Place:
    """Where an object is: shares that add up to 1, in words."""

    words: str
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Access:
    """Part of what a thread does for a byte of progress."""

    place: Place
    kind: str  #: "read", "write" (around the caches), "store"
    bytes: float
    #: Working set / size of the memory-side caches before it, and the order in which it is used.
    cache_ratio: float | None = None
    pattern: str = "scan"
    latency_ns: float | None = None  #: without load; None: the machine's


@dataclass(frozen=True)
class Binding:
    """The limit that a flow meets, and the constants behind it."""

    name: str
    basis: str = ""
    source: str = ""
    fitted_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Speed:
    """Progress in bytes per second of all threads."""

    rate: Estimate
    binds: Binding
    latency_ns: float
    loads: Mapping[str, float] = field(default_factory=dict)  #: utilisation by ceiling


class Target:
    """A machine with its constants. Single-thread."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.name = str(document["name"])
        self.nodes: dict[int, Any] = {node["id"]: node for node in document["nodes"]}
        self.bound = not document.get("model")

    @cached_property
    def _solver(self) -> _core.Solver:
        # Parts that are large and that it ignores are left out.
        return _core.Solver.create(json.dumps(
            {k: v for k, v in self.document.items() if k not in ("rows", "conditions")}
            | ({"copy_rates": []} if self.document.get("model") else {})
        ))  # fmt: skip

    @cached_property
    def cpu_nodes(self) -> list[int]:
        return [node["id"] for node in self.nodes.values() if node["cpus"]]

    @cached_property
    def model(self) -> Mapping[str, Any]:
        return self.document.get("model") or {}

    def of_kind(self, kind: str) -> list[int]:
        return [node["id"] for node in self.nodes.values() if node["kind"] == kind]

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds of memory that CPUs can load from."""
        found = {node["kind"] for node in self.nodes.values() if self.addressable(node["id"])}
        return [kind for kind in ("dram", "hbm", "cxl", "gpu") if kind in found]

    def addressable(self, node: int) -> bool:
        kind = self.nodes[node]["kind"]
        return kind != "storage" and (kind != "gpu" or node < 2000)

    def capacity(self, nodes: Iterable[int]) -> float | None:
        """Bytes of nodes together; None: one of them is unknown."""
        found = [self.nodes[node].get("capacity_bytes") for node in nodes]
        return None if None in found else float(sum(found))

    def side_cache(self, node: int) -> float | None:
        cache = self.nodes[node].get("memory_side_cache")
        return None if cache is None else float(cache["size_bytes"])

    def cores(self, node: int) -> Mapping[str, Any]:
        """The core model of a node's CPUs; empty: a machine without curves has none, and a learned
        one lacks some. UnsupportedError: the machine describes no cores, only a GPU.
        """
        if self.model and not self.model.get("cores"):
            raise headrace.UnsupportedError(
                f"the cores of {self.name} are not known, only its GPU and the link to it; it "
                "answers kvcache and copy; for others take another --machine"
            )
        for core in self.model.get("cores", ()):
            if not core.get("nodes") or node in core["nodes"]:
                return dict(core)
        return {}

    def engine(self, kind: str) -> Mapping[str, Any]:
        """Costs of an engine; of a kind that the machine has not, those of xeon-max."""
        for each in self.model.get("engines", ()):
            if each["kind"] == kind:
                return dict(each)
        other = Target(headrace.Machine.load("xeon-max").asdict()).engine(kind)
        return {**other, "basis": "assumed", "source": f"as of xeon-max: {other['source']}"}

    def lines(self, node: int, access: str) -> tuple[float, float]:
        """Lines that a core has in flight, and their relative uncertainty."""
        core = self.cores(node)
        found = core.get("lines_in_flight", {}).get(access, GENERIC_LINES[access])
        return float(found), float(core.get("uncertainty", 0.2) if core else 0.4)

    def stores(self, cpu_node: int, place: Place, stores: str) -> list[tuple[str, float]]:
        """Shares of the stores of whole lines that read the line first ("store"), and that do not
        ("write"). Cores that claim lines once memory is loaded do so for DDR and CXL: HBM is never
        the memory that they wait for (assumed).
        """
        claimed = 1.0
        if stores == "ordinary":
            slow = all(
                (share.near or self.nodes[share.node or 0]["kind"]) != "hbm"
                for share in place.shares
            )
            cached = any(self.side_cache(node) for node in self.cpu_nodes)
            core = self.cores(cpu_node)
            claimed = float(core.get("claimed_stores", 0.0)) if slow and not cached else 0.0
        return [(kind, part) for kind, part in (("store", 1 - claimed), ("write", claimed)) if part]

    def frequency(self, node: int) -> float:
        return float(self.cores(node).get("frequency_hz") or 2.5e9)

    def socket(self, node: int) -> Any:
        return self.nodes[node].get("socket")

    def near(self, cpu_node: int, kind: str) -> list[int]:
        """Nodes of a kind with the least distance from the CPUs of a node, by idle latency."""
        found = self.of_kind(kind)
        if not found:
            raise headrace.AbsentError(
                f"{self.name} has no {KINDS.get(kind, kind)}; it has "
                + ", ".join(KINDS[each] for each in self.kinds)
            )
        if cpu_node in found:
            return [cpu_node]
        same = [n for n in found if self.socket(n) == self.socket(cpu_node)] or found
        latency = {n: self.latency(cpu_node, n) for n in same}
        least = min(latency.values())
        return [n for n in same if latency[n] <= least * 1.001]

    def latency(self, cpu_node: int, node: int, *, writes: bool = False) -> float:
        for each in self.model.get("latencies", ()):
            if cpu_node in (each.get("from") or [cpu_node]) and node in (each.get("to") or [node]):
                if not each.get("side_cache"):
                    return float((each.get("write_ns") if writes else None) or each["read_ns"])
        for access in self.nodes[node].get("access", ()):
            if access["initiator"] == cpu_node and access.get("read_latency_ns"):
                return float(access["read_latency_ns"])
        return 100.0 if node == cpu_node else 150.0

    # Solving

    def flow(
        self, name: str, cpu_node: int, threads: float, accesses: Sequence[Access], *,
        in_flight: str | float, cap: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """A flow of threads of a node as the solver wants it. `in_flight`: lines, or the word of a
        kind of access.
        """
        lines, doubt = (
            self.lines(cpu_node, in_flight) if isinstance(in_flight, str) else (in_flight, 0.2)
        )
        made: dict[str, Any] = {
            "name": name, "threads": threads, "initiator": cpu_node,
            "accesses": [each for access in accesses for each in self._accesses(cpu_node, access)],
            "in_flight_bytes": lines * LINE, "in_flight_uncertainty": doubt,
        }  # fmt: skip
        if cap is not None:
            made["cap_bytes_per_second"] = cap
        return made

    def _accesses(self, cpu_node: int, access: Access) -> list[dict[str, Any]]:
        found = []
        for share in access.place.shares:
            one = share.node
            nodes = [one] if one is not None else self.near(cpu_node, share.near or "")
            for node in nodes:
                made: dict[str, Any] = {
                    "node": node, "kind": access.kind,
                    "bytes": access.bytes * share.part / len(nodes),
                }  # fmt: skip
                size = self.side_cache(node)
                if size is not None and access.cache_ratio is not None:
                    made["side_cache_hits"] = list(hits(access.pattern, access.cache_ratio))
                if access.latency_ns is not None:
                    made["latency_ns"] = access.latency_ns
                if made["bytes"] > 0:
                    found.append(made)
        return found

    def check_threads(self, cpu_nodes: Iterable[int], threads: float) -> None:
        """InvalidError: the nodes have fewer CPUs, so these threads do not run at once."""
        cpus = sum(len(self.nodes[node]["cpus"]) for node in cpu_nodes)
        if threads > cpus:
            raise headrace.InvalidError(
                f"{threads:g} threads are more than the {cpus} CPUs that {self.name} has for them; "
                "give fewer"
            )

    def together(
        self, cpu_nodes: Sequence[int], threads: float, accesses: Sequence[Access],
        in_flight: str | float, cap: float | None = None,
    ) -> Speed:  # fmt: skip
        """Threads spread evenly over nodes, each with an equal part of the work: the slowest thread
        decides. InvalidError: more threads than CPUs.
        """
        self.check_threads(cpu_nodes, threads)
        used = list(cpu_nodes)[: max(1, min(len(cpu_nodes), int(threads)))]
        each = threads / len(used)
        flows = [
            self.flow(f"threads of node {node}", node, each, accesses, in_flight=in_flight, cap=cap)
            for node in used
        ]
        speeds = self.solve(flows)
        slowest = min(speeds, key=lambda speed: speed.rate.value)
        return replace(slowest, rate=slowest.rate.scaled(len(used)))

    def solve(self, flows: Sequence[Mapping[str, Any]]) -> list[Speed]:
        """How fast the flows are beside each other."""
        answer = json.loads(self._solver.solve(json.dumps({"flows": list(flows)})))
        return [self._speed(each, answer) for each in answer["flows"]]

    def _speed(self, found: Mapping[str, Any], answer: Mapping[str, Any]) -> Speed:
        rate = Estimate(found["rate"], found["rate_low"], found["rate_high"])
        return Speed(rate, self.binding(found["limit"]), found["latency_ns"])

    def binding(self, name: str) -> Binding:
        """The constants behind the name of a limit."""
        for each in self.model.get("ceilings", ()):
            if re.fullmatch(re.escape(each["name"]).replace(r"\{\}", "[0-9]+"), name):
                found = tuple(each.get("fitted_to", ()))
                return Binding(name, each["basis"], each["source"], found)
        part = name.partition(":")[0]
        costs = [self.engine("dsa")] if part == "engine" else []
        for each in costs or (self.model.get("cores", ())[:1] if part == "core" else ()):
            return Binding(name, each["basis"], each["source"], tuple(each.get("fitted_to", ())))
        return Binding(name)

    def cache_ratio(self, cpu_nodes: Iterable[int], size: float) -> float | None:
        """A working set in the main memory of some CPUs by the caches before it; None: no cache."""
        nodes = {node for cpu in cpu_nodes for node in self.near(cpu, "dram")}
        caches = [self.side_cache(node) for node in nodes]
        return size / sum(filter(None, caches)) if any(caches) else None

    def in_cache_mode(self) -> Target | None:
        """The same machine with its HBM as a cache; None: it has no HBM to be one."""
        made = in_cache_mode(self.document)
        return None if made is None else Target(made)

    def constants(self) -> list[dict[str, Any]]:
        """Every constant of the model with its source; alike ones once."""
        found: dict[str, dict[str, Any]] = {}
        for part in ("ceilings", "latencies", "cores", "engines"):
            for each in self.model.get(part, ()):
                made = {
                    "part": part, **({"name": each["name"]} if "name" in each else {}),
                    **{key: each[key] for key in _VALUES if key in each},
                    "basis": each["basis"], "source": each["source"],
                    "fitted_to": each.get("fitted_to", []),
                }  # fmt: skip
                found.setdefault(json.dumps(made, sort_keys=True), made)
        return list(found.values())


#: Values of constants.
_VALUES = ("bandwidth", "read_ns", "lines_in_flight", "claimed_stores", "uncertainty",
           "bytes_per_second", "start_ns", "in_flight_bytes")  # fmt: skip


def hits(pattern: str, ratio: float) -> tuple[float, float, float]:
    """Share of accesses that a direct-mapped cache serves, with ends (src/model/side_cache.h)."""
    if pattern == "random":
        found = min(1.0, 1 / ratio)
        return found, found, found
    ends = sorted((max(0.0, min(1.0, (2 - ratio) / ratio)), math.exp(-ratio)))
    return sum(ends) / 2, ends[0], ends[1]


#: Lines in flight of cores of which nothing is known.
GENERIC_LINES = {
    "sequential load": 20.0, "random load": 10.0, "random update": 10.0, "nt store": 20.0,
    "prefetched load": 14.0, "dependent load": 1.0,
}  # fmt: skip
