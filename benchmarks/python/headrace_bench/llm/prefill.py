# SPDX-License-Identifier: Apache-2.0
"""Prefills behind cached blocks: how much of the loading time the layers can compute, and how much
they wait.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import headrace
from headrace._language_models import Model
from headrace_bench.llm.tiers import Tiers
from headrace_bench.llm.trace import BLOCK_TOKENS, PUBLISHED, Request

Row = dict[str, Any]

#: Ways to get the keys and values of known tokens.
POLICIES = {
    "layerwise": "loads all layers in their order, while the layers before them are computed",
    "ahead": "layerwise, and of the next in the queue while the one before it is computed",
    "load-first": "loads all layers, then computes",
    "demand": "loads each layer when it is its turn",
    "recompute": "loads nothing and computes them again",
}


@dataclass(frozen=True)
class Timeline:
    stalls: list[float]  #: seconds that each layer waited, or was computed again
    loading: float  #: seconds in which loads were under way
    seconds: float  #: from the beginning to the end of the last layer


def timeline(
    policy: str, layers: int, load: float, compute: float, again: float = 0.0, before: float = 0.0
) -> Timeline:
    """With the seconds to load a layer, to compute it for new tokens, and again for the others;
    `before`: those in which layers were loaded before their turn.
    """
    if policy == "recompute":
        return Timeline([again] * layers, 0.0, layers * (compute + again))
    if policy == "demand":
        return Timeline([load] * layers, layers * load, layers * (compute + load))
    if policy == "load-first":
        stalls = [layers * load] + [0.0] * (layers - 1)
        return Timeline(stalls, layers * load, layers * (compute + load))
    stalls, end = [], 0.0
    for layer in range(layers):
        begin = max(end, (layer + 1) * load - before)
        stalls.append(begin - end)
        end = begin + compute
    return Timeline(stalls, layers * load, end)


@dataclass(frozen=True)
class Scale:
    """The published trace and a model, scaled down for a small machine."""

    requests: int
    block_tokens: int = BLOCK_TOKENS
    capacities: tuple[int, ...] = (10_000, 40_000)  #: blocks of each tier, for the whole trace

    @property
    def share(self) -> float:
        return self.requests / PUBLISHED["requests"]

    def blocks(self) -> list[int]:
        """Blocks of each tier; no block is in two tiers."""
        return [max(1, round(each * self.share)) for each in self.capacities]


def geometry(model: Model, block_tokens: int) -> Row:
    """The fields of a document that describe the blocks."""
    fragment = block_tokens * model.layer_kv_bytes()
    return {
        "model": model.name, "layers": model.layers, "dtype": "bf16", "layout": "page_first",
        "block_tokens": block_tokens, "fragment_bytes": fragment,
        "block_bytes": fragment * model.layers,
    }  # fmt: skip


def matches(
    requests: Sequence[Request], capacities: Sequence[int]
) -> Iterator[tuple[Request, list[int]]]:
    """Each request, and the tiers of its leading blocks."""
    tiers = Tiers(capacities)
    for request in requests:
        # The last block is always computed: something must say what comes next.
        found = tiers.match(request.blocks[:-1])
        tiers.use(request.blocks)
        yield request, found


@dataclass(frozen=True)
class Served:
    """One request that has been."""

    made: Timeline
    tiers: Sequence[int]  #: of each block that was found
    blocks: int
    compute: float  #: seconds of a layer
    load: float | None  #: those that the bytes of one layer take to come at best, if known

    @property
    def can_hide(self) -> bool:
        return self.load is not None and self.compute >= self.load


def summary(
    policy: str, names: Sequence[str], served: Sequence[Served], layers: int, apart: int = 0
) -> Row:
    """Stalls per layer of requests with cached blocks, without the first `apart` of them."""
    behind = [each for each in served if each.tiers][apart:]
    can = [each for each in behind if each.can_hide]
    stalls = sorted(sum(each.made.stalls) for each in behind)
    references = sum(each.blocks for each in served)
    return {
        "policy": policy,
        "requests": len(served),
        "with_cached": len(behind),
        "hit_rate": {
            name: sum(list(each.tiers).count(i) for each in served) / max(1, references)
            for i, name in enumerate(names)
        },
        "stall_p50_ms": _ms(quantile(stalls, 0.5), layers),
        "stall_p50_interval_ms": _interval(stalls, layers),
        "stall_p99_ms": _ms(quantile(stalls, 0.99), layers),
        "request_stall_p50_ms": _ms(quantile(stalls, 0.5)),
        "request_stall_p99_ms": _ms(quantile(stalls, 0.99)),
        "hidden_share": _hidden(behind),
        "can_hide": len(can),
        "hidden_share_where_it_can": _hidden(can),
        "inequality": _inequality(can),
        "flags": [],
    }


def _hidden(served: Sequence[Served]) -> float | None:
    """The part of the time of loads in which layers worked; nothing where nothing was loaded."""
    loading = sum(each.made.loading for each in served)
    waiting = sum(sum(each.made.stalls) for each in served)
    return max(0.0, 1 - waiting / loading) if loading else None  # no more than rounding below 0


def of_alone(served: Sequence[Served], alone: Sequence[Served], apart: int = 0) -> Row:
    """The share of the loading time alone that requests do not wait for; below 0 they wait longer.

    `alone`: the same requests with load-first. A policy's own loading time is longer where loads
    are queued or the store is slow, though no more is hidden. Only requests with as many cached
    blocks in both are compared; a policy may find them in another tier. The first `apart` requests
    with cached blocks are left out in both.
    """
    mine, theirs = (_by_number(each, apart) for each in (served, alone))
    pairs = [
        (each, theirs[number]) for number, each in mine.items()
        if number in theirs and len(each.tiers) == len(theirs[number].tiers)
        and min(each.tiers) >= 0  # computed again, as if they were in no tier: nothing is hidden
    ]  # fmt: skip
    return {
        "hidden_of_alone": _not_waited(pairs),
        "hidden_of_alone_where_it_can": _not_waited([pair for pair in pairs if pair[0].can_hide]),
        "of_alone": len(pairs),
    }  # fmt: skip


def _by_number(served: Sequence[Served], apart: int) -> dict[int, Served]:
    return dict([pair for pair in enumerate(served) if pair[1].tiers][apart:])


def _not_waited(pairs: Sequence[tuple[Served, Served]]) -> float | None:
    loading = sum(alone.made.loading for _, alone in pairs)
    return 1 - sum(sum(each.made.stalls) for each, _ in pairs) / loading if loading else None


def quantile(values: Sequence[float], part: float) -> float | None:
    """The least of the sorted values that this part of them does not exceed; None of none."""
    if not values:
        return None
    return values[max(0, math.ceil(part * len(values)) - 1)]


def _inequality(can: Sequence[Served]) -> Row | None:
    """Why they can hide, by medians, and why not all is hidden: no layer is computed before the
    first is there, so that wait is no part of the most that is. Nothing where nothing was loaded.
    """
    loading = sum(each.made.loading for each in can)
    if not loading:
        return None
    first = [each.made.stalls[0] for each in can]
    return {
        "layer_ms": 1e3 * statistics.median(each.compute for each in can),
        "layer_load_ms": 1e3 * statistics.median(each.load or 0.0 for each in can),
        "first_layer_ms": 1e3 * statistics.median(first),
        "most_hidden": max(0.0, 1 - sum(first) / loading),
    }


def median_interval(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of the median (headrace/statistics.h); nothing of fewer than six."""
    found = headrace.summarize(list(values))
    if found is None or found.coverage is None:
        return None
    return [found.interval.low, found.interval.high]


def _interval(values: Sequence[float], layers: int) -> list[float] | None:
    found = median_interval(values)
    return None if found is None else [1e3 * end / layers for end in found]


def _ms(seconds: float | None, layers: int = 1) -> float | None:
    return None if seconds is None else 1e3 * seconds / layers
