# SPDX-License-Identifier: Apache-2.0
"""A model of the tiers of a prompt's blocks, with LRU eviction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Tiers:
    """Memories from fast to slow. New and used blocks go into the first. A block evicted from one
    goes to the next; from the last it is dropped.
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
        """Loads the blocks that are there and stores the others. A prompt's last blocks are useless
        without its first ones, so they are evicted earlier.
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
