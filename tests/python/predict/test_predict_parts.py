# SPDX-License-Identifier: Apache-2.0
"""Parts of prediction: rules of placement, the machine in cache mode, profiles, scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace_bench.predict import arena, curves, kv, learned, places, spark, um, validate, whatif
from headrace_bench.predict import copy as predict_copy
from headrace_bench.predict.arena import Object
from headrace_bench.predict.cache_mode import in_cache_mode
from headrace_bench.predict.target import Estimate, Target
from headrace_bench.predict.validate import Figure

PRESETS = [
    "xeon-max", "xeon-max-quad", "xeon-max-cache", "xeon-max-9462", "spr-hbm", "cxl-a1000",
    "epyc-9354p", "grace", "gh200", "h200", "h100", "ac922", "x86-pcie3", "one-node",
]  # fmt: skip


def target(name: str) -> Target:
    return Target(headrace.Machine.load(name).asdict())


def objects(*sizes_and_traffic: tuple[float, float]) -> list[Object]:
    return [Object(f"o{i}", size, traffic, 0.0, "random load")
            for i, (size, traffic) in enumerate(sizes_and_traffic)]  # fmt: skip


def test_rules_place_as_they_are_named() -> None:
    used = objects((8, 8), (4, 40), (5, 45), (1, 1))
    assert arena.first_touch(used, 10) == {"o0": 1.0, "o1": 0.5, "o2": 0.0, "o3": 0.0}
    assert arena.hotset(used, 8) == {"o1": 1.0}  # o2 does not fit beside it
    assert set(arena.knapsack(used, 8)) == {"o2", "o3"}  # 46 of traffic, not 41
    assert arena.thermos(used, 8) == {"o1": 1.0, "o2": 0.8, "o0": 0.0, "o3": 0.0}


@given(
    st.lists(st.tuples(st.floats(1, 1e9), st.floats(0, 1e12)), min_size=1, max_size=8),
    st.floats(0, 2e9),
)  # fmt: skip
def test_no_rule_places_more_than_the_limit(sizes: list[tuple[float, float]], limit: float) -> None:
    used = objects(*sizes)
    size = {each.name: each.size for each in used}
    for choose in arena.RULES.values():
        parts = choose(used, limit)
        assert all(0 <= part <= 1 for part in parts.values())
        assert sum(size[name] * part for name, part in parts.items()) <= limit * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 50)), min_size=1, max_size=6),
       st.integers(1, 100))  # fmt: skip
def test_knapsack_is_the_best_of_all_sets(sizes: list[tuple[int, int]], limit: int) -> None:
    used = objects(*((float(a), float(b)) for a, b in sizes))
    chosen = sum(each.traffic for each in used if each.name in arena.knapsack(used, limit))
    best = 0.0
    for mask in range(1 << len(used)):
        held = [each for i, each in enumerate(used) if mask >> i & 1]
        if sum(each.size for each in held) <= limit:
            best = max(best, sum(each.traffic for each in held))
    assert chosen >= 0.9 * best  # sizes are rounded up to a 4096th of the limit


@pytest.mark.parametrize("name", PRESETS)
def test_constants_have_a_basis_and_a_source(name: str) -> None:
    found = target(name)
    assert found.constants()
    for each in found.constants():
        assert each["basis"] in ("measured", "rated", "fitted", "assumed")
        assert len(each["source"]) > 5
        assert bool(each["fitted_to"]) or each["basis"] != "fitted"


def test_rates_do_not_pass_the_sum_of_ceilings() -> None:
    """Reads of both memories at once are within the fabric's ceiling on a Xeon Max 9462."""
    found = target("xeon-max-9462")
    flows = [
        found.flow(kind, 0, 64, [places_access(kind)], in_flight="sequential load")
        for kind in ("hbm", "dram")
    ]  # fmt: skip
    rates = [speed.rate.value for speed in found.solve(flows)]
    assert sum(rates) <= 430e9 * 1.06
    assert min(rates) > 50e9


def places_access(kind: str) -> Any:
    from headrace_bench.predict.target import Access

    return Access(places.near(kind), "read", 1.0)


def test_cache_mode_moves_hbm_before_ddr() -> None:
    made = in_cache_mode(headrace.Machine.load("xeon-max").asdict())
    assert made is not None
    assert {node["kind"] for node in made["nodes"]} == {"dram"}
    assert all(node["memory_side_cache"]["size_bytes"] == 16 << 30 for node in made["nodes"])
    names = [each["name"] for each in made["model"]["ceilings"] if each.get("side_cache")]
    assert names == ["HBM of tile {}"]
    assert headrace.Machine.fromdict(made).cache_mode
    assert in_cache_mode(headrace.Machine.load("cxl-a1000").asdict()) is None


