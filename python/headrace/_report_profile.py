"""The figures of a profile: a picture, a sentence and a table per experiment."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from typing import Any

from headrace import _core
from headrace._report_figure import Figure
from headrace._report_words import plural, rate_text, size_text

Row = dict[str, Any]
Measured = list[_core.Row]


def profile_parts(document: Row) -> Row:
    """What the page needs of a machine's document, with rows or without."""
    profile = _core.Profile.from_json(json.dumps(document))
    rests = None
    if profile.published:
        rests = {"level": "published", "detail": "figures of others, published, not measured here"}
    elif date := profile.conditions.get("date"):
        rests = {"level": "real hardware", "detail": f"measured on {profile.machine.name}, {date}"}
    return {
        "machine": document,
        "profile": profile,
        "version": profile.conditions.get("headrace"),
        "rests_on": rests,
    }


def profile_figures(profile: _core.Profile) -> list[Figure]:
    """One per experiment, in the order of the profile, and what was not measured."""
    found = []
    names = dict.fromkeys(row.experiment for row in profile.rows)
    for name in names:
        rows = [row for row in profile.rows if row.experiment == name and row.median is not None]
        if rows:
            draw = _EXPERIMENTS.get(name, _plain)
            found.append(draw(rows))
            found[-1].table = _table(rows)
    missing = [row for row in profile.rows if row.median is None]
    if missing:
        found.append(Figure("What was not measured", "", table=_reasons(missing)))
    return found


def text_of(row: _core.Row) -> str:
    """ "142 ns", "24.1 GB/s"."""
    if row.median is None:
        return "-"
    return rate_text(row.median) if row.unit == "B/s" else f"{row.median:.3g} {row.unit}"


def _point(row: _core.Row, scale: float, **more: Any) -> Row:
    """What the charts draw of a row."""
    return {
        "y": (row.median or 0) / scale, "low": (row.low or 0) / scale,
        "high": (row.high or 0) / scale, "text": text_of(row), "order": 0, "line": "",
    } | more  # fmt: skip


def _nodes(row: _core.Row) -> str:
    p = row.parameters
    if "cpu_node" in p and "memory_node" in p:
        return f"CPUs of node {p['cpu_node']}, memory of node {p['memory_node']}"
    return f"node {p['from']} to {p['to']}" if "from" in p else ""


def _places(rows: Measured) -> list[str]:
    return list(dict.fromkeys(_nodes(row) for row in rows))


def _line(row: _core.Row, rows: Measured, word: str) -> str:
    """A line's name: the word, and the nodes where there are several."""
    return f"{word}, {_nodes(row)}" if len(_places(rows)) > 1 else word


def _latency(rows: Measured) -> Figure:
    from headrace import _charts_profile as charts

    whole = [row for row in rows if row.parameters["window"] == "all"]
    windows = [row for row in rows if row.parameters["window"] != "all"]
    figure = Figure("How long a load takes", "")
    if whole:
        points = [
            _point(row, 1, x=row.parameters["bytes"], order=row.parameters["bytes"],
                   line=_line(row, whole, f"{row.parameters['pages']} pages"))
            for row in whole
        ]  # fmt: skip
        figure.charts.append(
            ("by the size of what is read, in random order",
             charts.lines(points, x_title="bytes", y_title="ns per load", sizes=True))
        )  # fmt: skip
        far = max(whole, key=lambda row: (row.parameters["bytes"], row.median))
        near = min(whole, key=lambda row: row.median or 0)
        figure.caption = (
            f"From the nearest cache a load takes {text_of(near)}, from "
            f"{size_text(int(far.parameters['bytes']))} of memory {text_of(far)} "
            f"({far.parameters['pages']} pages)."
        )
    if windows:
        points = [
            _point(row, 1, x=row.parameters["window"], order=row.parameters["window"],
                   line=_line(row, windows, f"{row.parameters['pages']} pages"))
            for row in windows
        ]  # fmt: skip
        figure.charts.append(
            ("by the window of the random order: small ones measure the prefetchers",
             charts.lines(points, x_title="window, bytes", y_title="ns per load", sizes=True))
        )  # fmt: skip
    return figure


def _bandwidth(rows: Measured) -> Figure:
    from headrace import _charts_profile as charts

    most: dict[tuple[str, str], _core.Row] = {}
    for row in rows:
        key = (_nodes(row), str(row.parameters["mix"]))
        if key not in most or (row.median or 0) > (most[key].median or 0):
            most[key] = row
    points = [_point(row, 1e9, bar=mix, line=where) for (where, mix), row in most.items()]
    best = max(most.values(), key=lambda row: row.median or 0)
    return Figure(
        "How many bytes per second",
        f"The best number of threads for each mix of reads and writes. The most was "
        f"{text_of(best)} ({best.parameters['mix']}, {_nodes(best)}). Bytes of payload: a copy "
        f"counts once.",
        [("", charts.bars(points, title="GB/s"))],
    )


