# SPDX-License-Identifier: Apache-2.0
"""A machine's document with nodes, ceilings or engines changed."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import InvalidError
from headrace._cli import parse
from headrace._errors import unknown

Document = dict[str, Any]
_WHAT = ("node", "ceiling", "latency", "core")
_PATH = re.compile(r"(\w+):?([^.=]*)\.([\w ]+)=(.+)")


def changed(machine: Mapping[str, Any], changes: Sequence[str], added: Sequence[str]) -> Document:
    """A copy with the changes. InvalidError: a change that fits nothing."""
    made = copy.deepcopy(dict(machine))
    for text in changes:
        match = _PATH.fullmatch(text.strip())
        if match is None:
            raise InvalidError(
                f"'{text}' changes nothing; write node:8.capacity=32GiB, "
                "'ceiling:mesh.bandwidth=500GB/s', latency:8.read=90 or core.random load=24"
            )
        what, which, field, value = match.groups()
        if what not in _WHAT:
            raise unknown("part of a machine", what, _WHAT)
        {"node": _node, "ceiling": _ceiling, "latency": _latency, "core": _core}[what](
            made, which, field, value
        )
    for text in added:
        _add(made, text)
    if changes or added:
        made["name"] = " ".join([made["name"], *changes, *(f"+{each}" for each in added)])
    return made


def _node(made: Document, which: str, field: str, value: str) -> None:
    nodes = {str(node["id"]): node for node in made["nodes"]}
    if which not in nodes:
        raise unknown("node", which, nodes)
    if field == "capacity":
        if parse.size(value) == 0:
            raise InvalidError(f"'{value}': a node has a capacity above 0")
        nodes[which]["capacity_bytes"] = parse.size(value)
        nodes[which]["capacity_source"] = "what-if"
    else:
        raise unknown("field of a node", field, ("capacity",))


def _ceiling(made: Document, which: str, field: str, value: str) -> None:
    ceilings = (made.get("model") or {}).get("ceilings", [])
    found = [each for each in ceilings if which.lower() in each["name"].lower()]
    if not found:
        raise unknown("ceiling", which, dict.fromkeys(each["name"] for each in ceilings))
    if field != "bandwidth":
        raise unknown("field of a ceiling", field, ("bandwidth",))
    for each in found:
        most = max(rate for _, rate in each["bandwidth"])
        factor = parse.rate(value) / most
        each["bandwidth"] = [[share, rate * factor] for share, rate in each["bandwidth"]]
        each["source"] = "what-if"
        each["basis"] = "assumed"


def _latency(made: Document, which: str, field: str, value: str) -> None:
    latencies = (made.get("model") or {}).get("latencies", [])
    found = [each for each in latencies if which in map(str, each.get("to", []))]
    if not found:
        there = dict.fromkeys(str(node) for each in latencies for node in each.get("to", []))
        raise unknown("latency of node", which, there)
    if field != "read":
        raise unknown("field of a latency", field, ("read",))
    for each in found:
        each["read_ns"] = _number(value)


def _core(made: Document, which: str, field: str, value: str) -> None:
    cores = (made.get("model") or {}).get("cores", [])
    if not cores:
        raise InvalidError(f"{made['name']} has no model of its cores to change")
    for core in cores:
        lines = core.setdefault("lines_in_flight", {})
        if field == "frequency":
            core["frequency_hz"] = _number(value)
        elif field in lines:
            lines[field] = _number(value)
        else:
            raise unknown("field of a core", field, ("frequency", *lines))


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e18:
        raise InvalidError(f"'{text}' is no number above 0")
    return found


#: Bytes per second that an added SSD reads and writes, and its latency in ns.
_SSD_READ, _SSD_WRITE, _SSD_NS = 6.5e9, 3.5e9, 80_000
_SSD_SOURCE = (
    "a PCIe 4 drive: 6.5 GB/s read, 3.5 GB/s written (data sheet of Samsung's PM9A3, U.2, as "
    "reported by heise.de/-4720224)"
)


def _add(made: Document, text: str) -> None:
    kind, colon, number = text.partition(":")
    if kind not in ("dsa", "ssd") or not re.fullmatch(
        r"[1-9][0-9]{0,2}", number if colon else "1"
    ):
        raise InvalidError(f"'{text}' adds nothing; write dsa:2 or ssd:1")
    if kind == "ssd":
        return _add_ssds(made, int(number or 1))
    homes = [node["id"] for node in made["nodes"] if node["cpus"]]
    first = max((engine["id"] for engine in made["engines"]), default=-1) + 1
    there = sum(engine["kind"] == "dsa" for engine in made["engines"])
    for i in range(int(number or 1)):
        made["engines"].append({
            "id": first + i, "kind": "dsa", "name": f"dsa{there + i}",
            "home": homes[i % len(homes)], "reason": "what-if",
        })  # fmt: skip


def _add_ssds(made: Document, number: int) -> None:
    """SSDs as one device with the rates of all, as a tier of several folders uses them."""
    if any(node["kind"] == "storage" for node in made["nodes"]):
        raise InvalidError(f"{made['name']} has an SSD already; add none")
    node, host = 1000, next(each["id"] for each in made["nodes"] if each["cpus"])
    engine = max((each["id"] for each in made["engines"]), default=-1) + 1
    what = {"name": "ssd0", "reason": "what-if"}
    made["nodes"].append({"id": node, "kind": "storage", "cpus": [], **what})
    made["engines"].append({"id": engine, "kind": "ssd", "home": node, **what})
    rates = {(node, host): _SSD_READ * number, (host, node): _SSD_WRITE * number}
    made["copy_rates"] = [*made.get("copy_rates", []), *(
        {"engine": engine, "from": one, "to": other, "latency_ns": _SSD_NS,
         "bandwidth_bytes_per_second": rate, "source": _SSD_SOURCE}
        for (one, other), rate in rates.items()
    )]  # fmt: skip
    if model := made.get("model"):
        model["ceilings"].append({
            "name": "SSD", "kind": "device", "to": [node],
            "bandwidth": [[0, _SSD_READ * number], [1, _SSD_WRITE * number]],
            "uncertainty": 0.1, "basis": "rated", "source": _SSD_SOURCE,
        })  # fmt: skip
        model["latencies"].insert(0, {
            "to": [node], "read_ns": _SSD_NS, "uncertainty": 0.5, "basis": "assumed",
            "source": "usual for NAND",
        })  # fmt: skip
