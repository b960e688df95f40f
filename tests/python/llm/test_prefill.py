# SPDX-License-Identifier: Apache-2.0
"""Waits of a prefill, what hides of them, the drawn requests, and tiers."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

import headrace
from headrace._language_models import MODELS, model
from headrace_bench.llm import prefill, trace
from headrace_bench.llm.tiers import Tiers

EIGHT = model("llama-3.1-8b")


@given(
    some.sampled_from(MODELS),
    some.integers(1, 200_000),
    some.integers(1, 200_000),
    some.floats(1e11, 1e15),
    some.floats(1e8, 1e12),
)
def test_what_can_hide_is_hidden(
    chosen: prefill.Model, new: int, cached: int, operations: float, rate: float
) -> None:
    """Layer by layer: all but the first layer's load; less the further it is from being able to."""
    load = cached * chosen.layer_kv_bytes() / rate
    compute = 2 * chosen.token_parameters * new / operations
    made = prefill.timeline("layerwise", chosen.layers, load, compute)
    hidden = 1 - sum(made.stalls) / made.loading
    if compute >= load:
        assert hidden >= 0.9
        assert made.stalls[1:] == pytest.approx(
            [0.0] * (chosen.layers - 1), abs=1e-9 * made.seconds
        )
    else:
        assert hidden == pytest.approx(compute / load * (1 - 1 / chosen.layers), rel=1e-6)
    assert made.seconds == pytest.approx(sum(made.stalls) + chosen.layers * compute)
    for policy in ("load-first", "demand"):
        late = prefill.timeline(policy, chosen.layers, load, compute)
        assert sum(late.stalls) == pytest.approx(late.loading)  # nothing is hidden
        assert made.seconds <= late.seconds * (1 + 1e-9)


@given(some.lists(some.floats(1e-6, 1e3), max_size=40))
def test_the_interval_of_a_median_is_that_of_all_measurements(values: list[float]) -> None:
    found = headrace.summarize(values)
    known = found is not None and found.coverage is not None
    assert known == (len(values) >= 6)
    ends = [found.interval.low, found.interval.high] if found is not None and known else None
    assert prefill.median_interval(values) == ends
    layers = prefill._interval(values, 4)
    assert layers == (None if ends is None else [1e3 * end / 4 for end in ends])


def test_the_generator_is_like_the_published_trace() -> None:
    found = trace.statistics(trace.conversations(seed=1))
    for name, published in trace.PUBLISHED.items():
        tolerance = 0.06 if name.startswith("lru") else 0.03
        assert found[name] == pytest.approx(published, rel=tolerance), name


def test_requests_come_in_order_and_hold_what_was_before() -> None:
    made = trace.conversations(500, 600, seed=3)
    assert len(made) == 500 and made == trace.conversations(500, 600, seed=3)
    assert made != trace.conversations(500, 600, seed=4)
    assert made[-1].seconds == pytest.approx(600, rel=0.25)
    before: dict[int, tuple[int, ...]] = {}
    for one, two in itertools.pairwise(made):
        assert one.seconds <= two.seconds
    for request in made:
        known = before.get(request.conversation, ())
        assert request.known == len(known) and request.blocks[: len(known)] == known
        assert len(set(request.blocks)) == len(request.blocks) > len(known)
        before[request.conversation] = request.blocks


def test_lru_against_a_list() -> None:
    made = trace.conversations(60, 100, seed=5)
    held: list[int] = []
    hits = 0
    for request in made:
        for block in request.blocks:
            if block in held:
                hits += 1
                held.remove(block)
            held.append(block)
            del held[:-40]
    assert trace.lru_hits(made, 40) == hits


@pytest.mark.parametrize("capacities", [[3], [2, 3], [1, 1, 4], [5, 50]])
def test_tiers_against_one_list(capacities: list[int]) -> None:
    """All tiers together are one LRU list, the fastest holding its end."""
    draw = random.Random(7)
    tiers, order = Tiers(capacities), []
    for _ in range(500):
        first = draw.randrange(12)
        blocks = [100 * first + i for i in range(draw.randint(1, 4))]
        held = order[-sum(capacities) :]
        expected = []
        for block in blocks:
            if block not in held:
                break
            behind = len(held) - held.index(block)
            expected.append(next(i for i in range(9) if behind <= sum(capacities[: i + 1])))
        assert tiers.match(blocks) == expected
        tiers.use(blocks)
        for block in reversed(blocks):
            if block in order:
                order.remove(block)
            order.append(block)


