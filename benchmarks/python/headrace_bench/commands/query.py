# SPDX-License-Identifier: Apache-2.0
"""headrace bench query"""

from __future__ import annotations

from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Data, Json, Out, Query, Runs, Scale
from headrace._errors import WrongAnswer
from headrace._files import check_writable
from headrace._format import efficiency, interval_text, percent, seconds_text
from headrace._profile.documents import Fields, all_fields, find
from headrace_bench.commands.options import option


def measure_query(options: Any, interrupt: Interrupt) -> dict[str, Any]:
    """bench_query() with a progress bar, until done or interrupted.

    The data are made first if needed. Ctrl-C ends that at once, since nothing of it is kept.
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
    working_set: Annotated[
        Optional[str], option("SIZE", "Size of the query's columns (instead of --scale).")
    ] = None,
    groups: Annotated[
        str, option("NUMBER", "Nodes with CPUs that scan a part (1: threads on any CPUs).")
    ] = "1",
    threads: Annotated[Optional[str], option(
        "NUMBER", "Pipeline threads, per group (default: all CPUs); 8+4: 8 filter, 4 aggregate."
    )] = None,
    chunk: Annotated[str, option("SIZE", "Size of a chunk of the widest column.")] = "1MiB",
    lead: Annotated[str, option("TIME", "Time by which copies are ahead.")] = "50ms",
    window: Annotated[str, option("SIZE", "Most bytes that a plan is ahead.")] = "64MiB",
    budget: Annotated[str, option("SIZE", "Memory for the cache, per group.")] = "256MiB",
    engine: Annotated[
        str, option("ENGINE", "Engine that copies between memories: any, cpu or dsa.")
    ] = "any",
    route: Annotated[
        str, option("ROUTE", "Route: measured, one, brute_force or smart.")
    ] = "measured",
    sweep: Annotated[Optional[list[str]], option(
        "AXIS=V1,V2", "Values of one of these settings, measured in turn; may be repeated."
    )] = None,
    data: Data = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compare a query on prefetched columns with one without.

    The settings have the names of those of headrace predict query, so that one command measures
    the points that the other predicts (with --passes 1).

    \b
    headrace bench query --sweep window=16MiB,64MiB --sweep threads=1,2
    """
    from headrace_bench.predict.command import points_of
    from headrace_bench.query import MODES, PEER, QueryBenchOptions

    if out is not None:
        check_writable(out)
    given = {
        "query": query, "working_set": working_set, "groups": groups, "threads": threads,
        "chunk": chunk, "lead": lead, "window": window, "budget": budget, "engine": engine,
        "route": route,
    }  # fmt: skip
    common = QueryBenchOptions(
        scale=scale, runs=runs, modes=tuple(dict.fromkeys(modes)) if modes else (*MODES, PEER),
        slow=slow, fast=fast, directory=data,
    )  # fmt: skip
    points = points_of("query", [*given], sweep or ())
    asked = [_options(common, {**given, **point}) for point in points]
    documents: list[dict[str, Any]] = []
    failure: headrace.Error | None = None
    with Interrupt() as interrupt:
        for options in asked:
            try:
                documents.append(measure_query(options, interrupt))
            except headrace.Error as error:
                if not documents:
                    raise
                failure = error  # raised when the points before it are written
                break
            if interrupt():
                break
    document = _of_points(documents, points)
    output.deliver(document, out=out, json=json, show=lambda: _print_points(documents, points))
    if failure is not None:
        raise failure
    check_query(document)
    return exit_codes.INTERRUPTED if document["interrupted"] else exit_codes.SUCCESS


def _options(common: Any, given: dict[str, str | None]) -> Any:
    """Settings of one point, checked before anything is measured."""
    from dataclasses import replace

    from headrace_bench.predict.query import WORKLOAD
    from headrace_bench.query import checked, scale_of

    axes = {axis.name: axis for axis in WORKLOAD.axes}
    values: dict[str, Any] = {
        name: text if name == "engine" and text == "any" else axes[name].value(text)
        for name, text in given.items()
    }
    size = values.pop("working_set")
    values["threads"], second = values["threads"] or (None, None)
    if size is not None:
        values["scale"] = scale_of(values["query"], size)
    return checked(replace(common, **values, aggregators=second or 0))


#: Members of a document that differ from point to point of a sweep.
_OF_POINT = (
    "query", "scale", "table_rows", "bytes", "block_bytes", "budget_bytes", "threads",
    "aggregators", "groups", "cache", "timeline", "order",
)  # fmt: skip


def _of_points(documents: list[dict[str, Any]], points: list[dict[str, str]]) -> dict[str, Any]:
    """One document with the rows of all points, and by point the members that differ between them.
    Its other members are those of the first.
    """
    first = documents[0]
    if len(points) == 1:
        return first
    rows = [
        row | {"parameters": row["parameters"] | point}
        for document, point in zip(documents, points, strict=False)
        for row in document["rows"]
    ]
    answers = [document["answer_ok"] for document in documents]
    return first | {
        "rows": rows,
        "points": [
            {"settings": point, **{name: document[name] for name in _OF_POINT}}
            for document, point in zip(documents, points, strict=False)
        ],
        "answer_ok": False if False in answers else None if None in answers else True,
        "interrupted": any(each["interrupted"] for each in documents),
        "warnings": list(dict.fromkeys(line for each in documents for line in each["warnings"])),
    }


def _print_points(documents: list[dict[str, Any]], points: list[dict[str, str]]) -> None:
    for number, (document, point) in enumerate(zip(documents, points, strict=False)):
        if point:
            name = ", ".join(f"{axis} {value}" for axis, value in point.items())
            output.print_text(("\n" if number else "") + name)
        print_query(document)


def check_query(document: dict[str, Any]) -> None:
    """Raises, after all is written, if the run has a wrong answer or no number at all."""
    if document["answer_ok"] is False:
        raise WrongAnswer("the answers differ from DuckDB's; trust no number of this run")
    from headrace_bench.runner import check

    modes = [row for row in document["rows"] if row["parameters"]["mode"] != "floor"]
    check({**document, "rows": modes})


def print_query(document: dict[str, Any]) -> None:
    """One line per mode, the floors, and whether the answer is right."""
    rows = [row for row in all_fields(document) if row["experiment"] == "query"]
    lines = [_line(row, row["mode"]) for row in rows if row["mode"] != "floor"]
    if any(row["mode"] == "floor" for row in rows):
        lines.append(_line(find(document, mode="floor"), "floor: transfer"))
        compute = find(document, mode="resident")["median"]
        lines.append(("floor: compute", seconds_text(compute), "", "", "", ""))
    output.print_text(
        f"{document['query']} at scale {document['scale']:g}, "
        f"{headrace.format_bytes(document['bytes'])} of columns from {document['slow']['name']} "
        f"to {document['fast']['name']}, {_threads(document)}"
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


def _threads(document: dict[str, Any]) -> str:
    stages = f" + {document['aggregators']}" if document["aggregators"] else ""
    groups = f" in each of {document['groups']} groups" if document["groups"] > 1 else ""
    return f"{document['threads']}{stages} threads{groups}"


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
    """Share of the data in the page cache before the run; `resident` has all data in memory anyway.
    """
    if row["mode"] == "resident" or row["cached_before_bytes"] is None:
        return "-"
    return str(percent(row["cached_before_bytes"] / row["bytes"]))
