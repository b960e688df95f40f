"""headrace bench stream: STREAM with its arrays where one says, by one process or an MPI job"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import exit_codes, mpi, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.run import this_host
from headrace._cli.threads import buffer, cache_of, cpus_for
from headrace._ranks import Rank, local_rank
from headrace._run_plan import Host, Request, plan, ranges

Row = dict[str, Any]

#: Of an array, as the experiment `stream` has them: four times the caches, 32 MiB at least.
_CACHES = 4
_LEAST_BYTES = 32 << 20


@dataclass(frozen=True)
class Options:
    places: tuple[str, str, str]  # of a, b, c
    size: str | None  # of one array of one rank
    threads: int | None  # of one rank
    repetitions: int
    tile: bool  # each rank on its own


class Stand:
    """The arrays of this rank and who works on them."""

    def __init__(self, machine: headrace.Machine, options: Options, alone: bool) -> None:
        self.places = list(options.places)
        allowed = None
        if options.tile:
            rank = local_rank(os.environ) or (Rank(0, 1, "no launcher") if alone else None)
            host = this_host(machine, Request(per_rank=True), rank)
            self.places, allowed = on_tile(machine, options.places, host)
            os.sched_setaffinity(0, allowed)  # whatever the launcher bound it to
        self.cpus = cpus_for(machine, options.threads, allowed)
        self.caches = cache_of(machine, self.cpus)
        usual = max(_CACHES * self.caches, _LEAST_BYTES)
        size = parse.size(options.size) if options.size else usual
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
            "in_cache": len(self.a) < _CACHES * self.caches,
        }

    def fill(self) -> None:
        headrace.stream_fill(self.a, self.b, self.c, self.cpus)

    def run(self, kernel: str) -> tuple[int, float]:
        """The bytes counted, and the seconds."""
        found = headrace.stream_run(kernel, self.a, self.b, self.c, self.cpus)
        return found.bytes, found.seconds


def on_tile(
    machine: headrace.Machine, places: Sequence[str], host: Host
) -> tuple[list[str], set[int]]:
    """The places of the rank that `host` tells of on its tile, and the tile's CPUs."""
    found: list[str] = []
    cpus: set[int] = set()
    for place in places:
        if "=" in place:
            raise headrace.InvalidError(f"{place}: with --per-rank-tile give a kind or nodes")
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


def stream(*, options: Options, json: bool, out: Path | None) -> int:
    with mpi.job() as world, Interrupt() as interrupt:
        machine = headrace.Machine.discover(storage=[])
        stands: list[Stand] = []

        def prepare() -> Row:
            if out is not None and world.rank == 0:
                output.check_writable(out)
            stands.append(Stand(machine, options, alone=world.size == 1))
            return stands[0].describe()

        ranks = world.all(prepare)
        times = repeat(world, stands[0], options.repetitions, interrupt)
    if world.rank > 0:
        return exit_codes.SUCCESS
    rows, total = tables(ranks, times)
    stopped = any(len(found) < options.repetitions for found in times.values())
    document = output.document(
        "bench stream", machine, repetitions=options.repetitions, interrupted=stopped,
        ranks=[{"rank": rank, **each} for rank, each in enumerate(ranks)], rows=rows, total=total,
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_stream(document))
    return exit_codes.INTERRUPTED if stopped else exit_codes.SUCCESS


#: By kernel, repetition and rank: bytes and seconds.
Times = dict[str, list[list[tuple[int, float]]]]


def repeat(world: mpi.World, stand: Stand, repetitions: int, interrupt: Interrupt) -> Times:
    """All kernels in turn, so often; before each all ranks wait for each other."""
    times: Times = {kernel: [] for kernel in headrace.stream_kernels()}
    for _ in range(repetitions):
        for kernel, found in times.items():
            world.all(stand.fill)
            if any(world.all(interrupt)):
                return times
            world.barrier()
            found.append(world.all(lambda k=kernel: stand.run(k)))  # type: ignore[misc]
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


def print_stream(document: Row) -> None:
    ranks, kernels = document["ranks"], [row["kernel"] for row in document["total"]]
    rates = {(row["rank"], row["kernel"]): row["bytes_per_second"] for row in document["rows"]}
    lines = [
        (str(rank["rank"]), rank["host"], str(rank["threads"]), *(rank[name] for name in "abc"),
         str(headrace.format_bytes(rank["bytes_per_array"])),
         *(_rate(rates[rank["rank"], kernel]) for kernel in kernels))
        for rank in ranks
    ]  # fmt: skip
    whole = [_rate(row["bytes_per_second"]) for row in document["total"]]
    lines.append(("all", "", str(sum(r["threads"] for r in ranks)), "", "", "", "", *whole))
    headings = ("rank", "host", "threads", "a", "b", "c", "each", *kernels)
    output.print_table(headings, lines, left=2)
    print(
        f"best of {document['repetitions']} repetitions, counted as STREAM does; all: the bytes of "
        "all ranks by the time of the slowest, of the best repetition"
    )
    small = [rank for rank in ranks if rank["in_cache"]]
    if small:
        print(_cache_note(small))
    print(document["rests_on"]["detail"])


def _cache_note(small: Sequence[Row]) -> str:
    which = "rank " + ranges(rank["rank"] for rank in small)
    least = headrace.format_bytes(_CACHES * max(rank["cache_bytes"] for rank in small))
    return (
        f"{which}: arrays below four times the last-level caches, so these are partly the caches' "
        f"rates; give --size {str(least).replace(' ', '')} or more, or leave it out"
    )


def _rate(value: float | None) -> str:
    return "-" if value is None else str(headrace.format_rate(value))
