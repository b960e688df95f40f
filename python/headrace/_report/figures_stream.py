# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace bench stream`: rates of all ranks together, by kernel and by threads."""

from __future__ import annotations

from typing import Any

from headrace._core import format_rate
from headrace._format import plural
from headrace._profile.documents import Fields, all_fields
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.rows import bars_are

Row = dict[str, Any]

TITLE = "STREAM by the ranks of a job"


def stream_figures(document: Row) -> list[Figure]:
    found = [row for row in all_fields(document)
             if row["rank"] == "all" and row["median"] is not None]  # fmt: skip
    if not found:
        return [Figure(TITLE, missing="Nothing was measured; the run was stopped before.")]
    last = [row for row in found if row["threads"] == found[-1]["threads"]]
    figure = Figure(TITLE, _caption(document, last))
    if len(last) < len(found):
        chart = charts.lines(
            [_point(row, x=row["threads"], order=row["threads"], line=row["kernel"])
             for row in found],
            x="doubling", x_title="threads of a rank", y_title="GB/s",
        )  # fmt: skip
        figure.charts.append(("all ranks together, by the threads of each", chart))
    bars = [_point(row, bar=row["kernel"], line="") for row in last]
    figure.charts.append(("all ranks together", charts.bars(bars, title="GB/s")))
    return [figure]


def _caption(document: Row, found: list[Fields]) -> str:
    ranks = document["ranks"]
    best = max(found, key=lambda row: float(row["best"]))
    places = ", ".join(f"{name} in {ranks[0][name]}" for name in "abc")
    return (
        f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''}, the first with {places}. Medians of "
        f"{plural(document['repetitions'], 'repetition')}: the bytes of all ranks by the time of "
        f"the slowest, counted as STREAM counts. With {sum(r['threads'] for r in ranks)} threads "
        f"in all the best repetition reached {format_rate(best['best'])} ({best['kernel']})."
        + bars_are(row["interval"] for row in found)
    )


def _point(row: Fields, **more: Any) -> Row:
    return {"y": row["median"] / 1e9, "low": row["low"] / 1e9, "high": row["high"] / 1e9,
            "text": format_rate(row["median"]), "order": 0} | more  # fmt: skip
