# SPDX-License-Identifier: Apache-2.0
"""Figures of copies by DSA devices in a profile."""

from __future__ import annotations

from typing import Any

from headrace import _core
from headrace._core import format_bytes
from headrace._format import percent, plural
from headrace._profile.dsa_rows import way
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.movement import bounds
from headrace._report.movement.bounds import Bounds
from headrace._report.rows import Rows, few_lines, pair_of, point, text_of, value


def dsa(rows: Rows, known: Bounds) -> Figure:
    figure = Figure("Copies by DSA devices")
    # STREAM's rates are those of cores; the table has them.
    rows = rows.having(lambda row: row.parameters["method"] != "stream")
    if not rows.rows:
        figure.caption = "Only STREAM, run while a device copied, has a number."
        return figure
    more, unknown = "", [rows.name(p) for p in rows.pairs() if known.between(p) is None]
    for part, heading, x_title in (
        ("submission", "submitted one by one, in batches, and by write()", "bytes of one copy"),
        ("queue", "by copies in flight", "copies in flight"),
    ):
        chosen = rows.of(part=part)
        points, left = few_lines(_BY[part](chosen))
        if points:
            scale: charts.Scale = "bytes" if part == "submission" else "doubling"
            pairs = chosen.pairs()
            bound = known.between(pairs[0]) if len(pairs) == 1 else None
            level, told = bounds.line(bound, points)
            chart = charts.lines(points, x_title=x_title, y_title="GB/s", x=scale, level=level)
            figure.charts.append((heading + told, chart))
            more = more or left
    others = rows.having(lambda row: row.parameters["part"] not in _BY)
    if others.rows:
        bars = [point(row, 1e9, bar=_words(others, row), line="") for row in others.rows]
        heading = "by several threads and devices, and while others run"
        # Each bar has its own bound, because the memories differ.
        for bar, row in zip(bars, others.rows, strict=True):
            bar["bound"], _ = bounds.line(known.between(pair_of(row)), bars)
        if any(bar["bound"] for bar in bars):
            heading += "; dashed: the bound of each"
        figure.charts.append((heading, charts.bars(bars, title="GB/s")))
    figure.caption = _caption(rows) + more + bounds.sentence(figure, unknown)
    return figure


def _by_size(rows: Rows) -> list[dict[str, Any]]:
    return [
        point(row, 1e9, x=row.parameters["bytes"], order=row.parameters["bytes"],
              line=way(row.parameters))
        for row in rows.rows
    ]  # fmt: skip


def _by_depth(rows: Rows) -> list[dict[str, Any]]:
    return [
        point(row, 1e9, x=row.parameters["window"], order=row.parameters["window"],
              line=f"{_size(row)}, {row.parameters['queue']}, engines: "
                   f"{row.parameters['group_engines']}")
        for row in rows.rows
    ]  # fmt: skip


#: Functions that draw a part as lines.
_BY = {"submission": _by_size, "queue": _by_depth}


def _size(row: _core.Row) -> str:
    return format_bytes(int(row.parameters["bytes"]))


def _words(rows: Rows, row: _core.Row) -> str:
    """ "threads: 12 × 1 MiB"; "route: smart,\\nDRAM 0 to HBM 8"; "copy alone"."""
    p = row.parameters
    if p["part"] == "route":
        return f"route: {p['route']},\n{rows.name((p['from'], p['to']))}"
    if p["part"] == "interference":
        return "copy alone" if p["beside"] == "nothing" else f"copy alongside {p['beside']}"
    return f"{p['part']}: {p['threads']} × {_size(row)}"


def _caption(rows: Rows) -> str:
    best = rows.best()
    p = best.parameters
    devices = plural(len(str(p["engines"]).split()), "device")
    text = f"The most was {text_of(best)} ({p['part']}, {_size(best)}, {devices})."
    single = rows.of(part="submission", method="single")
    if single.rows:
        least, most = min(single.rows, key=_bytes), max(single.rows, key=_bytes)
        text += (
            f" One by one, copies of {_size(least)} reached {text_of(least)}, of {_size(most)} "
            f"{text_of(most)}."
        )
    alone, shared = _first(rows, "nothing"), _first(rows, "STREAM triad")
    if alone and shared:
        kept = value(shared) / (value(alone) or 1)
        text += f" While STREAM ran, a copy kept {percent(kept)} of what it reached alone."
    return text


def _bytes(row: _core.Row) -> int:
    return int(row.parameters["bytes"])


def _first(rows: Rows, beside: str) -> _core.Row | None:
    found = rows.of(part="interference", method="single", beside=beside).rows
    return found[0] if found else None
