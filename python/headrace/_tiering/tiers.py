# SPDX-License-Identifier: Apache-2.0
"""The kernel's memory tiers: the nodes it treats as fast, and the targets of its moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace._core import HostFiles as Files
from headrace._run.plan import ranges

#: Distance of a node if firmware states none.
_FARTHEST = 255


@dataclass(frozen=True)
class Tier:
    """Nodes that the kernel treats as equally fast. A smaller number is a faster tier."""

    number: int
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        return f"node {ranges(self.nodes)} (tier {self.number})"


@dataclass(frozen=True)
class Tiers:
    """All tiers, fastest first. Top tiers are those down to the slowest with CPUs. The kernel
    promotes only from the other tiers, to the node of the CPU that accesses the page.
    """

    all: tuple[Tier, ...]
    with_cpus: frozenset[int]

    @property
    def _top(self) -> int:
        """Number of top tiers."""
        have = [at for at, tier in enumerate(self.all) if self.with_cpus.intersection(tier.nodes)]
        return max(have, default=-1) + 1

    @property
    def slow(self) -> tuple[Tier, ...]:
        return self.all[self._top :]

    @property
    def cpus(self) -> Tier | None:
        """The slowest tier with CPUs."""
        return self.all[self._top - 1] if self._top else None

    @property
    def unseen(self) -> tuple[Tier, ...]:
        """Tiers faster than the CPUs' own, such as HBM. The kernel treats them as top tiers as
        well, so it promotes nothing into them."""
        return self.all[: max(self._top - 1, 0)]

    def faster(self, node: int) -> Sequence[int]:
        """The nodes of the next faster tier; empty if the node is in the fastest."""
        at = self._of(node)
        return self.all[at - 1].nodes if at > 0 else ()

    def slower(self, node: int) -> Sequence[int]:
        at = self._of(node)
        return self.all[at + 1].nodes if at + 1 < len(self.all) else ()

    def _of(self, node: int) -> int:
        return next(at for at, tier in enumerate(self.all) if node in tier.nodes)


def tiers(files: Files) -> Tiers:
    """The kernel's tiers; empty before Linux 6.1, which has none."""
    found = [Tier(number, tuple(nodes)) for number, nodes in files.memory_tiers()]
    with_cpus = [node for tier in found for node in tier.nodes if files.cpus(node)]
    return Tiers(tuple(found), frozenset(with_cpus))


def nearest(files: Files, node: int, others: Sequence[int], turn: int) -> int:
    """The nearest node by firmware's distances. Equally near nodes take turns."""
    far = files.distances(node)
    least = min(far.get(other, _FARTHEST) for other in others)
    near = [other for other in others if far.get(other, _FARTHEST) == least]
    return near[turn % len(near)]
