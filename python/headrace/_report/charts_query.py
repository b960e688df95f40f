# SPDX-License-Identifier: Apache-2.0
"""Charts of a query's runs: blocks fetched, waited for and used over time; times by mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt

from headrace._report.charts import BLUE, DASHED, GREEN, GREY, INK, ORANGE, RED, Picture, Row

#: The activities of a block, in the order of the legend.
ACTIVITIES = {"fetch": BLUE, "wait": RED, "use": ORANGE}
MODE_COLORS = {
    "resident": GREEN, "prefetch": BLUE, "direct": RED, "mmap": ORANGE, "duckdb": GREY,
}  # fmt: skip

#: Chunks of the faster run in the close-up: enough to see a rhythm, few enough to see a block.
CLOSE_UP_CHUNKS = 10
#: Shortest busy span of the overview, as a share of the time axis. Shorter ones are less than a
#: pixel, and would make the page large.
FINEST = 1 / 2000
#: Pixels of a lane, and of all else above and below the lanes.
LANE = 30


def short(column: str) -> str:
    """A column's name without its table's prefix."""
    return column.removeprefix("l_")


def spans_of(block: Row) -> dict[str, tuple[float, float]]:
    """Times in seconds at which a block was fetched, waited for and used, as far as these happened.
    """
    spans = {
        "fetch": (block["fetch_start"], block["fetch_end"]),
        "wait": (block["wait_start"], block["wait_end"]),
        "use": (block["wait_end"], block["use_end"]),
    }
    return {
        name: (start, end)
        for name, (start, end) in spans.items()
        if start is not None and end is not None and end > start
    }


def merged(spans: Iterable[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """The union of spans, those less than `gap` apart made one."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if result and start - result[-1][1] <= gap:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def close_up_end(runs: dict[str, Row]) -> float:
    """End of the close-up in seconds: when the fastest run has used its first chunks."""
    ends = [
        max(
            (b["use_end"] for b in run["blocks"] if b["chunk"] < CLOSE_UP_CHUNKS),
            default=run["seconds"],
        )
        for run in runs.values()
    ]
    return float(min(ends))


def overview(runs: dict[str, Row]) -> Picture:
    """Whether blocks were in flight and whether the pipeline computed, over the whole runs."""
    end = max(run["seconds"] for run in runs.values())
    rows = []
    for mode, run in runs.items():
        all_spans = [spans_of(block) for block in run["blocks"]]
        for activity in ACTIVITIES:
            spans = merged((s[activity] for s in all_spans if activity in s), end * FINEST)
            rows += [
                {"mode": mode, "activity": activity, "lane": _lane(activity),
                 "start": round(a * 1e3, 4), "end": round(b * 1e3, 4)}
                for a, b in spans
            ]  # fmt: skip
    # Waiting is drawn first: with several threads one may wait while another uses.
    rows.sort(key=lambda row: row["activity"] != "wait")
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("start:Q", scale=alt.Scale(domain=[0, end * 1e3], nice=False),
                    title="milliseconds since the start of the query",
                    axis=alt.Axis(tickCount=8)),
            x2=alt.X2("end:Q"),
            y=alt.Y("mode:N", sort=list(runs), title=None, axis=_plain_axis(),
                    scale=alt.Scale(paddingInner=0.3, paddingOuter=0.1)),
            yOffset=_lanes(),
            color=_activity_color(legend=True),
            tooltip=[alt.Tooltip("mode:N"), alt.Tooltip("activity:N"),
                     alt.Tooltip("start:Q", title="from, ms", format=".2f"),
                     alt.Tooltip("end:Q", title="to, ms", format=".2f")],
        )
        .properties(width="container", height=76 * len(runs))
    )  # fmt: skip


def timeline_rows(run: Row, end_ms: float) -> list[Row]:
    """Rows of the close-up until `end_ms`, in milliseconds: one for each wait for a block and each
    use of a block, and one for each time in which a column had blocks in flight."""
    rows = []
    fetches: dict[str, list[tuple[float, float]]] = {}
    for block in run["blocks"]:
        column = short(block["column"])
        for activity, (start, end) in spans_of(block).items():
            if activity == "fetch":
                fetches.setdefault(column, []).append((start, end))
            else:
                rows.append(_bar(column, activity, start, end) | {"chunk": block["chunk"]})
    for column, spans in fetches.items():
        rows += [_bar(column, "fetch", start, end) for start, end in merged(spans, 0.0)]
    shown = [row for row in rows if row["start"] < end_ms]
    return [row | {"end": min(row["end"], end_ms)} for row in shown]


def arrival_rows(run: Row, end_ms: float) -> list[Row]:
    """Times at which blocks arrived, until `end_ms`."""
    return [
        {"column": short(block["column"]), "chunk": block["chunk"], "activity": "fetch",
         "lane": "fetch", "end": round(block["fetch_end"] * 1e3, 4)}
        for block in run["blocks"]
        if block["fetch_end"] is not None and block["fetch_end"] * 1e3 <= end_ms
    ]  # fmt: skip


