# SPDX-License-Identifier: Apache-2.0
"""Upper bounds of movements between two memories, from measured peaks of each memory.

Between two memories the bound is min(peak of source, peak of destination), after "Memory Bandwidth
& Migration Performance" (blog post), which shows it for HBM and DRAM: no movement is faster than
its slower memory. The peaks are from the rows of `bandwidth`: the highest rate at which CPUs of any
node `read` the source, or wrote past the caches (`nt_write`) to the destination. Within one memory
both directions share the bandwidth, so the lower of two separate peaks is too high. There the bound
is the highest rate of a loop that reads and writes like a copy (`nt_copy` or `copy`, whose value
counts each byte once).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace import _core
from headrace._core import format_rate
from headrace._format import listed
from headrace._report.figure import Figure
from headrace._report.rows import Name, Pair, Point, Rows, noise_mark, value

#: Largest ratio of a drawn bound to the highest point.
_FARTHEST = 8
#: Traffic mixes that equal a copy within one memory.
_BOTH_WAYS = ("nt_copy", "copy")


@dataclass(frozen=True)
class Peak:
    """The peak of one side of a movement."""

    rate: float
    words: str  # "read of DRAM 0 by CPUs 0 × 8"


@dataclass(frozen=True)
class Bounds:
    """Bounds of movements, from the rows of `bandwidth`. Without such rows, no bound is known."""

    bandwidth: Rows

    def between(self, pair: Pair) -> Peak | None:
        """The bound of a movement between the pair; None: unknown."""
        if pair[0] == pair[1]:
            return self.peak(pair[0], *_BOTH_WAYS)
        return least(self.peak(pair[0], "read"), self.peak(pair[1], "nt_write"))

    def has_memory(self, node: Name) -> bool:
        """Whether CPUs can read and write it."""
        return self.bandwidth.kind(node) in ("dram", "hbm", "cxl")

    def peak(self, memory: Name, *mixes: str) -> Peak | None:
        """The peak of a memory by the CPUs of any node; if it has none, of the memory that was
        measured for it."""
        peaks = self.bandwidth.having(
            lambda row: "on" not in row.parameters and row.parameters.get("mix") in mixes
        )
        own = peaks.having(lambda row: row.parameters.get("memory_node") == memory)
        found = own.rows or peaks.having(lambda row: _stands_for(row, memory)).rows
        if not found:
            return None
        best = max(found, key=value)
        p = best.parameters
        alike = "" if own.rows else ", its like"
        return Peak(
            value(best),
            f"{noise_mark(best)}{p['mix']} of {self.bandwidth.node(p['memory_node'])}{alike} by "
            f"CPUs {p['cpu_node']} × {p['threads']}",
        )


def _stands_for(row: _core.Row, memory: Name) -> bool:
    """Whether the row stands for alike pairs of nodes, one of them with this memory."""
    return any(f"memory_node={memory}" in pair.split() for pair in row.stands_for)


def least(*peaks: Peak | None) -> Peak | None:
    """The lowest peak, which bounds a movement; None if one of the peaks is unknown."""
    known = [peak for peak in peaks if peak is not None]
    return min(known, key=lambda peak: peak.rate) if len(known) == len(peaks) else None


def line(bound: Peak | None, points: Iterable[Point]) -> tuple[float | None, str]:
    """The line's value in a chart of these points in GB/s, and the end of its heading: "; dashed:
    200 GB/s, read of DRAM 0 by CPUs 0 × 12". A bound far beyond the points has no line, because it
    would press them to the axis."""
    if bound is None:
        return None, ""
    told = f"{format_rate(bound.rate)}, {bound.words}"
    if bound.rate / 1e9 > _FARTHEST * max((point["high"] for point in points), default=0.0):
        return None, f"; far beyond: {told}"
    return bound.rate / 1e9, f"; dashed: {told}"


def sentence(figure: Figure, unknown: Iterable[str]) -> str:
    """The caption's text on the lines in the headings, and on movements without such a line."""
    missing = list(dict.fromkeys(unknown))
    text = ""
    if any("; dashed: " in told or "; far beyond: " in told for told, _ in figure.charts):
        text = (
            " Dashed is the most that the memories allow: the lesser of the peaks of source (read) "
            "and destination (nt_write), within one memory that of a loop that reads and writes, "
            "each by the CPUs that reached most."
        )
    if missing:
        text += f" No bound is known of {listed(missing)}: not both peaks are known."
    return text
