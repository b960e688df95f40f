# SPDX-License-Identifier: Apache-2.0
"""Rows of sessions: those of `headrace bench copy`, and the demo's rates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import headrace
from headrace._format import plural

#: Size of a copy that exceeds the caches, in a quick session.
_LARGE_COPY = 64 << 20
_STATES = ("cold", "hot")
_WHAT_OF_MIX = {"read": "memory read", "write": "memory write"}


def reached(rows: Iterable[headrace.Row]) -> list[headrace.Row]:
    """Rows that were measured before a session was interrupted."""
    return [row for row in rows if "stopped" not in row.flags]


def spread(row: headrace.Row) -> float | None:
    """MAD / median; None for one sample."""
    if not row.median or row.mad is None or len(row.samples) < 2:
        return None
    return row.mad / row.median


def variation(row: headrace.Row) -> dict[str, Any]:
    """The number of samples, their MAD relative to the median, and the interval of the median. One
    sample has neither.
    """
    several = len(row.samples) > 1
    return {
        "spread": spread(row),
        "low": row.low if several else None,
        "high": row.high if several else None,
        "interval": row.interval if several else None,
        "n": len(row.samples),
    }


def copy_rows(rows: Iterable[headrace.Row], engines: list[str]) -> list[headrace.Row]:
    """Rows of these engines, sorted by state, threads and size."""
    found = (row for row in rows if row.parameters["engine"] in engines)
    return sorted(found, key=lambda row: _copy_order(row, engines))


def _copy_order(row: headrace.Row, engines: list[str]) -> tuple[int, ...]:
    p = row.parameters
    return (
        _STATES.index(str(p["state"])), int(p["threads"]), int(p["bytes"]),
        engines.index(str(p["engine"])),
    )  # fmt: skip


def rate_rows(profile: headrace.Profile, directory: Path) -> list[dict[str, Any]]:
    """Results of a quick session: a line for each memory, disk and pair of memories."""
    return [
        _NAMES[row.experiment](row, profile.machine, directory) | _numbers(row)
        for row in _with_a_line(reached(profile.rows))
    ]


def _with_a_line(rows: list[headrace.Row]) -> list[headrace.Row]:
    """All rows, except copies that serve only to fit the machine's copy rate.

    Only large copies have a line. Between nodes, it is the copy with the most threads; that is one
    thread if the process may use one CPU.
    """
    most: dict[tuple[int | str, ...], int] = {}
    for row in rows:
        if _is_large_copy(row):
            most[_ends(row)] = max(most.get(_ends(row), 0), int(row.parameters["threads"]))

    def has_line(row: headrace.Row) -> bool:
        if row.experiment != "copy":
            return True
        p = row.parameters
        return _is_large_copy(row) and (p["from"] == p["to"] or p["threads"] == most[_ends(row)])

    return [row for row in rows if has_line(row)]


def _is_large_copy(row: headrace.Row) -> bool:
    return row.experiment == "copy" and row.parameters["bytes"] == _LARGE_COPY


def _ends(row: headrace.Row) -> tuple[int | str, ...]:
    return row.parameters["from"], row.parameters["to"]


def _numbers(row: headrace.Row) -> dict[str, Any]:
    return {"bytes_per_second": row.median, **variation(row), "reason": row.reason}


def _memory(row: headrace.Row, machine: headrace.Machine, directory: Path) -> dict[str, Any]:
    p = row.parameters
    return {
        "what": _WHAT_OF_MIX[str(p["mix"])],
        "where": _place(p["memory_node"], p["cpu_node"], int(p["threads"])),
        "from_node": p["memory_node"],
        "to_node": p["memory_node"],
        "engine": None,
    }


def _copy(row: headrace.Row, machine: headrace.Machine, directory: Path) -> dict[str, Any]:
    """The line of a copy: within a node it describes the memory, between nodes the engine."""
    p = row.parameters
    if p["from"] == p["to"]:
        what, where = "memory copy", _place(p["to"], p["cpu_node"], int(p["threads"]))
    else:
        what = "copy"
        where = f"{plural(int(p['threads']), 'thread')}, node {p['from']} to node {p['to']}"
    cpus = (each for each in machine.engines if each.kind == "cpu" and each.home == p["cpu_node"])
    return {
        "what": what,
        "where": where,
        "from_node": p["from"],
        "to_node": p["to"],
        "engine": next((each.id for each in cpus), None),
    }


def _disk(row: headrace.Row, machine: headrace.Machine, directory: Path) -> dict[str, Any]:
    p = row.parameters
    if not p:
        return {"what": "disk read", "where": str(directory), "from_node": None, "to_node": None,
                "engine": None}  # fmt: skip
    disk = machine.node(int(p["node"]))
    engines = (each for each in machine.engines if each.kind == "ssd" and each.home == disk.id)
    memory = next((node.id for node in machine.nodes if node.byte_addressable), None)
    read = p["operation"] == "read"
    return {
        "what": f"disk {p['operation']}",
        "where": f"{disk.name}, {headrace.format_bytes(int(p['bytes']))} x {p['depth']}",
        "from_node": disk.id if read else memory,
        "to_node": memory if read else disk.id,
        "engine": next((each.id for each in engines), None),
    }


def _place(node: int | str, cpu_node: int | str, threads: int) -> str:
    far = "" if node == cpu_node else f" of node {cpu_node}"
    return f"node {node}, {plural(threads, 'thread')}{far}"


_NAMES = {"bandwidth": _memory, "copy": _copy, "storage": _disk}
