# SPDX-License-Identifier: Apache-2.0
"""Chooses the CPUs that a benchmark's threads are pinned to."""

from __future__ import annotations

import os
from collections.abc import Iterable

import headrace
from headrace import InvalidError, Machine

#: Bytes of cache, as in cache_to_pass() of src/topology/machine.cpp. `_CACHE`: the machine names no
#: cache. `_DOUBTED` counts if a virtual machine names more than `_MOST_PER_CPU`.
_CACHE, _MOST_PER_CPU, _DOUBTED = 32 << 20, 64 << 20, 128 << 20


def cpus_for(
    machine: Machine, count: int | None, allowed: Iterable[int] | None = None
) -> list[int]:
    """`count` of the allowed CPUs (default: one of each core); a core's second CPU is used only
    after all cores have one. InvalidError: there are fewer.
    """
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    core = {cpu: min(c.cpus) for c in machine.caches if c.level == 1 for cpu in c.cpus}
    seen: dict[int, int] = {}
    turns = []
    for cpu in cpus:
        turn = seen[core.get(cpu, cpu)] = seen.get(core.get(cpu, cpu), -1) + 1
        turns.append((turn, cpu))
    if count is None:
        return [cpu for turn, cpu in turns if turn == 0]
    if not 0 < count <= len(cpus):
        raise InvalidError(f"{count} threads on {len(cpus)} CPUs measure each other; give fewer")
    return [cpu for _, cpu in sorted(turns)[:count]]


def cache_of(machine: Machine, cpus: Iterable[int]) -> int:
    """Bytes of their last-level caches, each counted once."""
    found = {}
    virtual = machine.provenance.get("hypervisor") == "yes"
    for cpu in cpus:
        caches = [c for c in machine.caches if cpu in c.cpus]
        last = max(caches, key=lambda c: c.level, default=None)
        size = last.size if last else _CACHE
        doubted = last and virtual and size > _MOST_PER_CPU * len(last.cpus)
        found[tuple(last.cpus) if last else (-1,)] = _DOUBTED if doubted else size
    return sum(found.values())


def buffer(machine: Machine, size: int, place: str, cpus: list[int]) -> headrace.Buffer:
    """Allocates memory by a placement's text, near the CPUs that will use it. If the CPUs are on
    several nodes and the placement is a single kind, each page is near the thread that touches it
    first, so threads should fill their own parts. A kind that spills ("hbm:dram") is interleaved
    over the nodes nearest to the CPUs, and spills from there.
    """
    wish = headrace.Placement.parse(machine, place, near=cpus)
    homes = {node.id for node in machine.nodes if node.byte_addressable and {*node.cpus} & {*cpus}}
    by_kind = wish.kind in ("dram", "hbm", "cxl") and wish.distribution == "nearest"
    if by_kind and not wish.spill and len(homes) > 1:
        wish = headrace.Placement.parse(machine, place + "_first_touch", near=cpus)
    made = headrace.allocate(machine, size, wish)
    if made.device_address is not None:
        raise headrace.UnsupportedError(
            f"CPUs do not reach the memory of node {made.node}, a GPU; place it on another node"
        )
    return made
