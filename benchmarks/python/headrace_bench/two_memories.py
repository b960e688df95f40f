# SPDX-License-Identifier: Apache-2.0
"""Runs programs with memory on two nodes, and finds their pages: for `headrace bench kv` and
`spark`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace._run import numa_maps
from headrace._run.host import this_host
from headrace._run.plan import Request, plan

#: Pages of the fast memory and of the slow one, in turn.
INTERLEAVES = {"3:1": (3, 1), "1:1": (1, 1), "1:3": (1, 3)}


@dataclass(frozen=True)
class Memories:
    """Two nodes: the first with CPUs that may be used, and a slower one of another kind, or else
    the farthest of the same kind.
    """

    fast: int | None
    slow: int | None
    cpus: list[int]  #: those of the fast one that may be used
    why: str = ""  #: there is no slow one
    alone: bool = False  #: there is one node, so nothing need be placed


def memories(machine: headrace.Machine, may: Collection[int] | None = None) -> Memories:
    """Chooses the memories. `may`: the CPUs that may be used (default: all)."""
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


def memories_here(machine: headrace.Machine) -> Memories:
    """The memories that this process may use."""
    return memories(machine, os.sched_getaffinity(0))


def placed(machine: headrace.Machine, weights: tuple[int, int] | None) -> list[str]:
    """The command that starts a program with its memory there, on the CPUs of the fast node."""
    here = memories_here(machine)
    if here.alone:
        return []
    where = ["--prefer", str(here.fast)]
    if weights is not None:
        where = ["--weights", _by_node(here, weights)]
    # Run by this interpreter: the one in the script's first line may have moved.
    command = [sys.executable, "-P", "-m", "headrace", "run"]
    return [*command, "--cpus", f"near:{here.fast}", *where, "--"]


def _by_node(here: Memories, weights: tuple[int, int]) -> str:
    return f"{here.fast}={weights[0]},{here.slow}={weights[1]}"


def no_interleave(machine: headrace.Machine, weights: tuple[int, int]) -> tuple[str, str]:
    """Why `headrace run` cannot interleave pages with these weights: a code and a reason, both
    empty if it can.
    """
    here = memories_here(machine)
    if here.slow is None:
        return "absent", here.why
    wish = _by_node(here, weights)
    try:
        table, now = _tables(machine, wish, here)
    except headrace.Error as error:
        return error.code, str(error)
    if not table:
        return "", ""
    says = ",".join(f"{node}={now.get(node, 1)}" for node in table)
    return "denied", (
        f"the kernel has one table of weights for all programs, and it says {says}; as root: "
        f"headrace tier kernel --on --no-promotion --no-demotion --weights {wish}"
    )


def other_weights(machine: headrace.Machine, weights: tuple[int, int]) -> bool:
    """Whether the only reason is that the kernel's table has other weights."""
    here = memories_here(machine)
    try:
        return here.slow is not None and bool(_tables(machine, _by_node(here, weights), here)[0])
    except headrace.Error:
        return False


def _tables(
    machine: headrace.Machine, wish: str, here: Memories
) -> tuple[dict[int, int], dict[int, int]]:
    """The changes to the kernel's table of weights, and the table now. Errors: as of a plan."""
    request = Request(weights=wish, cpus=f"near:{here.fast}", set_system_weights=True)
    host = this_host(machine, request)
    return dict(plan(machine, request, host).table), dict(host.table or {})


def bytes_by_node(process: int) -> dict[int, int]:
    """Bytes of a process on each node; empty if the kernel does not report them."""
    try:
        with open(f"/proc/{process}/numa_maps") as lines:
            places = numa_maps.parse(lines)
    except OSError:
        return {}
    return {node: places.total(node) for node in places.nodes}


def slow_share(by_node: dict[int, int], fast: int | None) -> float:
    """The share of pages on other nodes than the fast one."""
    everything = sum(by_node.values())
    return 1 - by_node.get(fast, 0) / everything if everything and fast is not None else 0.0


def free_bytes() -> int | None:
    """Memory that programs may still allocate, by this host and this process's memory cgroups."""
    limits = kilobytes("/proc/meminfo", "MemAvailable"), headrace.free_memory().cgroup
    return min((limit for limit in limits if limit is not None), default=None)


def kilobytes(path: str, name: str) -> int | None:
    """The bytes in a line such as "MemAvailable: 1024 kB"."""
    match = re.search(rf"^{name}:\s*(\d+) kB", Path(path).read_text(), re.MULTILINE)
    return int(match[1]) << 10 if match else None


def kind_in_memory(directory: Path) -> str:
    """The file system of a directory in memory; empty if the directory is on a disk."""
    kind, longest = "", -1
    path = directory.resolve()
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        mount, name = line.split(" ")[1:3]
        if path.is_relative_to(mount) and len(mount) >= longest:
            kind, longest = name, len(mount)
    return kind if kind in ("tmpfs", "ramfs") else ""
