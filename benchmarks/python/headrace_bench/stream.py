# SPDX-License-Identifier: Apache-2.0
"""STREAM with its arrays where one says, by one process or the ranks of an MPI job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import headrace
from headrace._run.host import this_host
from headrace._run.mpi import World
from headrace._run.plan import Host, Request, plan, ranges
from headrace._run.ranks import Rank, local_rank
from headrace_bench.threads import buffer, cache_of, cpus_for

Row = dict[str, Any]

#: Bytes of an array, as the experiment `stream` has them: four times the caches, 32 MiB at least.
CACHES = 4
_LEAST_BYTES = 32 << 20


@dataclass(frozen=True)
class Options:
    places: tuple[str, str, str]  # of a, b, c
    bytes: int | None  # of one array of one rank
    threads: int | None  # of one rank
    repetitions: int
    tile: bool  # each rank on its own
    non_temporal: bool = False  # stores

    def kernels(self) -> list[str]:
        return [
            kernel for kernel in headrace.stream_kernels()
            if kernel.startswith("nt_") == self.non_temporal
        ]  # fmt: skip


class Arrays:
    """The arrays of this rank and who works on them."""

    def __init__(self, machine: headrace.Machine, options: Options, alone: bool) -> None:
        self._machine, self._bytes = machine, options.bytes
        self.places = list(options.places)
        allowed = None
        if options.tile:
            rank = local_rank(os.environ) or (Rank(0, 1, "no launcher") if alone else None)
            host = this_host(machine, Request(per_rank=True), rank)
            self.places, allowed = on_tile(machine, options.places, host)
            os.sched_setaffinity(0, allowed)  # whatever the launcher bound it to
        #: CPUs of this rank: all, and one of each core.
        self.allowed = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
        self.cores = len(cpus_for(machine, None, self.allowed))
        self.use(options.threads)

    def use(self, threads: int | None) -> None:
        """So many threads, by default one on each core, and fresh arrays for them."""
        machine = self._machine
        self.cpus = cpus_for(machine, threads, self.allowed)
        self.caches = cache_of(machine, self.cpus)
        usual = max(CACHES * self.caches, _LEAST_BYTES)
        size = usual if self._bytes is None else self._bytes
        if size < 8 * len(self.cpus):
            raise headrace.InvalidError(f"{size} bytes for {len(self.cpus)} threads; give more")
        self.a, self.b, self.c = (
            buffer(machine, size // 8 * 8, place, self.cpus) for place in self.places
        )

    def describe(self) -> Row:
        return {
            "host": socket.gethostname(),
            "cpus": self.cpus,
            "threads": len(self.cpus),
            **dict(zip("abc", self.places, strict=True)),
            "bytes_per_array": len(self.a),
            "cache_bytes": self.caches,
            "in_cache": len(self.a) < CACHES * self.caches,
        }

    def fill(self) -> None:
        headrace.stream_fill(self.a, self.b, self.c, self.cpus)

    def run(self, kernel: str) -> tuple[int, float]:
        """The bytes counted, and the seconds."""
        found = headrace.stream_run(kernel, self.a, self.b, self.c, self.cpus)
        return found.bytes, found.seconds


def sweep_counts(ranks: Sequence[tuple[int, int]]) -> list[int]:
    """How many threads of a rank a sweep has, the same on all: 1, 2, 4, ..., one on each core, one
    on each CPU. `ranks`: cores and CPUs of each.
    """
    cores, cpus = (min(numbers) for numbers in zip(*ranks, strict=True))
    return sorted({1 << n for n in range(cores.bit_length())} | {cores, cpus})


def on_tile(
    machine: headrace.Machine, places: Sequence[str], host: Host
) -> tuple[list[str], set[int]]:
    """The places of the rank that `host` tells of on its tile, and the tile's CPUs."""
    found: list[str] = []
    cpus: set[int] = set()
    for place in places:
        if "=" in place:
            raise headrace.InvalidError(
                f"{place}: no place for ranks; "
                "give --per-rank-tile a kind or nodes"
            )
        first, *spill = place.split(":")
        made = plan(machine, Request(on=first, per_rank=True), host)
        found.append(":".join([ranges(made.nodes), *_left(machine, spill, made.nodes)]))
        cpus |= set(made.cpus or ())
    return found, cpus


def _left(machine: headrace.Machine, spill: Sequence[str], placed: Iterable[int]) -> Iterator[str]:
    """An order to spill in without the nodes that are placed already; kinds mean the others."""
    known = set(placed)
    for part in spill:
        nodes = [node for node, _ in headrace.Placement.parse(machine, part).nodes]
        left = [node for node in nodes if node not in known]
        known.update(left)
        if left or not nodes:
            yield ",".join(map(str, left)) or part


#: By kernel, repetition and rank: bytes and seconds.
Times = dict[str, list[list[tuple[int, float]]]]


def repeat(world: World, arrays: Arrays, options: Options, stop: Callable[[], bool]) -> Times:
    """All kernels in turn, so often; before each all ranks wait for each other."""
    times: Times = {kernel: [] for kernel in options.kernels()}
    for _ in range(options.repetitions):
        for kernel, found in times.items():
            world.all(arrays.fill)
            if any(world.all(stop)):
                return times
            world.barrier()
            found.append(world.all(lambda k=kernel: arrays.run(k)))  # type: ignore[misc]
    return times


def tables(ranks: Sequence[Row], times: Times) -> tuple[list[Row], list[Row]]:
    """Per rank its own best repetition. In total the bytes of all by the time of the slowest rank
    of a repetition, of the best repetition: that one is not the sum of the ranks' best.
    """
    rows = [
        {"rank": rank, "host": each["host"], "kernel": kernel,
         **_best([repetition[rank] for repetition in found])}
        for rank, each in enumerate(ranks) for kernel, found in times.items()
    ]  # fmt: skip
    total = [
        {"kernel": kernel, "ranks": len(ranks), **_best([
            (sum(bytes_ for bytes_, _ in repetition), max(seconds for _, seconds in repetition))
            for repetition in found])}
        for kernel, found in times.items()
    ]  # fmt: skip
    return rows, total


def _best(runs: Sequence[tuple[int, float]]) -> Row:
    if not runs:
        return {"bytes": None, "seconds": None, "seconds_median": None, "bytes_per_second": None}
    size, seconds = min(runs, key=lambda run: run[1])
    middle = headrace.summarize([each for _, each in runs])
    return {
        "bytes": size,
        "seconds": seconds,
        "seconds_median": middle.median if middle else None,
        "bytes_per_second": size / seconds,
    }
