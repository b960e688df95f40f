# SPDX-License-Identifier: Apache-2.0
"""The report's charts: one theme, and lines, bars, dots and heat maps for the figures.

Fields are channels (`alt.X("x:Q")`), not shorthands: Altair's look-up of shorthands takes as long
as all the rest.

Each chart is one view as wide as its container, so that it fits a desk and a telephone, and has no
background and no text colour of its own: text and rules are drawn in the page's text colour
(``currentColor``), data in hues that read on white and on black.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

Row = dict[str, Any]
#: Altair's types for layers, concatenations and single marks.
Picture = alt.LayerChart | alt.FacetChart | alt.VConcatChart | alt.Chart

#: Hues with at least 3:1 contrast on white and on #14171a (WCAG 2.1, 1.4.11). Colour-blind people
#: can distinguish them (after Okabe and Ito, 2008).
BLUE, ORANGE, RED, GREEN, GREY = "#3f8fd2", "#d9822b", "#d1495b", "#3d9a6c", "#7f8791"
VIOLET = "#9b72cf"
INK = "currentColor"
_HUES = [BLUE, ORANGE, GREEN, RED, GREY, VIOLET, "#b3892f", "#2f9aa0"]

#: The kinds of axes: a logarithm, one of bytes, one of a number, or one that begins at 0.
Scale = Literal["log", "bytes", "doubling", "delay"]
#: With at most this number of bars, each has its number beside it.
MOST_NUMBERS = 12
#: Pixels for a legend's entry on a telephone, and for one letter.
_LEGEND_WIDTH, _LETTER = 300, 6.5
#: Noisy points: hollow in a line, pale as a bar.
_NOISY, _QUIET = "datum.noisy === true", "datum.noisy !== true"
_PALE = alt.condition(_NOISY, alt.value(0.4), alt.value(1))
DASHED: dict[str, Any] = {"color": INK, "strokeDash": [5, 4], "strokeWidth": 1.5, "opacity": 0.7}


def _in_units(units: Sequence[tuple[str, float]], least: str) -> str:
    """An expression that writes a value in the largest unit that it reaches, with four digits."""
    digits = "format({}, '.4~r')"
    reached = (
        f"datum.value >= {size:.10g} ? {digits.format(f'datum.value / {size:.10g}')} + ' {name}' : "
        for name, size in units
    )
    return "".join(reached) + f"{digits.format('datum.value')} + ' {least}'"


_BYTES = _in_units([("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)], "B")
_TIME = _in_units([("s", 1e9), ("ms", 1e6), ("µs", 1e3)], "ns")


@alt.theme.register("headrace", enable=False)
def _theme() -> alt.theme.ThemeConfig:
    axis = {
        "labelColor": INK, "titleColor": INK, "gridColor": INK, "gridOpacity": 0.12,
        "domainColor": INK, "domainOpacity": 0.35, "tickColor": INK, "tickOpacity": 0.35,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "labelOpacity": 0.85, "titleOpacity": 0.85,
    }  # fmt: skip
    legend = {
        "labelColor": INK, "labelFontSize": 12, "title": None, "orient": "top",
        "symbolType": "square", "symbolStrokeWidth": 0, "offset": 6,
    }  # fmt: skip
    title = {"anchor": "start", "frame": "group", "color": INK, "subtitleColor": INK,
             "fontSize": 14}  # fmt: skip
    text = {"color": INK}
    font = "system-ui, -apple-system, sans-serif"
    config = {"background": "transparent", "font": font, "view": {"stroke": None}, "axis": axis,
              "legend": legend, "title": title, "text": text}  # fmt: skip
    return {"config": config}  # type: ignore[typeddict-item]


def specification(chart: Picture) -> Row:
    """The chart in the style of all reports, as Vega-Lite."""
    with alt.theme.enable("headrace"):
        return chart.to_dict(validate=False)


def stacked(charts: Sequence[Picture], **properties: Any) -> alt.VConcatChart:
    """Charts below each other, each with scales and a legend of its own."""
    channels = ("color", "opacity", "shape", "size", "strokeWidth", "xOffset", "yOffset")
    apart: dict[str, Any] = dict.fromkeys(channels, "independent")
    return alt.vconcat(*charts, **properties).resolve_scale(**apart)


def _color(name: str, rows: Sequence[Row], every: Sequence[str] = ()) -> alt.Color:
    """Hues in order of appearance. If `every` possible name is given, each always has the same hue,
    and there is a legend.
    """
    scale = _hues(name, rows, every)
    return alt.Color(f"{name}:N", scale=scale, legend=_legend(name, rows, every))


def _legend(name: str, rows: Sequence[Row], every: Sequence[str] = ()) -> alt.Legend | None:
    groups = list(dict.fromkeys(row[name] for row in rows))
    longest = max((len(str(group)) for group in groups), default=0)
    columns = max(1, int(_LEGEND_WIDTH / (longest * _LETTER + 26)))
    legend = alt.Legend(columns=columns, labelLimit=_LEGEND_WIDTH, symbolOpacity=1, values=groups)
    return legend if every or len(groups) > 1 else None


def _hues(name: str, rows: Sequence[Row], every: Sequence[str] = ()) -> alt.Scale:
    domain = list(every) or list(dict.fromkeys(row[name] for row in rows))
    return alt.Scale(domain=domain, range=[_HUES[i % len(_HUES)] for i in range(len(domain))])


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
    rows: Sequence[Row], *, x_title: str, y_title: str, x: Scale, times: bool = False,
    published: Sequence[Row] = (), level: float | None = None,
) -> Picture:
    """`y` over `x`, a line per `line` in the order of `order`; `low` and `high` are drawn as a bar
    at each point. With `times` y is a logarithmic axis of nanoseconds, else it begins at 0. Points
    that were `published` lie beside them, and a dashed line at a `level`.
    """
    along = _x(rows, x_title, x)
    if times:
        values = [row["y"] for row in rows]
        scale, axis = _steps_scale(values), _steps_axis(values, _TIME)
        y = alt.Y("y:Q", title=y_title, scale=scale, axis=axis)
    else:
        y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    color = _color("line", rows)
    tooltip = [
        alt.Tooltip("line:N"), alt.Tooltip("x:Q", title=x_title),
        alt.Tooltip("text:N", title=y_title), *_behind(rows),
    ]  # fmt: skip
    base = alt.Chart()  # of the data of the whole, so that they are in the page once
    line = base.mark_line().encode(x=along, y=y, color=color, order=alt.Order("order:Q"))
    points = [
        base.transform_filter(which).mark_point(filled=filled, size=34, opacity=1)
        .encode(x=along, y=y, color=color, tooltip=tooltip)
        for which, filled in ((_QUIET, True), (_NOISY, False))
        if filled or any(row.get("noisy") for row in rows)
    ]  # fmt: skip
    spread = base.mark_rule(opacity=0.6, strokeWidth=1.5).encode(
        x=along, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=color
    )
    layers = [spread, line, *points, *_diamonds(published, along, y, dy=-13)]
    if level is not None:
        layers.append(alt.Chart(alt.Data(values=[{"y": level}])).mark_rule(**DASHED).encode(y=y))
    whole = alt.layer(*layers, data=alt.Data(values=list(rows)))
    return whole.properties(width="container", height=260)


def family(rows: Sequence[Row], *, x_title: str, y_title: str, shade_title: str) -> Picture:
    """`y` over `x`, a line per `line` in the order of `order`, more of them than hues can tell
    apart: coloured by `shade`, 0 to 100, and some named by the `label` of their last points.
    """
    base = alt.Chart(alt.Data(values=list(rows)))
    along = alt.X("x:Q", title=x_title, axis=alt.Axis(tickCount=8, grid=False),
                  scale=alt.Scale(zero=True, domainMax=1.12 * max(row["x"] for row in rows)))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    color = alt.Color(
        "shade:Q", scale=alt.Scale(domain=[0, 50, 100], range=[ORANGE, VIOLET, BLUE]),
        legend=alt.Legend(title=shade_title, titleColor=INK, type="gradient",
                          gradientLength=160, tickCount=3),
    )
    tooltip = [
        alt.Tooltip("line:N"), alt.Tooltip("x:Q", title=x_title, format=".3g"),
        alt.Tooltip("text:N", title=y_title), *_behind(rows),
    ]
    line = base.mark_line(strokeWidth=1.6, opacity=0.9).encode(
        x=along, y=y, color=color, detail=alt.Detail("line:N"), order=alt.Order("order:Q")
    )
    points = [
        base.transform_filter(which).mark_point(filled=filled, size=16, opacity=1)
        .encode(x=along, y=y, color=color, tooltip=tooltip)
        for which, filled in ((_QUIET, True), (_NOISY, False))
        if filled or any(row.get("noisy") for row in rows)
    ]
    names = base.transform_filter("isValid(datum.label)").mark_text(
        align="left", dx=6, fontSize=11
    ).encode(x=along, y=y, text=alt.Text("label:N"))
    return alt.layer(line, *points, names).properties(width="container", height=320)


def areas(
    rows: Sequence[Row], *, x_title: str, y_title: str, level: float | None = None
) -> Picture:
    """`y` over `x`, a stacked area per `line` in the order of `order`, with a dashed line at
    `level` of x.
    """
    least, most = (function(row["x"] for row in rows) for function in (min, max))
    along = alt.X("x:Q", title=x_title, axis=alt.Axis(tickCount=8, grid=False),
                  scale=alt.Scale(domain=[least, most], nice=False))  # fmt: skip
    area = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_area(opacity=0.85)
        .encode(
            x=along,
            y=alt.Y("y:Q", title=y_title, stack="zero", axis=alt.Axis(tickCount=5)),
            color=_color("line", rows),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("line:N"), alt.Tooltip("x:Q", title=x_title),
                     alt.Tooltip("y:Q", title=y_title, format=".0f")],
        )
    )  # fmt: skip
    layers: list[alt.Chart] = [area]
    if level is not None:
        rule = alt.Chart(alt.Data(values=[{"x": level}])).mark_rule(**DASHED).encode(x=along)
        layers.append(rule)
    return alt.layer(*layers).properties(width="container", height=150)


def bars(rows: Sequence[Row], *, title: str, published: Sequence[Row] = ()) -> Picture:
    """A bar per `bar`, whose name may have two lines, from 0 to `y`, side by side per `line`. Also
    drawn: the spread from `low` to `high`, a stroke at a `bound`, and `published` values of the
    same bars. Requires: no two rows have the same `bar` and `line`, which would hide one.
    """
    names = list(dict.fromkeys(row["bar"] for row in rows))
    groups = list(dict.fromkeys(row["line"] for row in rows))
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        y=_bars_axis(names), yOffset=alt.YOffset("line:N", sort=groups)
    )
    # Numbers stand to the right of their bars.
    bounds = [row["bound"] for row in rows if row.get("bound") is not None]
    end = max(1.25 * max(row["high"] for row in [*rows, *published]), *bounds, 0)
    along = alt.X("y:Q", title=title, axis=alt.Axis(tickCount=8), scale=alt.Scale(domainMax=end),
                  stack=None)  # fmt: skip
    bar = base.mark_bar().encode(
        x=along,
        color=_color("line", rows),
        opacity=_PALE,
        tooltip=[*_bar_tooltip(title), *_behind(rows)],
    )
    spread = base.mark_rule(color=INK, opacity=0.6).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    layers = [bar, spread, *_diamonds(published, along, _bars_axis(names), dx=36)]
    if bounds:
        stroke = base.transform_filter("isValid(datum.bound)").mark_tick(
            color=INK, thickness=2, opacity=0.7
        )
        layers.append(stroke.encode(x=alt.X("bound:Q")))
    if len(rows) <= MOST_NUMBERS and not published:
        # Beyond a stroke that would go through it.
        across = f"datum.bound > datum.high && datum.bound < datum.high + {end / 6}"
        numbers = base.transform_calculate(
            shown="(datum.noisy ? '~ ' : '') + datum.text",
            after=f"{across} ? datum.bound : datum.high",
        )
        text = numbers.mark_text(align="left", dx=8, fontSize=11, fontWeight="bold")
        layers.append(text.encode(x=alt.X("after:Q"), text=alt.Text("shown:N")))
    least = 34 if any("\n" in name for name in names) else 0
    height = max(60, len(names) * max(least, len(groups) * 18 + 6))
    return alt.layer(*layers).properties(width="container", height=height)


def has_spread(chart: Picture) -> bool:
    """Whether one of its points has a bar from `low` to `high`."""
    views = [chart, *getattr(chart, "layer", [])]
    rows = [row for view in views for row in getattr(view.data, "values", None) or []]
    return any(row.get("high", 0) > row.get("low", 0) for row in rows if isinstance(row, dict))


def _behind(rows: Sequence[Row]) -> list[alt.Tooltip]:
    """The evidence behind numbers, if the rows have it."""
    return [alt.Tooltip("behind:N", title="of")] if any("behind" in row for row in rows) else []


def _bar_tooltip(title: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("bar:N"), alt.Tooltip("line:N"), alt.Tooltip("text:N", title=title)]


def _bars_axis(names: Sequence[str]) -> alt.Y:
    return alt.Y("bar:N", sort=list(names), title=None, axis=alt.Axis(
        labelLimit=200, labelExpr="split(datum.label, '\\n')"))  # fmt: skip


def _diamonds(
    published: Sequence[Row], x: alt.X, y: alt.Y, dx: int = 0, dy: int = 0
) -> list[alt.Chart]:
    """Published values, labelled as published."""
    if not published:
        return []
    base = alt.Chart(alt.Data(values=list(published))).encode(x=x, y=y)
    mark = base.mark_point(shape="diamond", size=110, color=INK, filled=True, opacity=0.85)
    return [mark, base.mark_text(dx=dx, dy=dy, fontSize=11, text="published")]


def times(
    rows: Sequence[Row], *, title: str, label: str = _TIME, lines: Sequence[str] = ()
) -> Picture:
    """A lane per `bar` with a mark per `line` at `x`, on a logarithmic axis of nanoseconds, or as
    `label` says. `lines`: all possible lines; each has the same hue in all charts.
    """
    names = list(dict.fromkeys(row["bar"] for row in rows))
    values = [row["x"] for row in rows]
    marks = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_point(filled=True, size=70, opacity=0.95)
        .encode(
            x=alt.X("x:Q", title=title, scale=_steps_scale(values),
                    axis=_steps_axis(values, label)),
            y=alt.Y("bar:N", sort=names, title=None, axis=alt.Axis(
                grid=True, labelLimit=200, labelExpr="split(datum.label, '\\n')")),
            color=_color("line", rows, lines),
            shape=alt.Shape("line:N", legend=None),
            opacity=_PALE,
            tooltip=[*_bar_tooltip(title), *_behind(rows)],
        )
    )  # fmt: skip
    lane = 36 if any("\n" in name for name in names) else 30
    return marks.properties(width="container", height=max(60, len(names) * lane))


def heat(cells: Sequence[Row], *, x_title: str | None = None, color: str = BLUE) -> Picture:
    """A cell per `column` and `row` with its `text`. A `shade` near 1 is stronger; None gives an
    empty, dashed cell."""
    columns = list(dict.fromkeys(cell["column"] for cell in cells))
    rows = list(dict.fromkeys(cell["row"] for cell in cells))
    slanted = max(len(column) for column in columns) > 4
    # Text as large as the cells allow: a cell holds about five letters.
    size = alt.ExprRef(f"clamp((containerSize()[0] || 900) / {len(columns)} / 3.4, 6.5, 12)")
    base = alt.Chart(alt.Data(values=list(cells))).encode(
        x=alt.X("column:N", sort=columns, title=x_title,
                axis=alt.Axis(orient="top", labelAngle=-40 if slanted else 0, ticks=False,
                              domain=False, labelOverlap=False)),
        y=alt.Y("row:N", sort=rows, title=None,
                axis=alt.Axis(ticks=False, domain=False, labelOverlap=False)),
        tooltip=[alt.Tooltip("row:N"), alt.Tooltip("column:N"),
                 alt.Tooltip("words:N", title="value")],
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
    numbers = base.mark_text(fontSize=size).encode(text=alt.Text("text:N"))
    height = max(60, 26 * len(rows))
    return alt.layer(there, absent, numbers).properties(width="container", height=height)


def _marked(values: Sequence[float], label: str) -> alt.Axis:
    """A mark at each value, with as many labels as fit."""
    return alt.Axis(values=list(values), labelExpr=label, labelOverlap="greedy", labelSeparation=7,
                    grid=False)  # fmt: skip


def _steps(values: Sequence[float]) -> list[float]:
    """1, 2, 5, 10, ... from below the smallest value to above the largest."""
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
