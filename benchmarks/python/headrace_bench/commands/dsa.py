# SPDX-License-Identifier: Apache-2.0
"""headrace bench dsa"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, parse, report
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Experiments, Json, ListExperiments, Out
from headrace._files import check_apart, check_writable
from headrace._format import plural, say
from headrace._profile import dsa_rows
from headrace._profile.row_documents import reached
from headrace_bench.commands.options import number, option

Row = Mapping[str, Any]

MOST_BYTES = 2 << 30


def command(
    names: Experiments = None,
    sizes: Annotated[
        Optional[str], option("LIST", "Sizes of submission and cpu (default: 1 KiB to 1 GiB).")
    ] = None,
    rounds: Annotated[int, number("Number of repetitions on hardware.", 1, 1000)] = 3,
    list_them: ListExperiments = False,
    html: Annotated[Optional[Path], option("FILE", "File for a page of charts.")] = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure DSA devices: submission, threads, routes, cores.

    headrace predict copy --by dsa predicts copies by devices that are not here.
    """
    if list_them:
        known = dsa_rows.EXPERIMENTS
        output.print_list(
            "bench dsa", json=json,
            experiments=[{"name": name, "description": what} for name, what in known.items()],
            show=lambda: output.print_table(
                ("experiment", "what it measures"), known.items(), left=2
            ),
        )  # fmt: skip
        return exit_codes.SUCCESS
    selections = selected(names, sizes)
    check_apart(out, html)
    for file in (out, html):
        if file is not None:
            check_writable(file)
    machine = headrace.Machine.discover()
    with Interrupt() as interrupt, output.ProgressBar("copying") as bar:
        rows = _measure(machine, selections, rounds, interrupt, bar)
    document = output.document(
        "bench dsa", machine, interrupted=interrupt.requested,
        **fields(rows, machine, machine.name),
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_measured(document))
    if html is not None:
        if interrupt.requested and html.exists() and not output.has_values(document):
            say(f"{html} stays as it was: this measurement has no values")
        else:
            report.write(document, html, None)
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _measure(
    machine: headrace.Machine,
    selections: list[dict[str, Any]],
    rounds: int,
    interrupt: Interrupt,
    bar: output.ProgressBar,
) -> list[headrace.Row]:
    profile = headrace.measure(
        machine,
        selections=[("dsa", only) for only in selections],
        budget=None,
        rounds=rounds,
        repetitions=1,
        noise_checks=False,
        stop=interrupt,
        progress=bar,
    )
    for row in profile.rows:
        if not row.parameters:  # there is nothing to measure on
            raise headrace.UnsupportedError(row.reason)
    return profile.rows


def selected(names: list[str] | None, sizes: str | None) -> list[dict[str, Any]]:
    """The points of the named parts. InvalidError: no such part, or no size of a descriptor."""
    known = dsa_rows.EXPERIMENTS
    for name in names or []:
        if name not in known:
            raise headrace.InvalidError(f"no experiment '{name}'; there are {', '.join(known)}")
    found = parse.sizes(sizes)
    for size in found:
        if size > MOST_BYTES:
            raise headrace.InvalidError(
                f"a copy of {headrace.format_bytes(size)}; ask for 1 byte to "
                f"{headrace.format_bytes(MOST_BYTES)}"
            )
    return dsa_rows.selections(names or [], found)


def fields(
    rows: list[headrace.Row], machine: headrace.Machine, host: str
) -> dict[str, Any]:
    """The fields of a document: `machine` has the devices, `host` is the name of this one."""
    found: dict[str, Any] = {
        "host": host, "rows": [row.asdict() for row in reached(rows)],
        "published": dsa_rows.published(),
    }  # fmt: skip
    shown = dsa_rows.shown(found | {"machine": machine.asdict()})
    return found | {"crossovers": dsa_rows.crossovers(shown)}


def print_measured(document: Row) -> None:
    output.print_text(f"hardware: {document['rests_on']['detail']}\n\n")
    print_rows(document)