def test_a_profile_becomes_a_model() -> None:
    machine = headrace.Machine.load("one-node").asdict()
    machine.pop("model", None)
    rows = [
        _row("latency", "ns", 90.0, cpu_node=0, memory_node=0, bytes=1 << 30),
        _row("bandwidth", "B/s", 12e9, cpu_node=0, memory_node=0, mix="read", threads=1),
        _row("bandwidth", "B/s", 40e9, cpu_node=0, memory_node=0, mix="read", threads=8),
        _row("bandwidth", "B/s", 30e9, cpu_node=0, memory_node=0, mix="1:1", threads=8),
    ]
    profile = headrace.Profile.fromdict(machine | {"rows": rows})
    made = learned.machine_of(profile)
    model = made["model"]
    read, mixed = (rate for _, rate in model["ceilings"][0]["bandwidth"])
    assert 40e9 <= read < 50e9 and mixed / read == pytest.approx(45 / 40)
    assert model["latencies"][0]["read_ns"] == 90
    lines = model["cores"][0]["lines_in_flight"]["sequential load"]
    assert lines == pytest.approx(12e9 * 90e-9 / 64)
    assert Target(made).bound is False
    with pytest.raises(headrace.InvalidError, match="has no bandwidths to predict from; run"):
        learned.machine_of(headrace.Profile.fromdict(machine | {"rows": rows[:1]}))


def _row(experiment: str, unit: str, median: float, **parameters: Any) -> dict[str, Any]:
    return {"experiment": experiment, "parameters": parameters, "unit": unit, "median": median}


def test_newest_records_meet_the_memory_that_was_left() -> None:
    settings = {
        "fast": "dram", "slow": None, "size": 52e9, "value": 1024, "cold": 1050e9, "threads": 1,
        "placed": None, "reserved": None, "distribution": "zipfian",
    }  # fmt: skip
    zipfian = kv.Server(target("cxl-a1000"), settings)
    latest = kv.Server(target("cxl-a1000"), settings | {"distribution": "latest"})
    assert zipfian.slow_accesses(0.3) == 0.3
    assert 0.9 < latest.slow_accesses(0.3) < 1
    assert latest.slow_accesses(0) == 0
    assert latest.slow_accesses(1) == 1


def test_records_that_are_used_least_are_on_ssd() -> None:
    settings = {
        "fast": "dram", "slow": None, "size": 52e9, "value": 1024, "cold": None, "threads": 1,
        "placed": None, "reserved": None, "distribution": "latest",
    }  # fmt: skip
    latest = kv.Server(target("cxl-a1000"), settings)
    assert 0 < latest.cold_accesses(0.4) < 0.05
    assert kv.Server(target("cxl-a1000"), settings | {"distribution": "uniform"}).cold_accesses(
        0.4
    ) == 0.4  # fmt: skip


def test_threads_of_a_server_share_a_card() -> None:
    """A thousand threads that wait for CXL get what its card gives, one gets its latency."""
    machine = target("cxl-a1000")
    one, many = (
        kv.closed_loop(machine, machine.cpu_nodes, threads, ("dram", "cxl"), 1.0, 1.0, {"read": 1})
        for threads in (8, 10_000)
    )
    assert one.rate.value == pytest.approx(8 * 64 / 420e-9, rel=0.35)
    assert many.rate.value < 1.05 * 2 * 48e9 and many.rate.value > 20 * one.rate.value


def test_spark_is_what_its_constants_were_fitted_to() -> None:
    settings = {"fast": "dram", "slow": None, "cpu": None, "ssd": 1e9}
    rows = {row.placement: row for row in spark.predict(target("cxl-a1000"), settings)}
    slowdown = {name: found.value for name, row in rows.items()
                if (found := row.values["slowdown"])}  # fmt: skip
    assert slowdown["DDR:CXL 3:1"] == pytest.approx(1.4, rel=0.01)
    assert slowdown["promotion from 1:1"] == pytest.approx(1.34, rel=0.01)
    assert slowdown["DDR:CXL 1:1"] < slowdown["DDR:CXL 1:3"] < 2.5
    assert all(row.binds.fitted_to or row.binds.basis == "assumed" for row in rows.values())


def test_a_gpus_engine_copies() -> None:
    settings = {"size": 1 << 30, "source": "dram", "to": None, "by": "all", "threads": None}
    (row,) = predict_copy.predict(target("h200"), settings | {"block": 1 << 20})
    rate = row.values["rate"]
    assert row.placement == "copy engine of gpu0" and rate is not None
    assert rate.value == pytest.approx(55.2e9, rel=0.03)
    with pytest.raises(headrace.InvalidError, match="leave out --by and --threads"):
        predict_copy.predict(target("h200"), settings | {"by": "cores", "block": 1 << 20})
    for name in ("h200", "gh200"):
        with pytest.raises(headrace.UnsupportedError, match="between these memories is not known"):
            within = settings | {"source": "gpu", "to": "gpu", "block": 1 << 20}
            predict_copy.predict(target(name), within)


