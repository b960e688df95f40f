# SPDX-License-Identifier: Apache-2.0
"""Rows of `headrace bench dsa`, and published figures of the same parts.

Rows are those of the experiment `dsa`. The published figures are from chapter 3 of C. Fürst, "Data
Movement in Heterogeneous Memories with Intel Data Streaming Accelerator" (TU Dresden 2024). Further
points are only in its pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace._profile.documents import Fields, all_fields

Row = Mapping[str, Any]

GIB = float(1 << 30)
#: The parts of the experiment `dsa`, and what each measures.
EXPERIMENTS = {
    "submission": "single, batch and vectored submission by size (Fürst 2024, 3.2.1, figure 3.2)",
    "threads": "1, 2 and 12 threads on one shared queue (Fürst 2024, 3.2.2, figure 3.3)",
    "route": "1 GiB from DDR to HBM by all devices and by few (Fürst 2024, 3.2.3, figures 3.5-6)",
    "cpu": "cores against a device by size, and between nodes (Fürst 2024, 3.2.4)",
    "queue": "engines per group, shared and dedicated queues, copies in flight",
    "interference": "a copy alone, while others run, and while STREAM runs",
}
#: Parts whose copies have the sizes that the user chooses.
SIZED = ("submission", "cpu")
#: Sizes of 1 MiB and more, where 3.2.1 says how fast one device is.
PUBLISHED_FROM_BYTES = 1 << 20

_DEVICE = "Fürst 2024, 3.2.1: close to 30 GiB/s per DSA, by every method from 1 MiB on"
_PEAK = "Fürst 2024, 3.2.3: brute force from node 0 to node 15 reaches 96 GiB/s"
_LESS = "Fürst 2024, 3.2.3: smart is 2 (node 8), 18 (11 and 12) and 30 GiB/s (15) below brute force"


def selections(names: list[str], sizes: list[int]) -> list[dict[str, Any]]:
    """The points of the experiment `dsa` in these parts; without names, all parts."""
    return [
        {"part": name, **({"bytes": sizes} if sizes and name in SIZED else {})}
        for name in EXPERIMENTS
        if not names or name in names
    ]


def shown(document: Mapping[str, Any]) -> list[Fields]:
    """The fields of a document's rows, with their engines and machine."""
    engines = document["machine"]["engines"]
    devices = [each["name"] for each in engines if each["kind"] == "dsa"]
    return [_shown(row, document, devices) for row in all_fields(document)]


def _shown(row: Fields, document: Mapping[str, Any], devices: list[str]) -> Fields:
    engines = str(row["engines"]).split()
    measured = row["basis"] == "measured"
    several = len(row["samples"]) > 1
    free = [name for name in devices if name not in engines]
    return Fields(row | {
        "experiment": row["part"],
        "from_node": row["from"],
        "to_node": row["to"],
        "engines": engines,
        "free_engines": free if row["part"] == "route" and engines else [],
        "portal": _portal(row),
        "group_engines": None if row["group_engines"] == "any" else row["group_engines"],
        "beside": "" if row["beside"] == "nothing" else row["beside"],
        "bytes_per_second": row["median"],
        "interval": row["interval"] if several else None,
        "machine": document["host"] if measured else document["machine"]["name"],
    })  # fmt: skip


def _portal(row: Fields) -> str:
    """The way into the queue; empty if the copies used no queue."""
    if row["mapped"] is None:
        return ""
    if not row["mapped"]:
        return "write()"
    return "ENQCMD" if row["queue"] == "shared" else "MOVDIR64B"


def published() -> list[Row]:
    """Published rates, and the loss of `smart` against `brute_force`, in bytes per second."""
    rows: list[Row] = []
    for size in (PUBLISHED_FROM_BYTES, 1 << 30):
        rows.append(_published("submission", 30 * GIB, _DEVICE, bytes=size))
    rows.append(_published("route", 96 * GIB, _PEAK, route="brute_force", to_node=15))
    rows.append(_published("route", 66 * GIB, _LESS, route="smart", to_node=15))
    for node, less in ((8, 2), (11, 18), (12, 18), (15, 30)):
        rows.append(
            _published("route", None, _LESS, to_node=node, smart_less_bytes_per_second=less * GIB)
        )
    return rows


def _published(experiment: str, rate: float | None, source: str, **fields: Any) -> Row:
    return {
        "experiment": experiment,
        "bytes_per_second": rate,
        "basis": "published",
        "source": source,
        **fields,
    }


def of(rows: Iterable[Row], experiment: str) -> list[Row]:
    return [row for row in rows if row["experiment"] == experiment]


def way(row: Row) -> str:
    """The way of submission, in words for a column."""
    if row["method"] == "batch":
        return f"batch {row['at_once']}"
    if row["method"] == "vectored":
        return f"write() x {row['at_once']}"
    if row["method"] == "single" and row["window"] > 1:
        return f"{row['window']} in flight"
    return str(row["method"])


def smart_less(rows: Iterable[Row]) -> dict[int, float]:
    """Loss of `smart` against `brute_force` by destination, in bytes per second."""
    rates: dict[int, dict[str, float]] = {}
    for row in of(rows, "route"):
        if row["bytes_per_second"] is not None:
            rates.setdefault(row["to_node"], {})[row["route"]] = row["bytes_per_second"]
    return {
        node: both["brute_force"] - both["smart"] for node, both in rates.items() if len(both) == 2
    }


def crossovers(rows: Iterable[Row]) -> list[Row]:
    """For each way of using a device, the smallest size from which on it beats one core.

    `bytes` is None if it never does at a size with both rates, or if there is no such size;
    `reason` says which.
    """
    by_size: dict[str, dict[int, Row]] = {}
    for row in of(rows, "cpu"):
        at_home = row["from_node"] == row["to_node"]  # a core between nodes has no peer
        if row["bytes_per_second"] is not None and row["threads"] == 1 and at_home:
            by_size.setdefault(way(row), {})[row["bytes"]] = row
    cores = by_size.pop("cores", {})
    return [_crossover(name, ours, cores) for name, ours in by_size.items()]


def _crossover(name: str, ours: dict[int, Row], cores: dict[int, Row]) -> Row:
    found: int | None = None
    both = sorted(ours.keys() & cores.keys())
    for size in reversed(both):
        if ours[size]["bytes_per_second"] < cores[size]["bytes_per_second"]:
            break
        found = size
    reason = ""
    if not both:
        reason = "no size has a rate of both"
    elif found is None:
        reason = "one core is faster at the largest size"
    first = next(iter(ours.values()))
    return {
        "method": first["method"],
        "window": first["window"],
        "bytes": found,
        "machine": first["machine"],
        "basis": first["basis"],
        "cores_of": next(iter(cores.values()))["machine"] if cores else None,
        "reason": reason,
    }
