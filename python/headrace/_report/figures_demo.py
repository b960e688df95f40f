# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace demo` besides its query: rates, and copies by one core."""

from __future__ import annotations

from typing import Any

from headrace._core import format_bytes, format_rate
from headrace._profile.documents import Fields
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.rows import bars_are

Row = dict[str, Any]


def rates_figure(rows: list[Row]) -> Figure:
    title = "How fast memory and disk are"
    found = [row for row in rows if row.get("bytes_per_second")]
    failed = [row for row in rows if not row.get("bytes_per_second")]
    if not found:
        reasons = "; ".join(f"{row['what']}: {row['reason']}" for row in failed)
        return Figure(
            title, missing=f"Not measured{': ' + reasons if reasons else ''}; `headrace demo` "
            "looks at them in a quick session.",
        )  # fmt: skip
    fast = max(found, key=lambda row: float(row["bytes_per_second"]))
    slow = min(found, key=lambda row: float(row["bytes_per_second"]))
    caption = ""
    if fast is not slow:
        ratio = fast["bytes_per_second"] / slow["bytes_per_second"]
        caption = (
            f"The fastest of these ({fast['what']}) is {ratio:.0f} × the slowest ({slow['what']}): "
            "what comes from the slower has to be asked for early. "
        )
    caption += "Medians." + bars_are(row.get("interval") for row in found)
    for row in failed:
        caption += f" {row['what']} has no number: {row['reason']}."
    return Figure(title, caption, [("", charts.bars([_bar(row) for row in found], title="GB/s"))])


def _bar(row: Row) -> Row:
    rate = row["bytes_per_second"]
    return {
        "bar": f"{row['what']}\n{row['where']}" if row["where"] else row["what"], "line": "",
        "y": rate / 1e9, "low": (row.get("low") or rate) / 1e9,
        "high": (row.get("high") or rate) / 1e9, "text": format_rate(rate),
    }  # fmt: skip


def copies_figure(rows: list[Fields]) -> Figure:
    title = "Copying with one core"
    rows = [
        row for row in rows
        if row["ratio_to_memcpy"] is not None and row["threads"] == 1 and row["engine"] != "memcpy"
    ]  # fmt: skip
    if not rows:
        return Figure(title, missing="Not measured; `headrace bench copy` does.")
    figure = Figure(title)
    meanings = {"cold": "neither side is cached", "hot": "the same buffers again and again"}
    for state, words in meanings.items():
        chosen = [row for row in rows if row["state"] == state]
        if not chosen:
            continue
        # The engine that Headrace chooses is drawn first.
        points = [_point(row) for row in sorted(chosen, key=lambda row: row["engine"] != "cpu")]
        chart = charts.lines(points, x_title="bytes of one copy", y_title="times memcpy",
                             x="bytes", level=1.0)  # fmt: skip
        figure.charts.append((f"{state}: {words}", chart))
        figure.caption += _copy_sentence(state, chosen)
    figure.caption += "1 is glibc's memcpy in the same round."
    return figure


def _point(row: Fields) -> Row:
    ratio = row["ratio_to_memcpy"]
    return {
        "x": row["bytes"], "order": row["bytes"], "y": ratio, "low": ratio, "high": ratio,
        "line": row["engine"], "text": f"{ratio:.2f} ({format_rate(row['median'])})",
    }  # fmt: skip


def _copy_sentence(state: str, rows: list[Fields]) -> str:
    ours = [row for row in rows if row["engine"] == "cpu"]
    if not ours:
        return ""
    if state == "cold":
        large = [row for row in ours if row["bytes"] >= 256 << 10] or ours
        best = max(large, key=lambda row: float(row["ratio_to_memcpy"]))
        least = min(large, key=lambda row: float(row["ratio_to_memcpy"]))
        return (
            f"Cold, from {format_bytes(min(row['bytes'] for row in large))} up Headrace's copy is "
            f"{least['ratio_to_memcpy']:.2f} to {best['ratio_to_memcpy']:.2f} × memcpy (at best "
            f"{format_rate(best['median'])}). "
        )
    least = min(ours, key=lambda row: float(row["ratio_to_memcpy"]))
    return (
        f"Hot, where memcpy is hard to beat, it is at least {least['ratio_to_memcpy']:.2f} × "
        f"(at {format_bytes(least['bytes'])}). "
    )
