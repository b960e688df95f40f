# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace bench kv`: the speed of servers, and the places of their memory meanwhile.
"""

from __future__ import annotations

from typing import Any

from headrace._format import plural
from headrace._profile.documents import Fields, all_fields
from headrace._report import charts
from headrace._report.figure import Figure, Table
from headrace._report.rows import bars_are

Row = dict[str, Any]

#: Places other than nodes.
_ELSEWHERE = {"swap": "swap", "file": "file on SSD"}


def kv_figures(document: Row) -> list[Figure]:
    found = [row for row in all_fields(document) if row["median"] is not None]
    return [_speeds(document, found), _places(document)]


def _speeds(document: Row, rows: list[Fields]) -> Figure:
    title = "Operations per second, and how long each took"
    if not rows:
        return Figure(title, missing="Nothing was measured; the document's rows say why.")
    load = f"{document['records']} records, {document['clients']} clients, each one thing at a time"
    caption = f"Medians of {plural(document['rounds'], 'round')}; {load}." + bars_are(
        row["interval"] for row in rows
    )
    figure = Figure(title, caption, tables=[_table(rows)])
    for workload in dict.fromkeys(row["workload"] for row in rows):
        bars = [_bar(row) for row in rows if row["workload"] == workload]
        figure.charts.append((f"workload {workload}", charts.bars(bars, title="operations/s")))
    return figure


def _bar(row: Fields) -> Row:
    speed = row["median"]
    return {"bar": row["config"], "line": row["server"], "y": speed, "low": row["low"] or speed,
            "high": row["high"] or speed, "text": f"{speed:.0f}"}  # fmt: skip


def _table(rows: list[Fields]) -> Table:
    head = ["server", "configuration", "workload", "ops/s", "p50, µs", "p99, µs", "p99.9, µs",
            "slow"]  # fmt: skip
    lines = [
        [row["server"], row["config"], row["workload"], f"{row['median']:.0f}",
         *(f"{row[name]:.0f}" if name in row else "" for name in ("p50_us", "p99_us", "p999_us")),
         f"{row['slow_share']:.1%}"]
        for row in rows
    ]  # fmt: skip
    return Table(head, lines, words=("server", "configuration", "workload"))


def _places(document: Row) -> Figure:
    title = "Where memory was over time"
    kinds = {str(node["id"]): node["kind"] for node in document["machine"]["nodes"]}
    rows = document["pages"]
    figure = Figure(title, _caption(rows))
    used = [
        place
        for place in [*kinds, *_ELSEWHERE]
        if any(_size(sample, place) for row in rows for sample in row["pages"])
    ]
    names = {each: _ELSEWHERE.get(each) or f"{kinds[each]}, node {each}" for each in used}
    for row in rows:
        # An area needs two samples.
        if len(row["pages"]) < 2:
            continue
        heading = f"{row['server']} {row['config']}, workload {row['workload']}"
        figure.charts.append((heading, _chart(row["pages"], names)))
    if not figure.charts:
        return Figure(title, missing="No measurement was long enough to look twice.")
    return figure


def _size(sample: Row, place: str) -> int:
    return int(sample[place] if place in _ELSEWHERE else sample["memory"].get(place, 0))


def _chart(samples: list[Row], names: dict[str, str]) -> charts.Picture:
    points = [
        {"x": sample["seconds"], "y": _size(sample, place) / 2**20, "line": name, "order": number}
        for sample in samples
        for number, (place, name) in enumerate(names.items())
    ]
    settled = [sample["seconds"] for sample in samples if sample["round"] is not None]
    begins = settled[0] if settled and samples[0]["round"] is None else None
    return charts.areas(points, x_title="seconds of being asked", y_title="MiB", level=begins)


def _caption(rows: list[Row]) -> str:
    words = ["All windows of a row one after the other, as if nothing had been between them."]
    if any(sample["round"] is None for row in rows for sample in row["pages"]):
        words.append("What is left of a dashed line was before the first measurement.")
    if any(sample["file"] for row in rows for sample in row["pages"]):
        words.append("What lies in a file may be in memory, too, as a copy.")
    return " ".join(words)
