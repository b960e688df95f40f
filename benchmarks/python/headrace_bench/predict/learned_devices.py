# SPDX-License-Identifier: Apache-2.0
"""Ceilings of SSDs and of links to GPUs, from the rows of a profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import headrace

Document = dict[str, Any]
_MEASURED = {"basis": "measured", "source": "the profile", "uncertainty": 0.05}
#: Nanoseconds that requests wait at an SSD that is nearly full (assumed: hardly before that).
_QUEUE = [[0.9, 100], [0.97, 1000], [1, 10000]]
#: Copies of GPUs by their engines. `both`: in both directions at once.
_DIRECTIONS = {"to_gpu": "reads", "from_gpu": "writes", "both": "both"}


def learn(machine: Mapping[str, Any], rows: Iterable[headrace.Row]) -> dict[str, list[Document]]:
    """Ceilings and latencies of a model."""
    found = list(rows)
    names = {(each["kind"], each["home"]): each["name"] for each in machine["engines"]}
    ceilings, latencies = _disks([row for row in found if row.experiment == "storage"])
    host = [each["id"] for each in machine["nodes"] if each["cpus"]]
    ceilings += _links([row for row in found if row.experiment == "gpu"], names, host)
    return {"ceilings": ceilings, "latencies": latencies}


def _disks(rows: Sequence[headrace.Row]) -> tuple[list[Document], list[Document]]:
    """For each SSD: the most bytes per second of reads and of writes, the most requests per second
    of the smallest block, and the time of one such request alone.
    """
    ceilings, latencies = [], []
    direct = [row for row in rows if row.parameters.get("io") == "direct" and row.median]
    for node in sorted({int(row.parameters["node"]) for row in direct}):
        own = [row for row in direct if row.parameters["node"] == node]
        rates, times = {}, {}
        for operation in ("read", "write"):
            mine = [row for row in own if row.parameters["operation"] == operation]
            if not mine:
                continue
            rates[operation] = max(float(row.median or 0) for row in mine)
            least = min(int(row.parameters["bytes"]) for row in mine)
            small = [row for row in mine if row.parameters["bytes"] == least]
            most = max(float(row.median or 0) for row in small)
            alone = [float(row.median or 1) for row in small if row.parameters["depth"] == 1]
            # The time that the device's rate explains is no latency.
            ns = max(1.0, (least / max(alone) - least / rates[operation]) * 1e9) if alone else None
            times[operation] = least, most, ns
        if "read" not in rates:
            continue
        least, most, ns = times["read"]
        ceilings.append({
            "name": f"SSD, node {node}", "kind": "device", "to": [node],
            "bandwidth": [[0 if operation == "read" else 1, rate]
                          for operation, rate in rates.items()],
            "queue": _QUEUE, "request_bytes": max(0.0, least * (rates["read"] / most - 1)),
            **_MEASURED,
        })  # fmt: skip
        if ns is not None:
            write = times.get("write", (0, 0.0, None))[2]
            latencies.append({
                "to": [node], "read_ns": ns, **({"write_ns": write} if write else {}),
                **_MEASURED,
            })  # fmt: skip
    return ceilings, latencies


def _links(
    rows: Sequence[headrace.Row], names: Mapping[tuple[str, int], str], host: Sequence[int]
) -> list[Document]:
    """For each GPU: the most to it, from it, and in both directions at once."""
    best: dict[tuple[int, str], float] = {}
    for row in rows:
        at = row.parameters
        if at.get("part") != "copy" or at.get("by") != "engine" or at.get("memory") != "pinned":
            continue
        key = int(at["gpu"]), str(at["direction"])
        if key[1] in _DIRECTIONS and ("gpu", key[0]) in names and row.median:
            best[key] = max(best.get(key, 0.0), row.median)
    made = []
    for (gpu, direction), rate in sorted(best.items()):
        words = "in both directions" if direction == "both" else direction.replace("_gpu", " it")
        made.append({
            "name": f"link of GPU {gpu}, {words}", "kind": "link", "bandwidth": [[0, rate]],
            "paths": [{"engines": [names["gpu", gpu]], "to": list(host),
                       "counts": _DIRECTIONS[direction]}], **_MEASURED,
        })  # fmt: skip
    return made
