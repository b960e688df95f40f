# SPDX-License-Identifier: Apache-2.0
"""A profile in other formats: tables for spreadsheets, settings for the kernel and for memkind,
and rated values compared with measured ones. texts.py has texts in the formats of other tools.

Pure functions of a profile; nothing is measured or set here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import headrace
from headrace._profile.conventions import elsewhere
from headrace._profile.rows import absent
from headrace._profile.texts import as_mlc, as_nvbandwidth

#: The kernel takes weights of 1 to 255 per node (mm/mempolicy.c, since Linux 6.9).
_LARGEST_WEIGHT = 255
#: Weights are the smallest numbers that match the measured ratio within this share.
_WEIGHT_ERROR = 0.05
#: A node with at least this multiple of plain memory's bandwidth counts as high-bandwidth, even if
#: its kind is not hbm.
_HIGH_BANDWIDTH = 2.0


def as_csv(profile: headrace.Profile) -> str:
    """A line per row. Columns: every parameter and every detail that any row has."""
    parameters = list(dict.fromkeys(name for row in profile.rows for name in row.parameters))
    details = sorted({name for row in profile.rows for name in row.details})
    words = sorted({name for row in profile.rows for name in row.words})
    mixed = ["mix_elsewhere"] if "mix" in parameters else []
    numbers = ("median", "mad", "min", "max", "low", "high", "interval")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        ["experiment", *parameters, "unit", *numbers, "mappings", "launches", *details, *words]
        + [*mixed, "flags", "basis", "reason", "source"]
    )
    for row in profile.rows:
        table.writerow(
            [
                row.experiment,
                *(row.parameters.get(name, "") for name in parameters),
                row.unit,
                *("" if getattr(row, name) is None else getattr(row, name) for name in numbers),
                len(row.samples),
                len(row.launches) or min(1, len(row.samples)),
                *(row.details.get(name, "") for name in details),
                *(row.words.get(name, "") for name in words),
                *(elsewhere(row.parameters.get("mix")) for _ in mixed),
                " ".join(row.flags),
                row.basis,
                row.reason,
                row.source,
            ]
        )
    return text.getvalue()


def best_read_bandwidth(profile: headrace.Profile) -> dict[int, float]:
    """For each memory node, the read bandwidth of its best initiator, in bytes per second."""
    best: dict[int, float] = {}
    for row in profile.rows:
        memory = row.parameters.get("memory_node")
        if row.experiment != "bandwidth" or row.parameters.get("mix") != "read":
            continue
        if "pattern" in row.parameters:  # in random order, less than the memory has
            continue
        if row.median is not None and isinstance(memory, int):
            best[memory] = max(best.get(memory, 0), row.median)
    if not best:
        raise absent(profile, "read bandwidths", "measure bandwidth")
    return best


def weights(bandwidths: dict[int, float]) -> dict[int, int]:
    """Interleave weights in proportion to bandwidth: the smallest whole numbers that match every
    ratio within five per cent, otherwise the largest that the kernel takes.
    """
    least = min(bandwidths.values())
    ratios = {node: value / least for node, value in bandwidths.items()}
    largest = max(ratios.values())
    rounded = {}
    for unit in range(1, max(int(_LARGEST_WEIGHT / largest), 1) + 1):
        rounded = {n: max(1, min(_LARGEST_WEIGHT, round(r * unit))) for n, r in ratios.items()}
        if all(abs(w / unit / ratios[n] - 1) <= _WEIGHT_ERROR for n, w in rounded.items()):
            break
    return rounded


def as_weights(profile: headrace.Profile) -> str:
    """Commands for root that set the kernel's weighted interleave."""
    folder = "/sys/kernel/mm/mempolicy/weighted_interleave"
    found = weights(best_read_bandwidth(profile))
    lines = (f"echo {weight} > {folder}/node{node}\n" for node, weight in sorted(found.items()))
    return "".join(lines)


def as_memkind(profile: headrace.Profile) -> str:
    """The variable that names the high-bandwidth nodes for memkind."""
    nodes = {node.id: node for node in profile.machine.nodes if node.byte_addressable}
    best = {n: v for n, v in best_read_bandwidth(profile).items() if n in nodes}
    plain = [value for node, value in best.items() if nodes[node].kind == "dram"]
    fast = [
        node
        for node, value in sorted(best.items())
        if nodes[node].kind == "hbm" or (plain and value >= _HIGH_BANDWIDTH * max(plain))
    ]
    if not fast:
        raise headrace.AbsentError(
            "no node is high-bandwidth memory, by its kind or by twice the bandwidth of DRAM"
        )
    return f"export MEMKIND_HBW_NODES={','.join(map(str, fast))}\n"


def as_audit(profile: headrace.Profile) -> str:
    """Firmware's values (HMAT, CDAT) beside measured ones; * if they differ by a fifth or more."""
    lines = ["initiator\tnode\twhat\trated\tmeasured\tmeasured/rated"]
    for node in profile.machine.nodes:
        rated = {a.initiator: a for a in node.access if not a.measured}
        for found in (a for a in node.access if a.measured):
            said = rated.get(found.initiator)
            for what in ("read_latency", "read_bandwidth", "write_bandwidth"):
                lines += _audit_line(found.initiator, node.id, what, said, found)
    if len(lines) == 1 and profile.published:
        raise absent(profile, "ratings of firmware", "")
    if len(lines) == 1:
        raise headrace.AbsentError(
            "nothing to compare: firmware rates no node of this machine, or nothing was measured; "
            "measure latency and bandwidth"
        )
    return "\n".join(lines) + "\n"


def _audit_line(
    initiator: int,
    node: int,
    what: str,
    said: headrace.AccessAttributes | None,
    found: headrace.AccessAttributes,
) -> list[str]:
    rated = getattr(said, what, None)
    measured = getattr(found, what)
    if not rated or not measured:
        return []
    ratio = measured / rated
    mark = " *" if not 1 / 1.2 <= ratio <= 1.2 else ""
    show: Callable[[float], str] = (
        headrace.format_rate if what.endswith("bandwidth") else lambda s: f"{s * 1e9:.0f} ns"
    )
    words = what.replace("_", " ")
    return [f"{initiator}\t{node}\t{words}\t{show(rated)}\t{show(measured)}\t{ratio:.2f}{mark}"]


def as_hwloc(profile: headrace.Profile) -> str:
    """hwloc's XML with latencies and bandwidths as memory attributes: HWLOC_XMLFILE=FILE."""
    text: str = profile.machine.to_hwloc_xml()
    return text


FORMATS: dict[str, Callable[[headrace.Profile], str]] = {
    "csv": as_csv,
    "mlc": as_mlc,
    "nvbandwidth": as_nvbandwidth,
    "hwloc": as_hwloc,
    "weights": as_weights,
    "memkind": as_memkind,
    "audit": as_audit,
}
