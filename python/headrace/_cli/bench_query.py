# SPDX-License-Identifier: Apache-2.0
"""headrace bench query"""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Data, Json, Out, Query, Runs, Scale
from headrace._errors import WrongAnswer, kind_of
from headrace._files import check_writable
from headrace._format import efficiency, percent


def measure_query(options: Any, interrupt: Interrupt) -> dict[str, Any]:
    """bench_query() with a progress bar, until done or interrupted.

    The data are made first if need be. That keeps nothing when interrupted, so that Ctrl-C ends it
    at once.
    """
    from headrace._bench import query as query_bench
    from headrace._bench import tpch

    with output.ProgressBar("preparing data") as bar:
        if not interrupt.requested:
            with interrupt.suspended():
                tpch.prepare(options.scale, options.directory, lambda what, d, t: bar(d, t, what))
    with output.ProgressBar(options.query) as bar:
        return query_bench.bench_query(options, lambda what, d, t: bar(d, t, what), interrupt)


def command(
    query: Query = "q6",
    scale: Scale = 3,
    runs: Runs = 5,
    modes: Annotated[
        Optional[list[str]],
        typer.Option(
            "--mode",
            metavar="NAME",
            help="Mode: resident, direct, mmap, prefetch or duckdb; may be repeated (default: "
            "all).",
        ),
    ] = None,
    slow: Annotated[
        Optional[int],
        typer.Option(metavar="NODE", help="Node of the columns at the start (default: storage)."),
    ] = None,
    fast: Annotated[
        Optional[int],
        typer.Option(
            metavar="NODE", help="Node that the columns are copied to (default: the fastest)."
        ),
    ] = None,
    threads: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=1024,
            help="Number of pipeline threads (default: all CPUs).",
        ),
    ] = None,
    block: Annotated[
        str, typer.Option(metavar="SIZE", help="Block size of the widest column.")
    ] = "1MiB",
    budget: Annotated[str, typer.Option(metavar="SIZE", help="Memory for the cache.")] = "256MiB",
    data: Data = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compare a query on prefetched columns with one without."""
    from headrace._bench.query import MODES, PEER, QueryBenchOptions, checked

    if out is not None:
        check_writable(out)
    options = checked(QueryBenchOptions(
        query=query,
        scale=scale,
        runs=runs,
        modes=tuple(dict.fromkeys(modes)) if modes else (*MODES, PEER),
        threads=threads,
        block=parse.size(block),
        budget=parse.size(budget),
        slow=slow,
        fast=fast,
        directory=data,
    ))  # fmt: skip
    with Interrupt() as interrupt:
        document = measure_query(options, interrupt)
    output.deliver(document, out=out, json=json, show=lambda: print_query(document))
    check_query(document)
    return exit_codes.INTERRUPTED if document["interrupted"] else exit_codes.SUCCESS


def check_query(document: dict[str, Any]) -> None:
    """Raises, when all is written, if the run has a wrong answer or no number at all."""
    if document["answer_ok"] is False:
        raise WrongAnswer("the answers differ from DuckDB's; trust no number of this run")
    modes = document["modes"].values()
    if document["interrupted"] or any(mode["runs"] for mode in modes):
        return
    for mode in modes:
        raise kind_of(mode["code"])(f"no mode could be measured: {mode['reason']}")


def print_query(document: dict[str, Any]) -> None:
    """One line per mode, the floors, and whether the answer is right."""
    rows = [_mode_row(name, mode) for name, mode in document["modes"].items()]
    floor = document["floor"]
    for what, seconds in (("transfer", floor["seconds"]), ("compute", [])):
        middle = floor.get(f"{what}_seconds")
        rows.append((f"floor: {what}", _seconds(middle), _interval(seconds), "", "", ""))
    output.print_text(
        f"{document['query']} at scale {document['scale']:g}, "
        f"{headrace.format_bytes(document['bytes'])} of columns from {document['slow']['name']} "
        f"to {document['fast']['name']}, {document['threads']} threads"
    )
    output.print_table(("mode", "seconds", "interval", "waited", "cached", "runs"), rows)
    if document["overlap_efficiency"] is not None:
        low, high, words = document["overlap_efficiency_interval"].values()
        output.print_text(
            f"overlap efficiency: {efficiency(document)}, max(transfer, compute) / prefetch in "
            f"each run; median, {low:.2f} to {high:.2f} ({words})"
        )
    right = {True: "equal to DuckDB's", False: "WRONG: differs from DuckDB's", None: "not checked"}
    output.print_text(f"answer: {right[document['answer_ok']]}")
    for mode in document["modes"].values():
        if "reason" in mode:
            output.print_text(f"not measured: {mode['reason']}")
    for warning in document["warnings"]:
        output.print_text(f"warning: {warning}")


def _mode_row(name: str, mode: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        _seconds(mode["seconds_median"]),
        _interval(mode["seconds"]),
        # The kernel waits in page faults, where nobody counts.
        "-" if name == "mmap" else _seconds(mode.get("waited_seconds")),
        _cached_share(name, mode),
        str(mode["runs"]),
    )


def _cached_share(name: str, mode: dict[str, Any]) -> str:
    """How much was in the page cache before the run; of `resident` all is in memory anyway."""
    cached = mode["cached_before_bytes"]
    if name == "resident" or cached is None:
        return "-"
    return str(percent(cached / mode["bytes"]))


def _interval(seconds: list[float]) -> str:
    """ "0.231 to 0.240, range of 5"; of one run there is none."""
    found = headrace.summarize(seconds)
    if found is None or found.runs < 2:
        return ""
    low, high = found.interval.low, found.interval.high
    return f"{_seconds(low)} to {_seconds(high)}, {found.interval_words}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
