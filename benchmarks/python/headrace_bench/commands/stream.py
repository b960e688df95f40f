# SPDX-License-Identifier: Apache-2.0
"""headrace bench stream"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, Threads
from headrace._files import check_writable
from headrace._profile.documents import Fields, all_fields
from headrace_bench.commands.options import flag, number, option


def command(
    a: Annotated[str, option("PLACE", "Memory of array a.", "--a")] = "dram",
    b: Annotated[str, option("PLACE", "Memory of array b.", "--b")] = "dram",
    c: Annotated[str, option("PLACE", "Memory of array c.", "--c")] = "dram",
    size: Annotated[
        Optional[str], option("SIZE", "Size of each array (default: four times the caches).")
    ] = None,
    threads: Threads = None,
    repetitions: Annotated[int, number("Number of runs; the best one counts.", 1, 1000)] = 10,
    tile: Annotated[
        bool, flag("--per-rank-tile", "Place each rank on its own tile and the memory near it.")
    ] = False,
    sweep: Annotated[bool, flag(
        "--sweep", "Measure 1, 2, 4, ... threads per rank, one per core, and one per CPU.",
    )] = False,
    non_temporal: Annotated[
        bool, flag("--non-temporal", "Store around the caches, without fetching lines.")
    ] = False,
    json: Json = False,
    out: Out = None,
) -> int:
    """Run STREAM with each array in a chosen memory.

    PLACE is the same as for headrace run. An MPI job needs mpi4py.

    \b
    headrace bench stream --a hbm --b dram --c hbm
    mpirun -n 8 headrace bench stream --per-rank-tile --a hbm --b hbm --c hbm
    mpirun -n 8 headrace bench stream --per-rank-tile --sweep
    """
    from headrace._run import mpi
    from headrace_bench import stream
    from headrace_bench.runner import check

    if sweep and threads is not None:
        raise headrace.InvalidError("--sweep chooses the numbers of threads; leave out --threads")
    wanted = None if size is None else parse.size(size)
    options = stream.Options((a, b, c), wanted, threads, repetitions, tile, non_temporal)
    with mpi.job() as world, Interrupt() as interrupt:
        machine = headrace.Machine.discover(storage=[])
        own_arrays: list[stream.Arrays] = []  # of this rank; empty until prepare() made them

        def prepare() -> dict[str, Any]:
            if out is not None and world.rank == 0:
                check_writable(out)
            only_rank = world.size == 1
            own_arrays.append(stream.Arrays(machine, options, only_rank=only_rank))
            return own_arrays[0].describe()

        with interrupt.suspended():
            ranks = world.all(prepare)
            arrays = own_arrays[0]
            numbers = world.all(lambda: (arrays.cores, len(arrays.allowed)))
        rows: list[headrace.Row] = []
        orders: list[dict[str, Any]] = []
        for count in stream.sweep_counts(numbers) if sweep else [threads]:
            if sweep:
                with interrupt.suspended():
                    world.all(lambda count=count: arrays.use(count))  # type: ignore[misc]
                    ranks = world.all(arrays.describe)
            runner = stream.run(world, arrays, options, interrupt)
            rows += stream.rows(runner, ranks)
            orders.append(runner.order())
            if runner.interrupted:
                break
    if world.rank > 0:
        return exit_codes.SUCCESS
    document = output.document(
        "bench stream", machine, repetitions=repetitions, interrupted=runner.interrupted,
        ranks=[{"rank": rank, **each} for rank, each in enumerate(ranks)], order=orders,
        rows=[row.asdict() for row in rows],
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_stream(document))
    check(document)
    return exit_codes.INTERRUPTED if runner.interrupted else exit_codes.SUCCESS


def print_stream(document: dict[str, Any]) -> None:
    """Prints the rates by kernel: of all ranks, of each rank if there are several, of a sweep."""
    ranks, rows = document["ranks"], all_fields(document)
    # The last row of each rank and kernel. Ranks may differ in their threads.
    last = {(row["rank"], row["kernel"]): row for row in rows}
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    lines = [
        (str(rank["rank"]), rank["host"], str(rank["threads"]), *(rank[name] for name in "abc"),
         str(headrace.format_bytes(rank["bytes_per_array"])),
         *(_rate(last[rank["rank"] if len(ranks) > 1 else "all", kernel]["best"])
           for kernel in kernels))
        for rank in ranks
    ]  # fmt: skip
    whole = [last["all", kernel] for kernel in kernels]
    threads = str(sum(rank["threads"] for rank in ranks))
    blank = ("", "", "", "")
    if len(ranks) > 1:
        lines.append(("all", "", threads, *blank, *(_rate(row["best"]) for row in whole)))
    lines.append(("median", "", threads, *blank, *(_rate(row["median"]) for row in whole)))
    for end in ("low", "high"):
        lines.append((end, "", "", *blank, *(_rate(row[end]) for row in whole)))
    headings = ("rank", "host", "threads", "a", "b", "c", "each", *kernels)
    output.print_table(headings, lines, left=2)
    output.print_text(
        f"best of {document['repetitions']} repetitions, counted as STREAM does; all, median: the "
        f"bytes of all ranks by the time of the slowest; low, high: {whole[0]['interval']}"
    )
    if len({row["threads"] for row in rows if row["rank"] == "all"}) > 1:
        print_sweep(rows, len(ranks))
    small = [rank for rank in ranks if rank["in_cache"]]
    if small:
        output.print_text(_cache_note(small))
    output.print_text(document["rests_on"]["detail"])


def print_sweep(rows: Sequence[Fields], ranks: int) -> None:
    """Prints the rates of all ranks together for each number of threads of a sweep."""
    rates: dict[int, dict[str, float | None]] = {}
    for row in rows:
        if row["rank"] == "all":
            rates.setdefault(row["threads"], {})[row["kernel"]] = row["best"]
    output.print_table(
        ("threads of a rank", "in all", *next(iter(rates.values()))),
        ((str(threads), str(threads * ranks), *map(_rate, found.values()))
         for threads, found in rates.items()),
        left=0,
    )  # fmt: skip


def _cache_note(small: Sequence[dict[str, Any]]) -> str:
    from headrace._run.plan import ranges
    from headrace_bench.stream import CACHES

    which = "rank " + ranges(rank["rank"] for rank in small)
    least = headrace.format_bytes(CACHES * max(rank["cache_bytes"] for rank in small))
    return (
        f"{which}: arrays below four times the last-level caches, so these are partly the caches' "
        f"rates; give --size {str(least).replace(' ', '')} or more, or leave it out"
    )


def _rate(value: float | None) -> str:
    return "-" if value is None else str(headrace.format_rate(value))
