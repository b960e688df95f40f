"""Figures of `headrace bench dsa`, each with a sentence made from the numbers it shows."""

from __future__ import annotations

from typing import Any

from headrace import _dsa_rows
from headrace._dsa_rows import GIB
from headrace._report_figure import Figure
from headrace._report_rows import folded
from headrace._report_words import plural, rate_text, size_text

Row = dict[str, Any]


def dsa_figures(document: Row) -> list[Figure]:
    rows, published = document["rows"], document.get("published") or []
    figures = [
        _submission(*_both(rows, published, "submission")),
        _threads(*_both(rows, published, "threads")),
        _route(*_both(rows, published, "route"), "brute_force", "3.5", "all devices"),
        _route(*_both(rows, published, "route"), "smart", "3.6", "few devices"),
    ]
    basis = "Modelled, not measured." if document.get("emulated") else "Measured here."
    for figure in figures:
        if not figure.missing:
            figure.caption = f"{basis} {figure.caption}"
    figures.append(Figure("All rows", _missing_words(rows), table=_table(rows)))
    return figures


def _both(rows: list[Row], published: list[Row], name: str) -> tuple[list[Row], list[Row]]:
    with_rates = [row for row in _dsa_rows.of(rows, name) if row["bytes_per_second"] is not None]
    return with_rates, _dsa_rows.of(published, name)


def _missing(title: str, name: str) -> Figure:
    return Figure(title, "", missing=f"No rates; `headrace bench dsa {name}` gives them.")


def _gib(rate: float) -> str:
    return f"{rate / GIB:.1f} GiB/s"


def _submission(rows: list[Row], published: list[Row]) -> Figure:
    from headrace import _charts_dsa

    title = "Hand-over by size (thesis, figure 3.2)"
    if not rows:
        return _missing(title, "submission")
    figure = Figure(title, "")
    figure.charts.append(("", _charts_dsa.by_size(rows, published)))
    large = [row for row in rows if row["bytes"] >= _dsa_rows.PUBLISHED_FROM_BYTES]
    if large:
        least = min(row["bytes_per_second"] for row in large)
        most = max(row["bytes_per_second"] for row in large)
        figure.caption = f"From 1 MiB on all ways reach {_gib(least)} to {_gib(most)}."
    figure.caption += (
        " Published: close to 30 GiB/s from 1 MiB on whatever the way; below, batches lead."
    )
    return figure


def _threads(rows: list[Row], published: list[Row]) -> Figure:
    from headrace import _charts_dsa

    title = "Threads on one shared queue (thesis, figure 3.3)"
    if not rows:
        return _missing(title, "threads")
    figure = Figure(title, "")
    figure.charts.append(("", _charts_dsa.bars(rows, published, "threads", "threads", "bytes")))
    changes = []
    for size in sorted({row["bytes"] for row in rows}):
        own = {row["threads"]: row["bytes_per_second"] for row in rows if row["bytes"] == size}
        most, one = max(own), min(own)
        if most != one:
            gain = own[most] / own[one] - 1
            changes.append(f"{size_text(size)}: {most} threads {gain:+.1%} against {one}")
    figure.caption = (
        f"{'; '.join(changes)}. " if changes else ""
    ) + "Published: threads cost nothing, and 1 MiB gains; its rates are in a picture only."
    return figure


def _route(rows: list[Row], published: list[Row], policy: str, number: str, who: str) -> Figure:
    from headrace import _charts_dsa

    title = f"1 GiB from DDR to HBM by {who} (thesis, figure {number})"
    own = [row for row in rows if row["route"] == policy]
    if not own:
        return _missing(title, "route")
    marks = [row for row in published if row.get("route") == policy]
    figure = Figure(title, "")
    figure.charts.append(("", _charts_dsa.bars(own, marks, "to_node", "to node", "route")))
    used = ", ".join(f"{len(row['engines'])} for node {row['to_node']}" for row in own)
    figure.caption = f"Devices: {used}."
    if policy == "smart":
        figure.caption += f" Below brute force: {_less(rows, published)}."
    elif marks:
        figure.caption += " Published in words is only node 15."
    return figure


def _less(rows: list[Row], published: list[Row]) -> str:
    known = {
        row["to_node"]: row["smart_less_bytes_per_second"]
        for row in published
        if "smart_less_bytes_per_second" in row
    }
    found = []
    for node, less in _dsa_rows.smart_less(rows).items():
        beside = f" (published {known[node] / GIB:.0f})" if node in known else ""
        found.append(f"node {node} by {_gib(less)}{beside}")
    return ", ".join(found)


def _missing_words(rows: list[Row]) -> str:
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    return f"No number: {'; '.join(reasons)}." if reasons else "Every row has its rate."


def _table(rows: list[Row]) -> str:
    head = ["experiment", "way", "bytes", "threads", "route", "queue", "engines", "beside", "rate",
            "basis", "machine"]  # fmt: skip
    lines = [
        [
            row["experiment"],
            _dsa_rows.way(row),
            size_text(row["bytes"]),
            str(row["threads"]),
            row["route"],
            row["queue"],
            str(row["group_engines"] or ""),
            row["beside"],
            rate_text(row["bytes_per_second"]) if row["bytes_per_second"] else row["reason"],
            row["basis"],
            row["machine"],
        ]
        for row in rows
    ]
    return folded(plural(len(rows), "row"), head, lines)
