# SPDX-License-Identifier: Apache-2.0
"""The kernel's memory tiers: which nodes it takes to be fast, and where it moves pages to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace._core import HostFiles as Files
from headrace._run.plan import ranges

#: A node of which firmware says no distance.
_FARTHEST = 255


@dataclass(frozen=True)
class Tier:
    """Nodes that the kernel takes to be equally fast; the smaller its number, the faster."""

    number: int
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        return f"node {ranges(self.nodes)} (tier {self.number})"


@dataclass(frozen=True)
class Tiers:
    """All tiers, fastest first. The kernel counts as top those down to the last one with CPUs: it
    promotes from the others only, and to the node of the CPU that asks.
    """

    all: tuple[Tier, ...]
    with_cpus: frozenset[int]

    @property
    def _top(self) -> int:
        """How many are top."""
        have = [at for at, tier in enumerate(self.all) if self.with_cpus.intersection(tier.nodes)]
        return max(have, default=-1) + 1

    @property
    def slow(self) -> tuple[Tier, ...]:
        return self.all[self._top :]

    @property
    def cpus(self) -> Tier | None:
        """The slowest with CPUs."""
        return self.all[self._top - 1] if self._top else None

    @property
    def unseen(self) -> tuple[Tier, ...]:
        """Tiers faster than the CPUs' own, such as HBM. The kernel treats them as top tiers as
        well, so it promotes nothing into them."""
        return self.all[: max(self._top - 1, 0)]

    def faster(self, node: int) -> Sequence[int]:
        """The nodes of the next faster tier; none if its own is the fastest."""
        at = self._of(node)
        return self.all[at - 1].nodes if at > 0 else ()

    def slower(self, node: int) -> Sequence[int]:
        at = self._of(node)
        return self.all[at + 1].nodes if at + 1 < len(self.all) else ()

    def _of(self, node: int) -> int:
        return next(at for at, tier in enumerate(self.all) if node in tier.nodes)


def tiers(files: Files) -> Tiers:
    """None at all where the kernel has no memory tiers (before Linux 6.1)."""
    found = [Tier(number, tuple(nodes)) for number, nodes in files.memory_tiers()]
    with_cpus = [node for tier in found for node in tier.nodes if files.cpus(node)]
    return Tiers(tuple(found), frozenset(with_cpus))


def nearest(files: Files, node: int, others: Sequence[int], turn: int) -> int:
    """The nearest node by firmware's distances. Equally near nodes take turns."""
    far = files.distances(node)
    least = min(far.get(other, _FARTHEST) for other in others)
    near = [other for other in others if far.get(other, _FARTHEST) == least]
    return near[turn % len(near)]
