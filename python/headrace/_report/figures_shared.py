# SPDX-License-Identifier: Apache-2.0
"""Figures of interference: jobs that use memory at the same time."""

from __future__ import annotations

from typing import Any

from headrace import _core
from headrace._core import format_rate
from headrace._report import charts
from headrace._report.figure import Figure
from headrace._report.rows import (
    Rows,
    behind,
    behind_point,
    few_lines,
    noise_mark,
    spread,
    value,
)


def interference(rows: Rows) -> Figure:
    figure = Figure("Who slows whom")
    all_rows, rows = rows, rows.having(lambda row: "between" not in row.parameters)
    pairs = rows.of(aggressors=1)
    if pairs.rows:
        heading = "times slower than alone: the job of the row while that of the column runs"
        figure.charts.append((heading, _matrix(pairs)))
        worst, mildest = max(pairs.rows, key=value), min(pairs.rows, key=value)
        figure.caption = (
            f"1 is undisturbed, 2 is half as fast. Worst off was {_words(worst, 'victim')} while "
            f"{_words(worst, 'aggressor')} ran: slowed down {value(worst):.3g} times. Least "
            f"disturbed was {_words(mildest, 'victim')} while {_words(mildest, 'aggressor')} ran: "
            f"{value(mildest):.3g} times."
        )
    slowed, left = few_lines(_slowed(rows.having(lambda row: "fairness" not in row.details)))
    if slowed:
        chart = charts.lines(slowed, x_title="others at once", y_title="times slower than alone",
                             x="doubling")  # fmt: skip
        figure.charts.append(("slowed down by more and more others", chart))
        figure.caption += left
    equal = rows.having(lambda row: "fairness" in row.details)
    totals, more = few_lines(_totals(equal))
    if totals:
        chart = charts.lines(totals, x_title="equal jobs at once", y_title="GB/s of all",
                             x="doubling")  # fmt: skip
        figure.charts.append(("what equal jobs reach together", chart))
        fair = [_at(row, row.details["fairness"], f"{row.details['fairness']:.3g}")
                for row in equal.rows]  # fmt: skip
        chart = charts.lines(few_lines(fair)[0], x_title="equal jobs at once",
                             y_title="fairness", x="doubling")  # fmt: skip
        figure.charts.append(("how evenly they share it: 1 is evenly (Jain's index)", chart))
        figure.caption += _scaling(equal) + more
    figure.caption += _processes(all_rows.of(between="processes"))
    return figure


def _processes(rows: Rows) -> str:
    """The differences if the jobs are processes, each with its own page tables."""
    told = [
        f"{_words(row, 'victim')} beside {row.parameters['aggressors']} x "
        f"{_words(row, 'aggressor')} {value(row):.3g} times slower "
        f"({row.details['ratio_to_threads']:.3g} of what threads do)"
        for row in rows.rows if "ratio_to_threads" in row.details
    ]  # fmt: skip
    return f" As processes instead of threads: {'; '.join(told)}." if told else ""


def _words(row: _core.Row, role: str) -> str:
    return str(row.parameters[role]).replace(">", " to ")


def _kind(row: _core.Row, role: str) -> str:
    """ "chase" of "chase 0", "copy" of "copy 0>8"."""
    return str(row.parameters[role]).partition(" ")[0]


def _job(rows: Rows, row: _core.Row, role: str) -> str:
    """ "copy 0→8", with the CPUs where they differ."""
    job = str(row.parameters[role]).replace(">", "→")
    name = "cpu_node" if role == "victim" else "aggressor_cpu_node"
    several = len({*rows.values("cpu_node"), *rows.values("aggressor_cpu_node")}) > 1
    return f"{job}, CPUs {row.parameters[name]}" if several else job


def _matrix(rows: Rows) -> Any:
    found = {(_job(rows, row, "victim"), _job(rows, row, "aggressor")): row for row in rows.rows}
    most = max(1.5, *(value(row) for row in rows.rows))
    cells = []
    for victim in dict.fromkeys(pair[0] for pair in found):
        for aggressor in dict.fromkeys(pair[1] for pair in found):
            row = found.get((victim, aggressor))
            cells.append({
                "row": victim, "column": aggressor,
                "text": f"{noise_mark(row)}{value(row):.2f}" if row else "–",
                "words": f"{value(row):.3g} times slower, {behind(row)}" if row else "not measured",
                "shade": max(0.0, (value(row) - 1) / (most - 1)) if row else None,
            })  # fmt: skip
    return charts.heat(cells, color=charts.RED)


def _at(row: _core.Row, y: float, text: str) -> dict[str, Any]:
    count = int(row.parameters["aggressors"]) + 1
    return {
        "x": count, "order": count, "y": y, "low": y, "high": y, "text": text,
        "line": _words(row, "victim"),
    } | behind_point(row)  # fmt: skip


def _slowed(unequal: Rows) -> list[dict[str, Any]]:
    """Rows by number of other jobs, for jobs measured with several numbers."""
    counts: dict[str, list[_core.Row]] = {}
    for row in unequal.rows:
        line = f"{_job(unequal, row, 'victim')} beside {_job(unequal, row, 'aggressor')}"
        counts.setdefault(line, []).append(row)
    return [
        _at(row, value(row), f"{value(row):.3g} times")
        | dict(zip(("low", "high"), spread(row), strict=True))
        | {"line": line, "x": row.parameters["aggressors"], "order": row.parameters["aggressors"]}
        for line, found in counts.items() if len(found) > 1 for row in found
    ]  # fmt: skip


def _totals(equal: Rows) -> list[dict[str, Any]]:
    """Bytes per second of all jobs together; also of one alone, unless its value is a latency."""
    points = []
    for row in equal.rows:
        total = row.details["total"]
        points.append(_at(row, total / 1e9, format_rate(total)))
        chases = _kind(row, "victim") == "chase"
        if row.parameters["aggressors"] == 1 and not chases:
            alone = row.details["alone"]
            points.append(_at(row, alone / 1e9, format_rate(alone)) | {"x": 1, "order": 1})
    return points


def _scaling(equal: Rows) -> str:
    most = max(equal.rows, key=lambda row: row.details["total"])
    least = min(equal.rows, key=lambda row: row.details["fairness"])
    return (
        f" {int(most.parameters['aggressors']) + 1} × {_words(most, 'victim')} together "
        f"reached {format_rate(most.details['total'])}, one alone "
        f"{format_rate(most.details['alone'])}; the least even sharing was "
        f"{least.details['fairness']:.3g} ({_words(least, 'victim')})."
    )
