"""The figures of a profile as Vega-Lite specifications: lines over a logarithmic axis, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from headrace._charts import BLUE, GREEN, GREY, ORANGE, RED, Picture

Row = dict[str, Any]
_HUES = [BLUE, ORANGE, GREEN, RED, GREY, "#8a6fc9", "#b3892f", "#2f9aa0"]


def _color(name: str, rows: Sequence[Row]) -> alt.Color:
    groups = list(dict.fromkeys(row[name] for row in rows))
    scale = alt.Scale(domain=groups, range=[_HUES[i % len(_HUES)] for i in range(len(groups))])
    return alt.Color(f"{name}:N", scale=scale, legend=alt.Legend() if len(groups) > 1 else None)


def lines(
    rows: Sequence[Row], *, x_title: str, y_title: str, sizes: bool = False, from_zero: bool = True
) -> Picture:
    """`y` over `x`, a line per `line` in the order of `order`; with `sizes` x is a logarithmic axis
    of bytes, else plain. `low` and `high` are drawn as a bar at each point.
    """
    label = (
        "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? "
        "datum.value / 1048576 + ' MiB' : datum.value >= 1024 ? datum.value / 1024 + ' KiB' : "
        "datum.value + ' B'"
    )
    axis = alt.Axis(labelExpr=label, tickCount=8) if sizes else alt.Axis(tickCount=8)
    scale = alt.Scale(type="log", base=2) if sizes else alt.Scale(zero=True)
    x = alt.X("x:Q", title=x_title, scale=scale, axis=axis)
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=from_zero))
    color = _color("line", rows)
    tooltip = ["line:N", alt.Tooltip("x:Q", title=x_title), alt.Tooltip("text:N", title=y_title)]
    base = alt.Chart(alt.Data(values=list(rows)))
    line = base.mark_line(point=True).encode(
        x=x, y=y, color=color, order="order:Q", tooltip=tooltip
    )
    spread = base.mark_rule(opacity=0.5).encode(x=x, y="low:Q", y2="high:Q", color=color)
    return alt.layer(spread, line).properties(width="container", height=260)


def bars(rows: Sequence[Row], *, title: str) -> Picture:
    """A bar per `bar`, from 0 to `y`, side by side per `line`; with the interval."""
    names = list(dict.fromkeys(row["bar"] for row in rows))
    groups = len({row["line"] for row in rows})
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        y=alt.Y("bar:N", sort=names, title=None), yOffset=alt.YOffset("line:N", sort=None)
    )
    bar = base.mark_bar().encode(
        x=alt.X("y:Q", title=title, axis=alt.Axis(tickCount=8)),
        color=_color("line", rows),
        tooltip=["bar:N", "line:N", alt.Tooltip("text:N", title=title)],
    )
    spread = base.mark_rule(color="currentColor", opacity=0.6).encode(x="low:Q", x2="high:Q")
    height = max(60, len(names) * max(groups, 1) * 18 + len(names) * 6)
    return alt.layer(bar, spread).properties(width="container", height=height)
