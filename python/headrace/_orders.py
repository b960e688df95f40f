# SPDX-License-Identifier: Apache-2.0
"""The order in which the alternatives of a benchmark run.

It is drawn anew in each round: an alternative that always runs after the same other finds the
machine as that one left it, which the median of all rounds does not show.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def orders(items: Sequence[T], rounds: int, seed: int = 1) -> Iterator[list[T]]:
    """All items once per round; the same seed gives the same orders."""
    generator = random.Random(seed)
    for _ in range(rounds):
        yield generator.sample(items, len(items))
