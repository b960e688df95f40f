# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace predict`: placements by their time, and by the axis of a sweep."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace._format import time_text
from headrace._report import charts
from headrace._report.figure import Figure, Table

Row = dict[str, Any]
_SIZE = re.compile(r"([0-9.]+)\s*([KMGT]?)(i?)B", re.IGNORECASE)
_UNITS: Mapping[str, tuple[str, float, Callable[[float], str]]] = {
    "s": ("ms", 1e3, lambda value: time_text(value * 1e9)),
    "B/s": ("GB/s", 1e-9, lambda value: f"{value / 1e9:.4g} GB/s"),
    "/s": ("operations/s", 1.0, lambda value: f"{value:.4g} /s"),
    "ns": ("ns", 1.0, lambda value: f"{value:.0f} ns"),
    "x": ("quotient", 1.0, lambda value: f"{value:.3f}"),
}  # fmt: skip


def predict_figures(document: Row) -> list[Figure]:
    column = document["columns"][0]
    rows = [row for row in document["rows"] if row["values"].get(column["name"]) is not None]
    workload = str(document["kind"]).removeprefix("predict ")
    title = f"{workload} on {document['machine']}, predicted"
    if not rows:
        return [Figure(title, missing="Nothing was predicted; the run was stopped before.")]
    figure = Figure(title, document["rests_on"]["detail"])
    axes = list(dict.fromkeys(name for row in rows for name in row.get("point", {})))
    numbers = {text: _number(text) for row in rows for text in row.get("point", {}).values()}
    if len(axes) == 1 and None not in numbers.values():
        figure.charts.append((f"{column['name']} by {axes[0]}", _lines(rows, column, axes[0])))
    else:
        figure.charts.append((f"{column['name']} by placement", _bars(rows, column)))
    figure.tables.append(_constants(document))
    return [figure]


def _point(row: Row, column: Row) -> Row:
    _unit, factor, text = _UNITS[column["unit"]]
    found = row["values"][column["name"]]
    return {
        "y": found["value"] * factor, "low": found["low"] * factor, "high": found["high"] * factor,
        "text": f"{text(found['value'])}, by {row['binds']}", "order": 0,
    }  # fmt: skip


def _lines(rows: list[Row], column: Row, axis: str) -> charts.Picture:
    points = []
    for row in rows:
        at = _number(row["point"][axis])
        points.append(_point(row, column) | {"x": at, "order": at, "line": row["placement"]})
    sizes = any(_SIZE.fullmatch(row["point"][axis]) for row in rows)
    unit = _UNITS[column["unit"]][0]
    return charts.lines(points, x="bytes" if sizes else "doubling", x_title=axis, y_title=unit)


def _bars(rows: list[Row], column: Row) -> charts.Picture:
    points = []
    for row in rows:
        point = ", ".join(f"{name} {value}" for name, value in row.get("point", {}).items())
        points.append(_point(row, column) | {"bar": row["placement"], "line": point})
    return charts.bars(points, title=_UNITS[column["unit"]][0])


def _number(text: str) -> float | None:
    match = _SIZE.fullmatch(text.strip())
    if match:
        power = ["", "k", "m", "g", "t"].index(match[2].lower())
        return float(match[1]) * float(1024 if match[3] else 1000) ** power
    try:
        found = float(text)
    except ValueError:
        return None
    return found if found > 0 else None


def _constants(document: Row) -> Table:
    rows = [
        [each.get("name", each["part"]), each["basis"], ", ".join(each["fitted_to"]),
         each["source"]]
        for each in document["constants"]
    ]  # fmt: skip
    return Table(["constant", "basis", "fitted to", "source"], rows, "Constants of the machine",
                 ("basis", "fitted to", "source"))  # fmt: skip
