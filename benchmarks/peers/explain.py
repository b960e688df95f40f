# SPDX-License-Identifier: Apache-2.0
"""Why a peer and Headrace differ: the peer again with one thing changed, in turn with both.

Nothing is guessed: a change that brings the peer within 5 % of Headrace, or takes most of the
difference away, is named with its figures; where none does, that is what is said.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: A difference below this is none.
LEAST = 0.05
#: A change explains a difference if it removes this share of it.
MOST_OF_IT = 0.5

Measure = Callable[[], "float | None"]


@dataclass(frozen=True)
class Change:
    """One thing changed in how the peer runs."""

    words: str  # "its arrays on huge pages"
    measure: Measure


@dataclass
class Explained:
    """Results of the peer, of Headrace and of each change, by round."""

    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    changed: dict[str, list[float]] = field(default_factory=dict)


def differ(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether the medians are further apart than what counts as alike."""
    return abs(statistics.median(ours) / statistics.median(theirs) - 1) > LEAST


def run(
    theirs: Measure, ours: Measure, changes: Sequence[Change], rounds: int, seed: int
) -> Explained:
    """All of them once in each round, in an order drawn anew. A round in which one of the two gave
    no number is left out."""
    found = Explained(changed={change.words: [] for change in changes})
    chance = random.Random(seed)
    for _ in range(rounds):
        measures: dict[str, Measure] = {"": theirs, "ours": ours}
        measures |= {change.words: change.measure for change in changes}
        names = list(measures)
        got = {name: measures[name]() for name in chance.sample(names, len(names))}
        one, other = got.pop(""), got.pop("ours")
        if one is None or other is None:
            continue
        found.theirs.append(one)
        found.ours.append(other)
        for name, number in got.items():
            if number is not None:
                found.changed[name].append(number)
    return found


def verdict(found: Explained, text: Callable[[float], str]) -> str:
    """One sentence with the figures."""
    if not found.theirs:
        return "not explained: no round gave both numbers"
    theirs, ours = statistics.median(found.theirs), statistics.median(found.ours)
    both = f"{text(theirs)} against {text(ours)} of Headrace"
    if not differ(found.ours, found.theirs):
        return f"gone when measured again: {both}"
    medians = {name: statistics.median(got) for name, got in found.changed.items() if got}
    if not medians:
        return f"not explained: {both}, and nothing could be changed"
    name = min(medians, key=lambda each: abs(ours / medians[each] - 1))
    closed = 1 - abs(ours - medians[name]) / abs(ours - theirs)
    tried = ", ".join(f"{each} {text(median)}" for each, median in medians.items())
    if closed < MOST_OF_IT:
        return f"not explained: {both}; tried: {tried}"
    alike = abs(ours / medians[name] - 1) <= LEAST
    return (
        f"{'explained' if alike else 'mostly explained'} by {name}: {both}; with it "
        f"{text(medians[name])}, {closed:.0%} of the difference (tried: {tried})"
    )
