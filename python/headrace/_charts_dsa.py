"""Charts of `headrace bench dsa`: the thesis' figures 3.2, 3.3, 3.5 and 3.6, to lie beside them.

What was published is drawn as diamonds, labelled so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from headrace import _charts
from headrace._charts import BLUE, GREEN, GREY, INK, ORANGE, RED, Picture
from headrace._dsa_rows import GIB, way
from headrace._report_words import size_text

Row = dict[str, Any]

PUBLISHED = "published"
_PALETTE = [BLUE, GREEN, ORANGE, RED, GREY, "#9b72cf"]
_UNIT = "GiB/s"


def by_size(rows: Sequence[Row], published: Sequence[Row]) -> Picture:
    """Rates by bytes of one copy, a line for each way of handing over (figure 3.2)."""
    values = [
        {
            "bytes": row["bytes"],
            "size": size_text(row["bytes"]),
            "way": way(row),
            "rate": row["bytes_per_second"] / GIB,
        }
        for row in rows
    ]
    sizes = sorted({value["bytes"] for value in values})
    x = alt.X("bytes:Q", title="bytes of one copy",
              scale=alt.Scale(type="log", base=2, domain=[sizes[0], sizes[-1]], nice=False),
              axis=alt.Axis(values=sizes[::4], labelExpr=_charts.size_label(sizes[::4]),
                            grid=False, labelOverlap="greedy"))  # fmt: skip
    lines = (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=alt.OverlayMarkDef(size=24, filled=True))
        .encode(
            x=x,
            y=_rate_axis(values, published),
            color=_colours("way", [value["way"] for value in values]),
            tooltip=["way:N", "size:N", alt.Tooltip("rate:Q", format=".2f")],
        )
    )
    marks = [
        {"bytes": row["bytes"], "rate": row["bytes_per_second"] / GIB, "what": PUBLISHED}
        for row in published
        if row["bytes_per_second"] and sizes[0] <= row["bytes"] <= sizes[-1]
    ]
    return alt.layer(lines, *_diamonds(marks, x)).properties(width="container", height=250)


def bars(
    rows: Sequence[Row], published: Sequence[Row], key: str, title: str, within: str
) -> Picture:
    """Rates as bars by `key` of the rows, beside each other by `within` of them."""
    values = [
        {
            "at": str(row[key]),
            "within": size_text(row[within]) if within == "bytes" else str(row[within]),
            "rate": row["bytes_per_second"] / GIB,
        }
        for row in rows
    ]
    order = list(dict.fromkeys(value["at"] for value in values))
    x = alt.X("at:N", title=title, sort=order, axis=alt.Axis(labelAngle=0))
    groups = list(dict.fromkeys(value["within"] for value in values))
    drawn = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(opacity=0.9)
        .encode(
            x=x,
            xOffset=alt.XOffset("within:N", sort=groups),
            y=_rate_axis(values, published),
            color=_colours("within", groups) if len(groups) > 1 else alt.value(BLUE),
            tooltip=["at:N", "within:N", alt.Tooltip("rate:Q", format=".1f")],
        )
    )
    marks = [
        {"at": str(row[key]), "rate": row["bytes_per_second"] / GIB, "what": PUBLISHED}
        for row in published
        if row["bytes_per_second"] and str(row[key]) in order
    ]
    return alt.layer(drawn, *_diamonds(marks, x)).properties(width="container", height=230)


def _rate_axis(values: Sequence[Row], published: Sequence[Row]) -> alt.Y:
    """From 0, with room above for a word."""
    marks = [(row["bytes_per_second"] or 0) / GIB for row in published]
    end = 1.12 * max([*(value["rate"] for value in values), *marks])
    return alt.Y("rate:Q", title=_UNIT, scale=alt.Scale(domain=[0, end], nice=False),
                 axis=alt.Axis(tickCount=6))  # fmt: skip


def _colours(field: str, names: Sequence[str]) -> alt.Color:
    domain = list(dict.fromkeys(names))
    palette = (_PALETTE * (len(domain) // len(_PALETTE) + 1))[: len(domain)]
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=domain, range=palette),
                     legend=alt.Legend(columns=6))  # fmt: skip


def _diamonds(marks: Sequence[Row], x: alt.X) -> list[alt.Chart]:
    if not marks:
        return []
    base = alt.Chart(alt.Data(values=list(marks)))
    return [
        base.mark_point(shape="diamond", size=110, color=INK, filled=True, opacity=0.85).encode(
            x=x, y="rate:Q", tooltip=["what:N", alt.Tooltip("rate:Q", format=".0f")]),
        base.mark_text(dy=-13, color=INK, fontSize=11).encode(x=x, y="rate:Q", text="what:N"),
    ]  # fmt: skip
