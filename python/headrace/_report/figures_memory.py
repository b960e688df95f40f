# SPDX-License-Identifier: Apache-2.0
"""Figures of memory: latency, bandwidth, both at once, and STREAM."""

from __future__ import annotations

from typing import Any

from headrace import _core
from headrace._core import format_bytes, format_rate
from headrace._profile.conventions import Traffic, called
from headrace._profile.rows import delay_of, is_mix
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.rows import (
    MOST_LINES,
    Pair,
    Point,
    Rows,
    behind,
    behind_point,
    few_lines,
    in_order,
    noise_mark,
    point,
    text_of,
    value,
)


def memory_latency(rows: Rows) -> dict[Pair, _core.Row]:
    """Random loads of each pair of nodes over the largest buffer, with the fewest page walks."""
    whole = rows.of(window="all")
    found: dict[Pair, _core.Row] = {}
    for pair, row in whole.best_of_pairs().items():
        of_pair = whole.among([pair])
        largest = max(of_pair.values("bytes"), default=row.parameters["bytes"])
        found[pair] = of_pair.of(bytes=largest).best()
    return found


def read_bandwidth(rows: Rows) -> dict[Pair, _core.Row]:
    """Reading of each pair of nodes with the best number of threads."""
    return of_nodes(rows).of(mix="read").best_of_pairs()


def of_nodes(rows: Rows) -> Rows:
    """Rows of sequential accesses by the CPUs of one node.

    Rows of a socket or of the machine belong to no pair of nodes. In random order memory does not
    reach its bandwidth.
    """
    return rows.having(lambda row: not {"on", "pattern"} & row.parameters.keys())


def _teams(rows: Rows, bar: str) -> list[tuple[str, Any]]:
    """A chart of bandwidths of sockets and of the machine, if they were measured."""
    points = [
        point(row, 1e9, bar=row.parameters[bar], line=_team_words(rows, row))
        for row in rows.having(lambda row: "on" in row.parameters).rows
        if "order" not in row.parameters and row.parameters["placed"] == "near"
    ]
    if not points:
        return []
    points, _ = few_lines(points)
    return [("by all cores of a part of the machine, memory near each", charts.bars(
        points, title="GB/s"))]  # fmt: skip


def _team_words(rows: Rows, row: _core.Row) -> str:
    """ "machine, 96 threads, HBM 8-15"."""
    names = [name for name in ("memory_node", "a", "b", "c") if name in row.parameters]
    nodes = dict.fromkeys(rows.node(row.parameters[name]) for name in names)
    return f"{row.parameters['on']}, {row.parameters['threads']} threads, {' > '.join(nodes)}"


def latency(rows: Rows) -> Figure:
    figure = Figure("Latency of a load")
    whole = rows.of(window="all")
    windows = rows.having(lambda row: row.parameters["window"] != "all")
    if far := memory_latency(rows):
        figure.charts += _matrix(rows, far, 1, "ns per load, CPUs by memory")
        figure.caption = _latency_words(rows, whole.best(), far)
    for chosen, x, heading in (
        (whole, "bytes", "by the size of what is read, in random order"),
        (windows, "window",
         "by the window of the random order: small ones measure the prefetchers"),
    ):  # fmt: skip
        if len(chosen.values(x)) > 1:
            swept = _swept(chosen, x)
            pairs = swept.telling_pairs(4)
            figure.charts.append((heading, _latency_chart(chosen.among(pairs), x)))
            if (left_out := swept.left_out(pairs)) not in figure.caption:
                figure.caption += left_out
    return figure


def _latency_words(rows: Rows, near: _core.Row, far: dict[Pair, _core.Row]) -> str:
    best, worst = min(far.values(), key=value), max(far.values(), key=value)
    text = ""
    if value(near) < value(best):
        text = f"From the nearest cache a load takes {text_of(near)}. "
    text += (
        f"A load from {format_bytes(int(best.parameters['bytes']))} of memory takes "
        f"{text_of(best)} ({rows.where(best)}, {best.parameters['pages']} pages)"
    )
    if len(far) > 1:
        text += f", at the far end {text_of(worst)} ({rows.where(worst)})"
    return text + "."


def _swept(rows: Rows, parameter: str) -> Rows:
    """The rows of pairs of nodes that were measured with several values."""
    several = [p for p in rows.pairs() if len(rows.among([p]).values(parameter)) > 1]
    return rows.among(several)


