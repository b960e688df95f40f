# SPDX-License-Identifier: Apache-2.0
"""Figures of GPUs: copies to, from and between them, submission of small copies, latencies,
pinning."""

from __future__ import annotations

from headrace import _core
from headrace._core import format_bytes
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.movement import bounds
from headrace._report.movement.bounds import Bounds, Peak
from headrace._report.rows import Rows, few_lines, point, text_of, value

_DIRECTIONS = {
    "to_gpu": "to the GPU", "from_gpu": "from the GPU", "both": "to and from at once",
    "inside": "inside the GPU", "across": "to another GPU",
}  # fmt: skip


def gpu(rows: Rows, known: Bounds) -> Figure:
    figure = Figure("GPUs")
    more, unknown = "", []
    sized = rows.having(lambda row: "bytes" in row.parameters and "count" in row.parameters)
    copies, batches = sized.of(part="copy"), sized.of(part="batch")
    for direction in copies.values("direction"):
        of_direction = copies.of(direction=direction)
        points, left = few_lines([
            point(row, 1e9, x=row.parameters["bytes"], order=row.parameters["bytes"],
                  line=_line(of_direction, row))
            for row in of_direction.rows
        ])  # fmt: skip
        words = _DIRECTIONS.get(direction, direction)
        bound = _bound(known, of_direction, copies.of(direction="inside"))
        if bound is None:
            unknown.append(f"copies {words}")
        level, told = bounds.line(bound, points)
        picture = charts.lines(points, x_title="bytes of one copy", y_title="GB/s", x="bytes",
                               level=level)  # fmt: skip
        figure.charts.append((words + told, picture))
        more = more or left
    for direction in batches.values("direction"):
        of_direction = batches.of(direction=direction)
        points, left = few_lines([
            point(row, 1, x=row.parameters["count"], order=row.parameters["count"],
                  line=f"{_size(row)}, {_line(of_direction, row)}")
            for row in of_direction.rows
        ])  # fmt: skip
        picture = charts.lines(points, x_title="copies handed over together", x="doubling",
                               y_title="ns for each")  # fmt: skip
        heading = f"handing copies over, {_DIRECTIONS.get(direction, direction)}"
        figure.charts.append((heading, picture))
        more = more or left
    _add_bars(figure, sized.of(part="latency"), "latency of one load", "ns")
    _add_bars(figure, sized.of(part="allocation"), "having pinned memory", "ns for each MiB")
    figure.caption = _caption(rows) + more + bounds.sentence(figure, unknown)
    return figure


def _bound(known: Bounds, rows: Rows, inside: Rows) -> Peak | None:
    """The highest peak of the host memories that the copies use.

    How fast GPU memory is only read or only written is not measured. Copies inside the GPU read and
    write at once, so if they are faster than this peak, host memory is the slower side. None if
    they are not, or if a peak is unknown.
    """
    mix = {"to_gpu": "read", "from_gpu": "nt_write"}.get(str(rows.rows[0].parameters["direction"]))
    peaks = [known.peak(node, mix) for node in rows.values("node")] if mix else []
    found = [peak for peak in peaks if peak is not None]
    if not found or len(found) < len(peaks) or not inside.rows:
        return None
    highest = max(found, key=lambda peak: peak.rate)
    return highest if value(inside.best()) >= highest.rate else None


def _add_bars(figure: Figure, rows: Rows, heading: str, title: str) -> None:
    if rows.rows:
        bars = [
            point(row, 1, line=_size(row),
                  bar=f"{_DIRECTIONS.get(str(row.parameters['direction']), '')}\n"
                      f"{_line(rows, row)}")
            for row in rows.rows
        ]  # fmt: skip
        figure.charts.append((heading, charts.bars(bars, title=title)))


def _size(row: _core.Row) -> str:
    return format_bytes(int(row.parameters["bytes"]))


def _line(rows: Rows, row: _core.Row) -> str:
    """ "engine, pinned, node 1": the mover, the kind of host memory, and its node if there are
    several."""
    p = row.parameters
    words = [str(p["by"]), str(p["memory"])]
    words += [str(name) + f" {p[name]}" for name in ("gpu", "node") if len(rows.values(name)) > 1]
    return ", ".join(words)


def _caption(rows: Rows) -> str:
    emulated = any(row.basis == "emulated" for row in rows.rows)
    text = "Made of software (emulated): no speed here means anything. " if emulated else ""
    found = []
    for direction in rows.of(part="copy").values("direction"):
        best = rows.of(part="copy", direction=direction).best()
        found.append(f"{_DIRECTIONS.get(direction, direction)} at most {text_of(best)}")
    if not found:
        return text + "No copy has a number."
    sentence = "; ".join(found) + "."
    return text + sentence[:1].upper() + sentence[1:]