def test_a_device_that_the_machine_lacks_is_assumed_to_be_that_of_another() -> None:
    machine = whatif.changed(headrace.Machine.load("cxl-a1000").asdict(), (), ("dsa:1",))
    settings = {"size": 1 << 30, "source": "dram", "to": None, "by": "dsa", "threads": None}
    (row,) = predict_copy.predict(Target(machine), settings)
    assert row.binds.basis == "assumed" and row.binds.source.startswith("as of xeon-max: ")


def test_two_kinds_of_memory_differ() -> None:
    with pytest.raises(headrace.InvalidError, match="both DDR; give two kinds"):
        places.two_kinds(target("cxl-a1000"), {"fast": "dram", "slow": "dram"})


def test_unified_memory_follows_the_link_and_the_room_of_the_card() -> None:
    settings: dict[str, Any] = {"size": 8 << 30, "runs": 5, "op": "read", "advice": "managed"}
    settings["touch_on_host"] = "no"

    def rates(*changes: str) -> dict[str, float]:
        document = whatif.changed(headrace.Machine.load("x86-pcie3").asdict(), changes, ())
        rows = um.predict(Target(document), settings)
        return {row.placement: found.value for row in rows if (found := row.values.get("steady"))}

    plain, faster = rates(), rates("ceiling:PCIe.bandwidth=23.54GB/s")
    on_host = "managed, preferred on host"
    assert faster[on_host] == pytest.approx(2 * plain[on_host])
    assert faster["managed"] == plain["managed"]  # it is near after the first run
    small = rates("node:2000.capacity=4GiB")
    assert small["managed"] < 0.1 * plain["managed"] and small[on_host] == plain[on_host]


def test_the_time_of_unified_memory_is_that_of_the_runs_asked_for() -> None:
    settings = {"size": 8 << 30, "op": "read", "advice": "managed", "touch_on_host": "no"}
    for row in um.predict(target("ac922"), settings | {"runs": 1}):
        time, first = row.values["time"], row.values["run 1"]
        assert time is not None and first is not None
        assert time.value == pytest.approx((8 << 30) / first.value)


def figure(published: float, predicted: float, role: str = "predicted") -> Figure:
    found = Estimate(predicted, predicted * 0.95, predicted * 1.05)
    return Figure("g", "n", role, "x", published, found)


def test_scores() -> None:
    found = validate.score([figure(1, 1.02), figure(1, 0.9), figure(1, 1.3)])
    assert found is not None
    assert (found.count, found.within_10) == (3, pytest.approx(2 / 3))
    assert found.median == pytest.approx(0.1)
    assert found.inside == pytest.approx(1 / 3)
    assert validate.score([]) is None


def test_tau_counts_pairs_in_order() -> None:
    assert validate.tau([figure(1, 1), figure(2, 3), figure(3, 7)]) == pytest.approx(1)
    assert validate.tau([figure(1, 3), figure(2, 2), figure(3, 1)]) == pytest.approx(-1)
    assert validate.tau([figure(1, 1), figure(1, 1)]) is None


def test_every_published_figure_plays_a_part() -> None:
    text = Path(validate.__file__).with_name("published.json").read_text()
    for group in json.loads(text)["groups"]:
        for each in group["figures"]:
            assert each["role"] in validate.ROLES
            if each["role"] in ("predicted", "words"):
                assert "predict" in each, each["name"]
            if each["role"] == "not predicted":
                assert each["reason"], each["name"]


def test_curves_are_fitted_on_five_mixes(tmp_path: Path) -> None:
    lines = ["read_pct_rounded,bandwidth_mean,latency_mean"]
    for mix in range(50, 101, 5):
        peak = 100 + mix
        lines += [f"{mix},{peak * u},{100 + 50 * u}" for u in (0.2, 0.5, 0.8, 1.0)]
    (tmp_path / "machine.csv").write_text("\n".join(lines))
    peaks, latencies = curves.groups(tmp_path)
    assert len(peaks.figures) == 6
    assert len(latencies.figures) == 24
    for group, most in ((peaks, 0.03), (latencies, 0.001)):
        found = validate.score(group.figures)
        assert found is not None and found.median < most
    with pytest.raises(headrace.AbsentError, match="has no curves"):
        curves.groups(tmp_path / "nothing")
