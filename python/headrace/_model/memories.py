# SPDX-License-Identifier: Apache-2.0
"""The fast and the slow memory of a machine, as programs on two memories have them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import headrace


@dataclass(frozen=True)
class Memories:
    """Two nodes: the first with CPUs that may be used, and a slower one of another kind, else the
    farthest of the same.
    """

    fast: int | None
    slow: int | None
    cpus: list[int]  #: those of the fast one that may be used
    why: str = ""  #: there is no slow one
    alone: bool = False  #: there is one node, so nothing need be placed


def memories(machine: headrace.Machine, may: Collection[int] | None = None) -> Memories:
    """`may`: the CPUs that may be used, by default all."""
    nodes = [node for node in machine.nodes if node.byte_addressable]
    usable = {n.id: [c for c in n.cpus if may is None or c in may] for n in nodes}
    fast = next((node for node in nodes if usable[node.id]), None)
    if fast is None or len(nodes) == 1:
        cpus = sorted(may if may is not None else {c for n in nodes for c in n.cpus})
        why = "interleaving takes two memory nodes; here is one"
        return Memories(None if fast is None else fast.id, None, cpus, why, alone=True)
    # The question is the cost of memory slower than main memory: HBM beside DRAM is not slower.
    others = [n for n in nodes if n is not fast and (n.kind == fast.kind or n.kind != "hbm")]
    far = max(others, key=lambda node: fast.distances.get(node.id, 0), default=None)
    slow = next((node for node in others if node.kind != fast.kind), far)
    if slow is None:
        why = f"the other memory here is HBM, no slower than the {fast.kind} beside it"
        return Memories(fast.id, None, usable[fast.id], why)
    return Memories(fast.id, slow.id, usable[fast.id])
