# SPDX-License-Identifier: Apache-2.0
"""The plan of `headrace tier kernel --on`: settings from a wish and the kernel's state. This module
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace import AbsentError, InvalidError, UnsupportedError
from headrace._core import NUMA_BALANCING as BALANCING
from headrace._core import WEIGHTS, format_rate
from headrace._core import HostFiles as Files
from headrace._run.plan import ranges
from headrace._tiering import damon
from headrace._tiering.setting import Setting
from headrace._tiering.tiers import Tiers, tiers

RATE_LIMIT = f"{BALANCING}_promote_rate_limit_MBps"
DEMOTION = "sys/kernel/mm/numa/demotion_enabled"
#: Bits of numa_balancing: NUMA_BALANCING_NORMAL and NUMA_BALANCING_MEMORY_TIERING.
_BETWEEN_NODES, _PROMOTING = 1, 2
#: The file for the kernel's automatic weights. Its name is `auto`; in some kernels a macro changed
#: the name (Linux 6.18).
AUTOMATIC = (f"{WEIGHTS}/auto", f"{WEIGHTS}/__auto_type")
#: The rate limit is the write bandwidth divided by this (the kernel documentation's rule).
_SHARE_OF_WRITES = 10
_MOST_WEIGHT = 255


@dataclass(frozen=True)
class Wish:
    """The options of --on. `rate`: bytes per second; `schemes`: names of DAMON's schemes."""

    promotion: bool = True
    demotion: bool = True
    rate: float | None = None
    weights: Mapping[int, int] = field(default_factory=dict)
    schemes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "promotion": self.promotion,
            "demotion": self.demotion,
            "rate": self.rate,
            "weights": {str(node): weight for node, weight in sorted(self.weights.items())},
            "damon": list(self.schemes),
        }


@dataclass(frozen=True)
class Plan:
    """Settings in the order of writing, and notes for people."""

    settings: tuple[Setting, ...]
    notes: tuple[str, ...]

    @property
    def changes(self) -> list[Setting]:
        return [setting for setting in self.settings if setting.is_change]


def plan(files: Files, wish: Wish) -> Plan:
    """Makes the plan. UnsupportedError: the kernel or this machine cannot do it, with the reason.
    """
    if not (wish.promotion or wish.demotion or wish.weights or wish.schemes):
        raise InvalidError("nothing to set; leave out --no-promotion or --no-demotion")
    if not files.path("sys/kernel/mm").is_dir():
        raise UnsupportedError("there is no /sys/kernel/mm, as in some containers; use the host")
    here = tiers(files)
    rate = wish.rate if wish.rate is not None else _rate(files, here)
    settings: list[Setting] = []
    notes: list[str] = []
    if wish.promotion or wish.demotion or wish.schemes:
        _check_tiers(here)
    if wish.promotion:
        notes += _check_promotion(here)
        settings += _promotion(files, rate)
        if rate is None:
            notes.append(
                "no rate limit is set: firmware does not say how fast the slow nodes write; "
                "--rate 1GB/s sets one"
            )
    mode = files.setting(BALANCING) or ""
    if here.unseen and mode.isdecimal() and int(mode) & _BETWEEN_NODES:
        ends = _PROMOTING if wish.promotion else 0
        notes.append(
            f"numa_balancing is {mode}, which pulls hot pages out of {_listed(here.unseen)}; "
            f"sysctl kernel.numa_balancing={ends} ends that"
        )
    if wish.demotion:
        settings.append(_demotion(files))
    settings += weights_of(files, wish.weights)
    notes += _weightless(files, wish.weights)
    if wish.schemes:
        settings += damon.settings(files, here, wish.schemes, rate)
    return Plan(tuple(settings), tuple(notes))


def _check_tiers(here: Tiers) -> None:
    if not here.all:
        raise UnsupportedError("the kernel has no memory tiers; Linux 6.1 has")
    if len(here.all) == 1:
        raise UnsupportedError(
            f"all memory is in one tier, {here.all[0]}: the kernel has nothing to promote or "
            "demote; headrace tier attach keeps a program within a budget of DRAM, the rest in "
            "swap"
        )


