# SPDX-License-Identifier: Apache-2.0
"""STREAM with its arrays in chosen memories, by one process or the ranks of an MPI job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import headrace
from headrace._run.host import this_host
from headrace._run.mpi import World
from headrace._run.plan import Host, Request, plan, ranges
from headrace._run.ranks import Rank, local_rank
from headrace_bench.runner import Runner, Stop, Variant
from headrace_bench.threads import buffer, cache_of, cpus_for

#: An array has this multiple of the caches, at least 32 MiB, as in the experiment `stream`.
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
    """The arrays of this rank, and the CPUs that use them."""

    def __init__(self, machine: headrace.Machine, options: Options, only_rank: bool) -> None:
        self._machine, self._bytes = machine, options.bytes
        self.places = list(options.places)
        allowed = None
        if options.tile:
            rank = local_rank(os.environ) or (Rank(0, 1, "no launcher") if only_rank else None)
            host = this_host(machine, Request(per_rank=True), rank)
            self.places, allowed = on_tile(machine, options.places, host)
            os.sched_setaffinity(0, allowed)  # whatever the launcher bound it to
        #: CPUs of this rank: all, and one of each core.
        self.allowed = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
        self.cores = len(cpus_for(machine, None, self.allowed))
        self.use(options.threads)

    def use(self, threads: int | None) -> None:
        """Allocates new arrays for a number of threads (default: one on each core)."""
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

    def describe(self) -> dict[str, Any]:
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
        """Runs a kernel. Returns bytes as STREAM counts them, and seconds."""
        found = headrace.stream_run(kernel, self.a, self.b, self.c, self.cpus)
        return found.bytes, found.seconds


def sweep_counts(ranks: Sequence[tuple[int, int]]) -> list[int]:
    """Numbers of threads per rank in a sweep: 1, 2, 4, ..., one per core, one per CPU.

    All ranks have the same number. `ranks`: cores and CPUs of each rank.
    """
    cores, cpus = (min(numbers) for numbers in zip(*ranks, strict=True))
    return sorted({1 << n for n in range(cores.bit_length())} | {cores, cpus})


def on_tile(
    machine: headrace.Machine, places: Sequence[str], host: Host
) -> tuple[list[str], set[int]]:
    """The places on the tile of the rank in `host`, and the tile's CPUs."""
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
    """The spill order without the nodes that are placed already; a kind means its other nodes."""
    known = set(placed)
    for part in spill:
        nodes = [node for node, _ in headrace.Placement.parse(machine, part).nodes]
        left = [node for node in nodes if node not in known]
        known.update(left)
        if left or not nodes:
            yield ",".join(map(str, left)) or part


#: Bytes and seconds of each rank in one repetition.
Times = list[tuple[int, float]]


def run(world: World, arrays: Arrays, options: Options, stop: Stop) -> Runner:
    """Runs all kernels in a random order, the same on all ranks, with a barrier before each."""

    def once(variant: Variant, _: int) -> Times | None:
        world.all(arrays.fill)
        if any(world.all(stop)):
            return None
        world.barrier()
        return world.all(lambda: arrays.run(str(variant.parameters["kernel"])))

    runner = Runner([Variant({"kernel": each}) for each in options.kernels()], options.repetitions)
    runner.run(once, lambda: False)
    return runner


def rows(runner: Runner, ranks: Sequence[Mapping[str, Any]]) -> list[headrace.Row]:
    """A row per kernel for all ranks together: their bytes divided by the slowest rank's time. With
    several ranks, also a row for each.
    """
    found = [_row(runner, each, ranks[0], "all", _together) for each in runner.variants]
    found += [
        _row(runner, each, rank, number, itemgetter(number))
        for number, rank in enumerate(ranks) if len(ranks) > 1 for each in runner.variants
    ]  # fmt: skip
    return found


def _together(times: Times) -> tuple[int, float]:
    return sum(size for size, _ in times), max(seconds for _, seconds in times)


def _row(
    runner: Runner, variant: Variant, rank: Mapping[str, Any], which: int | str,
    of: Callable[[Times], tuple[int, float]],
) -> headrace.Row:  # fmt: skip
    parameters = {name: rank[name] for name in ("a", "b", "c", "threads", "bytes_per_array")}
    own = replace(variant, parameters={**variant.parameters, **parameters, "rank": which})
    times = [of(each) for each in variant.results]
    rates = [size / seconds for size, seconds in times]
    # STREAM reports the best repetition.
    details = {"best": max(rates, default=None), "bytes": times[0][0] if times else None}
    return runner.row("stream", own, "B/s", rates, details=details)
