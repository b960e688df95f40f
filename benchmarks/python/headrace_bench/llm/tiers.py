# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a prompt are where, with blocks leaving the longest unused first: a model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Tiers:
    """Memories from fast to slow. What is new or used comes into the first; what has to leave one
    goes to the next, and from the last it is gone.
    """

    def __init__(self, capacities: Sequence[int]) -> None:
        self._capacities = list(capacities)
        self._held: list[OrderedDict[int, None]] = [OrderedDict() for _ in capacities]

    def match(self, blocks: Sequence[int]) -> list[int]:
        """The tier of each leading block that is there."""
        found = []
        for block in blocks:
            tier = next((i for i, held in enumerate(self._held) if block in held), None)
            if tier is None:
                break
            found.append(tier)
        return found

    def use(self, blocks: Sequence[int]) -> None:
        """Loads those that are there and stores the others. The last of a prompt are of no use
        without the first, so they leave before them.
        """
        for block in reversed(blocks):
            for held in self._held:
                held.pop(block, None)
            self._enter(0, block)

    def _enter(self, tier: int, block: int) -> None:
        if tier == len(self._held):
            return
        self._held[tier][block] = None
        if len(self._held[tier]) > self._capacities[tier]:
            oldest, _ = self._held[tier].popitem(last=False)
            self._enter(tier + 1, oldest)
