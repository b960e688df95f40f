# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace bench stream`: what all ranks reach together, by kernel and by threads."""

from __future__ import annotations

from typing import Any

from headrace._format import rate_text
from headrace._report import charts
from headrace._report.figure import Figure

Row = dict[str, Any]

TITLE = "STREAM by the ranks of a job"


def stream_figures(document: Row) -> list[Figure]:
    found = [row for row in document["total"] if row["bytes_per_second"] is not None]
    if not found:
        return [Figure(TITLE, missing="Nothing was measured; the run was stopped before.")]
    figure = Figure(TITLE, _caption(document, found))
    if len(document.get("sweep") or []) > 1:
        figure.charts.append(("all ranks together, by the threads of each", _swept(document)))
    bars = [_point(row, bar=row["kernel"], line="") for row in found]
    figure.charts.append(("all ranks together", charts.bars(bars, title="GB/s")))
    return [figure]


def _caption(document: Row, found: list[Row]) -> str:
    ranks = document["ranks"]
    best = max(found, key=lambda row: float(row["bytes_per_second"]))
    places = ", ".join(f"{name} in {ranks[0][name]}" for name in "abc")
    return (
        f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''}, the first with {places}. The bytes of "
        f"all ranks by the time of the slowest, of the best of {document['repetitions']} "
        f"repetitions, counted as STREAM counts. With {sum(r['threads'] for r in ranks)} threads "
        f"in all the most was {rate_text(best['bytes_per_second'])} ({best['kernel']})."
    )


def _point(row: Row, **more: Any) -> Row:
    rate = row["bytes_per_second"] / 1e9
    return {"y": rate, "low": rate, "high": rate, "text": rate_text(row["bytes_per_second"]),
            "order": 0} | more  # fmt: skip


def _swept(document: Row) -> Any:
    points = [
        _point(row, x=each["threads"], order=each["threads"], line=row["kernel"])
        for each in document["sweep"] for row in each["total"]
        if row["bytes_per_second"] is not None
    ]  # fmt: skip
    return charts.lines(points, x="doubling", x_title="threads of a rank", y_title="GB/s")
