# SPDX-License-Identifier: Apache-2.0
"""The configurations of a talk (P. Zhou, MemCon 2024) on this machine: placement of memory, and
reasons to leave some out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import headrace
from headrace._core import HostFiles as Files
from headrace._tiering import switch
from headrace._tiering.plan import Wish
from headrace_bench import kv_servers
from headrace_bench.kv_servers import SERVERS, Data
from headrace_bench.runner import Variant
from headrace_bench.two_memories import (
    INTERLEAVES,
    Memories,
    kilobytes,
    memories_here,
    no_interleave,
    other_weights,
)

#: Share of the data on SSD, by configuration; others have all data in memory.
SSD = {"MMEM-SSD-0.2": 0.2, "MMEM-SSD-0.4": 0.4}
#: Half of the pages, interleaved, are on the slow node, or in swap if there is none. A tier keeps
#: that share there and moves hot pages to the fast node.
PROMOTED = "Hot-Promote"
CONFIGS = ("MMEM", *SSD, *INTERLEAVES, PROMOTED)
#: Size of a server's file relative to the data, since such servers drop and rewrite values.
_FILE_ROOM = 5


@dataclass(frozen=True)
class Options:
    servers: list[str]
    workloads: list[str]
    configs: list[str]
    records: int
    value: int
    clients: int
    seconds: float
    rounds: int
    rate: float | None
    settle: float  #: seconds before the first measurement of what moves to and fro
    seed: int
    directory: Path  #: where values on SSD are


@dataclass(frozen=True)
class Place:
    """Interleaving of pages on fast and slow memory (None: all on the fast one), and whether a tier
    moves them during use. `table`: the kernel's table of weights differs, and is set meanwhile.
    """

    weights: tuple[int, int] | None = None
    moved: bool = False
    table: bool = False

    def by_node(self, here: Memories) -> dict[int, int]:
        """Weights by node; empty if all pages are on one node."""
        if self.weights is None or here.fast is None or here.slow is None:
            return {}
        return dict(zip((here.fast, here.slow), self.weights, strict=True))

    def text(self, here: Memories) -> str:
        """The placement as text."""
        return ",".join(f"{node}={weight}" for node, weight in self.by_node(here).items())


def places(machine: headrace.Machine, configs: Sequence[str]) -> dict[str, Place]:
    """The place of each configuration."""
    found = {config: Place() for config in configs}
    for config, weights in INTERLEAVES.items():
        found[config] = Place(weights)
    here = memories_here(machine)
    found[PROMOTED] = Place(None if here.slow is None else (1, 1), moved=True)
    if os.geteuid() == 0:
        for config, place in found.items():
            if place.weights is not None:
                found[config] = replace(place, table=other_weights(machine, place.weights))
    return found


def leave_out(
    points: Sequence[Variant], machine: headrace.Machine, options: Options, places: dict[str, Place]
) -> None:
    """Gives points that cannot be measured here their reason."""
    why: dict[tuple[str, bool], tuple[str, str]] = {}
    for point in points:
        if point.reason:
            continue
        server, config = (str(point.parameters[name]) for name in ("server", "config"))
        spills = SERVERS[server].spills
        if (config, spills) not in why:
            why[config, spills] = _why_not(config, spills, machine, options, places)
        point.fail(*why[config, spills])
        if config in SSD and not point.reason:
            data = Data(options.records, options.value, SSD[config])
            if reason := kv_servers.too_few(SERVERS[server], data):
                point.fail("invalid", reason)


def _why_not(
    config: str, spills: bool, machine: headrace.Machine, options: Options, places: dict[str, Place]
) -> tuple[str, str]:
    """A code and a reason, or two empty words."""
    if config in SSD and spills:
        return _no_files(options)
    place = places[config]
    if config in SSD or (config == PROMOTED and place.weights is None):
        return _no_swap(int(SSD.get(config, 0.5) * options.records * (options.value + 100)))
    return ("", "") if place.weights is None else _no_weights(machine, place, place.weights)


def _no_weights(
    machine: headrace.Machine, place: Place, weights: tuple[int, int]
) -> tuple[str, str]:
    here = memories_here(machine)
    if here.slow is None:
        return "absent", here.why
    if place.table:
        return _no_switch(Wish(promotion=False, demotion=False, weights=place.by_node(here)))
    return no_interleave(machine, weights)


def _no_files(options: Options) -> tuple[str, str]:
    try:
        kv_servers.check_directory(options.directory)
        free = shutil.disk_usage(options.directory).free
    except headrace.Error as error:
        return error.code, str(error)
    except OSError as error:
        return "absent", f"{options.directory}: {error.strerror}"
    needed = _FILE_ROOM * options.records * (options.value + 100)
    if needed <= free:
        return "", ""
    return "exhausted", (
        f"{headrace.format_bytes(needed)} of SSD needed, {headrace.format_bytes(free)} are free "
        f"in {options.directory}; give fewer --records, or another --directory"
    )


def _no_swap(needed: int) -> tuple[str, str]:
    swap = kilobytes("/proc/meminfo", "SwapFree") or 0
    if needed <= swap:
        return "", ""
    has = f"{headrace.format_bytes(swap)} are free" if swap else "there is none"
    return "absent", f"{headrace.format_bytes(needed)} of swap needed, {has}: see swapon(8)"


def _no_switch(wish: Wish) -> tuple[str, str]:
    try:
        state, _ = switch.shown(Files(), wish)
    except headrace.Error as error:
        return error.code, str(error)
    if state is not None:
        return "exhausted", "headrace tier kernel is on; first: headrace tier kernel --off"
    return ("", "") if os.geteuid() == 0 else ("denied", "the kernel's settings take root")


def directory(chosen: Path | None, default: str) -> Path:
    """The directory for values on SSD. AbsentError: it does not exist."""
    found = Path(default) if chosen is None else chosen
    if not found.is_dir():
        raise headrace.AbsentError(f"no directory {found}; make it first")
    return found
