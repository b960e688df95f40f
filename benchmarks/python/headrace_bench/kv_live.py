# SPDX-License-Identifier: Apache-2.0
"""Real servers of keys and values in the configurations of a talk (P. Zhou, MemCon 2024), asked by
headrace-bench-kv.

All servers that fit into memory together run at once, and each round asks all of them. Those whose
memory is moved meanwhile run alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import headrace
from headrace._tiering.plan import Wish
from headrace_bench import kv_place, kv_promote, kv_servers
from headrace_bench.kv_place import CONFIGS, SSD, Options, Place
from headrace_bench.kv_servers import SERVERS, Data, Server
from headrace_bench.kv_steps import Steps
from headrace_bench.runner import Progress, Runner, Stop, Variant, median_of, wrong_of
from headrace_bench.two_memories import Memories, free_bytes, memories_here, placed

#: The numbers of one window, and where memory was.
Result = tuple[dict[str, Any], list[dict[str, Any]]]

__all__ = ["CONFIGS", "Options", "pages", "points", "rows", "run"]

#: Bytes of a record besides its value: its name, its entry, and the allocator's rounding.
_OVERHEAD_BYTES = 400


@dataclass
class _Group:
    """Points that one process serves."""

    server: Server
    place: Place
    data: Data
    points: list[Variant]


def points(options: Options) -> list[Variant]:
    return [
        point(server, config, workload)
        for workload in options.workloads
        for server in options.servers
        for config in options.configs
    ]


def point(server: str, config: str, workload: str) -> Variant:
    return Variant({"server": server, "config": config, "workload": workload})


def config_of(point: Variant) -> str:
    return str(point.parameters["config"])


def server_of(point: Variant) -> str:
    return str(point.parameters["server"])


def run(
    points: list[Variant], machine: headrace.Machine, options: Options, stop: Stop,
    progress: Progress,
) -> tuple[dict[str, str], list[Runner]]:  # fmt: skip
    """Fills the points. Returns the servers' versions, and a runner for each batch of servers.
    AbsentError, ExhaustedError: nothing can be run.
    """
    versions = _versions(points)
    _check_memory(options)
    places = kv_place.places(machine, options.configs)
    kv_place.leave_out(points, machine, options, places)
    runners: list[Runner] = []
    try:
        for batch in _batches(_groups(points, options, places)):
            runners.append(_measure(batch, machine, options, stop, progress))
            if runners[-1].interrupted:
                break
    except headrace.CancelledError:  # while a server was filled
        pass
    return versions, runners


def _versions(points: list[Variant]) -> dict[str, str]:
    """Versions of the servers. Leaves out points of missing servers, unless all are missing."""
    versions: dict[str, str] = {}
    missing = None
    for name in dict.fromkeys(map(server_of, points)):
        try:
            versions[name] = kv_servers.version(SERVERS[name])
        except headrace.AbsentError as error:
            missing = missing or error
            _failed([point for point in points if server_of(point) == name], error)
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


def _groups(points: list[Variant], options: Options, places: dict[str, Place]) -> list[_Group]:
    """Groups of points that one process can serve: one server with equal placement."""
    groups: dict[tuple[str, Place, float], _Group] = {}
    for point in points:
        if point.reason:
            continue
        server, place = SERVERS[server_of(point)], places[config_of(point)]
        share = SSD.get(config_of(point), 0.0) if server.spills else 0.0
        data = Data(options.records, options.value, share)
        key = (server_of(point), place, share)
        groups.setdefault(key, _Group(server, place, data, [])).points.append(point)
    return list(groups.values())


def _batches(groups: list[_Group]) -> Iterator[list[_Group]]:
    """Groups whose servers run at the same time."""
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
    batch: list[_Group], machine: headrace.Machine, options: Options, stop: Stop,
    progress: Progress,
) -> Runner:  # fmt: skip
    here = memories_here(machine)
    nodes = sum(node.byte_addressable for node in machine.nodes)
    steps_of: dict[int, Steps] = {}  # by point
    points = [point for group in batch for point in group.points]
    runner = Runner(points, options.rounds, options.seed)

    def once(point: Variant, number: int) -> Result:
        steps = steps_of[id(point)]
        with _failing([each for each in points if steps_of.get(id(each)) is steps]):
            return steps.measure(config_of(point), str(point.parameters["workload"]), number)

    with ExitStack() as stack:
        for group in batch:
            try:
                with _failing(group.points):
                    steps = _started(stack, group, machine, options, here, nodes, stop)
                    steps_of |= {id(point): steps for point in group.points}
            except headrace.CancelledError:
                raise
            except headrace.Error:
                continue  # it is the reason of its points
        runner.run(once, stop, progress)
    return runner


def _started(
    stack: ExitStack, group: _Group, machine: headrace.Machine, options: Options, here: Memories,
    nodes: int, stop: Stop,
) -> Steps:  # fmt: skip
    """Starts and fills a server, which ends with the stack."""
    place = group.place
    launch = placed(machine, place.weights)
    if place.table:
        wish = Wish(promotion=False, demotion=False, weights=place.by_node(here))
        stack.enter_context(kv_promote.table(wish))
    running = stack.enter_context(
        kv_servers.started(group.server, launch, group.data, options.directory, place.text(here))
    )
    steps = Steps(running, here, nodes, options, stop)
    steps.load()
    if place.moved:
        stack.enter_context(steps.moved())
    return steps


@contextmanager
def _failing(points: list[Variant]) -> Iterator[None]:
    """An error inside becomes the reason of all these points."""
    try:
        yield
    except headrace.CancelledError:
        raise
    except headrace.Error as error:
        _failed(points, error)
        raise


def _failed(points: list[Variant], error: headrace.Error) -> None:
    for point in points:
        point.fail(error.code, str(error))


#: Fields of a window whose medians are details.
_DETAILS = (
    "p50_us", "p99_us", "p999_us", "slow_share", "major_faults_per_op", "ssd_bytes_per_op",
    "server_cpu_us_per_op", "out_bytes",
)  # fmt: skip
#: Fields that are 0 in a window without them.
_ZERO = {"promoted_bytes": 0, "tier_cpu_us_per_op": 0.0}


def rows(points: list[Variant], options: Options) -> list[headrace.Row]:
    """Rows with numbers, or with a code and a reason why there are none."""
    runner = Runner(points, options.rounds, options.seed)
    return [_row(runner, point) for point in points]


def _row(runner: Runner, point: Variant) -> headrace.Row:
    found = [row for row, _ in point.results]
    details: dict[str, float | None] = {name: median_of(found, name) for name in _DETAILS}
    for name, zero in _ZERO.items():
        details[name] = median_of([{name: zero, **each} for each in found], name)
    details["repeated"] = sum(each.get("repeated", 0) for each in found) if found else None
    return runner.row(
        "keyvalue", point, "op/s", [each["operations"] / each["seconds"] for each in found],
        details=details | wrong_of(sum(each["wrong"] != 0 for each in found), found),
        words={"transport": kv_servers.TRANSPORT},
    )  # fmt: skip


def pages(points: list[Variant]) -> list[dict[str, Any]]:
    """Places of the memory of each point's server over time."""
    return [
        {**point.parameters, "pages": [each for _, looks in point.results for each in looks]}
        for point in points if point.results
    ]  # fmt: skip
