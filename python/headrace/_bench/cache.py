# SPDX-License-Identifier: Apache-2.0
"""Rounds of headrace-bench-cache: every implementation of a cache in every scenario, in turn.

Each measurement is a process of its own, so that none finds another's memory, and what ends one
ends no more than its row. An order is drawn for each round, so that all see the same machine.
"""

from __future__ import annotations

import random
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._bench.threads import cpus_for
from headrace._errors import WrongAnswer, error_of, kind_of, unknown
from headrace._programs import Failed, Stopped

Row = dict[str, Any]
Progress = Callable[[int, int, str], object]

PROGRAM = "headrace-bench-cache"
#: Threads that look up in scenarios on files, whatever the number of cores.
FILE_THREADS = 8
#: What instructions are counted of, by one thread, and of how many operations.
COUNTED = ("hit-one-hot", "hit-spread", "zipf-0.99", "miss-fill")
_COUNTED_OPERATIONS = 20_480
#: Beyond what a measurement is asked to take: making its blocks, and the first time its files.
_SLACK_SECONDS = 600.0
#: Parts of a scenario on files: at most 20 until the cache is full, and three measured ones.
_PARTS = 23
#: Fields of scenarios on files, medians over rounds. Fields of a scan only where there is one.
_DETAILS = (
    "extents", "budget_bytes", "hit_p50_ns", "hit_p99_ns", "hit_p999_ns", "hit_max_ns",
    "miss_p50_ns", "miss_p99_ns", "memory_over_budget_bytes", "refused",
    "scan_bytes", "lookups_beside_scan_per_second", "scan_alone_bytes_per_second",
    "scan_beside_lookups_bytes_per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    implementations: list[str]  # empty: all
    scenarios: list[str]  # empty: all
    threads: list[int]  # empty: 1 to twice the cores
    rounds: int
    seconds: float  # of a measurement
    part_seconds: float  # of a part of a scenario on files
    extents: int | None  # of scenarios on files, as the next two; None: each scenario's own
    budget: int | None
    scan: int | None
    directory: Path | None  # of the files; None: one that is removed again
    instructions: bool
    seed: int


@dataclass
class Point:
    """One implementation in one scenario by so many threads, and what its rounds found."""

    implementation: str
    scenario: str
    threads: int
    on_file: bool = False
    found: list[Row] = field(default_factory=list)
    instructions: float | None = None
    code: str = ""
    reason: str = ""


def program() -> str:
    return programs.find(PROGRAM)


def known() -> Row:
    """The implementations and scenarios that the program has."""
    try:
        return dict(programs.answer([program(), "--list"], 60.0, lambda: False))
    except Failed as failed:
        raise kind_of(failed.code)(failed.reason) from None


def chosen(known: Row, options: Options) -> list[Point]:
    """What is asked for and there. InvalidError: it names what is not."""
    implementations = {each["name"]: each for each in known["implementations"]}
    scenarios = [each["name"] for each in known["scenarios"]]
    for kind, names, there in (
        ("implementation", options.implementations, list(implementations)),
        ("scenario", options.scenarios, scenarios),
    ):
        for name in names:
            if name not in there:
                raise unknown(kind, name, there)
    on_files = {each["name"] for each in known["scenarios"] if each["files"]}
    points = [
        Point(name, scenario, threads, on_file=scenario in on_files,
              code="absent" if each["missing"] else "", reason=each["missing"])
        for scenario in options.scenarios or scenarios
        for name, each in implementations.items()
        if name in (options.implementations or implementations)
        if scenario not in on_files or each["files"]
        for threads in ([FILE_THREADS] if scenario in on_files else options.threads)
    ]  # fmt: skip
    if not points:
        raise headrace.UnsupportedError("none of these has blocks of files; see --list")
    return points


def default_threads(machine: headrace.Machine) -> list[int]:
    """1, 2, 4, ... up to twice the cores, and the cores."""
    cores = len(cpus_for(machine, None))
    return sorted({cores, 2 * cores, *(1 << i for i in range((2 * cores).bit_length()))})


#: Time of a measurement beside the one asked for, and parts that a scenario on files usually takes.
_START_SECONDS, _USUAL_PARTS = 0.1, 5


def estimate(points: list[Point], options: Options) -> tuple[int, float]:
    """How many measurements there are, and how many seconds they take, roughly; the first ones on
    files make these besides.
    """
    steps = [point for point, _ in _steps(points, options) if not point.reason]
    seconds = (
        _USUAL_PARTS * options.part_seconds if point.on_file else options.seconds for point in steps
    )
    return len(steps), sum(seconds) + len(steps) * _START_SECONDS


def run(
    points: list[Point],
    options: Options,
    stop: Callable[[], bool],
    progress: Progress,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Fills the points, in rounds, until done or stopped. Calls `begin` once nothing but the
    measuring is left.
    """
    with _directory(options) as directory:
        begin()
        steps = list(_steps(points, options))
        for number, (point, counting) in enumerate(steps):
            progress(number, len(steps), f"{point.implementation} {point.scenario}")
            if point.reason:
                continue
            try:
                if counting:
                    point.instructions = _instructions(point, options, stop)
                else:
                    point.found.append(_measure(point, options, directory, stop))
            except Failed as failed:
                point.code, point.reason = failed.code, failed.reason
            except Stopped:
                return


def _steps(points: list[Point], options: Options) -> Iterator[tuple[Point, bool]]:
    """Points in the order in which they are measured, and whether their instructions are."""
    order = random.Random(options.seed)
    for _ in range(options.rounds):
        for point in order.sample(points, len(points)):
            yield point, False
    if options.instructions:
        for point in points:
            if point.scenario in COUNTED and point.threads == 1:
                yield point, True


class _directory:
    """The directory chosen, or one for the time of a run."""

    def __init__(self, options: Options) -> None:
        self._chosen = options.directory
        self._made: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Path:
        try:
            if self._chosen is not None:
                self._chosen.mkdir(parents=True, exist_ok=True)
                return self._chosen
            # Not in /tmp, which may be memory.
            self._made = tempfile.TemporaryDirectory(prefix="headrace-bench-", dir="/var/tmp")
            return Path(self._made.name)
        except OSError as error:
            where = str(self._chosen or "/var/tmp")
            raise error_of(error, f"cannot use {where}", "another --data directory") from None

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            self._made.cleanup()


def _command(point: Point, options: Options) -> list[str]:
    return [
        program(), "--implementation", point.implementation, "--scenario", point.scenario,
        "--threads", str(point.threads), "--seed", str(options.seed),
    ]  # fmt: skip


def _measure(point: Point, options: Options, directory: Path, stop: Callable[[], bool]) -> Row:
    seconds, parts = options.seconds, 1
    files: list[str] = []
    if point.on_file:
        seconds, parts = options.part_seconds, _PARTS
        files = ["--directory", str(directory)]
        for name in ("extents", "budget", "scan"):
            value = getattr(options, name)
            files += [] if value is None else [f"--{name}", str(value)]
    command = [*_command(point, options), "--seconds", repr(seconds), *files]
    return programs.answer(command, parts * seconds + _SLACK_SECONDS, stop)


def _instructions(point: Point, options: Options, stop: Callable[[], bool]) -> float:
    """Of an operation: what three times as many take more, which leaves out all that is before."""
    counts = []
    for operations in (_COUNTED_OPERATIONS, 3 * _COUNTED_OPERATIONS):
        command = [
            "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
            *_command(point, options), "--operations", str(operations),
        ]  # fmt: skip
        told = programs.ended(command, _SLACK_SECONDS, stop).stderr
        match = re.search(r"Collected : (\d+)", told)
        if match is None:
            raise Failed("io", f"valgrind counted nothing: {programs.last_line(told)}")
        counts.append(int(match[1]))
    return (counts[1] - counts[0]) / (2 * _COUNTED_OPERATIONS)


def rows(points: list[Point]) -> list[Row]:
    return [_row(point) for point in points]


def _row(point: Point) -> Row:
    found = point.found
    times = [1e9 * each["thread_seconds"] / each["operations"] for each in found]
    cpu = [1e9 * each["process_seconds"] / each["operations"] for each in found]
    middle, cpu_middle = headrace.summarize(times), headrace.summarize(cpu)
    details: Row = {}
    if point.on_file and found:
        details = {name: _median([each[name] for each in found if each[name] is not None])
                   for name in _DETAILS if name in found[0]}  # fmt: skip
        # All CPU time of the process, the hits' included.
        per_miss = [1e9 * each["process_seconds"] / each["misses"]
                    for each in found if each["misses"]]  # fmt: skip
        details["cpu_ns_per_miss"] = _median(per_miss)
    return {
        "implementation": point.implementation,
        "scenario": point.scenario,
        "threads": point.threads,
        # The time of a thread for an operation; threads that wait for a CPU or a lock take longer.
        "ns_per_op": middle.median if middle else None,
        "ns_per_op_mad": middle.mad if middle else None,
        "samples": times,
        "ops_per_second": _median([each["operations"] / each["seconds"] for each in found]),
        # On CPUs, with that of the implementation's own threads.
        "cpu_ns_per_op": cpu_middle.median if cpu_middle else None,
        "cpu_ns_per_op_mad": cpu_middle.mad if cpu_middle else None,
        "hit_ratio": _median([1 - each["misses"] / each["operations"] for each in found]),
        "instructions_per_op": point.instructions,
        **details,
        "verified": all(each["wrong"] == 0 for each in found) if found else None,
        "code": point.code,
        "reason": point.reason or ("" if found else "interrupted"),
    }


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def check(document: Row) -> None:
    """Raises, when all is written, if a block was wrong or nothing was measured at all."""
    rows = document["rows"]
    for row in rows:
        if row["verified"] is False:
            where = f"{row['implementation']} in {row['scenario']}"
            raise WrongAnswer(f"{where} gave wrong bytes; trust no number of this run")
    if document["interrupted"] or any(row["ns_per_op"] is not None for row in rows):
        return
    raise kind_of(rows[0]["code"])(rows[0]["reason"])
