# SPDX-License-Identifier: Apache-2.0
"""Rounds of `headrace bench kvcache`: policies, layers beside loads, loads of stores; their rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import headrace
from headrace._profile.nested import details_of
from headrace_bench.llm import noise
from headrace_bench.llm.kvcache import CALIBRATIONS, CONTENTS, FRONT, Bench, MakeStore
from headrace_bench.llm.stores import Match, Store
from headrace_bench.runner import INTERRUPTED, Runner, Variant, row_of

Row = dict[str, Any]
_NO_DETAILS = ("stall_p50_ms", "hidden_of_alone", "hidden_of_alone_where_it_can")


def run_policies(bench: Bench, makers: Sequence[MakeStore], names: Sequence[str]) -> Runner:
    """Runs each policy on each store once, which takes minutes. The first requests are not counted.
    """
    variants = [
        Variant({**bench.known(), "store": store, "policy": policy})
        for store in names for policy in bench.options.policies
    ]  # fmt: skip
    make_of = dict(zip(names, makers, strict=True))

    def once(variant: Variant, _: int) -> Row:
        bench.make = make_of[str(variant.parameters["store"])]
        return bench.policy(str(variant.parameters["policy"]))

    runner = Runner(variants, 1, bench.options.seed, warm_up=0)
    runner.run(once, bench.stop)
    bench.add_alone([row for each in variants for row in each.results])
    return runner


def policy_rows(bench: Bench, runner: Runner) -> list[headrace.Row]:
    """A row per policy. Samples: the wait of a layer in ms, for each request with cached blocks."""
    return [_policy_row(bench, runner, each) for each in runner.variants]


def _policy_row(bench: Bench, runner: Runner, variant: Variant) -> headrace.Row:
    for found in variant.results:
        stalls = found["stalls_ms"]
        # `median` and the interval are those of the samples; no detail is below 0.
        details = {k: v for k, v in details_of(found).items() if k not in _NO_DETAILS}
        for part in ("", "_where_it_can"):
            if (hidden := found.get(f"hidden_of_alone{part}")) is not None:
                details[f"waited_of_alone{part}"] = 1 - hidden
        return row_of(
            "kvcache", variant.parameters, "ms", stalls, details=details | {"wrong": 0.0},
            words={"note": found["reason"]} if stalls else {}, flags=found["flags"],
            basis=bench.basis(), reason=found["reason"] or "no request had cached blocks",
        )  # fmt: skip
    return runner.row("kvcache", variant, "ms", [], basis=bench.basis())


def interference(bench: Bench) -> list[headrace.Row]:
    """Rows of interference: the speed of layers beside loads, and of loads beside layers, relative
    to each alone."""
    bench.progress(0, bench.options.rounds, "layers beside loads")
    store, match = _full(bench, bench.make)
    tokens = 8 * bench.options.scale.block_tokens
    layers, loads, both = (Variant({"what": what}) for what in ("layers", "loads", "both"))

    def once(variant: Variant, _: int) -> Any:
        if variant is layers:
            return [bench.compute.layer(tokens) for _ in range(CALIBRATIONS)]
        if variant is loads:
            return _rate(bench, match)
        begin, beside = time.perf_counter(), []
        load = match.load(bench.to, range(bench.shape.layers))
        while not load.done():
            beside.append(bench.compute.layer(tokens))
        return beside, len(match.tiers) * bench.shape.block / (load.ended() - begin)

    before = noise.counts()
    runner = Runner([layers, loads, both], bench.options.rounds, bench.options.seed)
    try:
        runner.run(once, bench.stop, bench.told("layers beside loads"))
    finally:
        match.release()
        store.close()
    heard = noise.between(before, noise.counts())
    alone = [1 / each for found in layers.results for each in found]
    beside = [1 / each for found, _ in both.results for each in found]
    rates = [rate for _, rate in both.results]
    return [
        _beside(bench, "layer", "loads", alone, beside, heard),
        _beside(bench, "loads", "layers", loads.results, rates, heard),
    ]


def _beside(
    bench: Bench, of: str, beside: str, alone: Sequence[float], together: Sequence[float],
    heard: Row,
) -> headrace.Row:  # fmt: skip
    """Layers per second, or bytes per second."""
    details, ratio = details_of(heard), []
    if alone and together:
        one, two = statistics.median(alone), statistics.median(together)
        details |= {"alone": one, "together": two}
        ratio = [two / one]
    return row_of(
        "kvcache_interference", {**bench.known(), "of": of, "beside": beside}, "share", ratio,
        details=details, flags=heard["flags"], basis=bench.basis(), reason=INTERRUPTED,
    )  # fmt: skip


def _full(bench: Bench, make: MakeStore, tiers: int = 2) -> tuple[Store, Match]:
    """A store with this number of tiers, and blocks that its second tier alone has."""
    count = bench.loaded_blocks()
    store = make(bench.shape, [FRONT, count + FRONT, FRONT][:tiers], False)
    try:
        for block in range(count + FRONT):
            store.store([block], bench.source, [block % CONTENTS])
            store.settle()
        match = store.match(range(count))
        if match.tiers == [1] * count:
            return store, match
        match.release()
        raise headrace.IoError(f"blocks did not reach {store.tiers[1]}; is it full?")
    except BaseException:
        store.close()
        raise


def _rate(bench: Bench, match: Match) -> float:
    begin = time.perf_counter()
    load = match.load(bench.to, range(bench.shape.layers))
    return len(match.tiers) * bench.shape.block / (load.ended() - begin)


def loads(
    bench: Bench, makers: Sequence[MakeStore], depth: int, tiers: int
) -> list[headrace.Row]:
    """Each store loads the same blocks, layer by layer: with two tiers from its disk, with three
    from host memory.
    """
    stores: list[tuple[Store, Match]] = []
    try:
        for done, make in enumerate(makers):
            bench.progress(done, len(makers), "filling stores")
            stores.append(_full(bench, make, tiers))
        variants = [
            Variant({**bench.known(), "store": store.name, "tier": store.tiers[1], "depth": depth})
            for store, _ in stores
        ]
        match_of = {id(each): match for each, (_, match) in zip(variants, stores, strict=True)}
        runner = Runner(variants, bench.options.rounds, bench.options.seed)
        before = noise.counts()
        runner.run(
            lambda variant, _: _rate(bench, match_of[id(variant)]), bench.stop,
            bench.told("loads of stores in turn"),
        )  # fmt: skip
        heard = noise.between(before, noise.counts())
    finally:
        for store, match in stores:
            match.release()
            store.close()
    return [_load_row(bench, runner, each, heard) for each in variants]


def _load_row(bench: Bench, runner: Runner, variant: Variant, heard: Row) -> headrace.Row:
    best = bench.rates.get(str(variant.parameters["tier"]))
    details = details_of(heard) | {"fragment_bytes": bench.shape.fragment}
    if variant.results and best:
        details["roofline_share"] = statistics.median(variant.results) / best
    return runner.row(
        "kvcache_load", variant, "B/s", variant.results, details=details, flags=heard["flags"],
        basis=bench.basis(),
    )  # fmt: skip
