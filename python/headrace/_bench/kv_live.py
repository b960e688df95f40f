# SPDX-License-Identifier: Apache-2.0
"""Real servers of keys and values in the configurations of a talk (P. Zhou, MemCon 2024), asked by
headrace-bench-kv.

All servers that fit into memory together run at once. Each round asks all of them, in another
order, so that they see the same machine. Those whose memory is moved meanwhile run alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._bench import kv_place, kv_promote, kv_servers
from headrace._bench.kv_place import CONFIGS, KERNEL, SSD, Options, Place
from headrace._bench.kv_servers import SERVERS, Data, Server
from headrace._bench.kv_steps import Steps
from headrace._bench.two_memories import free_bytes, memories_here, placed
from headrace._errors import WrongAnswer, kind_of
from headrace._orders import orders
from headrace._tiering.plan import Wish

Row = dict[str, Any]
Progress = Callable[[int, int, str], object]

__all__ = ["CONFIGS", "Options", "Point", "check", "points", "rows", "run"]

#: What a record takes besides its value: its name, its entry, what the allocator rounds up.
_OVERHEAD_BYTES = 400


@dataclass
class Point:
    """A workload in a configuration on a server, and what its rounds found."""

    server: str
    config: str
    workload: str
    found: list[Row] = field(default_factory=list)
    pages: list[Row] = field(default_factory=list)
    code: str = ""
    reason: str = ""


@dataclass
class _Group:
    """Points that one process serves."""

    server: Server
    place: Place
    data: Data
    points: list[Point]


def points(options: Options) -> list[Point]:
    return [
        Point(server, config, workload)
        for workload in options.workloads
        for server in options.servers
        for config in options.configs
    ]


def run(
    points: list[Point], machine: headrace.Machine, options: Options, stop: Callable[[], bool],
    progress: Progress,
) -> dict[str, str]:  # fmt: skip
    """Fills the points; the servers' versions. AbsentError, ExhaustedError: nothing can be run."""
    versions = _versions(points)
    _check_memory(options)
    places = kv_place.places(machine, options.configs, options.profile)
    kv_place.leave_out(points, machine, options, places)
    done, total = 0, options.rounds * sum(not point.reason for point in points)

    def told(point: Point) -> None:
        nonlocal done
        progress(done, total, f"{point.server} {point.config} {point.workload}")
        done += 1

    try:
        for batch in _batches(_groups(points, options, places)):
            _measure(batch, machine, options, stop, told)
    except programs.Stopped:
        pass
    return versions


def _versions(points: list[Point]) -> dict[str, str]:
    """Those that are not here are left out, unless there is no other."""
    versions: dict[str, str] = {}
    missing = None
    for name in dict.fromkeys(point.server for point in points):
        try:
            versions[name] = kv_servers.version(SERVERS[name])
        except headrace.AbsentError as error:
            missing = missing or error
            _failed([point for point in points if point.server == name], error.code, str(error))
    if not versions and missing is not None:
        raise missing
    return versions


def _bytes(options: Options) -> int:
    return options.records * (options.value + _OVERHEAD_BYTES)


def _check_memory(options: Options) -> None:
    free = free_bytes()
    if free is not None and _bytes(options) > 0.8 * free:
        raise headrace.ExhaustedError(
            f"{options.records} records take some {headrace.format_bytes(_bytes(options))} and "
            f"{headrace.format_bytes(free)} are free; give fewer --records"
        )


def _groups(points: list[Point], options: Options, places: dict[str, Place]) -> list[_Group]:
    """One process for all points of a server whose memory is alike."""
    groups: dict[tuple[str, Place, float], _Group] = {}
    for point in points:
        if point.reason:
            continue
        server, place = SERVERS[point.server], places[point.config]
        share = SSD.get(point.config, 0.0) if server.spills else 0.0
        data = Data(options.records, options.value, share)
        key = (point.server, place, share)
        groups.setdefault(key, _Group(server, place, data, [])).points.append(point)
    return list(groups.values())


def _batches(groups: list[_Group]) -> Iterator[list[_Group]]:
    """What runs at once."""
    alone = [group for group in groups if group.place.moved or group.place.table]
    free, batch, taken = free_bytes(), list[_Group](), 0.0
    for group in groups:
        if group in alone:
            continue
        needed = group.data.records * (group.data.value + _OVERHEAD_BYTES)
        if batch and free is not None and taken + needed > 0.8 * free:
            yield batch
            batch, taken = [], 0
        batch.append(group)
        taken += needed
    if batch:
        yield batch
    for group in alone:
        yield [group]


