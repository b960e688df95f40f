# SPDX-License-Identifier: Apache-2.0
"""Engines side by side: rates between the same two memories, and CPU seconds per GB."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace import _core
from headrace._core import format_bytes
from headrace._format import listed, time_text
from headrace._profile import dsa_rows
from headrace._report import charts
from headrace._report.conditions import rests_on_rows
from headrace._report.figure import Figure, Table
from headrace._report.movement import bounds
from headrace._report.movement.bounds import Bounds
from headrace._report.rows import (
    Pair,
    Point,
    Rows,
    behind_point,
    few_lines,
    noise_mark,
    pair_of,
    point,
    text_of,
    value,
)

#: Copies by cores: glibc's, and Headrace's, which bypass the caches.
_CORES = ("memcpy", "cpu")
#: The detail with CPU seconds per GB.
_COST = "cpu_s_per_gb"
#: Size of the copies in the table of costs: a mover's usual piece.
_USUAL = 1 << 20
#: First words of ways that the table of costs lists but its chart leaves out: variants of a way.
_FOLDED = (
    "mbind", "remap", "copy", "DSA, batch", "DSA, write()", "SSD, read by threads",
    "SSD, write by threads", "GPU, to it by kernel", "GPU, from it by kernel",
)  # fmt: skip
#: Text for each basis other than a measurement of hardware.
_BASES = {"emulated": ", emulated", "published": ", published"}


@dataclass(frozen=True)
class _Way:
    """A row as a way to move bytes between two memories."""

    row: _core.Row
    kind: str  # "cores", "DSA", "pages"
    line: str
    size: int  # of one copy, or of what is moved

    @property
    def pair(self) -> Pair:
        return pair_of(self.row)


def side_by_side(of: dict[str, Rows], known: Bounds) -> Figure | None:
    """Rates over size: copies by cores and by DSA, and pages moved by the kernel. None if there is
    nothing to compare with cores."""
    ways = [*_by_cores(of.get("copy")), *_by_dsa(of.get("dsa")), *_by_kernel(of.get("migrate"))]
    figure = Figure("Ways from memory to memory, side by side")
    names = known.bandwidth
    unknown, told, more = [], [], ""
    drawn: list[_Way] = []
    for pair in _pairs(ways):
        own = [way for way in ways if way.pair == pair]
        points, left = few_lines([_point(way) for way in own], "memcpy, cpu, DSA and move_pages")
        more = more or left
        bound = known.between(pair)
        if bound is None:
            unknown.append(_name(names, pair))
        level, words = bounds.line(bound, points)
        figure.charts.append((_name(names, pair) + words, charts.lines(
            points, x_title="bytes copied at once, or moved", y_title="GB/s", x="bytes",
            level=level)))  # fmt: skip
        told.append(f"{_name(names, pair)}: {_most(own)}")
        drawn += own
    if not figure.charts:
        return None
    figure.caption = (
        "× is the number of threads; memcpy is glibc's, cpu is Headrace's copy, which passes the "
        "caches where it is large; neither side is cached. move_pages keeps the address, the "
        f"others do not. The most of each: {'; '.join(told)}.{more}"
        f"{bounds.sentence(figure, unknown)}"
        + rests_on_rows([way.row for way in drawn], spread_drawn=True)
    )
    return figure


def _by_cores(rows: Rows | None) -> Iterator[_Way]:
    """Cold copies by one thread and by the most threads. With most threads, a copy that all share
    is preferred."""
    cold = rows.having(lambda row: row.parameters["state"] != "hot").rows if rows else []
    most: dict[Pair, int] = {}
    for row in cold:
        threads = row.parameters["threads"]
        if isinstance(threads, int):
            most[pair_of(row)] = max(most.get(pair_of(row), 1), threads)
    for row in cold:
        p = row.parameters
        if p["engine"] not in _CORES:
            if str(p["engine"]).startswith("dsa"):  # as what others published has it
                line = str(p["engine"]).replace("dsa", "DSA") + _BASES.get(row.basis, "")
                yield _Way(row, "DSA", line, int(p["bytes"]))
        elif p["threads"] in (1, most.get(pair_of(row))):
            shared = ", one copy divided" if p.get("work") == "divided" else ""
            yield _Way(row, "cores", f"{p['engine']} × {p['threads']}{shared}", int(p["bytes"]))


def _by_dsa(rows: Rows | None) -> Iterator[_Way]:
    for row in rows.rows if rows else []:
        p = row.parameters
        told = _BASES.get(row.basis, "")
        if p["part"] == "submission" and p["method"] == "single":
            yield _Way(row, "DSA", f"DSA{told}", int(p["bytes"]))
        elif p["part"] == "route":
            yield _Way(row, "DSA", f"DSA, {p['route']}{told}", int(p["bytes"]))


def _by_kernel(rows: Rows | None) -> Iterator[_Way]:
    """Rows of move_pages with the fewest CPUs and the largest calls, over the bytes moved. If rows
    do not have these, over the bytes of a call."""
    moved = rows.of(method="move_pages").rows if rows else []
    fewest = min((row.parameters.get("threads", 1) for row in moved), default=1)
    largest = max((_batch(row) for row in moved if "bytes" in row.parameters), default=0)
    for row in moved:
        p = row.parameters
        size = _size_of(row)
        if "bytes" in p and _batch(row) < largest:
            continue
        if size and p.get("threads", 1) == fewest:
            yield _Way(row, "pages", f"move_pages, {p['pages']} pages × {fewest}", size)


def _batch(row: _core.Row) -> float:
    """Pages of a call."""
    batch = row.parameters["batch"]
    return batch if isinstance(batch, int) else math.inf


def _of_one_call(row: _core.Row) -> int | None:
    """Bytes of a call. The page size follows from the rate and the time of a page. None: unknown.
    """
    batch = row.parameters["batch"]
    page = value(row) * row.details.get("per_page_ns", 0.0) / 1e9
    if not isinstance(batch, int) or page < 1:
        return None
    return int(batch) << round(math.log2(page))


def _pairs(ways: list[_Way]) -> list[Pair]:
    """At most two pairs: one between memories and one within a memory, each the first with the most
    kinds of engines."""
    kinds: dict[Pair, set[str]] = {}
    lines: dict[Pair, set[str]] = {}
    for way in ways:
        kinds.setdefault(way.pair, set()).add(way.kind)
        lines.setdefault(way.pair, set()).add(way.line)
    several = {pair: found for pair, found in kinds.items()
               if found != {"cores"} and len(lines[pair]) > 1}  # fmt: skip
    chosen = []
    for within in (False, True):
        own = [pair for pair in several if (pair[0] == pair[1]) == within]
        if own:
            chosen.append(max(own, key=lambda pair: len(several[pair])))
    return chosen


def _point(way: _Way) -> Point:
    first = way.kind != "cores" or way.line.split()[0] in _CORES
    return point(way.row, 1e9, x=way.size, order=way.size, line=way.line, first=first)


def _name(names: Rows, pair: Pair) -> str:
    if pair[0] == pair[1]:
        return f"within {names.node(pair[0])}"
    return f"{names.node(pair[0])} to {names.node(pair[1])}"


def _most(ways: list[_Way]) -> str:
    """ "cpu × 8 105 GB/s, DSA, published 31.5 GB/s and ...": the fastest of each kind."""
    best: dict[str, _Way] = {}
    for way in ways:
        if way.kind not in best or value(way.row) > value(best[way.kind].row):
            best[way.kind] = way
    return listed([
        f"{way.line} {noise_mark(way.row)}{text_of(way.row)} ({format_bytes(way.size)})"
        for way in best.values()
    ])  # fmt: skip


def costs(of: dict[str, Rows]) -> Figure | None:
    """CPU seconds per GB by engine, in copies of about a MiB; None if no row has this detail."""
    chosen: dict[str, tuple[str, _core.Row]] = {}
    for name, words in _COSTLY.items():
        for row in of[name].rows if name in of else []:
            if _COST not in row.details or row.unit != "B/s" or (way := words(row)) is None:
                continue
            if way not in chosen or _fitness(row) > _fitness(chosen[way][1]):
                chosen[way] = (name, row)
    if not chosen:
        return None
    drawn = [way for way in chosen if not way.startswith(_FOLDED)]
    figure = Figure("What a GB costs the cores", _cost_words(chosen))
    bars = [_cost_bar(way, chosen[way][1]) for way in drawn or chosen]
    figure.charts.append(("", charts.bars(bars, title="seconds of cores for each GB")))
    figure.tables.append(_cost_table(of, chosen))
    return figure


def _cost_words(chosen: dict[str, tuple[str, _core.Row]]) -> str:
    cost = {way: row.details[_COST] for way, (_, row) in chosen.items()}
    least, most = min(cost, key=lambda way: cost[way]), max(cost, key=lambda way: cost[way])
    return (
        "CPU time of all threads that submit, copy and wait, for each GB, of each engine at its "
        f"fastest with copies of about 1 MiB: least {_seconds(cost[least])} ({least}), most "
        f"{_seconds(cost[most])} ({most}). What interrupts and other threads of the kernel spend "
        "is not in it. The table has all, and how many cores that keeps busy."
    )


def _fitness(row: _core.Row) -> tuple[float, float]:
    """Sort key: nearest to the usual size, then fastest."""
    size = _size_of(row)
    return -abs(math.log2(size / _USUAL)) if size else -math.inf, value(row)


def _size_of(row: _core.Row) -> int | None:
    """Bytes of one copy, or of all pages moved; if the rows do not say, bytes of one call."""
    size = row.parameters.get("bytes")
    if isinstance(size, int) and size > 0:
        return size
    return _of_one_call(row) if "batch" in row.parameters else None


def _of_copy(row: _core.Row) -> str | None:
    p = row.parameters
    if p["engine"] not in _CORES or p["state"] == "hot":
        return None
    divided = ", divided" if p.get("work") == "divided" else ""
    return f"{p['engine']}, {'1 thread' if p['threads'] == 1 else 'several threads'}{divided}"


def _of_dsa(row: _core.Row) -> str | None:
    p = row.parameters
    return f"DSA, {dsa_rows.way(p)}" if p["part"] == "submission" else None


def _of_migrate(row: _core.Row) -> str | None:
    return f"{row.parameters['method']}, {row.parameters['pages']} pages"


def _of_storage(row: _core.Row) -> str | None:
    p = row.parameters
    return f"SSD, {p['operation']} by {p['by']}" if p["io"] == "direct" else None


def _of_gpu(row: _core.Row) -> str | None:
    p = row.parameters
    if p.get("direction") not in ("to_gpu", "from_gpu") or p.get("part") != "copy":
        return None
    direction = "to" if p["direction"] == "to_gpu" else "from"
    return f"GPU, {direction} it by {p['by']}, {p['memory']}"


#: Functions that make ways from the rows of an experiment; None: another row has it.
_COSTLY: dict[str, Any] = {
    "copy": _of_copy, "dsa": _of_dsa, "migrate": _of_migrate, "storage": _of_storage,
    "gpu": _of_gpu,
}  # fmt: skip


def _cost_bar(way: str, row: _core.Row) -> Point:
    cost = row.details[_COST]
    return {"bar": way, "line": "", "y": cost, "low": cost, "high": cost,
            "text": _seconds(cost)} | behind_point(row)  # fmt: skip


def _seconds(cost: float) -> str:
    return time_text(cost * 1e9)


def _cost_table(of: dict[str, Rows], chosen: dict[str, tuple[str, _core.Row]]) -> Table:
    lines = []
    for way, (name, row) in chosen.items():
        p = row.parameters
        nodes = of[name].name(pair_of(row)) if "from" in p else ""
        size = _size_of(row)
        busy = row.details[_COST] * value(row) / 1e9
        lines.append([
            way, nodes, format_bytes(size) if size else "",
            noise_mark(row) + text_of(row), _seconds(row.details[_COST]), f"{busy:.2g}",
        ])  # fmt: skip
    head = ["engine", "nodes", "one copy", "rate", "cores' time for a GB", "cores kept busy"]
    return Table(head, lines)