def test_quantiles() -> None:
    assert prefill.quantile([], 0.5) is None
    assert [prefill.quantile([1.0, 2.0, 3.0, 4.0], part) for part in (0, 0.5, 0.51, 0.99, 1)] == [
        1, 2, 3, 4, 4,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "most"), [("layerwise", 15 / 16), ("load-first", 0), ("demand", 15 / 16)]
)
def test_the_inequality_and_the_most_that_is_hidden(policy: str, most: float) -> None:
    """All but what is waited before the first layer; `demand` waits before the others too."""
    made = prefill.timeline(policy, 16, 1.0, 2.0)
    can, cannot = (prefill.Served(made, [0], 2, 2.0, load) for load in (1.0, 3.0))
    unknown = prefill.Served(made, [0], 2, 2.0, None)
    row = prefill.summary(policy, ["dram"], [can, can, cannot, unknown], 16)
    assert row["can_hide"] == 2
    first = pytest.approx(16000 * (1 - most))
    assert row["inequality"] == {
        "layer_ms": 2000, "layer_load_ms": 1000, "first_layer_ms": first, "most_hidden": most,
    }  # fmt: skip
    assert row["hidden_share_where_it_can"] == pytest.approx(most if policy != "demand" else 0)


def served(stall: float, loading: float, tiers: list[int], can: bool = True) -> prefill.Served:
    made = prefill.Timeline([stall], loading, 9.0)
    return prefill.Served(made, tiers, 3, 2.0, 1.0 if can else 3.0)


def test_what_is_hidden_of_loads_alone_does_not_rise_with_a_store_that_waits() -> None:
    """Twice the loading time, the same waits: of the policy's own more seems hidden, of what the
    loads take alone as much.
    """
    alone = [served(4, 4, [0]), served(4, 4, [0, 1]), served(2, 2, [1], can=False)]
    rows = []
    for slower in (1, 2):
        mine = [served(0, 4, [0]), served(1, 4 * slower, [1, 0]), served(2, 3, [1], can=False)]
        rows.append(prefill.summary("ahead", ["dram", "ssd"], mine, 1, 1)
                    | prefill.of_alone(mine, alone, 1))  # fmt: skip
    once, twice = rows
    assert twice["hidden_share_where_it_can"] > once["hidden_share_where_it_can"] == 0.75
    for row in rows:  # the first request is listed separately
        assert (row["hidden_of_alone"], row["of_alone"]) == (0.5, 2)
        assert row["hidden_of_alone_where_it_can"] == 0.75


def test_only_the_same_requests_are_compared_with_loads_alone() -> None:
    alone = [served(4, 4, [0]), served(4, 4, [0]), served(0, 0, [])]
    assert prefill.of_alone([served(5, 9, [0])], alone)["hidden_of_alone"] == -0.25
    assert prefill.of_alone([served(1, 9, [1])], alone)["hidden_of_alone"] == 0.75
    for mine in ([served(0, 4, [0, 0])], [served(0, 0, [-1])], [served(0, 0, [])], []):
        assert prefill.of_alone(mine, alone) == {
            "hidden_of_alone": None, "hidden_of_alone_where_it_can": None, "of_alone": 0,
        }  # fmt: skip
    assert prefill.of_alone([served(0, 4, [0])], [])["hidden_of_alone"] is None


def test_there_is_no_inequality_where_nothing_can_hide() -> None:
    slow = prefill.Served(prefill.timeline("layerwise", 16, 3.0, 2.0), [0], 2, 2.0, 3.0)
    computed = prefill.Served(prefill.timeline("recompute", 16, 1.0, 2.0, 1.0), [0], 2, 2.0, 0.0)
    for policy, served in (("layerwise", []), ("layerwise", [slow]), ("recompute", [computed])):
        assert prefill.summary(policy, ["dram"], served, 16)["inequality"] is None
