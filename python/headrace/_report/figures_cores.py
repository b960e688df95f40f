# SPDX-License-Identifier: Apache-2.0
"""Figures of cores: parallel loads, transfers of cache lines, reads split over memories."""

from __future__ import annotations

from headrace import _core
from headrace._core import format_rate
from headrace._format import time_text
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.rows import (
    Pair,
    Rows,
    behind,
    few_lines,
    noise_mark,
    point,
    text_of,
    value,
)

_APART = {
    "core": "threads of one core", "cache": "CPUs of one cache", "node": "CPUs of one node",
    "socket": "CPUs of one socket", "far": "CPUs of different sockets",
}  # fmt: skip


def parallelism(rows: Rows) -> Figure:
    pairs = rows.telling_pairs(6)
    points = [
        point(row, 1, x=row.parameters["chains"], order=row.parameters["chains"],
              line=rows.name(_nodes(row)))
        for row in rows.among(pairs).rows if row.parameters["chains"] != 0
    ]  # fmt: skip
    best = max(rows.rows, key=lambda row: row.details["speedup"])
    figure = Figure(
        "How many loads a core has under way",
        f"One core follows several chains in turn, through memory in random order. At best a load "
        f"took {text_of(best)}, {best.details['speedup']:.3g} times shorter than with one chain "
        f"({best.parameters['chains']} chains, {rows.name(_nodes(best))}): "
        f"{format_rate(best.details['bandwidth'])} of lines in random order.{rows.left_out(pairs)}",
    )
    if points:
        chart = charts.lines(points, x_title="chains", y_title="ns per load", x="doubling")
        figure.charts.append(("", chart))
    return figure


def _nodes(row: _core.Row) -> Pair:
    return row.parameters["cpu_node"], row.parameters["memory_node"]


def core_to_core(rows: Rows) -> Figure:
    figure = Figure("How long a cache line takes from CPU to CPU")
    figure.charts.append(("ns, half a round trip", _matrix(rows)))
    words = []
    for apart in dict.fromkeys([*_APART, *rows.values("apart")]):
        alike = rows.of(apart=apart).rows
        if alike:
            least, most = min(map(value, alike)), max(map(value, alike))
            span = time_text(least) if least == most else f"{least:.3g} to {time_text(most)}"
            words.append(f"{_APART.get(apart, apart)} {span}")
    pairs = sum(row.details["pairs"] for row in rows.rows)
    more = f" The pairs stand for {pairs:.0f}." if pairs > len(rows.rows) else ""
    figure.caption = f"A line goes from one CPU to another: {', '.join(words)}.{more}"
    return figure


def _matrix(rows: Rows) -> charts.Picture:
    """A cell for each two CPUs, on both sides of the diagonal."""
    found = {(row.parameters["cpu"], row.parameters["other_cpu"]): row for row in rows.rows}
    least = min(map(value, rows.rows))
    span = max(map(value, rows.rows)) - least
    cpus = sorted({cpu for pair in found for cpu in pair})
    cells = []
    for one in cpus:
        for other in cpus:
            row = found.get((one, other)) or found.get((other, one))
            if row is None and one == other:
                words = "itself"
            else:
                words = f"{text_of(row)}, {behind(row)}" if row else "not measured"
            cells.append({
                "row": f"CPU {one}", "column": str(other),
                "text": f"{noise_mark(row)}{value(row):.3g}" if row else "–", "words": words,
                "shade": ((value(row) - least) / span if span else 1.0) if row else None,
            })  # fmt: skip
    return charts.heat(cells, x_title="CPU")


def split(rows: Rows) -> Figure:
    def memories(row: _core.Row) -> str:
        p = row.parameters
        one, other = rows.node(p["memory_node"]), rows.node(p["other_memory_node"])
        return f"CPUs {p['cpu_node']}, {one} : {other}"

    points, more = few_lines([
        point(row, 1e9, bar=row.parameters["ratio"], line=memories(row)) for row in rows.rows
    ])  # fmt: skip
    best = rows.best()
    return Figure(
        "Reads split over two memories",
        f"All CPUs of a node read pages of two memories in turn, in the ratio below each bar. "
        f"The most was {text_of(best)} at {best.parameters['ratio']} "
        f"({memories(best)}).{more}",
        [("by pages of the one to pages of the other", charts.bars(points, title="GB/s"))],
    )
