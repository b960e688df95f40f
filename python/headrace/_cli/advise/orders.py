"""Weights as what one types: numactl, sysfs, mbind, `headrace run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._run.plan import TABLE

#: mbind() places pages; transparent huge pages make the unit larger (docs/design/advice.md).
PAGE = 4096


def orders(weights: Mapping[int, int], data: int | None) -> dict[str, Any]:
    """By what carries it out. `weights` without zeros; `data`: bytes of the data set if known."""
    nodes = sorted(weights)
    if len(nodes) == 1:
        node = nodes[0]
        return {
            "numactl": f"numactl --preferred={node} PROGRAM",
            "sysfs": [],
            "run": f"headrace run --prefer {node} -- PROGRAM",
            "allocate": f'headrace.allocate(machine, size, "{node}")',
            "mbind": _mbind(weights, data),
        }
    text = ",".join(f"{node}={weights[node]}" for node in nodes)
    return {
        "numactl": f"numactl --weighted-interleave={','.join(map(str, nodes))} PROGRAM",
        "sysfs": [f"echo {weights[node]} | tee {TABLE}/node{node}" for node in nodes],
        "run": f"headrace run --weights {text} -- PROGRAM",
        "allocate": f'headrace.allocate(machine, size, "{text}")',
        "mbind": _mbind(weights, data),
    }


def _mbind(weights: Mapping[int, int], data: int | None) -> dict[str, Any]:
    """The runs of pages of one turn, which repeats to the end of the memory."""
    offset = 0
    turn = []
    for node in sorted(weights):
        length = weights[node] * PAGE
        turn.append({"offset": offset, "length": length, "node": node})
        offset += length
    plan: dict[str, Any] = {"page_bytes": PAGE, "turn_bytes": offset, "turn": turn}
    if data is not None:
        plan["calls"] = 1 if len(turn) == 1 else _runs(data, turn, offset)
    return plan


def _runs(data: int, turn: list[dict[str, Any]], length: int) -> int:
    whole, rest = divmod(data, length)
    begun = sum(1 for each in turn if each["offset"] < rest)
    return whole * len(turn) + begun


def lines(made: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    told = []
    if made["sysfs"]:
        told.append("the kernel's weights, one table for all programs, as root (Linux 6.9):")
        told += [f"    {each}" for each in made["sysfs"]]
        told.append("then any program:")
    else:
        told.append("any program:")
    told += [f"    {made['numactl']}", f"    {made['run']}"]
    told.append("one allocation, with weights of its own, without root:")
    told.append(f"    {made['allocate']}")
    if len(made["mbind"]["turn"]) > 1:
        runs = ", ".join(
            f"{each['length'] // PAGE} on node {each['node']}" for each in made["mbind"]["turn"]
        )
        plan = made["mbind"]
        calls = f"; {plan['calls']} calls for this data set" if "calls" in plan else ""
        told.append(
            f"the same by mbind(): of each {plan['turn_bytes'] // PAGE} pages of 4 KiB, in order, "
            f"{runs}{calls}"
        )
    return told
