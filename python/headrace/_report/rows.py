# SPDX-License-Identifier: Apache-2.0
"""The rows of one experiment for its figures: chosen, named, and as a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headrace import _core
from headrace._core import format_rate
from headrace._format import plural, time_text
from headrace._report.figure import Table

#: Largest number of lines that a reader can distinguish in one chart.
MOST_LINES = 8
#: Largest number of rows of a table: with more, a telephone does not open the page.
MOST_ROWS = 2000
Point = dict[str, Any]
#: A node's number. Published rows for several nodes have a text such as "0-7".
Name = int | str
Pair = tuple[Name, Name]


def value(row: _core.Row) -> float:
    return row.median or 0.0


def text_of(row: _core.Row) -> str:
    """ "142 ns", "24.1 GB/s"."""
    return "-" if row.median is None else _amount(row.median, row.unit)


def _amount(number: float, unit: str) -> str:
    if unit == "ns":
        return time_text(number)
    return format_rate(number) if unit == "B/s" else f"{number:.3g} {unit}"


def pair_of(row: _core.Row) -> Pair:
    """The nodes of a row: CPUs and memory, or source and destination."""
    names = ("cpu_node", "memory_node") if "memory_node" in row.parameters else ("from", "to")
    return row.parameters[names[0]], row.parameters[names[1]]


def in_order(nodes: Iterable[Name]) -> list[Name]:
    return sorted(set(nodes), key=lambda node: (isinstance(node, str), node))


def spread(row: _core.Row) -> tuple[float, float]:
    """The error bar of a row: its interval, which a disturbed sample widens less than a standard
    deviation."""
    return row.low or 0.0, row.high or 0.0


def bars_are(intervals: Iterable[str | None]) -> str:
    """A sentence on the bars of rows, by the words of their intervals: "95 %", "range of 3"."""
    kinds = {
        "the range of the samples" if words.startswith("range") else
        "the 95 % interval of the median" for words in intervals if words
    }  # fmt: skip
    return f" Thin bars are {' or '.join(sorted(kinds))}." if kinds else ""


def point(row: _core.Row, scale: float, **more: Any) -> Point:
    """A row as the charts draw it."""
    low, high = spread(row)
    return {
        "y": value(row) / scale, "low": low / scale, "high": high / scale,
        "text": text_of(row), "order": 0, "line": "",
    } | behind_point(row) | more  # fmt: skip


def behind_point(row: _core.Row) -> Point:
    """The evidence behind a number, for charts."""
    return {"noisy": "noisy" in row.flags, "behind": behind(row)}


def behind(row: _core.Row) -> str:
    """ "6 mappings, 95 %: 86 ns to 90 ns, CPUs 0-3, noisy, 40 % in huge pages, unsteady"."""
    low, high = (_amount(each, row.unit) for each in spread(row))
    varies = f", {row.interval}: {low} to {high}" if len(row.samples) > 1 else ""
    where = f", CPUs {row.cpus}" if row.cpus else ""
    noise = ", noisy" if "noisy" in row.flags else ""
    pages = ""
    if "not_huge" in row.flags:
        pages = f", {100 * row.details.get('huge_part', 0):.0f} % in huge pages"
    steady = ", unsteady" if "unsteady" in row.flags else ""
    return f"{plural(len(row.samples), 'mapping')}{varies}{where}{noise}{pages}{steady}"


def noise_mark(row: _core.Row) -> str:
    """The mark before a noisy number that stands alone."""
    return "~" if "noisy" in row.flags else ""


@dataclass(frozen=True)
class Rows:
    """The rows of one experiment that have a number, and their nodes."""

    rows: list[_core.Row]
    kinds: dict[int, str]  # of the machine's nodes
    tried: tuple[Pair, ...] = ()  # pairs of nodes, those without a number too

    def having(self, condition: Callable[[_core.Row], bool]) -> Rows:
        return replace(self, rows=[row for row in self.rows if condition(row)])

    def of(self, **parameters: int | str) -> Rows:
        return self.having(lambda row: parameters.items() <= row.parameters.items())

    def among(self, pairs: list[Pair]) -> Rows:
        return self.having(lambda row: pair_of(row) in pairs)

    def values(self, parameter: str) -> list[Any]:
        """The different values of a parameter, in order of appearance."""
        return list(dict.fromkeys(row.parameters[parameter] for row in self.rows))

    def best(self) -> _core.Row:
        return max(self.rows, key=_goodness)

    def kind(self, node: Name) -> str:
        """The kind of a node; for a name of several nodes, the kind of the first."""
        first = re.match("[0-9]+", str(node))
        return self.kinds.get(int(first[0]), "") if first else ""

    def node(self, number: Name) -> str:
        """ "HBM 2", "HBM 8-15"."""
        kind = self.kind(number) or "node"
        return f"{kind.upper() if len(kind) <= 4 and kind != 'node' else kind} {number}"

    def name(self, pair: Pair) -> str:
        """ "CPUs 0, HBM 2", "DRAM 0 to HBM 2", "within DRAM 0"."""
        if any("memory_node" in row.parameters for row in self.rows):
            return f"CPUs {pair[0]}, {self.node(pair[1])}"
        if pair[0] == pair[1]:
            return f"within {self.node(pair[0])}"
        return f"{self.node(pair[0])} to {self.node(pair[1])}"

    def where(self, row: _core.Row, word: str = "") -> str:
        """The name of a row's line: the word, and the nodes if there are several pairs."""
        several = len(self.pairs()) > 1
        parts = [word] if word else []
        return ", ".join([*parts, self.name(pair_of(row))] if several or not parts else parts)

    def pairs(self) -> list[Pair]:
        return list(dict.fromkeys(pair_of(row) for row in self.rows))

    def best_of_pairs(self) -> dict[Pair, _core.Row]:
        best: dict[Pair, _core.Row] = {}
        for row in self.rows:
            pair = pair_of(row)
            if pair not in best or _goodness(row) > _goodness(best[pair]):
                best[pair] = row
        return best

    def telling_pairs(self, most: int) -> list[Pair]:
        """At most `most` pairs: for each two kinds of node the best one, then the worst."""
        if len(self.pairs()) <= most:
            return self.pairs()
        best = self.best_of_pairs()
        firsts: dict[tuple[str, str], Pair] = {}
        lasts: dict[tuple[str, str], Pair] = {}
        # Compare two digits, then the order, so that noise does not choose.
        for pair in sorted(best, key=lambda p: (-float(f"{_goodness(best[p]):.1e}"), str(p))):
            kinds = (self.kind(pair[0]), self.kind(pair[1]))
            firsts.setdefault(kinds, pair)
            lasts[kinds] = pair
        return list(dict.fromkeys([*firsts.values(), *lasts.values()]))[:most]

    def left_out(self, shown: list[Pair]) -> str:
        """A sentence about the pairs that are not drawn."""
        if len(shown) == len(self.pairs()):
            return ""
        return (
            f" Drawn are {len(shown)} of {len(self.pairs())} pairs of nodes: of each two kinds "
            "the best, then the worst; the table has all."
        )


