"""Programs with their memory on two nodes, and where it lies: `headrace bench kv` and `spark`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import headrace
from headrace._run import numa_maps

#: Pages of the fast memory and of the slow one, in turn.
INTERLEAVES = {"3:1": (3, 1), "1:1": (1, 1), "1:3": (1, 3)}
ONE_NODE = "interleaving takes two memory nodes; here is one"


def two_nodes(machine: headrace.Machine) -> tuple[int, int] | None:
    """The fast memory, the first with CPUs, and the slow: one of another kind, or the next."""
    nodes = [node for node in machine.nodes if node.byte_addressable]
    fast = next((node for node in nodes if node.cpus), None)
    others = [node for node in nodes if node is not fast]
    if fast is None or not others:
        return None
    slow = next((node for node in others if node.kind != fast.kind), others[0])
    return fast.id, slow.id


def placed(machine: headrace.Machine, weights: tuple[int, int] | None) -> list[str]:
    """What starts a program with its memory there."""
    nodes = two_nodes(machine)
    if nodes is None:
        return []
    fast, slow = nodes
    launch = [str(Path(sys.executable).parent / "headrace"), "run"]
    if weights is None:
        return [*launch, "--prefer", str(fast), "--"]
    return [*launch, "--weights", f"{fast}={weights[0]},{slow}={weights[1]}", "--"]


def bytes_by_node(process: int) -> dict[int, int]:
    """Where its pages lie; nothing if the kernel does not say."""
    try:
        with open(f"/proc/{process}/numa_maps") as lines:
            places = numa_maps.parse(lines)
    except OSError:
        return {}
    return {node: places.total(node) for node in places.nodes}


def slow_share(by_node: dict[int, int]) -> float:
    """The share of pages on other nodes than the first."""
    sizes = list(by_node.values())
    return 1 - sizes[0] / sum(sizes) if len(sizes) > 1 else 0.0


def kilobytes(path: str, name: str) -> int | None:
    """The bytes that a line such as "MemAvailable:  1024 kB" tells."""
    match = re.search(rf"^{name}:\s*(\d+) kB", Path(path).read_text(), re.MULTILINE)
    return int(match[1]) << 10 if match else None
