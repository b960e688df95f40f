# SPDX-License-Identifier: Apache-2.0
"""Requests of conversations, drawn like those of the published trace that Mooncake's authors call
`conversation` (FAST'25): the numbers it is fitted to are PUBLISHED. The trace itself is not here.

Conversations begin at random times. Each request contains the whole conversation so far: it begins
with the blocks of the previous request, followed by new ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy
import numpy.random  # at once: its modules swallow a Ctrl-C that comes while they are imported

#: Tokens of a block of the trace.
BLOCK_TOKENS = 512
#: Published figures of the trace; hit rates are those of one LRU list of 10 000 or 50 000 blocks.
PUBLISHED: dict[str, float] = {
    "requests": 12_031, "seconds": 59 * 60, "blocks": 288_500, "unique_blocks": 182_790,
    "reusable": 0.366, "lru_10000": 0.211, "lru_50000": 0.355,
}  # fmt: skip

#: Fitted: conversations per second, the chance of one more request, the blocks of the first one
#: (log-normal) and of each later one (mean), and the seconds between two (log-normal).
CONVERSATIONS_PER_SECOND = 2.16
ANOTHER = 0.385
FIRST_BLOCKS, FIRST_SPREAD = 15.0, 0.9
LATER_BLOCKS = 3.3
PAUSE_SECONDS, PAUSE_SPREAD = 120.0, 1.0

#: With _MANY requests or more, draws are alike. With fewer, the best of _DRAWS draws is taken.
_MANY, _DRAWS = 5000, 16


@dataclass(frozen=True)
class Request:
    seconds: float  #: when it comes
    conversation: int
    blocks: tuple[int, ...]  #: from the first token on; equal numbers are equal contents
    known: int  #: of these, as many were in the request before it


def conversations(
    requests: int = 12_031, seconds: float = PUBLISHED["seconds"], seed: int = 1
) -> list[Request]:
    """The first `requests` of about `seconds`, in order of time. Fewer requests in the same time
    mean fewer conversations at once. Small numbers of requests vary by chance, so the draw with the
    nearest shares of known blocks is taken out of several. The same seed gives the same requests.
    """
    draws = 1 if requests >= _MANY else _DRAWS
    made = (_drawn(requests, seconds, numpy.random.default_rng([seed, i])) for i in range(draws))
    return min(made, key=lambda each: _unlike(statistics(each)) if draws > 1 else 0.0)


def _unlike(found: dict[str, float]) -> float:
    """The distance between a draw's shares and the published ones."""
    names = ("reusable", "lru_10000", "lru_50000")
    return sum(abs(found[name] - PUBLISHED[name]) for name in names)


def _drawn(requests: int, seconds: float, draw: numpy.random.Generator) -> list[Request]:
    rate = CONVERSATIONS_PER_SECOND * (requests / PUBLISHED["requests"])
    rate *= PUBLISHED["seconds"] / seconds
    found: list[tuple[float, int, int, int]] = []  # when, conversation, blocks, known
    begin, number = 0.0, 0
    while begin < 1.5 * seconds or len(found) < 2 * requests:
        begin += float(draw.exponential(1 / rate))
        at, known = begin, 0
        blocks = _length(draw, FIRST_BLOCKS, FIRST_SPREAD)
        while at < begin + seconds:
            found.append((at, number, blocks, known))
            if draw.random() >= ANOTHER:
                break
            known = blocks
            blocks += int(draw.geometric(1 / LATER_BLOCKS))
            at += float(draw.lognormal(numpy.log(PAUSE_SECONDS), PAUSE_SPREAD))
        number += 1
    found.sort()
    return _named(found[:requests])


def _length(draw: numpy.random.Generator, median: float, spread: float) -> int:
    return max(1, round(float(draw.lognormal(numpy.log(median), spread))))


def _named(found: Iterable[tuple[float, int, int, int]]) -> list[Request]:
    """Numbers the blocks in order of first use."""
    made: dict[int, list[int]] = {}
    total = 0
    requests = []
    for at, conversation, blocks, known in found:
        names = made.setdefault(conversation, [])
        fresh = blocks - len(names)
        names.extend(range(total, total + fresh))
        total += fresh
        requests.append(Request(at, conversation, tuple(names), known))
    return requests


def lru_hits(requests: Iterable[Request], capacity: int | None = None) -> int:
    """Number of block references that hit one LRU list of `capacity` blocks; None: unlimited
    capacity."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for request in requests:
        for block in request.blocks:
            if block in held:
                hits += 1
                held.move_to_end(block)
                continue
            held[block] = None
            if capacity is not None and len(held) > capacity:
                held.popitem(last=False)
    return hits


def statistics(requests: Sequence[Request]) -> dict[str, float]:
    """The figures of PUBLISHED for these requests; capacities are scaled by the number of requests.
    """
    scale = len(requests) / PUBLISHED["requests"]
    blocks = sum(len(request.blocks) for request in requests)
    rates = {
        f"lru_{capacity}": lru_hits(requests, max(1, round(capacity * scale))) / blocks
        for capacity in (10_000, 50_000)
    }
    hits = lru_hits(requests)
    return {
        "requests": len(requests), "seconds": requests[-1].seconds if requests else 0.0,
        "blocks": blocks, "unique_blocks": blocks - hits, "reusable": hits / blocks, **rates,
    }  # fmt: skip