def _measure(
    batch: list[_Group], machine: headrace.Machine, options: Options, stop: Callable[[], bool],
    told: Callable[[Point], None],
) -> None:  # fmt: skip
    here = memories_here(machine)
    nodes = sum(node.byte_addressable for node in machine.nodes)
    with ExitStack() as stack:
        asked: list[tuple[Point, Steps]] = []
        for group in batch:
            with _failing(group.points):
                launch = placed(
                    machine, group.place.weights, bound=group.place.moved != KERNEL
                )
                heap = group.place.text(here)
                if group.place.table:
                    weights = group.place.by_node(here)
                    wish = Wish(promotion=False, demotion=False, weights=weights)
                    stack.enter_context(kv_promote.kernel(wish))
                running = stack.enter_context(
                    kv_servers.started(group.server, launch, group.data, options.directory, heap)
                )
                steps = Steps(running, here, nodes, options, stop)
                steps.load()
                stack.enter_context(steps.moved(group.place.moved))
                asked += [(point, steps) for point in group.points]
        for number, order in enumerate(orders(asked, options.rounds, options.seed)):
            for point, steps in order:
                if point.reason:
                    continue
                told(point)
                with _failing([each for each, of in asked if of is steps]):
                    row, pages = steps.measure(point.config, point.workload, number)
                    point.found.append(row)
                    point.pages += pages


@contextmanager
def _failing(points: list[Point]) -> Iterator[None]:
    """What fails inside is told of these, and all else goes on."""
    try:
        yield
    except programs.Failed as failed:
        _failed(points, failed.code, failed.reason)
    except headrace.Error as error:  # of the tier, of the kernel's settings
        _failed(points, error.code, str(error))


def _failed(points: list[Point], code: str, reason: str) -> None:
    for point in points:
        point.code, point.reason = code, reason


def rows(points: list[Point], rounds: int, guest: bool = False) -> list[Row]:
    return [_row(point, rounds) | {"basis": "guest" if guest else "hardware"} for point in points]


def _row(point: Point, rounds: int) -> Row:
    """Numbers, or a code and a reason why there are none. Numbers of fewer rounds have a note."""
    found = point.found
    speeds = [each["operations"] / each["seconds"] for each in found]
    middle = headrace.summarize(speeds)
    note = ""
    if found and len(found) < rounds:
        note = f"{len(found)} of {rounds} rounds: {point.reason or 'interrupted'}"
    return {
        "server": point.server,
        "transport": kv_servers.TRANSPORT,
        "config": point.config,
        "workload": point.workload,
        "ops_per_second": middle.median if middle else None,
        "ops_per_second_mad": middle.mad if middle else None,
        "samples": speeds,
        "p50_us": _median(found, "p50_us"),
        "p99_us": _median(found, "p99_us"),
        "p999_us": _median(found, "p999_us"),
        "slow_share": _median(found, "slow_share"),
        "promoted_bytes": _median(found, "promoted_bytes", 0),
        "major_faults_per_op": _median(found, "major_faults_per_op"),
        "ssd_bytes_per_op": _median(found, "ssd_bytes_per_op"),
        "server_cpu_us_per_op": _median(found, "server_cpu_us_per_op"),
        "tier_cpu_us_per_op": _median(found, "tier_cpu_us_per_op", 0.0),
        "out_bytes": _median(found, "out_bytes"),
        "repeated": sum(each.get("repeated", 0) for each in found),
        "pages": point.pages,
        "verified": all(each["wrong"] == 0 for each in found) if found else None,
        "code": "" if found else point.code,
        "reason": "" if found else point.reason or "interrupted",
        "note": note,
    }


def _median(found: list[Row], name: str, default: float | None = None) -> float | None:
    """`default` is for rounds that say nothing of it."""
    values = [value for each in found if (value := each.get(name, default)) is not None]
    return statistics.median(values) if values else None


def check(document: Row) -> None:
    """Raises, when all is written, if an answer was wrong or nothing was measured at all."""
    rows = document["rows"]
    for row in rows:
        if row["verified"] is False:
            where = f"{row['server']}, {row['config']}, workload {row['workload']}"
            raise WrongAnswer(f"{where}: the server gave wrong values; trust no number of this run")
    if not document["interrupted"] and all(row["ops_per_second"] is None for row in rows):
        raise kind_of(rows[0]["code"])(rows[0]["reason"])
