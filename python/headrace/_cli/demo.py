"""headrace demo: from the bare machine to a report, in one go."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import bench, exit_codes, output, report
from headrace._cli.interrupt import Interrupt

_COPY_ENGINES = ("memcpy", "cpu")
#: A ratio near 1, as hot copies have, needs more rounds than --quick takes.
_COPY_ROUNDS = 7


def run(
    *, scale: float, runs: int, query: str, data: Path | None, out: Path, png: bool, json: bool
) -> int:
    _check(query)
    out.mkdir(parents=True, exist_ok=True)
    output.check_writable(out / "demo.json")
    start = time.monotonic()
    with Interrupt() as interrupt:
        document = _measure(interrupt, scale=scale, runs=runs, query=query, data=data)
    document["interrupted"] = interrupt.requested
    document["seconds"] = round(time.monotonic() - start, 3)
    output.write_json(out / "demo.json", document)
    page = out / "report.html"
    report.write(document, page, out / "report.png" if png else None)
    if json:
        output.print_json(document)
    else:
        _print(document)
        output.print_text(f"report: {page}")
    if "query" in document:
        bench.check_query(document["query"])
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _check(query: str) -> None:
    """Complains before the work about what would fail after it."""
    missing = [name for name in ("altair", "vl_convert", "duckdb") if find_spec(name) is None]
    if missing:
        raise headrace.AbsentError(
            f"the demo needs {', '.join(missing)}; run: pip install 'headrace[demo]'"
        )
    headrace.query_columns(query)


def _measure(
    interrupt: Interrupt, *, scale: float, runs: int, query: str, data: Path | None
) -> dict[str, Any]:
    """Each part in turn until interrupted; what was not reached is left out."""
    from headrace import _data
    from headrace._query import QueryBenchOptions

    directory = data or _data.default_directory()
    directory.mkdir(parents=True, exist_ok=True)
    machine = headrace.Machine.discover(storage=[directory])
    parts: dict[str, Any] = {}
    with output.ProgressBar("measuring memory and disk") as bar:
        rates = headrace.measure_briefly(machine, directory, stop=interrupt, progress=bar)
    parts["rates"] = [row.asdict() for row in rates]
    if not interrupt.requested:
        options = {
            "sizes": list(bench.QUICK_SIZES),
            "engines": list(_COPY_ENGINES),
            "rounds": _COPY_ROUNDS,
        }
        rows = bench.measure_copy(machine, interrupt, **options)
        parts["copy"] = bench.copy_document(machine, rows, _COPY_ROUNDS, interrupt.requested)
    if not interrupt.requested:
        wanted = QueryBenchOptions(query=query, scale=scale, runs=runs, directory=data)
        parts["query"] = bench.measure_query(wanted, interrupt)
    return output.document("demo", machine, interrupted=False, **parts)


def _print(document: dict[str, Any]) -> None:
    output.print_table(
        ("what", "where", "rate", "+-"),
        [
            (
                row["what"],
                row["where"] if row["bytes_per_second"] else f"{row['where']}: {row['reason']}",
                headrace.format_rate(row["bytes_per_second"]) if row["bytes_per_second"] else "-",
                "" if row["spread"] is None else f"{row['spread']:.0%}",
            )
            for row in document["rates"]
        ],
        left=2,
    )
    for part, show in (("copy", _print_copy), ("query", bench.print_query)):
        if part in document:
            print()
            show(document[part])


def _print_copy(document: dict[str, Any]) -> None:
    bench.print_copy(document["rows"])