def _loaded(rows: Measured) -> Figure:
    from headrace import _charts_profile as charts

    points = [
        _point(row, 1, x=row.details["bandwidth"] / 1e9, order=-int(row.parameters["delay_ns"]),
               line=_line(row, rows, str(row.parameters["mix"])))
        for row in rows
    ]  # fmt: skip
    idle = min(rows, key=lambda row: row.details["bandwidth"])
    busy = max(rows, key=lambda row: row.median or 0)
    return Figure(
        "How long a load takes while others use the memory",
        f"With next to nothing else going on a load took {text_of(idle)}, at worst {text_of(busy)} "
        f"while others moved {rate_text(busy.details['bandwidth'])} ({busy.parameters['mix']}).",
        [("", charts.lines(points, x_title="GB/s that others reached", y_title="ns per load"))],
    )


def _stream(rows: Measured) -> Figure:
    from headrace import _charts_profile as charts

    def homes(row: _core.Row) -> str:
        p = row.parameters
        return f"a on node {p['a']}, b on {p['b']}, c on {p['c']}"

    points = [_point(row, 1e9, bar=str(row.parameters["kernel"]), line=homes(row)) for row in rows]
    best = max(rows, key=lambda row: row.median or 0)
    return Figure(
        "STREAM's kernels",
        f"Counted as STREAM counts. The most was {text_of(best)} ({best.parameters['kernel']}, "
        f"{homes(best)}).",
        [("", charts.bars(points, title="GB/s"))],
    )


def _copy(rows: Measured) -> Figure:
    from headrace import _charts_profile as charts

    figure = Figure("Copying by cores", "")
    states = {"cold": "neither side in a cache", "hot": "both sides in a cache"}
    for state, words in states.items():
        chosen = [row for row in rows if row.parameters["state"] == state]
        points = [
            _point(row, 1e9, x=row.parameters["bytes"], order=row.parameters["bytes"],
                   line=_line(row, chosen, f"{row.parameters['engine']} × "
                                           f"{row.parameters['threads']}"))
            for row in chosen
        ]  # fmt: skip
        if points:
            chart = charts.lines(points, x_title="bytes of one copy", y_title="GB/s", sizes=True)
            figure.charts.append((f"{state}: {words}", chart))
    best = max(rows, key=lambda row: row.median or 0)
    figure.caption = (
        f"× is the number of threads. The most was {text_of(best)} ({best.parameters['engine']}, "
        f"{size_text(int(best.parameters['bytes']))}, {best.parameters['state']})."
    )
    return figure


def _migrate(rows: Measured) -> Figure:
    from headrace import _charts_profile as charts

    points = [
        _point(row, 1e9, bar=f"{row.parameters['method']}, {row.parameters['batch']} at once",
               line=_line(row, rows, f"{row.parameters['pages']} pages"))
        for row in rows
    ]  # fmt: skip
    best = max(rows, key=lambda row: row.median or 0)
    worst = max(rows, key=lambda row: row.details.get("stall_max_ns", 0))
    caption = f"The fastest way moved {text_of(best)} ({best.parameters['method']})."
    if stall := worst.details.get("stall_max_ns"):
        caption += (
            f" A thread that used the pages meanwhile waited at worst {stall / 1e3:.3g} µs for one "
            f"access ({worst.parameters['method']})."
        )
    chart = charts.bars(points, title="GB/s")
    return Figure("Moving pages to another node", caption, [("", chart)])


def _plain(rows: Measured) -> Figure:
    return Figure(rows[0].experiment, f"{plural(len(rows), 'point')}.")


_EXPERIMENTS: dict[str, Callable[[Measured], Figure]] = {
    "latency": _latency,
    "bandwidth": _bandwidth,
    "loaded": _loaded,
    "stream": _stream,
    "copy": _copy,
    "migrate": _migrate,
}


def _table(rows: Measured) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row.parameters))
    head = "".join(f"<th>{escape(name)}</th>" for name in (*columns, "median", "95 % interval", ""))
    lines = []
    for row in rows:
        cells = [str(row.parameters.get(name, "")) for name in columns]
        unit = 1e9 if row.unit == "B/s" else 1
        interval = f"{(row.low or 0) / unit:.4g} to {(row.high or 0) / unit:.4g}"
        cells += [text_of(row), interval, " ".join(row.flags)]
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return (
        f"<details><summary>{plural(len(rows), 'row')}</summary>"
        f'<div class="scroll"><table>{body}</table></div></details>'
    )


def _reasons(rows: Measured) -> str:
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        counts[row.experiment, row.reason] = counts.get((row.experiment, row.reason), 0) + 1
    items = "".join(
        f"<li>{escape(name)}, {plural(count, 'row')}: {escape(reason)}</li>"
        for (name, reason), count in counts.items()
    )
    return f"<ul>{items}</ul>"