def print_rows(document: Row) -> None:
    """A table for each experiment, and why numbers are missing."""
    shown = dsa_rows.shown(document)
    for number, name in enumerate(dict.fromkeys(row["experiment"] for row in shown)):
        rows = dsa_rows.of(shown, name)
        if number:
            output.print_text("")
        _PRINTERS[name](rows)
        for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
            output.print_text(f"no number: {reason}")
        if name == "cpu":
            _print_crossovers(document["crossovers"])


def _pivot(
    rows: list[Row],
    lines: tuple[tuple[str, Callable[[Row], str]], ...],
    column: Callable[[Row], str],
) -> None:
    """A table with a column per `column` of the rows."""
    columns = list(dict.fromkeys(column(row) for row in rows))
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        line = tuple(value(row) for _, value in lines)
        cells.setdefault(line, {})[column(row)] = _cell(row)
    output.print_table(
        (*(heading for heading, _ in lines), *columns),
        ((*line, *(found.get(name, "") for name in columns)) for line, found in cells.items()),
        left=len(lines) - 1,
    )


def _cell(row: Row) -> str:
    rate = row["bytes_per_second"]
    return "-" if rate is None else str(headrace.format_rate(rate))


def _size(row: Row) -> str:
    return str(headrace.format_bytes(row["bytes"]))


def _print_submission(rows: list[Row]) -> None:
    _pivot(rows, (("submission", lambda row: ""), ("bytes", _size)), dsa_rows.way)


def _print_threads(rows: list[Row]) -> None:
    lines = (("threads", lambda row: ""), ("bytes", _size))
    _pivot(rows, lines, lambda row: plural(row["threads"], "thread"))


def _print_routes(rows: list[Row]) -> None:
    output.print_table(
        ("route", "policy", "devices", "left free", "rate"),
        (
            (
                f"{row['from_node']} -> {row['to_node']}",
                row["route"],
                " ".join(row["engines"]),
                " ".join(row["free_engines"]) or "none",
                _cell(row),
            )
            for row in rows
        ),
        left=4,
    )


def _print_cpu(rows: list[Row]) -> None:
    of_sizes = [row for row in rows if row["from_node"] == row["to_node"]]
    of_nodes = [row for row in rows if row["from_node"] != row["to_node"]]
    _pivot(of_sizes, (("cpu", lambda row: ""), ("bytes", _size)), _cpu_column)
    if of_nodes:
        output.print_text("")
        lines = (
            ("cpu", lambda row: f"{row['from_node']} -> {row['to_node']}"),
            ("bytes", _size),
        )
        _pivot(of_nodes, lines, lambda row: plural(row["threads"], "core"))


def _cpu_column(row: Row) -> str:
    if row["method"] == "cores":
        return f"1 core of {row['machine']}"
    return f"DSA, {dsa_rows.way(row)}"


def _print_crossovers(crossovers: Iterable[Row]) -> None:
    for each in crossovers:
        who = f"DSA of {each['machine']} ({dsa_rows.way({**each, 'at_once': 1})})"
        if each["bytes"] is None:
            output.print_text(f"crossover: {who}: {each['reason']}")
        else:
            size = headrace.format_bytes(each["bytes"])
            output.print_text(f"crossover: {who} beats a core of {each['cores_of']} from {size} on")


def _print_queue(rows: list[Row]) -> None:
    lines = (
        ("queue", lambda row: str(row["queue"])),
        ("engines", lambda row: str(row["group_engines"])),
        ("bytes", _size),
    )
    _pivot(rows, lines, lambda row: f"{row['window']} in flight")


def _print_interference(rows: list[Row]) -> None:
    output.print_table(
        ("interference", "also running", "rate"),
        (
            (
                "STREAM triad" if row["method"] == "stream" else "1 copy by a device",
                row["beside"] or "nothing",
                _cell(row),
            )
            for row in rows
        ),
        left=2,
    )


_PRINTERS: dict[str, Callable[[list[Row]], None]] = {
    "submission": _print_submission,
    "threads": _print_threads,
    "route": _print_routes,
    "cpu": _print_cpu,
    "queue": _print_queue,
    "interference": _print_interference,
}
