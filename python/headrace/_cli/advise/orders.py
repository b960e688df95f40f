# SPDX-License-Identifier: Apache-2.0
"""Weights as commands to type: numactl, sysfs, mbind, `headrace run`."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

from headrace import format_bytes
from headrace._format import wrap
from headrace._run.plan import TABLE

#: Weights count units of a page times a power of two, so that a data set has at most MOST_RUNS
#: runs: each run is a mapping of the kernel (docs/design/placement-on-linux.md).
PAGE = mmap.PAGESIZE
MOST_RUNS = 512
#: Width of folded sentences, which leaves space to indent them.
_WIDTH = 74


def orders(weights: Mapping[int, int], data: int | None) -> dict[str, Any]:
    """Commands by the tool that executes them. `weights` without zeros; `data`: bytes of the data
    set, if known.
    """
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
    """Calls of mbind for the runs of one turn, which repeats to the end of the data set."""
    unit = PAGE
    while data is not None and len(weights) > 1 and _runs(weights, unit, data) > MOST_RUNS:
        unit *= 2
    turn = []
    for node, (offset, length) in _turn(weights, unit).items():
        turn.append({"offset": offset, "length": length, "node": node})
    plan = {"unit_bytes": unit, "turn_bytes": sum(weights.values()) * unit, "turn": turn}
    if data is not None:
        plan["runs"] = _runs(weights, unit, data) if len(weights) > 1 else 1
    return plan


def _turn(weights: Mapping[int, int], unit: int) -> dict[int, tuple[int, int]]:
    """Offset and length of each node's run."""
    offset = 0
    found = {}
    for node in sorted(weights):
        found[node] = (offset, weights[node] * unit)
        offset += weights[node] * unit
    return found


def _runs(weights: Mapping[int, int], unit: int, data: int) -> int:
    whole, rest = divmod(data, sum(weights.values()) * unit)
    begun = sum(1 for offset, _ in _turn(weights, unit).values() if offset < rest)
    return whole * len(weights) + begun


def lines(made: Mapping[str, Any]) -> list[str]:
    """The commands as lines for people. Commands are not folded."""
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
        plan = made["mbind"]
        size = format_bytes
        runs = ", ".join(f"{size(e['length'])} on node {e['node']}" for e in plan["turn"])
        calls = f"; {plan['runs']} calls in all" if "runs" in plan else ""
        by_hand = f"the same by mbind(): of each {size(plan['turn_bytes'])}, {runs}{calls}"
        first, *rest = wrap(by_hand, _WIDTH)
        told += [first, *(f"    {line}" for line in rest)]
    return told