def _check_promotion(here: Tiers) -> Iterator[str]:
    """Notes on promotion. An error if the kernel would promote nothing."""
    if here.cpus is None:
        raise UnsupportedError("the kernel does not say which nodes have CPUs")
    if not here.slow:
        raise UnsupportedError(
            f"{_listed(here.unseen)} is faster than {here.cpus} with the CPUs, and the kernel "
            "counts both as top: numa_balancing=2 promotes nothing there, and =1 pulls hot pages "
            "out of it; --no-promotion leaves this out, --damon hot moves hot pages there"
        )
    if here.unseen:
        yield (
            f"promoted are pages of {_listed(here.slow)} to {here.cpus}, not to "
            f"{_listed(here.unseen)}, which the kernel counts as top as well"
        )


def _listed(several: tuple[object, ...]) -> str:
    return " and ".join(map(str, several))


def _rate(files: Files, here: Tiers) -> float | None:
    """A tenth of the write bandwidth of the slowest slow node; None if firmware does not state it.
    """
    nodes = [node for tier in here.all[1:] for node in tier.nodes]
    rates = [files.write_bandwidth(node) for node in nodes]
    known = [rate for rate in rates if rate is not None]
    return min(known) / _SHARE_OF_WRITES if known and len(known) == len(rates) else None


def _promotion(files: Files, rate: float | None) -> Iterator[Setting]:
    mode, limit = files.setting(BALANCING), files.read(RATE_LIMIT)
    if mode is None:
        raise UnsupportedError(
            "the kernel has no NUMA balancing, which takes CONFIG_NUMA_BALANCING; --no-promotion "
            "leaves it out"
        )
    if rate is not None:
        if limit is None:
            raise UnsupportedError(
                "the kernel promotes without a rate limit, which takes Linux 6.1; --no-promotion "
                "leaves it out"
            )
        wanted = max(1, round(rate / (1 << 20)))
        why = f"at most {format_rate(wanted << 20)} promoted into a node, in MiB/s"
        yield Setting(RATE_LIMIT, str(wanted), limit, why)
    yield _balancing(mode)


def _balancing(mode: str) -> Setting:
    """The value with promotion on; other bits stay."""
    if not mode.isdecimal():
        raise UnsupportedError(f"/{BALANCING} says {mode}, which headrace does not know")
    why = "pages accessed on slow nodes go to the CPU's node"
    if int(mode) & _BETWEEN_NODES:
        why += "; balancing between nodes stays on"
    return Setting(BALANCING, str(int(mode) | _PROMOTING), mode, why)


def _demotion(files: Files) -> Setting:
    now = files.read(DEMOTION)
    if now is None:
        raise UnsupportedError(
            "the kernel cannot demote, which takes Linux 5.15; --no-demotion leaves it out"
        )
    return Setting(DEMOTION, "1", now, "reclaim moves pages to the slower tier before swap")


def weights_of(files: Files, weights: Mapping[int, int]) -> Iterator[Setting]:
    """Settings of the kernel's table for weighted interleave; 0 leaves a node's weight as it is."""
    used = {node: weight for node, weight in weights.items() if weight}
    for node, weight in used.items():
        if not 1 <= weight <= _MOST_WEIGHT:
            raise InvalidError(
                f"weight {weight} of node {node} is out of range; "
                f"give 1 to {_MOST_WEIGHT}"
            )
    before = {node: files.read(f"{WEIGHTS}/node{node}") for node in sorted(weights)}
    if weights and not files.names(f"{WEIGHTS}/node*"):
        raise UnsupportedError("the kernel cannot weigh nodes (Linux 6.9 can); leave out --weights")
    for node, now in before.items():
        if now is None:
            raise AbsentError(f"the kernel has no weight of node {node}; headrace topo shows nodes")
    for name in AUTOMATIC:
        if used and files.read(name) == "1":
            yield Setting(name, "0", "1", "weights are those below, not the kernel's choice")
    for node in sorted(used):
        why = "pages in a turn of weighted interleave"
        yield Setting(f"{WEIGHTS}/node{node}", str(used[node]), before[node], why)


def _weightless(files: Files, weights: Mapping[int, int]) -> Iterator[str]:
    """A note on nodes with weight 0, which the table cannot express."""
    nodes = sorted(node for node, weight in weights.items() if not weight)
    if nodes:
        stay = ", ".join(files.read(f"{WEIGHTS}/node{node}") or "" for node in nodes)
        yield (
            f"the kernel has no weight 0: start programs without node {ranges(nodes)} (headrace "
            f"run --on PLACE); {'its weight stays' if len(nodes) == 1 else 'weights stay'} {stay}"
        )
