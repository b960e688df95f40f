"""Figures of `headrace bench um`: each case as published, modelled and measured."""

from __future__ import annotations

from typing import Any

from headrace._report import charts
from headrace._report.figure import Figure, Table
from headrace._words import listed, size_text

Row = dict[str, Any]
_WHOSE = ("published", "modelled", "measured")
_PARTS = {"first": "run 1", "steady": "median of the runs after it"}


def um_figures(document: Row) -> list[Figure]:
    figures = [_machine(document, machine) for machine in document["machines"]]
    return [*figures, Figure("All runs", _off(document), tables=[_table(document)])]


def _machine(document: Row, machine: Row) -> Figure:
    cases = [case for case in document["cases"] if case["machine"] == machine["name"]]
    figure = Figure(f"Unified Memory on {machine['words']}", _caption(cases))
    for part, heading in _PARTS.items():
        points = [point for case in cases for point in _points(case, part)]
        if points:
            chart = charts.times(points, title="GiB/s", label="datum.value")
            figure.charts.append((heading, chart))
    if not figure.charts:
        figure.missing = "; ".join(case["reason"] for case in cases)
    return figure


def _points(case: Row, part: str) -> list[Row]:
    found = []
    for whose in _WHOSE:
        rates = case[part].get(whose)
        for rate in rates if isinstance(rates, list) else [rates]:
            if rate is not None:
                name = case["case"].replace(" + pref", "\n+ pref")  # two lines
                lane = f"{name}, {size_text(case['size'])}"
                found.append({"bar": lane, "line": whose, "x": rate, "text": f"{rate:.3g} GiB/s"})
    return found


def _caption(cases: list[Row]) -> str:
    judged = [case[part] for case in cases for part in _PARTS if case[part]["met"] is not None]
    if not judged:
        return "Nobody published these; nothing stands beside them."
    most = max(abs(figure["error"]) for figure in judged)
    met = sum(figure["met"] for figure in judged)
    sources = listed(list(dict.fromkeys(case["source"] for case in cases if case["source"])))
    return (
        f"Of {len(judged)} published figures {met} are met within 15 %, all within {most:.0%}. "
        f"Published by {sources}."
    )


def _off(document: Row) -> str:
    off = [row for row in document["rows"] if row["error"] is not None and abs(row["error"]) > 0.15]
    if not off:
        return "Every run that was published is met within 15 %."
    told = [
        f"{row['machine']}, {row['case']}, {size_text(row['size'])}, run {row['run']}"
        for row in off
    ]
    return f"Single runs that are off by more than 15 %: {'; '.join(told)}."


def _table(document: Row) -> Table:
    head = ["machine", "case", "size", "run", *_WHOSE, "error", "basis"]
    lines = [
        [
            row["machine"], row["case"], size_text(row["size"]), str(row["run"]),
            *("" if row.get(whose) is None else f"{row[whose]:.2f}" for whose in _WHOSE),
            "" if row["error"] is None else f"{row['error']:+.0%}", row["basis"],
        ]
        for row in document["rows"]
    ]  # fmt: skip
    return Table(head, lines, f"{len(lines)} runs, GiB/s")
