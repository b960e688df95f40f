# SPDX-License-Identifier: Apache-2.0
"""headrace bench query"""

from __future__ import annotations

from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Data, Json, Out, Query, Runs, Scale
from headrace._errors import WrongAnswer
from headrace._files import check_writable
from headrace._format import efficiency, interval_text, percent, seconds_text
from headrace._profile.documents import Fields, all_fields, find
from headrace_bench.commands.options import number, option


def measure_query(options: Any, interrupt: Interrupt) -> dict[str, Any]:
    """bench_query() with a progress bar, until done or interrupted.

    The data are made first if need be. That keeps nothing when interrupted, so that Ctrl-C ends it
    at once.
    """
    from headrace_bench import query as query_bench
    from headrace_bench import tpch

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
    modes: Annotated[Optional[list[str]], option(
        "NAME", "Mode: resident, direct, mmap, prefetch or duckdb; may be repeated (default: all).",
        "--mode",
    )] = None,
    slow: Annotated[
        Optional[int], option("NODE", "Node of the columns at the start (default: storage).")
    ] = None,
    fast: Annotated[
        Optional[int], option("NODE", "Node that the columns are copied to (default: the fastest).")
    ] = None,
    threads: Annotated[
        Optional[int], number("Number of pipeline threads (default: all CPUs).", 1, 1024)
    ] = None,
    block: Annotated[str, option("SIZE", "Block size of the widest column.")] = "1MiB",
    budget: Annotated[str, option("SIZE", "Memory for the cache.")] = "256MiB",
    data: Data = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compare a query on prefetched columns with one without."""
    from headrace_bench.query import MODES, PEER, QueryBenchOptions, checked

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
    from headrace_bench.runner import check

    modes = [row for row in document["rows"] if row["parameters"]["mode"] != "floor"]
    check({**document, "rows": modes})


def print_query(document: dict[str, Any]) -> None:
    """One line per mode, the floors, and whether the answer is right."""
    rows = [row for row in all_fields(document) if row["experiment"] == "query"]
    lines = [_line(row, row["mode"]) for row in rows if row["mode"] != "floor"]
    lines.append(_line(find(document, mode="floor"), "floor: transfer"))
    compute = find(document, mode="resident")["median"]
    lines.append(("floor: compute", seconds_text(compute), "", "", "", ""))
    output.print_text(
        f"{document['query']} at scale {document['scale']:g}, "
        f"{headrace.format_bytes(document['bytes'])} of columns from {document['slow']['name']} "
        f"to {document['fast']['name']}, {document['threads']} threads"
    )
    output.print_table(("mode", "seconds", "interval", "waited", "cached", "runs"), lines)
    if overlap := find(document, experiment="overlap"):
        output.print_text(
            f"overlap efficiency: {efficiency(overlap['median'])}, max(transfer, compute) / "
            f"prefetch in each run; median, {overlap['low']:.2f} to {overlap['high']:.2f} "
            f"({overlap['interval']})"
        )
    right = {True: "equal to DuckDB's", False: "WRONG: differs from DuckDB's", None: "not checked"}
    output.print_text(f"answer: {right[document['answer_ok']]}")
    for row in rows:
        if remark := row["reason"] or row["note"]:
            output.print_text(f"{row['mode']} not measured: {remark}")
    for warning in document["warnings"]:
        output.print_text(f"warning: {warning}")


def _line(row: Fields, name: str) -> tuple[str, ...]:
    return (
        name,
        seconds_text(row["median"]),
        interval_text(row, seconds_text),
        seconds_text(row["waited_seconds"]) if row["bytes"] else "",
        _cached_share(row) if row["bytes"] else "",
        str(len(row["samples"])),
    )


def _cached_share(row: Fields) -> str:
    """How much was in the page cache before the run; of `resident` all is in memory anyway."""
    if row["mode"] == "resident" or row["cached_before_bytes"] is None:
        return "-"
    return str(percent(row["cached_before_bytes"] / row["bytes"]))