def _latency_chart(rows: Rows, x: str) -> Any:
    points = [
        point(row, 1, x=row.parameters[x], order=row.parameters[x],
              line=rows.where(row, f"{row.parameters['pages']} pages"))
        for row in rows.rows
    ]  # fmt: skip
    return charts.lines(points, x_title=f"{x}, bytes" if x != "bytes" else x, x="bytes",
                        y_title="ns per load")  # fmt: skip


def _matrix(
    rows: Rows, of_pairs: dict[Pair, _core.Row], scale: float, heading: str
) -> list[tuple[str, Any]]:
    """A heat map of pairs of nodes, if there are several."""
    tried = list(dict.fromkeys([*rows.tried, *of_pairs]))
    if len(tried) < 2:
        return []
    least = min(map(value, of_pairs.values()))
    span = max(map(value, of_pairs.values())) - least
    cells = []
    for memory in in_order(pair[1] for pair in tried):
        for cpu in in_order(pair[0] for pair in tried):
            row = of_pairs.get((cpu, memory))
            cells.append({
                "column": str(cpu), "row": rows.node(memory),
                "text": f"{noise_mark(row)}{value(row) / scale:.3g}" if row else "–",
                "words": f"{text_of(row)}, {behind(row)}" if row else "not measured",
                "shade": ((value(row) - least) / span if span else 1.0) if row else None,
            })  # fmt: skip
    heading += " (dashed: not measured)" if any(cell["shade"] is None for cell in cells) else ""
    return [(heading, charts.heat(cells, x_title="CPUs of node"))]


def bandwidth(rows: Rows) -> Figure:
    figure = Figure("How many bytes per second")
    if reads := read_bandwidth(rows):
        figure.charts += _matrix(rows, reads, 1e9, "GB/s read, CPUs by memory")
    figure.charts += _teams(rows, "mix")
    nodes = of_nodes(rows)
    if not nodes.rows:
        return figure
    pairs = nodes.telling_pairs(3)
    points = []
    for mix in nodes.values("mix"):
        for row in nodes.of(mix=mix).among(pairs).best_of_pairs().values():
            points.append(point(row, 1e9, bar=mix, line=nodes.where(row)))
    best = nodes.best()
    figure.charts.append(("by mix of reads and writes", charts.bars(points, title="GB/s")))
    figure.caption = (
        f"Bars: the best number of threads for each mix of reads and writes. Peak of one node: "
        f"{text_of(best)} ({best.parameters['mix']}, {nodes.where(best)}). Bytes of payload: a "
        f"copy counts once.{nodes.left_out(pairs)}"
    )
    return figure


#: Mixes that are drawn beside each other where there are more than hues; the family has all.
_USUAL_MIXES = ("read", "2:1", "1:1", "nt_write")


def loaded(rows: Rows) -> Figure:
    """Lines by pair of nodes in a chart per mix; with one pair, lines by mix in one chart. Of
    memory with curves of many mixes also these, as a family.
    """
    pairs = rows.telling_pairs(6)
    mixes = rows.values("mix")
    if len(mixes) > MOST_LINES:
        mixes = [mix for mix in mixes if mix in _USUAL_MIXES] or mixes[:MOST_LINES]
    shown = rows.among(pairs).having(lambda row: row.parameters["mix"] in mixes)
    figure, more = Figure("Loaded latency"), ""
    several = len(rows.pairs()) > 1
    for mix in mixes if several else [""]:
        chosen = shown.of(mix=mix) if mix else shown
        points, left = few_lines(_by_bandwidth(chosen, several))
        more = more or left
        if points:
            chart = charts.lines(points, x="log", y_title="ns per load",
                                 x_title="GB/s that others reached")  # fmt: skip
            figure.charts.append((f"while others do: {called(mix)}" if mix else "", chart))
    figure.charts += _families(rows)
    reads = shown.of(mix="read") if several else shown
    if len({delay_of(row) for row in reads.rows}) > 1:
        # Third-party latency checkers inject a delay in a unit that they do not define.
        foreign = any(row.source for row in reads.rows)
        points, left = few_lines(_by_delay(reads, several))
        more = more or left
        chart = charts.lines(points, x="delay", y_title="GB/s",
                             x_title="delay, in the source's unit" if foreign else "pause, ns")
        unit = "the source's unit" if foreign else "ns/KiB"
        heading = f"background bandwidth by injected delay ({unit})" + (": read" if several else "")
        figure.charts.append((heading, chart))
    idle = min(rows.rows, key=value)
    busy = max(rows.rows, key=value)
    figure.caption = (
        f"A load took at best {text_of(idle)} ({rows.where(idle)}), at "
        f"worst {text_of(busy)} while others moved {format_rate(busy.details['bandwidth'])} "
        f"({rows.where(busy, str(busy.parameters['mix']))}).{rows.left_out(pairs)}{more}"
    )
    return figure


