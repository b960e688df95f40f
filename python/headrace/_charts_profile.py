"""The figures of a profile as Vega-Lite specifications: lines, bars, dots and heat maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from headrace._charts import BLUE, GREEN, GREY, INK, ORANGE, RED, Picture

Row = dict[str, Any]
#: What is along an axis: a logarithm, one of bytes, one of a number, or one that begins at 0.
Scale = Literal["log", "bytes", "doubling", "delay"]
_HUES = [BLUE, ORANGE, GREEN, RED, GREY, "#8a6fc9", "#b3892f", "#2f9aa0"]
#: A telephone has room for this many pixels of a legend's entry, and a letter takes so many.
_LEGEND_WIDTH, _LETTER = 300, 6.5
_BYTES = (
    "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? "
    "datum.value / 1048576 + ' MiB' : datum.value >= 1024 ? datum.value / 1024 + ' KiB' : "
    "datum.value + ' B'"
)
_TIME = (
    "datum.value >= 1e9 ? datum.value / 1e9 + ' s' : datum.value >= 1e6 ? datum.value / 1e6 + "
    "' ms' : datum.value >= 1e3 ? datum.value / 1e3 + ' µs' : datum.value + ' ns'"
)


def _color(name: str, rows: Sequence[Row]) -> alt.Color:
    groups = list(dict.fromkeys(row[name] for row in rows))
    scale = alt.Scale(domain=groups, range=[_HUES[i % len(_HUES)] for i in range(len(groups))])
    longest = max((len(str(group)) for group in groups), default=0)
    columns = max(1, int(_LEGEND_WIDTH / (longest * _LETTER + 26)))
    legend = alt.Legend(columns=columns, labelLimit=_LEGEND_WIDTH, symbolOpacity=1)
    return alt.Color(f"{name}:N", scale=scale, legend=legend if len(groups) > 1 else None)


def _x(rows: Sequence[Row], title: str, kind: Scale) -> alt.X:
    values = sorted({row["x"] for row in rows})
    if kind == "log":
        scale, axis = _steps_scale(values), _steps_axis(values, "datum.value")
    elif kind == "delay":
        least = next((x for x in values if x > 0), 1)
        scale = alt.Scale(type="symlog", constant=least)
        axis = _marked(values, "datum.value")
    else:
        label = _BYTES if kind == "bytes" else "datum.value"
        scale = alt.Scale(type="log", base=2, nice=False)
        axis = _marked(values, label)
    return alt.X("x:Q", title=title, scale=scale, axis=axis)


def lines(
    rows: Sequence[Row], *, x_title: str, y_title: str, x: Scale, times: bool = False
) -> Picture:
    """`y` over `x`, a line per `line` in the order of `order`; `low` and `high` are drawn as a bar
    at each point. With `times` y is a logarithmic axis of nanoseconds, else it begins at 0."""
    along = _x(rows, x_title, x)
    if times:
        values = [row["y"] for row in rows]
        scale, axis = _steps_scale(values), _steps_axis(values, _TIME)
        y = alt.Y("y:Q", title=y_title, scale=scale, axis=axis)
    else:
        y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    color = _color("line", rows)
    tooltip = ["line:N", alt.Tooltip("x:Q", title=x_title), alt.Tooltip("text:N", title=y_title)]
    base = alt.Chart(alt.Data(values=list(rows)))
    line = base.mark_line(point=True).encode(
        x=along, y=y, color=color, order="order:Q", tooltip=tooltip
    )
    spread = base.mark_rule(opacity=0.5).encode(x=along, y="low:Q", y2="high:Q", color=color)
    return alt.layer(spread, line).properties(width="container", height=260)


def bars(rows: Sequence[Row], *, title: str) -> Picture:
    """A bar per `bar`, from 0 to `y`, side by side per `line`; with the interval."""
    names = list(dict.fromkeys(row["bar"] for row in rows))
    groups = list(dict.fromkeys(row["line"] for row in rows))
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        y=alt.Y("bar:N", sort=names, title=None), yOffset=alt.YOffset("line:N", sort=groups)
    )
    bar = base.mark_bar().encode(
        x=alt.X("y:Q", title=title, axis=alt.Axis(tickCount=8)),
        color=_color("line", rows),
        tooltip=["bar:N", "line:N", alt.Tooltip("text:N", title=title)],
    )
    spread = base.mark_rule(color=INK, opacity=0.6).encode(x="low:Q", x2="high:Q")
    height = max(60, len(names) * len(groups) * 18 + len(names) * 6)
    return alt.layer(bar, spread).properties(width="container", height=height)


def times(rows: Sequence[Row], *, title: str) -> Picture:
    """A lane per `bar`, in it a mark per `line` at `x` nanoseconds on a logarithmic axis."""
    names = list(dict.fromkeys(row["bar"] for row in rows))
    values = [row["x"] for row in rows]
    marks = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_point(filled=True, size=70, opacity=0.95)
        .encode(
            x=alt.X("x:Q", title=title, scale=_steps_scale(values),
                    axis=_steps_axis(values, _TIME)),
            y=alt.Y("bar:N", sort=names, title=None, axis=alt.Axis(grid=True)),
            color=_color("line", rows),
            shape=alt.Shape("line:N", legend=None),
            tooltip=["bar:N", "line:N", alt.Tooltip("text:N", title=title)],
        )
    )  # fmt: skip
    return marks.properties(width="container", height=max(60, len(names) * 30))


def heat(cells: Sequence[Row], *, x_title: str | None = None, color: str = BLUE) -> Picture:
    """A cell per `column` and `row` with its `text`, the stronger the nearer `shade` is to 1; where
    `shade` is None an empty, dashed one."""
    columns = list(dict.fromkeys(cell["column"] for cell in cells))
    rows = list(dict.fromkeys(cell["row"] for cell in cells))
    slanted = max(len(column) for column in columns) > 4
    # As large as the cells allow, of which a text takes about five letters.
    size = alt.ExprRef(f"min(12, max(6.5, width / {len(columns)} / 3))")
    base = alt.Chart(alt.Data(values=list(cells))).encode(
        x=alt.X("column:N", sort=columns, title=x_title,
                axis=alt.Axis(orient="top", labelAngle=-40 if slanted else 0, ticks=False,
                              domain=False, labelOverlap=False)),
        y=alt.Y("row:N", sort=rows, title=None,
                axis=alt.Axis(ticks=False, domain=False, labelOverlap=False)),
        tooltip=["row:N", "column:N", alt.Tooltip("words:N", title="value")],
    )  # fmt: skip
    there = (
        base.transform_filter("isValid(datum.shade)")
        .mark_rect(color=color, cornerRadius=2)
        .encode(opacity=alt.Opacity("shade:Q", legend=None,
                                    scale=alt.Scale(domain=[0, 1], range=[0.08, 0.62])))
    )  # fmt: skip
    absent = base.transform_filter("!isValid(datum.shade)").mark_rect(
        filled=False, stroke=INK, strokeDash=[3, 3], strokeOpacity=0.45
    )
    numbers = base.mark_text(color=INK, fontSize=size).encode(text="text:N")
    height = max(60, 26 * len(rows))
    return alt.layer(there, absent, numbers).properties(width="container", height=height)


def _marked(values: Sequence[float], label: str) -> alt.Axis:
    """A mark at each value, as many labels as there is room for."""
    return alt.Axis(values=list(values), labelExpr=label, labelOverlap="greedy", labelSeparation=7,
                    grid=False)  # fmt: skip


def _steps(values: Sequence[float]) -> list[float]:
    """1, 2, 5, 10, ... from below the least of the values to above the most."""
    least, most = min(values), max(values)
    first = math.floor(math.log10(least))
    series = [m * 10.0**e for e in range(first, first + 40) for m in (1, 2, 5)]
    low = max(step for step in series if step <= least * 1.001)
    high = min((step for step in series if step >= most), default=most)
    return [step for step in series if low <= step <= high]


def _steps_scale(values: Sequence[float]) -> alt.Scale:
    steps = _steps(values)
    return alt.Scale(type="log", domain=[steps[0], max(steps[-1], steps[0] * 2)], nice=False)


def _steps_axis(values: Sequence[float], label: str) -> alt.Axis:
    """Labels at the steps; over several decades at their beginnings."""
    steps = _steps(values)
    if len(steps) > 8:
        steps = [step for step in steps if f"{step:e}".startswith("1")]
    return alt.Axis(values=steps, labelExpr=label, labelOverlap="greedy")
