# SPDX-License-Identifier: Apache-2.0
"""headrace demo: from the bare machine to a report, in one go."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace._cli import exit_codes, output, report
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Data, Json, Query, Runs, Scale
from headrace._files import check_apart, check_writable
from headrace._format import installing
from headrace._profile.row_documents import rate_rows

_COPY_ENGINES = ("memcpy", "cpu")
#: Rounds of copies: a ratio near 1, as of hot copies, needs more rounds than --quick has.
_COPY_ROUNDS = 7


def command(
    scale: Scale = 3,
    runs: Runs = 5,
    query: Query = "q6",
    data: Data = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIRECTORY", help="Directory for demo.json and the report."),
    ] = Path("out"),
    png: Annotated[bool, typer.Option(help="Draw the report as a picture too.")] = True,
    json: Json = False,
) -> int:
    """Measure this machine, run a prefetched query, draw a report."""
    _check(query, scale)
    if out.exists() and not out.is_dir():
        raise headrace.InvalidError(f"{out} is no directory; give one to --out, or a new name")
    out.mkdir(parents=True, exist_ok=True)
    page, picture = out / "report.html", out / "report.png" if png else None
    check_apart(out / "demo.json", page, picture)
    for file in (out / "demo.json", page, picture):
        check_writable(file)
    start = time.monotonic()
    with Interrupt() as interrupt:
        document, failed = _measure(interrupt, scale=scale, runs=runs, query=query, data=data)
    document["interrupted"] = interrupt.requested
    document["seconds"] = round(time.monotonic() - start, 3)
    kept = output.keeps_old(out / "demo.json", document)
    lost = None if kept else output.save(out / "demo.json", output.json_text(document))
    written = False
    try:
        if not kept:
            report.write(document, page, picture)
            written = True
    except headrace.Error as error:
        failed = failed or error
    if json or lost is not None:
        output.print_json(document)
    else:
        _print(document)
        if written:
            output.print_text(f"report: {page}")
    if lost or failed:
        raise lost or failed  # type: ignore[misc]
    if "query" in document:
        from headrace_bench.commands import query as bench_query

        bench_query.check_query(document["query"])
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _check(query: str, scale: float) -> None:
    """Raises before the work for reasons that would make it fail at the end."""
    if find_spec("headrace_bench") is None:
        raise headrace.AbsentError("the demo needs more; run: pip install 'headrace[demo]'")
    from headrace_bench.query import QueryBenchOptions, checked

    checked(QueryBenchOptions(query=query, scale=scale))
    needed = ("altair", "jinja2", "vl_convert", "duckdb")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise headrace.AbsentError(
            f"the demo needs {', '.join(missing)}; run: {installing(missing)}"
        )


def _measure(
    interrupt: Interrupt, *, scale: float, runs: int, query: str, data: Path | None
) -> tuple[dict[str, Any], headrace.Error | None]:
    """Runs each part until an interrupt or a failure. Parts that were not reached are left out."""
    from headrace_bench import tpch
    from headrace_bench.commands import query as bench_query
    from headrace_bench.query import QueryBenchOptions

    directory = data or tpch.default_directory()
    directory.mkdir(parents=True, exist_ok=True)
    machine = headrace.Machine.discover(storage=[directory])
    parts: dict[str, Any] = {}
    failed = None
    with output.ProgressBar("measuring memory and disk") as bar:
        profile = headrace.measure_quickly(machine, directory, stop=interrupt, progress=bar)
    machine = profile.machine  # with what was measured
    parts["conditions"] = profile.conditions
    parts["rates"] = rate_rows(profile, directory)
    interrupt.keeps = True
    try:
        if not interrupt.requested:
            parts["copy"] = _copy(machine, interrupt)
        if not interrupt.requested:
            wanted = QueryBenchOptions(query=query, scale=scale, runs=runs, directory=data)
            try:
                parts["query"] = bench_query.measure_query(wanted, interrupt)
            except KeyboardInterrupt:
                interrupt.requested = True  # while data were made: there is nothing of it yet
    except headrace.Error as error:
        failed = error
    return output.document("demo", machine, interrupted=False, **parts), failed


def _copy(machine: headrace.Machine, interrupt: Interrupt) -> dict[str, Any]:
    from headrace_bench.commands import copy as bench_copy

    return bench_copy.measure_copy(
        machine,
        interrupt,
        sizes=[*bench_copy.QUICK_SIZES],
        threads=[1],
        engines=[*_COPY_ENGINES],
        rounds=_COPY_ROUNDS,
    )


def _print(document: dict[str, Any]) -> None:
    from headrace_bench.commands import copy as bench_copy
    from headrace_bench.commands import query as bench_query

    output.print_table(
        ("what", "where", "rate", "interval"),
        [
            (
                row["what"],
                row["where"] if row["bytes_per_second"] else f"{row['where']}: {row['reason']}",
                headrace.format_rate(row["bytes_per_second"]) if row["bytes_per_second"] else "-",
                _interval(row),
            )
            for row in document["rates"]
        ],
        left=2,
    )
    for part, show in (("copy", bench_copy.print_copy), ("query", bench_query.print_query)):
        if part in document:
            output.print_text("")
            show(document[part])


def _interval(row: dict[str, Any]) -> str:
    """ "24 GB/s to 25 GB/s, range of 5"; empty for one sample."""
    if row["interval"] is None:
        return ""
    low, high = (headrace.format_rate(row[end]) for end in ("low", "high"))
    return f"{low} to {high}, {row['interval']}"
