# SPDX-License-Identifier: Apache-2.0
"""Figures of movement between memories: copies, and migration of pages."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace import _core
from headrace._core import format_bytes
from headrace._format import plural, time_text
from headrace._report import charts
from headrace._report.figure import Figure, Table
from headrace._report.movement import bounds
from headrace._report.movement.bounds import Bounds
from headrace._report.rows import (
    Pair,
    Rows,
    behind_point,
    few_lines,
    point,
    text_of,
    value,
)

#: Details that show how a program feels a move of pages that it uses: the time until the first page
#: is there, and the time of single accesses.
_FELT = {
    "first_batch_ns": "first page", "stall_p50_ns": "half", "stall_p99_ns": "99 %",
    "stall_max_ns": "slowest",
}  # fmt: skip


def copy(rows: Rows, known: Bounds) -> Figure:
    figure = Figure("Copying from memory to memory")
    pairs = rows.telling_pairs(4)
    more, unknown = "", []
    cold = "cold, neither side in a cache"
    for state, pair, words in [
        *(("cold", pair, cold) for pair in pairs),
        ("hot", rows.pairs()[0], "hot, both sides in a cache"),
    ]:
        chosen = rows.of(state=state).among([pair])
        points, left = few_lines(_copy_points(chosen), "cpu and memcpy")
        if points:
            where = f"{rows.name(pair)}; " if len(rows.pairs()) > 1 else ""
            bound = known.between(pair) if state == "cold" else None
            if state == "cold" and bound is None:
                unknown.append(rows.name(pair))
            level, told = bounds.line(bound, points)
            chart = charts.lines(points, x_title="bytes of one copy", y_title="GB/s", x="bytes",
                                 level=level)  # fmt: skip
            figure.charts.append((where + words + told, chart))
            more = more or left
    _over_cores(figure, rows, known)
    best = rows.best()
    p = best.parameters
    figure.caption = (
        f"× is the number of threads{_divided_words(rows)}. The most was {text_of(best)} "
        f"({_copier(best)}, {format_bytes(int(p['bytes']))}, {p['state']}, {rows.where(best)})."
        f"{more}{rows.left_out(pairs)}{bounds.sentence(figure, unknown)}"
    )
    return figure


def _over_cores(figure: Figure, rows: Rows, known: Bounds) -> None:
    """One copy divided among more and more cores, for the first pair with such rows."""
    divided = rows.having(lambda row: "work" in row.parameters)
    pairs = divided.pairs() if divided.rows else []
    if not pairs:
        return
    pair = pairs[0]
    own = divided.among([pair])
    sizes = {(row.parameters["engine"], row.parameters["bytes"]) for row in own.rows}
    alone = rows.among([pair]).of(state="cold", threads=1).having(
        lambda row: (row.parameters["engine"], row.parameters["bytes"]) in sizes
    )  # fmt: skip
    points = [
        point(row, 1e9, x=row.parameters["threads"], order=row.parameters["threads"],
              line=f"{row.parameters['engine']}, {format_bytes(int(row.parameters['bytes']))}",
              first=row.parameters["engine"] == "cpu")
        for row in (*alone.rows, *own.rows)
    ]  # fmt: skip
    points, _ = few_lines(points, "cpu")
    level, told = bounds.line(known.between(pair), points)
    chart = charts.lines(points, x_title="cores that make one copy together", y_title="GB/s",
                         x="doubling", level=level)  # fmt: skip
    figure.charts.append((f"{rows.name(pair)}: one copy divided among cores{told}", chart))


def _copy_points(rows: Rows) -> list[dict[str, Any]]:
    return [
        point(row, 1e9, x=row.parameters["bytes"], order=row.parameters["bytes"],
              line=_copier(row), first=row.parameters["engine"] in ("cpu", "memcpy"))
        for row in rows.rows
    ]  # fmt: skip


def _copier(row: _core.Row) -> str:
    """ "cpu × 8", and "cpu × 8, divided" where all threads make one copy."""
    divided = ", divided" if row.parameters.get("work") == "divided" else ""
    return f"{row.parameters['engine']} × {row.parameters['threads']}{divided}"


def _divided_words(rows: Rows) -> str:
    if not any("work" in row.parameters for row in rows.rows):
        return ""
    return ", each with copies of its own; divided: all of them make one copy together"


def migrate(rows: Rows, known: Bounds) -> Figure:
    figure = Figure("Moving pages to another node")
    rows = _of_one_size(rows)
    pairs = rows.telling_pairs(3)
    fewest = min(map(_threads, rows.rows))
    for pair in pairs:
        points = [
            point(row, 1e9, bar=_way(row), line=f"{row.parameters['pages']} pages")
            for row in rows.among([pair]).rows
            if _threads(row) == fewest
        ]
        if points:
            level, told = bounds.line(known.between(pair), points)
            heading = f"{rows.name(pair)}: how fast {plural(fewest, 'CPU')} can move them{told}"
            bars = [each | {"bound": level} for each in points]
            figure.charts.append((heading, charts.bars(bars, title="GB/s")))
    # The first pair drawn stands for the others: stalls and gains depend on the method.
    more = _with_more_cpus(figure, rows.among(pairs[:1]), known)
    felt = rows.among(pairs[:1]).having(lambda row: _threads(row) == fewest)
    for pages in felt.values("pages"):
        marks = _felt(felt.of(pages=pages))
        if marks:
            heading = f"{rows.name(pairs[0])}, {pages} pages: when the first page is there, and "
            heading += "how long half, 99 % and all accesses by others take meanwhile"
            figure.charts.append((heading, charts.times(marks, title="time")))
    figure.tables.append(_places(rows.among(pairs)))
    best = rows.best()
    figure.caption = (
        f"× is the number of pages in a call{_size(rows)}. The fastest way moved {text_of(best)} "
        f"({_way(best)}, {best.parameters['pages']} pages, {plural(_threads(best), 'CPU')}, "
        f"{rows.where(best)})."
        f"{_stall(rows)}{_trade_off(rows)}{more}{rows.left_out(pairs)}"
        + bounds.sentence(figure, [rows.name(p) for p in pairs if known.between(p) is None])
    )
    return figure


def _of_one_size(rows: Rows) -> Rows:
    """Rows of the size with the most rows. Older versions had one size and did not name it."""
    counts = Counter(row.parameters.get("bytes") for row in rows.rows)
    size = counts.most_common(1)[0][0]
    return rows.having(lambda row: row.parameters.get("bytes") == size)


def _size(rows: Rows) -> str:
    size = rows.rows[0].parameters.get("bytes")
    return "" if size is None else f" of {format_bytes(int(size))} in all"


def _with_more_cpus(figure: Figure, rows: Rows, known: Bounds) -> str:
    """Draws rates over the number of CPUs that move pages at once, if there are several numbers."""
    points = [
        point(row, 1e9, x=_threads(row), order=_threads(row),
              line=f"{_way(row)}, {row.parameters['pages']}",
              first=_way(row) in ("move_pages × 512", "copy"))
        for row in rows.rows
    ]  # fmt: skip
    if len({each["x"] for each in points}) < 2:
        return ""
    points, more = few_lines(points, "move_pages × 512 and copy")
    pair = rows.pairs()[0]
    level, told = bounds.line(known.between(pair), points)
    chart = charts.lines(points, x_title="CPUs that move at once", y_title="GB/s", x="doubling",
                         level=level)  # fmt: skip
    figure.charts.append((f"{rows.name(pair)}: with more CPUs{told}", chart))
    return more


def _threads(row: _core.Row) -> int:
    """The number of CPUs that move pages; older versions used one."""
    return int(row.parameters.get("threads", 1))


def _way(row: _core.Row) -> str:
    batch = row.parameters["batch"]
    if batch == "all":
        return str(row.parameters["method"])
    return f"{row.parameters['method']} × {batch}"


def _felt(rows: Rows) -> list[dict[str, Any]]:
    return [
        {"bar": _way(row), "line": words, "x": row.details[name],
         "text": time_text(row.details[name])} | behind_point(row)
        for row in rows.rows
        for name, words in _FELT.items()
        if row.details.get(name, 0) > 0
    ]  # fmt: skip


def _stall(rows: Rows) -> str:
    worst = max(rows.rows, key=lambda row: row.details.get("stall_max_ns", 0))
    if "stall_max_ns" not in worst.details:
        return ""
    return (
        " A thread that used the pages meanwhile waited at worst "
        f"{time_text(worst.details['stall_max_ns'])} for one access ({_way(worst)})."
    )


def _trade_off(rows: Rows) -> str:
    """The cost of keeping addresses during a move, beside copies to new memory of the same nodes.

    If the kernel's migration was measured, its rate counts, since it needs no help of the program.
    Otherwise the program remaps its own pages."""
    for pair in rows.telling_pairs(1):
        for pages in rows.values("pages"):
            both = rows.among([pair]).of(pages=pages)
            new, kernel = both.of(method="copy"), both.having(_by_kernel)
            kept = kernel.rows or both.of(method="remap").rows
            if new.rows and kept:
                return _compared(new.best(), max(kept, key=value))
    return ""


def _by_kernel(row: _core.Row) -> bool:
    return row.parameters["method"] in ("move_pages", "mbind")


def _compared(new: _core.Row, kept: _core.Row) -> str:
    text = f" Copying {new.parameters['pages']} pages to a new address moved {text_of(new)}, "
    best = f"the best way that keeps the address ({_way(kept)}, {text_of(kept)})"
    if (new.low or 0) <= (kept.high or 0) and (kept.low or 0) <= (new.high or 0):
        return (
            f"{text}which cannot be told apart from {best}: it does not pay to change every "
            "pointer for it."
        )
    return (
        f"{text}{value(new) / (value(kept) or 1):.2f} × as much as {best}; the price is that the "
        "program must change every pointer."
    )


def _places(rows: Rows) -> Table:
    """Migration in place against copies to a new address, for each pair of nodes and page size."""
    lines: list[list[str]] = []
    for pair in rows.pairs():
        for pages in rows.values("pages"):
            for way, row in _best_ways(rows, pair, pages).items():
                lines.append([
                    f"{rows.name(pair)}, {pages}", _way(row), str(_threads(row)),
                    "new" if way == "copy" else "stays", text_of(row), _copying(row),
                    *(time_text(row.details[name]) if name in row.details else ""
                      for name in ("first_batch_ns", "stall_p99_ns", "stall_max_ns")),
                ])  # fmt: skip
    head = ["nodes, pages", "way", "CPUs", "address", "rate", "of it copying", "first page there",
            "access, p99", "access, slowest"]  # fmt: skip
    return Table(head, lines, "Moving in place against copying to a new address")


def _copying(row: _core.Row) -> str:
    """Share of the time in which the same CPUs would copy as much to existing pages."""
    share = row.details.get("copy_share")
    return "" if share is None else f"{100 * share:.0f} %"


def _best_ways(rows: Rows, pair: Pair, pages: str) -> dict[str, _core.Row]:
    chosen = rows.among([pair]).of(pages=pages)
    return {method: chosen.of(method=method).best() for method in chosen.values("method")}