def _bar(column: str, activity: str, start: float, end: float) -> Row:
    return {
        "column": column, "activity": activity, "lane": _lane(activity),
        "start": round(start * 1e3, 4), "end": round(end * 1e3, 4),
    }  # fmt: skip


def _lane(activity: str) -> str:
    return "fetch" if activity == "fetch" else "pipeline"


def _lanes() -> alt.YOffset:
    return alt.YOffset(
        "lane:N", sort=["fetch", "pipeline"], scale=alt.Scale(paddingInner=0.08)
    )


def _activity_color(*, legend: bool) -> alt.Color:
    return alt.Color(
        "activity:N", sort=list(ACTIVITIES), legend=alt.Legend() if legend else None,
        scale=alt.Scale(domain=list(ACTIVITIES), range=list(ACTIVITIES.values())),
    )  # fmt: skip


def timeline(run: Row, end_ms: float, *, last: bool) -> Picture:
    """Times at which each block was fetched, waited for and used, with a lane per column.

    The upper half of a lane is the fetch with a mark where the block arrived, the lower half the
    pipeline; `end_ms` is the end of the time axis, the same for all runs that are compared. The
    first of several has the legend, the `last` the title of the axis.
    """
    rows = timeline_rows(run, end_ms)
    columns = list(dict.fromkeys(short(block["column"]) for block in run["blocks"]))
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, end_ms], nice=False),
              title="milliseconds since the start of the query" if last else None,
              axis=alt.Axis(tickCount=8))  # fmt: skip
    y = alt.Y("column:N", sort=columns, title=None,
              axis=alt.Axis(minExtent=86, maxExtent=86, ticks=False, domain=False),
              scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1))  # fmt: skip
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=x,
            x2=alt.X2("end:Q"),
            y=y,
            yOffset=_lanes(),
            color=_activity_color(legend=not last),
            opacity=alt.condition("datum.activity == 'fetch'", alt.value(0.3), alt.value(0.9)),
            tooltip=[alt.Tooltip("column:N"), alt.Tooltip("chunk:Q"), alt.Tooltip("activity:N"),
                     alt.Tooltip("start:Q", title="from, ms", format=".2f"),
                     alt.Tooltip("end:Q", title="to, ms", format=".2f")],
        )
    )  # fmt: skip
    arrivals = (
        alt.Chart(alt.Data(values=arrival_rows(run, end_ms)))
        .mark_tick(color=BLUE, thickness=2, bandSize=11, orient="vertical")
        .encode(
            x=alt.X("end:Q"), y=y, yOffset=_lanes(),
            tooltip=[
                alt.Tooltip("column:N"), alt.Tooltip("chunk:Q"),
                alt.Tooltip("end:Q", title="arrived, ms", format=".2f"),
            ],
        )
    )
    return alt.layer(bars, arrivals).properties(
        width="container", height=LANE * max(1, len(columns))
    )


def modes(rows: Sequence[Row], floors: Sequence[Row]) -> Picture:
    """Time per mode: the median as a bar, each run as a tick, the floors as dashed lines."""
    order = [row["mode"] for row in rows]
    runs = [{"mode": r["mode"], "ms": s * 1e3} for r in rows for s in r["samples"]]
    bars = [{"mode": r["mode"], "ms": r["median"] * 1e3} for r in rows]
    end = max([run["ms"] for run in runs] + [floor["ms"] for floor in floors]) * 1.13
    x = alt.X("ms:Q", title="milliseconds", scale=alt.Scale(domain=[0, end], nice=False),
              axis=alt.Axis(tickCount=6))  # fmt: skip
    y = alt.Y("mode:N", sort=order, title=None, axis=_plain_axis())
    base = alt.Chart(alt.Data(values=bars))
    color = alt.Color(
        "mode:N", legend=None,
        scale=alt.Scale(domain=list(MODE_COLORS), range=list(MODE_COLORS.values())),
    )  # fmt: skip
    layers: list[alt.Chart] = [
        base.mark_bar(opacity=0.85, height={"band": 0.62}).encode(x=x, y=y, color=color),
        alt.Chart(alt.Data(values=runs))
        .mark_tick(color=INK, thickness=1.5, height=22, opacity=0.75)
        .encode(x=x, y=y, tooltip=[alt.Tooltip("ms:Q", format=".1f")]),
    ]
    if floors:
        layers.append(
            alt.Chart(alt.Data(values=list(floors)))
            .mark_rule(**DASHED)
            .encode(x=x, tooltip=[alt.Tooltip("floor:N"), alt.Tooltip("ms:Q", format=".1f")])
        )
    return alt.layer(*layers).properties(width="container", height=38 * len(rows))


def _plain_axis() -> alt.Axis:
    return alt.Axis(minExtent=66, ticks=False, domain=False)
