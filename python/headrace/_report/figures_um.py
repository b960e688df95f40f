# SPDX-License-Identifier: Apache-2.0
"""Figures of `bench um` and `advise um`: cases as published and measured; recipes."""

from __future__ import annotations

from typing import Any

from headrace._core import format_bytes
from headrace._format import listed, plural
from headrace._profile.nested import unified_memory_runs
from headrace._report import charts
from headrace._report.figure import Figure, Table

Row = dict[str, Any]
_WHOSE = ("published", "measured")
#: The same hue for each in every chart.
_LINES = ("published", "modelled", "measured", "emulated")
_AXIS = "GiB/s, logarithmic"
_PARTS = {"first": "run 1", "steady": "median of the runs after it"}


def um_figures(document: Row) -> list[Figure]:
    figures = [_machine(document, machine) for machine in document["machines"]]
    return [*figures, Figure("All runs", tables=[_table(document)])]


def _machine(document: Row, machine: Row) -> Figure:
    cases = [case for case in document["cases"] if case["machine"] == machine["name"]]
    emulated = bool(document.get("emulated"))
    figure = Figure(f"Unified Memory on {machine['words']}", _caption(cases))
    for part, heading in _PARTS.items():
        points = [point for case in cases for point in _points(case, part, emulated)]
        if points:
            chart = charts.times(points, title=_AXIS, label="datum.value", lines=_LINES)
            figure.charts.append((heading, chart))
    if not figure.charts:
        figure.missing = "; ".join(case["reason"] for case in cases)
    return figure


def _points(case: Row, part: str, emulated: bool) -> list[Row]:
    found = []
    for whose in _WHOSE:
        rates = case[part].get(whose)
        for rate in rates if isinstance(rates, list) else [rates]:
            if rate is not None:
                name = case["case"].replace(" + pref", "\n+ pref")  # two lines
                lane = f"{name}, {format_bytes(case['size'])}"
                line = "emulated" if whose == "measured" and emulated else whose
                found.append({"bar": lane, "line": line, "x": rate, "text": f"{rate:.3g} GiB/s"})
    return found


def _caption(cases: list[Row]) -> str:
    found = list(dict.fromkeys(case["source"] for case in cases if case["source"]))
    if not found:
        return "Nobody published these; nothing stands beside them."
    return f"Published by {listed(found)}."


def _table(document: Row) -> Table:
    head = ["machine", "case", "size", "run", *_WHOSE, "basis"]
    lines = [
        [
            row["machine"], row["case"], format_bytes(row["size"]), str(row["run"]),
            *("" if row.get(whose) is None else f"{row[whose]:.2f}" for whose in _WHOSE),
            row["basis"],
        ]
        for row in unified_memory_runs(document)
    ]  # fmt: skip
    return Table(head, lines, f"{len(lines)} runs, GiB/s")


def advice_figures(document: Row) -> list[Figure]:
    rows = [row for row in document["rows"] if row["rate"] is not None]
    best = next(row for row in document["rows"] if row["recipe"] == document["advised"])
    size, room = (format_bytes(document[name]) for name in ("size", "device_bytes"))
    caption = (
        f"{document['machine']}: {document['machine_words']}. {size} on a card with "
        f"{room} for managed memory. Do: {best['calls']}. The array {best['because']}. "
        "Computed, not measured."
    )
    figure = Figure("Recipes for an array that a GPU reads", caption)
    parts = {"rate": plural(document["runs"], "run"), "run_1": "run 1", "after_1": "after run 1"}
    for name, heading in parts.items():
        points = [
            {"bar": row["recipe"], "line": "modelled", "x": row[name],
             "text": f"{row[name]:.3g} GiB/s"}
            for row in rows if row[name] is not None
        ]  # fmt: skip
        if points:
            chart = charts.times(points, title=_AXIS, label="datum.value", lines=_LINES)
            figure.charts.append((heading, chart))
    head = ["recipe", "calls", "because", "run 1", "after 1", "all"]
    lines = [
        [row["recipe"], row["calls"], row["because"],
         *("-" if row[name] is None else f"{row[name]:.2f}"
           for name in ("run_1", "after_1", "rate"))]
        for row in document["rows"]
    ]  # fmt: skip
    figure.tables.append(Table(head, lines, words=("recipe", "calls", "because"),
                               strong=document["advised"]))  # fmt: skip
    return [figure]
