"""``bench_query``: the document, its answers, and what happens when something fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import _data, _query

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> _query.QueryBenchOptions:
    directory = tmp_path_factory.mktemp("tpch")
    return _query.QueryBenchOptions(
        scale=0.01, runs=3, directory=directory, block=32 << 10, budget=8 << 20, threads=2
    )


@pytest.fixture(scope="module")
def document(options: _query.QueryBenchOptions) -> dict[str, Any]:
    return _query.bench_query(options)


def test_the_document_has_the_promised_fields(document: dict[str, Any]) -> None:
    assert next(iter(document)) == "schema_version"
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert set(document["modes"]) == {"resident", "direct", "mmap", "prefetch", "duckdb"}
    for name, mode in document["modes"].items():
        assert mode["seconds_median"] > 0, name
        assert mode["seconds_mad"] >= 0, name
        assert mode["runs"] == len(mode["seconds"]) == 3, name
    assert document["floor"]["transfer_seconds"] > 0
    assert document["floor"]["compute_seconds"] == document["modes"]["resident"]["seconds_median"]
    larger = max(document["floor"]["transfer_seconds"], document["floor"]["compute_seconds"])
    prefetch = document["modes"]["prefetch"]["seconds_median"]
    assert document["overlap_efficiency"] == pytest.approx(larger / prefetch)
    for count in ("hits", "inflight_hits", "misses", "late", "wasted_bytes"):
        assert document["cache"][count] >= 0
    assert document["version"] == headrace.__version__
    assert document["rests_on"]["level"] in ("real hardware", "guest")
    assert not document["interrupted"]


@pytest.mark.parametrize("query", ["sum", "q6", "q1"])
def test_answers_are_duckdbs(options: _query.QueryBenchOptions, query: str) -> None:
    document = _query.bench_query(replace(options, query=query, runs=1))
    assert document["answer_ok"] is True
    assert document["answer"]["rows"]


def test_cold_starts_are_shown(document: dict[str, Any]) -> None:
    for name, mode in document["modes"].items():
        warned = any(warning.startswith(f"{name} did not start cold")
                     for warning in document["warnings"])  # fmt: skip
        assert (mode["cached_before_bytes"] == 0) != warned


def test_the_timeline_shows_every_block(document: dict[str, Any]) -> None:
    for mode in ("direct", "prefetch"):
        run = document["timeline"][mode]
        assert sum(block["bytes"] for block in run["blocks"]) == document["bytes"]
        assert run["seconds"] in document["modes"][mode]["seconds"]


def test_an_interruption_keeps_what_was_measured(options: _query.QueryBenchOptions) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 40

    document = _query.bench_query(replace(options, runs=1000), stop=stop)
    assert document["interrupted"]
    assert document["floor"]["runs"] >= 1
    json.dumps(document, allow_nan=False)


def test_interrupted_before_anything(options: _query.QueryBenchOptions) -> None:
    document = _query.bench_query(options, stop=lambda: True)
    assert document["interrupted"]
    assert document["answer"] is None
    assert document["answer_ok"] is None
    assert document["overlap_efficiency"] is None
    assert document["modes"]["prefetch"]["seconds_median"] is None


def test_a_mode_that_cannot_run_says_why(
    options: _query.QueryBenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(bench: object) -> None:
        raise headrace.AbsentError("no duckdb; run: pip install it")

    monkeypatch.setattr(_query, "_run_duckdb", fail)
    document = _query.bench_query(replace(options, runs=2))
    assert document["modes"]["duckdb"]["seconds_median"] is None
    assert "no duckdb" in document["modes"]["duckdb"]["reason"]
    assert document["modes"]["prefetch"]["runs"] == 2
    assert document["answer_ok"] is None


def test_some_modes_only(options: _query.QueryBenchOptions) -> None:
    document = _query.bench_query(replace(options, runs=1, modes=("prefetch",)))
    assert list(document["modes"]) == ["prefetch"]
    assert document["overlap_efficiency"] is None
    assert document["answer"]["columns"] == ["revenue"]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"query": "q7"}, headrace.AbsentError, "sum, q6, q1"),
        ({"modes": ("fast",)}, headrace.AbsentError, "no mode 'fast'"),
        ({"modes": ()}, headrace.InvalidError, "no modes"),
        ({"runs": 0}, headrace.InvalidError, "0 runs"),
        ({"scale": -1}, headrace.InvalidError, "scale -1"),
        ({"slow": 77}, headrace.AbsentError, "77"),
        ({"fast": 77}, headrace.AbsentError, "77"),
        ({"block": 0}, headrace.InvalidError, "block"),
    ],
)
def test_bad_options_are_refused(
    options: _query.QueryBenchOptions, change: dict[str, Any], error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        _query.bench_query(replace(options, **change))


def test_a_small_budget_is_a_reason(options: _query.QueryBenchOptions) -> None:
    document = _query.bench_query(replace(options, budget=1000, runs=1))
    assert "does not hold one block" in document["modes"]["prefetch"]["reason"]
    assert document["modes"]["direct"]["runs"] == 1


def test_a_file_cut_short_is_a_reason(options: _query.QueryBenchOptions, tmp_path: Path) -> None:
    table = _data.prepare(0.001, tmp_path)
    bench = _query._Bench(replace(options, scale=0.001, directory=tmp_path), table, lambda: False)
    with (table / "l_extendedprice.bin").open("r+b") as file:
        file.truncate(5000)
    bench.run(lambda what, done, total: None)
    document = bench.document()
    for mode in ("resident", "direct", "mmap", "prefetch"):
        assert "l_extendedprice.bin" in document["modes"][mode]["reason"]
    assert document["modes"]["duckdb"]["runs"] == 3
    assert any("floor" in warning for warning in document["warnings"])


# ---- Comparing answers -----------------------------------------------------------------------

OURS = {
    "columns": ["l_returnflag", "sum_qty", "avg_qty", "count_order"],
    "rows": [{"keys": ["A"], "values": ["10.00", "3.333333", "3"]}],
}
ORACLE = {
    "columns": ["l_returnflag", "sum_qty", "count_order"],
    "rows": [{"keys": ["A"], "values": ["10.00", "3"]}],
}


def test_equal_answers_are_equal() -> None:
    assert _query.answers_equal(OURS, ORACLE)


@pytest.mark.parametrize(
    "row",
    [
        {"keys": ["B"], "values": ["10.00", "3.333333", "3"]},
        {"keys": ["A"], "values": ["10.01", "3.333333", "3"]},
        {"keys": ["A"], "values": ["10.00", "3.333334", "3"]},
        {"keys": ["A"], "values": ["10.00", "3.333333", "4"]},
    ],
)
def test_any_difference_is_seen(row: dict[str, list[str]]) -> None:
    assert not _query.answers_equal(OURS | {"rows": [row]}, ORACLE)
    assert not _query.answers_equal(OURS | {"rows": []}, ORACLE)
    assert not _query.answers_equal(OURS | {"rows": OURS["rows"] * 2}, ORACLE)


def test_averages_round_half_away_from_zero() -> None:
    assert str(_query.average_of("0.000005", "2")) == "0.000003"
    assert str(_query.average_of("-0.000005", "2")) == "-0.000003"
    assert str(_query.average_of("2.00", "3")) == "0.666667"


# ---- Choosing nodes --------------------------------------------------------------------------

NODES = {
    "schema_version": 1,
    "name": "two kinds",
    "nodes": [
        {"id": 0, "kind": "dram", "name": "node 0"},
        {"id": 8, "kind": "hbm", "name": "node 8"},
        {"id": 1000, "kind": "storage", "name": "disk"},
    ],
    "engines": [],
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (0, 8)),
        ({"fast": 0}, (1000, 0)),
        ({"slow": 1000}, (1000, 8)),
        ({"slow": 8, "fast": 0}, (8, 0)),
    ],
)
def test_nodes_are_chosen_by_kind(change: dict[str, int], expected: tuple[int, int]) -> None:
    machine = headrace.Machine.from_json(json.dumps(NODES))
    slow, fast = _query._choose_nodes(machine, _query.QueryBenchOptions(**change))
    assert (slow.id, fast.id) == expected
