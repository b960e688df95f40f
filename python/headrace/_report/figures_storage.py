# SPDX-License-Identifier: Apache-2.0
"""Figures of storage: rates by block size, by queue depth, and by method."""

from __future__ import annotations

from typing import Any

from headrace import _core
from headrace._core import format_rate
from headrace._format import time_text
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.movement import bounds
from headrace._report.movement.bounds import Bounds, Peak
from headrace._report.rows import (
    Rows,
    behind_point,
    few_lines,
    in_order,
    point,
    spread,
    text_of,
    value,
)

_SMALL = 4096
_WORDS = {"read": "reading", "write": "writing"}


def storage(rows: Rows, known: Bounds) -> Figure:
    figure = Figure("Files on storage")
    more, unknown = "", []
    for operation in rows.values("operation"):
        chosen = _one_way(rows.of(operation=operation))
        points, left = few_lines([
            point(row, 1e9, x=row.parameters["bytes"], order=row.parameters["bytes"],
                  line=_named(chosen, row, f"depth {row.parameters['depth']}"))
            for row in chosen.rows
        ])  # fmt: skip
        p = chosen.rows[0].parameters
        bound = _bound(known, rows.of(operation=operation, io="direct"), operation)
        if bound is None:
            unknown.append(_WORDS[operation])
        level, told = bounds.line(bound, points)
        figure.charts.append((
            f"{_WORDS[operation]} by size of block ({p['by']}, {p['io']}){told}",
            charts.lines(points, x_title="bytes of one block", y_title="GB/s", x="bytes",
                         level=level),
        ))  # fmt: skip
        more = more or left
    small = rows.of(bytes=_SMALL)
    for operation in small.values("operation"):
        figure.charts += _small_blocks(small.of(operation=operation), operation)
    figure.caption = _caption(rows, small) + more + bounds.sentence(figure, unknown)
    return figure


def _bound(known: Bounds, direct: Rows, operation: str) -> Peak | None:
    """The bound of the disk and the memory. The disk's peak is the highest rate of any method past
    the page cache. The memory is the first node's, which the experiment reads into and writes from.
    """
    memories = in_order(number for number in known.bandwidth.kinds if known.has_memory(number))
    if not memories or not direct.rows:
        return None
    best = direct.best()
    p = best.parameters
    disk = Peak(value(best), f"{p['operation']} of the disk by {p['by']} × {p['depth']}")
    memory = known.peak(memories[0], "nt_write" if operation == "read" else "read")
    return bounds.least(disk, memory)


def _one_way(rows: Rows) -> Rows:
    """The method with the most sizes, or the first of several: the other charts compare its rows.
    """
    ways: dict[tuple[Any, Any], int] = {}
    for row in rows.rows:
        way = (row.parameters["by"], row.parameters["io"])
        ways[way] = ways.get(way, 0) + 1
    by, io = max(ways, key=lambda way: ways[way])
    return rows.of(by=by, io=io)


def _named(rows: Rows, row: _core.Row, words: str) -> str:
    return f"{words}, node {row.parameters['node']}" if len(rows.values("node")) > 1 else words


def _small_blocks(rows: Rows, operation: str) -> list[tuple[str, Any]]:
    def at(row: _core.Row, y: float, text: str, more: str = "") -> dict[str, Any]:
        p = row.parameters
        line = _named(rows, row, f"{p['by']}, {p['io']}{more}")
        return {"x": p["depth"], "order": p["depth"], "y": y, "low": y, "high": y, "text": text,
                "line": line} | behind_point(row)  # fmt: skip

    counts = []
    for row in rows.rows:
        thousands = row.details["iops"] / 1e3
        counted = at(row, thousands, f"{thousands:.3g} thousand")
        # Blocks per second vary as bytes per second do.
        low, high = (each / _SMALL / 1e3 for each in spread(row))
        counts.append(counted | {"low": low, "high": high})
    waits = [
        at(row, row.details[name], time_text(row.details[name]), f", {word}")
        for row in rows.of(io="direct").rows
        for name, word in (("p50_ns", "half"), ("p99_ns", "99 of 100"))
        if row.details.get(name, 0) > 0
    ]
    words = f"{_WORDS[operation]} blocks of 4 KiB by depth"
    chart = charts.lines(few_lines(counts)[0], x="doubling", x_title="depth",
                         y_title="thousand per second")  # fmt: skip
    found = [(f"{words}: how many", chart)]
    if waits:
        chart = charts.lines(few_lines(waits)[0], x="doubling", x_title="depth", times=True,
                             y_title="done within")  # fmt: skip
        found.append((f"{words}: how long one takes", chart))
    return found


def _caption(rows: Rows, small: Rows) -> str:
    parts = []
    for operation in rows.values("operation"):
        best = rows.of(operation=operation).best()
        parts.append(f"{_WORDS[operation]} at most {text_of(best)}")
    text = " and ".join(parts) + "."
    text = text[:1].upper() + text[1:]
    if small.rows:
        most = max(small.rows, key=lambda row: row.details["iops"])
        p = most.parameters
        text += (
            f" Of 4 KiB at most {most.details['iops'] / 1e3:.3g} thousand blocks per second "
            f"({format_rate(most.median or 0)}; {p['operation']}, {p['by']}, {p['io']}, depth "
            f"{p['depth']})."
        )
    return text
