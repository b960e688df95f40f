# SPDX-License-Identifier: Apache-2.0
"""A program's objects, placed in a little fast memory by rules: first touch, knapsack, hotset,
thermos, or a given plan.

The file of objects is a JSON document:

    {"name": "bfs", "threads": 32, "compute_seconds": 0.1,
     "objects": [{"name": "edges", "bytes": 8589934592, "reads": 5e10, "writes": 0,
                  "access": "random load"}, ...]}

in the order of their allocation. `reads` and `writes` are bytes that reach memory in a run (a line
for each miss); `access` is a kind of access of a core model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import parse
from headrace._errors import unknown
from headrace._files import read_whole
from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count
from headrace_bench.predict.target import (
    GENERIC_LINES,
    KINDS,
    Access,
    Binding,
    Estimate,
    Place,
    Speed,
    Target,
)

COLUMNS = (Column("time", "s"), Column("of fast", "x"))


@dataclass(frozen=True)
class Object:
    name: str
    size: float
    reads: float
    writes: float
    access: str

    @property
    def traffic(self) -> float:
        return self.reads + self.writes

    @property
    def density(self) -> float:
        return self.traffic / self.size


@dataclass(frozen=True)
class Program:
    name: str
    objects: tuple[Object, ...]
    threads: int | None
    compute: float  #: seconds of a run that no memory shortens

    @property
    def size(self) -> float:
        return sum(each.size for each in self.objects)


#: Part of each object that is in fast memory.
Parts = Mapping[str, float]


def first_touch(objects: Sequence[Object], limit: float) -> Parts:
    """In the order of allocation, until fast memory is full."""
    parts = {}
    for each in objects:
        held = min(each.size, limit)
        parts[each.name], limit = held / each.size, limit - held
    return parts


def hotset(objects: Sequence[Object], limit: float) -> Parts:
    """The densest objects, until the next one does not fit whole."""
    parts: dict[str, float] = {}
    for each in sorted(objects, key=lambda o: -o.density):
        if each.size > limit:
            break
        parts[each.name], limit = 1.0, limit - each.size
    return parts


def knapsack(objects: Sequence[Object], limit: float) -> Parts:
    """The whole objects with the most traffic together."""
    if limit <= 0:
        return {}
    unit = max(1.0, limit / 4096)  # rounded up: what is chosen fits
    room = int(limit / unit)
    best: list[tuple[float, tuple[str, ...]]] = [(0.0, ())] * (room + 1)
    for each in objects:
        need = int(-(-each.size // unit))
        for held in range(room, need - 1, -1):
            value = best[held - need][0] + each.traffic
            if value > best[held][0]:
                best[held] = value, (*best[held - need][1], each.name)
    return dict.fromkeys(best[room][1], 1.0)


def thermos(objects: Sequence[Object], limit: float) -> Parts:
    """The densest objects; the first that does not fit whole is in fast memory in part."""
    parts = {}
    for each in sorted(objects, key=lambda o: -o.density):
        held = min(each.size, limit)
        parts[each.name], limit = held / each.size, limit - held
    return parts


RULES: Mapping[str, Callable[[Sequence[Object], float], Parts]] = {
    "first-touch": first_touch, "knapsack": knapsack, "hotset": hotset, "thermos": thermos,
}  # fmt: skip


def read_program(path: Path) -> Program:
    """InvalidError: not such a document; says which field."""
    try:
        document = json.loads(read_whole(path))
    except ValueError as error:
        raise headrace.InvalidError(f"{path} is no JSON: {error}") from None
    return program(document, str(path))


def program(document: Any, where: str) -> Program:
    if not isinstance(document, dict) or not isinstance(document.get("objects"), list):
        raise headrace.InvalidError(f'{where} has no "objects"; headrace predict arena --help')
    found = [_object(each, f"{where}: objects[{i}]") for i, each in enumerate(document["objects"])]
    names = [each.name for each in found]
    if not found or len(set(names)) < len(names):
        raise headrace.InvalidError(f"{where}: objects need names, each another")
    threads = document.get("threads")
    return Program(
        str(document.get("name", where)), tuple(found), None if threads is None else int(threads),
        float(document.get("compute_seconds", 0.0)),
    )  # fmt: skip


def _object(each: Any, where: str) -> Object:
    def number(name: str, least: float) -> float:
        value = each.get(name, 0.0)
        if not isinstance(value, int | float) or not least <= value < 1e18:
            raise headrace.InvalidError(f"{where}: {name} is {value!r}; give a number of bytes")
        return float(value)

    if not isinstance(each, dict) or not isinstance(each.get("name"), str):
        raise headrace.InvalidError(f"{where} has no name")
    access = each.get("access", "random load")
    if access not in GENERIC_LINES:
        raise unknown(f"access of {where}", str(access), GENERIC_LINES)
    return Object(each["name"], number("bytes", 1), number("reads", 0), number("writes", 0), access)


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    if settings["objects"] is None:
        raise headrace.InvalidError("give --objects FILE; headrace predict arena --help shows one")
    run = Arena(target, _program_of(settings["objects"]), settings)
    limit = run.limit(settings["limit"])
    return run.rows(limit, settings["rule"], settings["plan"])


def _program_of(name: str) -> Program:
    """A file, or an example that comes with the command."""
    if name == "bfs" and not Path(name).exists():
        return program(json.loads(files(__package__).joinpath("bfs.json").read_text("utf-8")), name)
    return read_program(Path(name))


class Arena:
    def __init__(self, target: Target, used: Program, settings: Mapping[str, Any]) -> None:
        self.target, self.program = target, used
        self.fast, self.slow = places.two_kinds(target, settings)
        nodes = settings.get("nodes")
        self.cpu_nodes = places.nodes(target, nodes) if nodes else target.cpu_nodes
        cpus = sum(len(target.nodes[node]["cpus"]) for node in self.cpu_nodes)
        self.threads = settings["threads"] or used.threads or cpus
        self.known = settings["of_fast"]
        places.check_fits(target, used.size, "objects")

    def limit(self, text: str) -> float:
        """Bytes of fast memory: a size, or a share of all objects."""
        if "%" in text:
            return parse.share(text) * self.program.size
        return float(parse.size(text))

    def rows(self, limit: float, rule: str, plan: Sequence[str] | None) -> list[Row]:
        everything = dict.fromkeys((each.name for each in self.program.objects), 1.0)
        found = [self._row(f"all {KINDS[self.fast]}", everything),
                 self._row(f"all {KINDS[self.slow]}", {})]  # fmt: skip
        for name, choose in RULES.items():
            if rule in ("all", name):
                parts = choose(self.program.objects, limit)
                found.append(self._row(name, parts, given=rule == name, listed=True))
        if plan is not None:
            found.append(self._row("given plan", self._plan(plan, limit), given=True, listed=True))
        return found

    def _plan(self, names: Sequence[str], limit: float) -> Parts:
        sizes = {each.name: each.size for each in self.program.objects}
        for name in names:
            if name not in sizes:
                raise unknown("object", name, sizes)
        asked = sum(sizes[name] for name in names)
        if asked > limit:
            raise headrace.ExhaustedError(
                f"the plan's objects take {headrace.format_bytes(int(asked))} of fast memory, "
                f"above the limit of {headrace.format_bytes(int(limit))}; raise --limit"
            )
        return dict.fromkeys(names, 1.0)

    def _row(self, name: str, parts: Parts, *, given: bool = False, listed: bool = False) -> Row:
        times, binds = self.time(parts)
        # Constants that are too high or too low are so for both, so the ends belong together; what
        # the traffic of an object is worth is known to a tenth of what it gains.
        ratios = [getattr(self.best, end) / getattr(times, end) for end in ("value", "low", "high")]
        doubt = 0.1 * abs(1 - ratios[0]) + 0.02
        share = Estimate(ratios[0], min(ratios) - doubt, max(ratios) + doubt)
        held = [each for each, part in parts.items() if part > 0 and listed]
        note = f"{name}: {', '.join(held)} in {KINDS[self.fast]}" if held else ""
        return Row(name, {"time": times, "of fast": share}, binds, given, note)

    @cached_property
    def best(self) -> Estimate:
        """Seconds with all objects in fast memory."""
        return self.time(dict.fromkeys((each.name for each in self.program.objects), 1.0))[0]

    @cached_property
    def compute(self) -> float:
        """Seconds of a run that memory does not shorten: the file's, or what makes slow memory as
        much slower as it was measured to be.
        """
        if self.known is None:
            return self.program.compute
        every = dict.fromkeys((each.name for each in self.program.objects), 1.0)
        fast, slow = self.memory(every)[0].value, self.memory({})[0].value
        rest = (self.known * slow - fast) / (1 - self.known) if self.known < 1 else -1.0
        if rest < 0:
            raise headrace.InvalidError(
                f"--of-fast {self.known:.3g}: with this traffic all in {KINDS[self.slow]} would be "
                f"at least {fast / slow:.3g} as fast; check reads, writes and accesses of the file"
            )
        return rest

    def time(self, parts: Parts) -> tuple[Estimate, Binding]:
        found, binds = self.memory(parts)
        rest = self.compute
        return Estimate(found.value + rest, found.low + rest, found.high + rest), binds

    def memory(self, parts: Parts) -> tuple[Estimate, Binding]:
        """Seconds that accesses take: between all mixed, which uses both memories at once, and one
        object after another; the value is their mean.
        """
        used = [each for each in self.program.objects if each.traffic > 0]
        mixed = self._speed(used, parts)
        together = mixed.rate.inverse(sum(each.traffic for each in used))
        apart = [self._speed([o], parts).rate.inverse(o.traffic) for o in used]
        value, low, high = (sum(getattr(t, end) for t in apart) for end in ("value", "low", "high"))
        return Estimate(
            (together.value + value) / 2, min(together.low, low), max(together.high, high)
        ), mixed.binds

    def _speed(self, objects: Sequence[Object], parts: Parts) -> Speed:
        """Progress in bytes of traffic per second. A core waits for each kind of access with its
        own number of lines in flight: their mean, weighted by bytes, is that of the whole.
        """
        total = sum(each.traffic for each in objects)
        accesses, waits = [], 0.0
        for each in objects:
            place = self._place(parts.get(each.name, 0.0))
            lines, _ = self.target.lines(self.cpu_nodes[0], each.access)
            waits += each.traffic / lines
            plain = max(0.0, each.reads - each.writes)
            if plain:
                accesses.append(Access(place, "read", plain / total))
            if each.writes:
                accesses.append(Access(place, "store", each.writes / total))
        return self.target.together(self.cpu_nodes, self.threads, accesses, total / waits)

    def _place(self, part: float) -> Place:
        if part <= 0 or part >= 1:
            return places.near(self.fast if part >= 1 else self.slow)
        return places.mixed(self.fast, part, self.slow, "both")


WORKLOAD = Workload(
    "arena",
    "Predict a program whose objects share a little fast memory.",
    """FILE is JSON: {"name": "bfs", "threads": 32, "objects": [{"name": "edges",
    "bytes": 8e9, "reads": 5e10, "writes": 0, "access": "random load"}]}, in the
    order of allocation; reads and writes in bytes that reach memory. Accesses:
    sequential load, random load, prefetched load, random update, nt store.

    \b
    headrace predict arena --objects bfs.json --limit 25%
    headrace predict arena --objects bfs.json --sweep limit=12.5%,25%,50%
    headrace predict arena --objects bfs.json --limit 8GiB --plan edges,parents""",
    (
        Axis("objects", "FILE", str, None, "Objects with sizes and traffic."),
        Axis("limit", "SIZE|SHARE", str, "25%", "Fast memory that they may take."),
        Axis("rule", "RULE", ("all", *RULES), "all", "Rule of placement: " + ", ".join(RULES)
             + " or all."),
        Axis("plan", "LIST", parse.words, None, "Objects to place in fast memory."),
        Axis("fast", "KIND", tuple(KINDS), None, "Fast memory (default: HBM, else DDR)."),
        Axis("slow", "KIND", tuple(KINDS), None,
             "Memory of everything else (default: DDR, else the slowest kind)."),
        Axis("of_fast", "SHARE", parse.share, None,
             "Speed with all in slow memory by all in fast, measured: sets the computing time."),
        Axis("threads", "NUMBER", count, None, "Number of threads (default: the file's)."),
        Axis("nodes", "LIST", str, None, "Nodes whose CPUs run them (default: all)."),
    ),
    COLUMNS,
    predict,
)  # fmt: skip
command = command_of(WORKLOAD)
