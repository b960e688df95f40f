# SPDX-License-Identifier: Apache-2.0
"""Rounds of headrace-bench-cache: every implementation of a cache in every scenario, in turn.

Each measurement is a process of its own. None finds another's memory, and a crash costs only one
row.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._errors import error_of, unknown
from headrace_bench.runner import Progress, Runner, Stop, Variant, median_of, wrong_of
from headrace_bench.threads import cpus_for

PROGRAM = "headrace-bench-cache"
#: Threads that look up in scenarios on files, whatever the number of cores.
FILE_THREADS = 8
#: Scenarios that read files.
FILE_SCENARIOS = ("small-miss", "buffer-pool")
#: Scenarios whose instructions are counted, with one thread, and the number of operations.
COUNTED = ("hit-one-hot", "hit-spread", "zipf-0.99", "miss-fill")
_COUNTED_OPERATIONS = 20_480
#: Seconds that a measurement may take in addition: to make its blocks, and its files the first
#: time.
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


def program() -> str:
    return programs.find(PROGRAM)


def known() -> dict[str, Any]:
    """The implementations and scenarios that the program has."""
    return programs.answer([program(), "--list"], 60.0, lambda: False)


def chosen(known: Mapping[str, Any], options: Options) -> list[Variant]:
    """The requested implementations and scenarios. InvalidError: an unknown name."""
    implementations = {each["name"]: each for each in known["implementations"]}
    scenarios = [each["name"] for each in known["scenarios"]]
    for kind, names, there in (
        ("implementation", options.implementations, list(implementations)),
        ("scenario", options.scenarios, scenarios),
    ):
        for name in names:
            if name not in there:
                raise unknown(kind, name, there)
    variants = [
        variant(name, scenario, threads, each["missing"])
        for scenario in options.scenarios or scenarios
        for name, each in implementations.items()
        if name in (options.implementations or implementations)
        if scenario not in FILE_SCENARIOS or each["files"]
        for threads in ([FILE_THREADS] if scenario in FILE_SCENARIOS else options.threads)
    ]
    if not variants:
        raise headrace.UnsupportedError("none of these has blocks of files; see --list")
    return variants


def variant(implementation: str, scenario: str, threads: int, missing: str = "") -> Variant:
    return Variant(
        {"implementation": implementation, "scenario": scenario, "threads": threads},
        code="absent" if missing else "", reason=missing,
    )  # fmt: skip


def default_threads(machine: headrace.Machine) -> list[int]:
    """1, 2, 4, ... up to twice the cores, and the cores."""
    cores = len(cpus_for(machine, None))
    return sorted({cores, 2 * cores, *(1 << i for i in range((2 * cores).bit_length()))})


#: Seconds of a measurement besides the requested ones, and the usual number of parts of a scenario
#: on files.
_START_SECONDS, _USUAL_PARTS = 0.1, 5


def estimate(variants: Sequence[Variant], options: Options) -> tuple[int, float]:
    """The number of measurements, and roughly their seconds, without making files the first time.
    """
    there = [each for each in variants if not each.reason]
    steps = there * (1 + options.rounds) + (_counted(variants) if options.instructions else [])
    seconds = (
        _USUAL_PARTS * options.part_seconds if _on_file(each) else options.seconds for each in steps
    )
    return len(steps), sum(seconds) + len(steps) * _START_SECONDS


def _on_file(variant: Variant) -> bool:
    return variant.parameters["scenario"] in FILE_SCENARIOS


def _counted(variants: Sequence[Variant]) -> list[Variant]:
    """Variants whose instructions are counted."""
    return [
        Variant(each.parameters) for each in variants if not each.reason
        and each.parameters["scenario"] in COUNTED and each.parameters["threads"] == 1
    ]  # fmt: skip


def run(
    variants: Sequence[Variant], options: Options, stop: Stop, progress: Progress | None = None,
    begin: Callable[[], None] = lambda: None,
) -> tuple[Runner, list[headrace.Row]]:  # fmt: skip
    """Measures all variants. Calls `begin` when only measuring is left."""
    runner = Runner(variants, options.rounds, options.seed)
    counting = Runner(
        _counted(variants) if options.instructions else [], 1, options.seed, warm_up=0
    )
    with _directory(options) as directory:
        begin()
        runner.run(lambda each, _: _measure(each, options, directory, stop), stop, progress)
        if not runner.interrupted:
            counting.run(lambda each, _: _instructions(each, options, stop), stop, progress)
    counts = {tuple(each.parameters.values()): each.results for each in counting.variants}
    rows = [
        _row(runner, each, counts.get(tuple(each.parameters.values()), [])) for each in variants
    ]
    return runner, rows


class _directory:
    """The chosen directory, or a temporary one for the run."""

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


def _command(variant: Variant, options: Options) -> list[str]:
    named = [word for name, each in variant.parameters.items() for word in (f"--{name}", str(each))]
    return [program(), *named, "--seed", str(options.seed)]


def _measure(variant: Variant, options: Options, directory: Path, stop: Stop) -> dict[str, Any]:
    seconds, parts = options.seconds, 1
    files: list[str] = []
    if _on_file(variant):
        seconds, parts = options.part_seconds, _PARTS
        files = ["--directory", str(directory)]
        for name in ("extents", "budget", "scan"):
            value = getattr(options, name)
            files += [] if value is None else [f"--{name}", str(value)]
    command = [*_command(variant, options), "--seconds", repr(seconds), *files]
    return programs.answer(command, parts * seconds + _SLACK_SECONDS, stop)


def _instructions(variant: Variant, options: Options, stop: Stop) -> float:
    """Instructions per operation: the difference of two runs, so that start-up is not counted."""
    counts = []
    for operations in (_COUNTED_OPERATIONS, 3 * _COUNTED_OPERATIONS):
        command = [
            "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
            *_command(variant, options), "--operations", str(operations),
        ]  # fmt: skip
        told = programs.ended(command, _SLACK_SECONDS, stop).stderr
        match = re.search(r"Collected : (\d+)", told)
        if match is None:
            raise headrace.IoError(f"valgrind counted nothing: {programs.last_line(told)}")
        counts.append(int(match[1]))
    return (counts[1] - counts[0]) / (2 * _COUNTED_OPERATIONS)


def _row(runner: Runner, variant: Variant, instructions: Sequence[float]) -> headrace.Row:
    found = variant.results
    # Time of a thread for an operation, including waits for a CPU or a lock.
    times = [1e9 * each["thread_seconds"] / each["operations"] for each in found]
    derived = [
        {
            "ops_per_second": each["operations"] / each["seconds"],
            # CPU time, including the implementation's own threads.
            "cpu_ns_per_op": 1e9 * each["process_seconds"] / each["operations"],
            "hit_ratio": 1 - each["misses"] / each["operations"],
            # All CPU time of the process, the hits' included.
            "cpu_ns_per_miss": 1e9 * each["process_seconds"] / each["misses"]
            if each["misses"] and _on_file(variant) else None,
        } | {name: each[name] for name in _DETAILS if name in each and _on_file(variant)}
        for each in found
    ]  # fmt: skip
    details = {name: median_of(derived, name) for name in (derived[0] if derived else ())}
    details["instructions_per_op"] = instructions[0] if instructions else None
    return runner.row(
        "cache", variant, "ns", times,
        details=details | wrong_of(sum(each["wrong"] != 0 for each in found), found),
    )  # fmt: skip