def _goodness(row: _core.Row) -> float:
    return value(row) if row.unit == "B/s" else -value(row)


def few_lines(points: list[Point], first: str = "") -> tuple[list[Point], str]:
    """Points of at most MOST_LINES lines: lines marked "first", which `first` names, then the
    highest ones. Then a sentence about the others."""
    reach: dict[str, tuple[bool, float]] = {}
    for each in points:
        marked, y = reach.get(each["line"], (False, 0.0))
        reach[each["line"]] = (marked or each.get("first", False), max(y, each["y"]))
    order = sorted(reach, key=lambda line: (not reach[line][0], -reach[line][1]))
    if len(order) <= MOST_LINES:
        return points, ""
    kept = order[:MOST_LINES]
    words = f"{first}, then " if first else ""
    return [each for each in points if each["line"] in kept], (
        f" A chart has at most {MOST_LINES} lines: {words}those that reach highest; the table has "
        "all."
    )


def table(rows: list[_core.Row]) -> Table:
    """A folded table of all fields of the rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row.parameters))
    details = list(dict.fromkeys(name for row in rows for name in row.details))
    words = list(dict.fromkeys(name for row in rows for name in row.words))
    cpus = any(row.cpus for row in rows)
    lines = []
    for row in rows[:MOST_ROWS]:
        unit = 1e9 if row.unit == "B/s" else 1
        lines.append([
            *(str(row.parameters.get(name, "")) for name in columns),
            text_of(row),
            f"{(row.low or 0) / unit:.4g} to {(row.high or 0) / unit:.4g}, {row.interval}",
            str(len(row.samples) or ""),
            *([row.cpus] if cpus else []),
            *(f"{row.details[name]:.4g}" if name in row.details else "" for name in details),
            *(row.words.get(name, "") for name in words),
            " ".join([*(["emulated"] if row.basis == "emulated" else []), *row.flags]),
        ])  # fmt: skip
    head = [
        *columns, "median", "interval", "n", *(["CPUs"] if cpus else []), *details, *words, "",
    ]  # fmt: skip
    more = f", the first {MOST_ROWS} of them; the document has all" if len(rows) > MOST_ROWS else ""
    return Table(head, lines, plural(len(rows), "row") + more)
