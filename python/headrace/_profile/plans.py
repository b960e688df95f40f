# SPDX-License-Identifier: Apache-2.0
"""The plan of a session: the points, their time, and the points left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import headrace
from headrace._format import by_options

_APART = {
    "core": "same core", "cache": "same cache", "node": "same node", "socket": "same socket",
    "far": "far",
}  # fmt: skip
_DISTANCES = {"near": "near", "socket": "same socket", "far": "far", "": ""}


@dataclass
class _Line:
    """Points that are one line of the table."""

    points: int = 0
    pairs: int = 0  # of nodes or CPUs that the points stand for
    seconds: float = 0


def in_words(seconds: float) -> str:
    """ "12.3 s", "4.2 min", "1.3 h"."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def summary(points: Sequence[headrace.PlannedPoint], launches: int) -> str:
    """The number of points, and the rough time."""
    measured = sum(not point.row.reason for point in points)
    times = f", {launches} launches" if launches > 1 else ""
    return f"{measured} points in {in_words(launches * sum(p.time for p in points))}{times}"


HEADINGS = ("experiment", "what", "points", "stand for", "time")


def lines(
    machine: headrace.Machine, points: Sequence[headrace.PlannedPoint], launches: int
) -> list[tuple[str, ...]]:
    """A line for each kind of point to be measured, longest time first."""
    found: dict[tuple[str, str], _Line] = {}
    for point in points:
        if point.row.reason:
            continue
        line = found.setdefault((point.row.experiment, _what(machine, point)), _Line())
        line.points += 1
        alike = [each for each in point.row.stands_for if not each.startswith("on=")]
        line.pairs += len(alike) + int(point.row.details.get("pairs", 1)) - 1
        line.seconds += point.time
    order = list(dict.fromkeys(point.row.experiment for point in points))
    return [
        (experiment, what, str(line.points), str(line.points + line.pairs),
         in_words(launches * line.seconds))
        for (experiment, what), line in sorted(
            found.items(), key=lambda item: (order.index(item[0][0]), -item[1].seconds)
        )
    ]  # fmt: skip


def reasons(points: Sequence[headrace.PlannedPoint]) -> list[str]:
    """Reasons for points that will not be measured, with counts."""
    out: dict[tuple[str, str], int] = {}
    for point in points:
        if point.row.reason:
            key = (point.row.experiment, point.row.reason)
            out[key] = out.get(key, 0) + 1
    return [
        f"{count} of {name} not measured: {by_options(why)}"
        for (name, why), count in out.items()
    ]


def document(
    machine: headrace.Machine, points: Sequence[headrace.PlannedPoint], launches: int
) -> dict[str, Any]:
    """The plan as JSON: points as rows have them."""
    return {
        "schema_version": headrace.SCHEMA_VERSION,
        "machine": machine.name,
        "launches": launches,
        "seconds": launches * sum(point.time for point in points),
        "points": [
            {
                "experiment": point.row.experiment,
                "parameters": point.row.parameters,
                "seconds": launches * point.time,
                "distance": point.distance,
                "stands_for": point.row.stands_for,
                "cpus": point.row.cpus,
                "flags": point.row.flags,
                "reason": point.row.reason,
            }
            for point in points
        ],
    }


def _what(machine: headrace.Machine, point: headrace.PlannedPoint) -> str:
    """Kinds of memory, distance and threads of a point: "dram > hbm, near, 12 threads"."""
    row = point.row.parameters
    every = ("memory_node", "other_memory_node", "from", "to", "a", "b", "c")
    names = [name for name in every if name in row]
    kinds = [_kind(machine, row[name]) for name in names]
    parts = [" > ".join(kinds if len(set(kinds)) > 1 or "from" in names else kinds[:1])]
    parts.append(_DISTANCES[point.distance])
    parts += [str(row[name]) for name in ("placed", "on", "order") if name in row]
    parts.append(_APART.get(str(row.get("apart", "")), ""))
    for name in ("traffic_memory_node", "traffic_cpu_node"):
        own = row.get(name)
        if own is not None and own != row.get(name.removeprefix("traffic_")):
            parts.append(f"traffic {'on' if 'memory' in name else 'from'} {_kind(machine, own)}")
    if point.row.experiment == "loaded":
        parts.append(str(row["mix"]))
    if "threads" in row:
        parts.append(f"{row['threads']} thread{'s' if row['threads'] != 1 else ''}")
    return ", ".join(part for part in parts if part)


def _kind(machine: headrace.Machine, node: int | str) -> str:
    first = re.match("[0-9]+", str(node))  # of several nodes, "8-15", the kind of the first
    number = int(first[0]) if first else None
    found = next((each for each in machine.nodes if each.id == number), None)
    return str(node) if found is None else str(found.kind)
