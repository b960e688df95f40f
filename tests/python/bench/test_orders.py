# SPDX-License-Identifier: Apache-2.0
"""Benchmarks draw the order of their alternatives anew in each round."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_bench import kv_live, kv_servers
from headrace_bench.kv_place import Place
from headrace_bench.llm import kvcache_rounds
from headrace_bench.runner import Runner

ROUNDS = 6


def check(ran: Sequence[Any], alternatives: int) -> None:
    """All alternatives in each of ROUNDS rounds, not always in one order."""
    assert len(ran) == ROUNDS * alternatives
    rounds = [tuple(ran[at : at + alternatives]) for at in range(0, len(ran), alternatives)]
    assert all(len(set(each)) == alternatives for each in rounds)
    assert len(set(rounds)) > 1
    assert len({each[0] for each in rounds}) > 1, "one is always first"


def test_servers_of_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    class Steps:
        def __init__(self, *_: Any) -> None:
            pass

        def load(self) -> None:
            pass

        def moved(self, _: Any) -> Any:
            return nullcontext()

        def measure(self, config: str, workload: str, number: int) -> Any:
            ran.append((config, workload))
            return {"round": number}, []

    monkeypatch.setattr(kv_live, "Steps", Steps)
    monkeypatch.setattr(kv_live, "placed", lambda *_, **__: [])
    monkeypatch.setattr(kv_live, "memories_here", lambda _: None)
    monkeypatch.setattr(kv_servers, "started", lambda *_: nullcontext())
    monkeypatch.setattr(Place, "text", lambda *_: "")
    points = [kv_live.point("own", config, load) for config in ("MMEM", "CXL") for load in "AC"]
    place: Any = SimpleNamespace(weights=None, moved="", table=False, text=lambda _: "")
    data: Any = None
    groups = [
        kv_live._Group(kv_servers.SERVERS["own"], place, data, points[at : at + 2]) for at in (0, 2)
    ]
    options: Any = SimpleNamespace(rounds=ROUNDS, seed=1, workloads=["A", "C"], directory=Path())
    machine: Any = SimpleNamespace(nodes=[])
    kv_live._measure(groups, machine, options, lambda: False, lambda *_: None)
    check(ran[4:], 4)
    counted = [[row["round"] for row, _ in point.results] for point in points]
    assert counted == [[*range(ROUNDS)]] * 4


def bench_of(**options: Any) -> Any:
    """What all rounds of kvcache ask of a bench."""
    return SimpleNamespace(
        options=SimpleNamespace(rounds=ROUNDS, seed=1, **options), progress=lambda *_: None,
        stop=lambda: False, rates={}, shape=SimpleNamespace(fragment=4096), known=dict,
        told=lambda _: None, basis=lambda: "measured", add_alone=lambda _: None, make="",
    )  # fmt: skip


def test_loads_of_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    match = SimpleNamespace(tiers=[1], release=lambda: None)

    def full(_: Any, name: str) -> Any:
        store = SimpleNamespace(name=name, tiers=["dram", "ssd"], close=lambda: None)
        return store, SimpleNamespace(**vars(match), of=name)

    def rate(_: Any, match: Any) -> float:
        ran.append(match.of)
        return 1e9

    monkeypatch.setattr(kvcache_rounds, "_full", full)
    monkeypatch.setattr(kvcache_rounds, "_rate", rate)
    makers: Any = ["headrace", "asyncio", "other"]
    rows = kvcache_rounds.loads(bench_of(), makers, 1)
    check(ran[3:], 3)
    assert [row.parameters["store"] for row in rows] == makers
    assert all(len(row.samples) == ROUNDS for row in rows)


def test_LayersAndLoads_TakeTurns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone and beside each other, in another order in each round."""
    ran: list[str] = []
    load = SimpleNamespace(done=lambda: len(ran) % 2 == 0, ended=lambda: 1e12)

    def layer(_: int) -> float:
        ran.append("layer")
        return 0.5

    bench = bench_of(scale=SimpleNamespace(block_tokens=1))
    bench.compute = SimpleNamespace(layer=layer)
    bench.to, bench.shape = None, SimpleNamespace(layers=1, block=1 << 20, fragment=4096)
    match = SimpleNamespace(tiers=[1], release=lambda: None, load=lambda *_: load)
    store = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(kvcache_rounds, "_full", lambda *_: (store, match))
    monkeypatch.setattr(kvcache_rounds, "_rate", lambda *_: ran.append("load") or 1e9)
    orders: list[list[str]] = []
    run = Runner.run

    def noted(runner: Runner, *how: Any) -> None:
        orders.append(runner.order()["rounds"])
        run(runner, *how)

    monkeypatch.setattr(Runner, "run", noted)
    rows = kvcache_rounds.interference(bench)
    assert [row.parameters["of"] for row in rows] == ["layer", "loads"]
    [order] = orders
    assert len(order) == ROUNDS and len(set(order)) > 1


def test_policies_of_stores() -> None:
    """Not all of one store, then all of the other."""
    ran: list[tuple[str, str]] = []
    bench = bench_of(policies=["layerwise", "ahead", "demand"])

    def policy(name: str) -> dict[str, Any]:
        ran.append((bench.make, name))
        return {"store": bench.make, "policy": name}

    bench.policy = policy
    stores: Any = ["headrace", "asyncio"]
    runner = kvcache_rounds.run_policies(bench, stores, stores)
    pairs = [(store, name) for store in stores for name in bench.options.policies]
    assert sorted(ran) == sorted(pairs)
    found = [row for each in runner.variants for row in each.results]
    assert [(row["store"], row["policy"]) for row in found] == pairs
    changes = sum(one[0] != two[0] for one, two in zip(ran, ran[1:], strict=False))
    assert changes > 1, ran