def _families(rows: Rows) -> list[tuple[str, Any]]:
    """Charts of memories with more mixes than hues: curves by the share of reads. One chart has
    plain stores, one has stores past the caches; both have the curve of reads.
    """
    found: list[tuple[str, Any]] = []
    alone = rows.having(lambda row: not _is_apart(row) and is_mix(row.parameters["mix"]))
    for pair in alone.pairs():
        own = alone.among([pair])
        if len(own.values("mix")) <= MOST_LINES:
            continue
        for around, stores in ((False, "plain stores"), (True, "stores around the caches")):
            mixes = [mix for mix in own.values("mix")
                     if mix == "read" or Traffic.of(mix).non_temporal == around]  # fmt: skip
            points = _shaded(own, mixes)
            chart = charts.family(points, x_title="GB/s on the bus", y_title="ns per load",
                                  shade_title="reads of what the others do, %")  # fmt: skip
            found.append((f"{own.name(pair)}, by the share of reads: {stores}", chart))
    return found


def _shaded(rows: Rows, mixes: list[str]) -> list[Point]:
    """The points of a family. The first, middle and last curves have a label at their last point.
    """
    points: list[Point] = []
    for mix in mixes:
        curve = [
            point(row, 1, x=row.details.get("bus", row.details["bandwidth"]) / 1e9,
                  order=-delay_of(row), line=called(mix) + _threads_words(row),
                  shade=100 * Traffic.of(mix).read_share)
            for row in rows.of(mix=mix).rows
        ]  # fmt: skip
        last = max(curve, key=lambda each: each["x"])
        if round(last["shade"]) in (0, 50, 100):
            last["label"] = f"{last['shade']:.0f} % reads"
        points += curve
    return points


def _is_apart(row: _core.Row) -> bool:
    p = row.parameters
    return (p["cpu_node"], p["memory_node"]) != (p["traffic_cpu_node"], p["traffic_memory_node"])


def _line(rows: Rows, row: _core.Row, several: bool) -> str:
    p = row.parameters
    others = f"; others CPUs {p['traffic_cpu_node']}, {rows.node(p['traffic_memory_node'])}"
    line = (rows.where(row) if several else called(p["mix"])) + (others if _is_apart(row) else "")
    return line + _threads_words(row)


def _threads_words(row: _core.Row) -> str:
    """The number of threads of traffic if it was requested; otherwise all CPUs but one."""
    threads = row.parameters.get("threads")
    return "" if threads is None else f", {threads} threads"


def _by_bandwidth(rows: Rows, several: bool) -> list[Point]:
    return [
        point(row, 1, x=row.details["bandwidth"] / 1e9, order=-delay_of(row),
              line=_line(rows, row, several))
        for row in rows.rows
        if row.details["bandwidth"] > 0
    ]  # fmt: skip


def _by_delay(rows: Rows, several: bool) -> list[Point]:
    points = []
    for row in rows.rows:
        rate = row.details["bandwidth"]
        delay = delay_of(row)
        points.append({
            "x": delay, "order": delay, "y": rate / 1e9, "low": rate / 1e9, "high": rate / 1e9,
            "text": format_rate(rate), "line": _line(rows, row, several),
        } | behind_point(row))  # fmt: skip
    return points


def stream(rows: Rows) -> Figure:
    def homes(row: _core.Row) -> str:
        where = ", ".join(f"{name} in {rows.node(row.parameters[name])}" for name in "abc")
        several = len({each.parameters.get("threads") for each in rows.rows}) > 1
        return f"{where}, {row.parameters.get('threads', '?')} threads" if several else where

    teams, rows = _teams(rows, "kernel"), of_nodes(rows)
    if not rows.rows:
        return Figure("STREAM's kernels", "Counted as STREAM counts.", teams)
    points = [
        point(row, 1e9, bar=row.parameters["kernel"], line=homes(row)) for row in rows.rows
    ]
    points, more = few_lines(points)
    best = rows.best()
    return Figure(
        "STREAM's kernels",
        f"Counted as STREAM counts. The most was {text_of(best)} ({best.parameters['kernel']}, "
        f"{homes(best)}).{more}",
        [("", charts.bars(points, title="GB/s")), *teams],
    )
