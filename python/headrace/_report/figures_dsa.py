# SPDX-License-Identifier: Apache-2.0
"""Figures of `bench dsa`, each with a sentence made from the numbers it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace._core import format_bytes, format_rate
from headrace._format import listed, plural
from headrace._profile import dsa_rows
from headrace._profile.dsa_rows import GIB
from headrace._report import charts
from headrace._report.figure import Figure, Table
from headrace._report.rows import bars_are

Row = Mapping[str, Any]
#: First sentence of a caption, by the basis of the figure's rows.
_BASES = {
    "measured": "Measured here.",
    "published": "Published, not measured here.",
}  # fmt: skip


def dsa_figures(document: Row) -> list[Figure]:
    rows, published = dsa_rows.shown(document), document.get("published") or []
    return [
        _submission(*_both(rows, published, "submission")),
        _threads(*_both(rows, published, "threads")),
        _route(*_both(rows, published, "route"), "brute_force", "3.5", "all devices"),
        _route(*_both(rows, published, "route"), "smart", "3.6", "few devices"),
        Figure("All rows", _missing_words(rows), tables=[_table(rows)]),
    ]


def _basis(rows: list[Row]) -> str:
    found = dict.fromkeys(row["basis"] for row in rows)
    return listed([_BASES.get(basis, f"{basis}.") for basis in found])


def _both(
    rows: Sequence[Row], published: Sequence[Row], name: str
) -> tuple[list[Row], list[Row]]:
    with_rates = [row for row in dsa_rows.of(rows, name) if row["bytes_per_second"] is not None]
    return with_rates, dsa_rows.of(published, name)


def _missing(title: str, name: str) -> Figure:
    return Figure(title, missing=f"No rates; run the experiment `{name}`.")


def _rate(row: Row) -> dict[str, Any]:
    """The rate, with its interval if it has one; modelled and published rates have none."""
    rate = row["bytes_per_second"]
    low, high = (row.get(end) or rate for end in ("low", "high"))
    return {"y": rate / GIB, "low": low / GIB, "high": high / GIB, "text": _gib(rate)}


def _varies(rows: list[Row]) -> str:
    """The meaning of the error bars."""
    return bars_are(row.get("interval") for row in rows)


def _gib(rate: float) -> str:
    return f"{rate / GIB:.1f} GiB/s"


def _submission(rows: list[Row], published: list[Row]) -> Figure:
    title = "Submission by size (Fürst 2024, figure 3.2)"
    if not rows:
        return _missing(title, "submission")
    figure = Figure(title, _basis(rows))
    points = [
        {"x": row["bytes"], "order": row["bytes"], "line": dsa_rows.way(row), **_rate(row)}
        for row in rows
    ]
    sizes = {row["bytes"] for row in rows}
    marks = [{"x": row["bytes"], **_rate(row)} for row in published
             if row["bytes_per_second"] and min(sizes) <= row["bytes"] <= max(sizes)]  # fmt: skip
    chart = charts.lines(points, x="bytes", x_title="bytes of one copy", y_title="GiB/s",
                         published=marks)  # fmt: skip
    figure.charts.append(("", chart))
    large = [row for row in rows if row["bytes"] >= dsa_rows.PUBLISHED_FROM_BYTES]
    if large:
        least = min(row["bytes_per_second"] for row in large)
        most = max(row["bytes_per_second"] for row in large)
        figure.caption += f" From 1 MiB on all ways reach {_gib(least)} to {_gib(most)}."
    figure.caption += (
        " Published: close to 30 GiB/s from 1 MiB on whatever the way; below, batches lead."
    ) + _varies(rows)
    return figure


def _threads(rows: list[Row], published: list[Row]) -> Figure:
    title = "Threads on one shared queue (Fürst 2024, figure 3.3)"
    if not rows:
        return _missing(title, "threads")
    figure = Figure(title, _basis(rows))
    bars = [
        {"bar": plural(row["threads"], "thread"), "line": format_bytes(row["bytes"]), **_rate(row)}
        for row in rows
    ]
    figure.charts.append(("", charts.bars(bars, title="GiB/s")))
    changes = []
    for size in sorted({row["bytes"] for row in rows}):
        own = {row["threads"]: row["bytes_per_second"] for row in rows if row["bytes"] == size}
        most, one = max(own), min(own)
        if most != one:
            gain = own[most] / own[one] - 1
            changes.append(f"{format_bytes(size)}: {most} threads {gain:+.1%} against {one}")
    figure.caption += (
        f" {'; '.join(changes)}." if changes else ""
    ) + " Published: threads cost nothing, and 1 MiB gains; its rates are in a picture only."
    figure.caption += _varies(rows)
    return figure


def _route(rows: list[Row], published: list[Row], policy: str, number: str, who: str) -> Figure:
    title = f"1 GiB from DDR to HBM by {who} (Fürst 2024, figure {number})"
    own = [row for row in rows if row["route"] == policy]
    if not own:
        return _missing(title, "route")
    figure = Figure(title, _basis(own))
    bars = [{"bar": f"to node {row['to_node']}", "line": "", **_rate(row)} for row in own]
    nodes = {row["to_node"] for row in own}
    marks = [{"bar": f"to node {row['to_node']}", **_rate(row)} for row in published
             if row.get("route") == policy and row["to_node"] in nodes]  # fmt: skip
    figure.charts.append(("", charts.bars(bars, title="GiB/s", published=marks)))
    used = ", ".join(f"{len(row['engines'])} for node {row['to_node']}" for row in own)
    figure.caption += f" Devices: {used}."
    if policy == "smart":
        figure.caption += f" Below brute force: {_less(rows, published)}."
    elif marks:
        figure.caption += " Published in words is only node 15."
    figure.caption += _varies(own)
    return figure


def _less(rows: list[Row], published: list[Row]) -> str:
    known = {
        row["to_node"]: row["smart_less_bytes_per_second"]
        for row in published
        if "smart_less_bytes_per_second" in row
    }
    found = []
    for node, less in dsa_rows.smart_less(rows).items():
        known_rate = f" (published {known[node] / GIB:.0f})" if node in known else ""
        found.append(f"node {node} by {_gib(less)}{known_rate}")
    return ", ".join(found)


def _missing_words(rows: Sequence[Row]) -> str:
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    return f"No number: {'; '.join(reasons)}." if reasons else "Every row has its rate."


def _table(rows: Sequence[Row]) -> Table:
    head = ["experiment", "way", "bytes", "threads", "route", "queue", "engines", "also running",
            "rate", "basis", "machine"]  # fmt: skip
    lines = [
        [
            row["experiment"],
            dsa_rows.way(row),
            format_bytes(row["bytes"]),
            str(row["threads"]),
            row["route"],
            row["queue"],
            str(row["group_engines"] or ""),
            row["beside"],
            format_rate(row["bytes_per_second"]) if row["bytes_per_second"] else row["reason"],
            row["basis"],
            row["machine"],
        ]
        for row in rows
    ]
    return Table(head, lines, plural(len(rows), "row"))
