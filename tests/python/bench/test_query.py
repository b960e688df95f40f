# SPDX-License-Identifier: Apache-2.0
"""``bench_query``: the document, its answers, and what happens when something fails."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_rows

import headrace
from headrace._profile.documents import all_fields, find
from headrace_bench import query as query_bench
from headrace_bench import tpch

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def options(tables: Path) -> query_bench.QueryBenchOptions:
    return query_bench.QueryBenchOptions(
        scale=0.01, runs=3, directory=tables, chunk=32 << 10, budget=8 << 20, threads=2
    )


@pytest.fixture(scope="module")
def document(options: query_bench.QueryBenchOptions) -> dict[str, Any]:
    return query_bench.bench_query(options)


def runs(document: dict[str, Any], mode: str) -> int:
    return len(find(document, experiment="query", mode=mode)["samples"])


def test_the_document_has_the_promised_fields(document: dict[str, Any]) -> None:
    assert next(iter(document)) == "schema_version"
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    check_rows(document)
    *modes, overlap = all_fields(document)
    names = ["resident", "direct", "mmap", "prefetch", "duckdb", "floor"]
    assert [row["mode"] for row in modes] == names
    for row in modes:
        assert row["median"] > 0 and len(row["samples"]) == 3 and row["experiment"] == "query"
    assert find(document, mode="duckdb")["engine"].startswith("DuckDB")
    compute = find(document, mode="resident")["median"]
    shares = [
        max(transfer, compute) / prefetch
        for transfer, prefetch in zip(
            find(document, mode="floor")["samples"], find(document, mode="prefetch")["samples"],
            strict=True,
        )
    ]  # fmt: skip
    assert (overlap["experiment"], overlap["unit"]) == ("overlap", "share")
    assert overlap["median"] == pytest.approx(statistics.median(shares))
    assert overlap["low"] <= overlap["median"] <= overlap["high"]
    assert overlap["interval"] == f"range of {len(shares)}"
    assert len(document["order"]["rounds"]) == 3
    for count in ("hits", "inflight_hits", "misses", "late", "wasted_bytes"):
        assert document["cache"][count] >= 0
    assert document["version"] == headrace.__version__
    assert document["rests_on"]["level"] in ("real hardware", "guest")
    assert not document["interrupted"]


@pytest.mark.parametrize("query", ["sum", "q6", "q1"])
def test_answers_are_duckdbs(options: query_bench.QueryBenchOptions, query: str) -> None:
    document = query_bench.bench_query(replace(options, query=query, runs=1))
    assert document["answer_ok"] is True
    assert document["answer"]["rows"]


def test_cold_starts_are_shown(document: dict[str, Any]) -> None:
    for row in all_fields(document)[:5]:
        warned = any(warning.startswith(f"{row['mode']} did not start cold")
                     for warning in document["warnings"])  # fmt: skip
        assert (row["cached_before_bytes"] == 0) != warned


def test_the_timeline_shows_every_block(document: dict[str, Any]) -> None:
    for mode in ("direct", "prefetch"):
        run = document["timeline"][mode]
        assert sum(block["bytes"] for block in run["blocks"]) == document["bytes"]
        assert run["seconds"] in find(document, mode=mode)["samples"]


def test_rounds_differ_and_what_is_compared_is_adjacent() -> None:
    modes = (*query_bench.MODES, query_bench.PEER)
    rounds = query_bench.orders(modes, 6)
    assert rounds == query_bench.orders(modes, 6) != query_bench.orders(modes, 6, seed=2)
    assert all(sorted(order) == sorted((*modes, "floor")) for order in rounds)
    assert len({tuple(order) for order in rounds}) > 3
    apart = [order.index("floor") - order.index("prefetch") for order in rounds]
    assert sorted(apart) == [-1, -1, -1, 1, 1, 1]
    assert query_bench.orders(("mmap",), 1) in ([["mmap", "floor"]], [["floor", "mmap"]])


def test_efficiency_compares_runs_of_one_round() -> None:
    # The disk was twice as fast in the second round; the third was interrupted.
    shares = query_bench.overlap_efficiencies([2.0, 1.0, 9.0], 0.5, [2.5, 1.25])
    assert shares == [0.8, 0.8]
    assert query_bench.overlap_efficiencies([1.0], 3.0, [4.0]) == [0.75]
    assert query_bench.overlap_efficiencies([1.0], None, [4.0]) == []


def test_an_interruption_keeps_what_was_measured(options: query_bench.QueryBenchOptions) -> None:
    ran = 0

    def count(what: str, done: float, total: float) -> None:
        nonlocal ran
        ran += what.startswith("q6")

    # After the round that is not counted and most of the first that is.
    document = query_bench.bench_query(replace(options, runs=1000), count, lambda: ran > 11)
    assert document["interrupted"]
    assert runs(document, "floor") >= 1
    json.dumps(document, allow_nan=False)


def test_interrupted_before_anything(options: query_bench.QueryBenchOptions) -> None:
    document = query_bench.bench_query(options, stop=lambda: True)
    assert document["interrupted"]
    assert document["answer"] is None
    assert document["answer_ok"] is None
    assert not find(document, experiment="overlap")
    prefetch = find(document, mode="prefetch")
    assert (prefetch["median"], prefetch["reason"]) == (None, "interrupted")


def test_a_mode_that_cannot_run_says_why(
    options: query_bench.QueryBenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(bench: object) -> None:
        raise headrace.AbsentError("no duckdb; run: pip install it")

    monkeypatch.setattr(query_bench, "_run_duckdb", fail)
    document = query_bench.bench_query(replace(options, runs=2))
    duckdb = find(document, mode="duckdb")
    assert duckdb["median"] is None and "no duckdb" in duckdb["reason"]
    assert duckdb["code"] == "absent" and runs(document, "prefetch") == 2
    assert document["answer_ok"] is None


def test_a_peer_whose_process_cannot_be_started_is_left_out(
    options: query_bench.QueryBenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(who: str) -> None:
        raise headrace.ExhaustedError(f"cannot start {who}")

    monkeypatch.setattr(query_bench, "Child", fail)
    document = query_bench.bench_query(replace(options, runs=1, modes=("direct", "duckdb")))
    assert runs(document, "direct") == 1 and runs(document, "duckdb") == 0
    peer = find(document, mode="duckdb")
    assert (peer["reason"], peer["code"]) == ("cannot start DuckDB", "exhausted")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (duckdb.IOException("a bad page\nand where"), "a bad page"),
        (duckdb.OutOfMemoryException("no room"), "no room"),
        (OSError(errno.ENOSPC, "No space left on device"), "free space"),
    ],
)
def test_a_peer_that_fails_loses_nothing(
    options: query_bench.QueryBenchOptions,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    told: str,
) -> None:
    asked, call = 0, query_bench.Child.call

    def fail_the_third_time(child: Any, *call_of: Any, **how: Any) -> Any:
        nonlocal asked
        asked += call_of[0] is query_bench.timed_query  # not what makes the table
        return call(child, *((_raises, error) if asked == 3 else call_of), **how)

    monkeypatch.setattr(query_bench.Child, "call", fail_the_third_time)
    document = query_bench.bench_query(replace(options, runs=3))
    assert runs(document, "prefetch") == 3 and runs(document, "duckdb") == 1
    assert find(document, mode="duckdb")["note"].startswith("1 of 3 rounds: ")
    assert told in find(document, mode="duckdb")["note"]
    assert asked == 3
    assert document["answer_ok"] is True


def test_some_modes_only(options: query_bench.QueryBenchOptions) -> None:
    document = query_bench.bench_query(replace(options, runs=1, modes=("prefetch",)))
    assert [row["mode"] for row in all_fields(document)] == ["prefetch", "floor"]
    assert document["answer"]["columns"] == ["revenue"]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"query": "q7"}, headrace.InvalidError, "sum, q6, q1"),
        ({"modes": ("fast",)}, headrace.InvalidError, "no mode 'fast'"),
        ({"modes": ()}, headrace.InvalidError, "no modes"),
        ({"runs": 0}, headrace.InvalidError, "0 runs"),
        ({"scale": -1}, headrace.InvalidError, "scale -1"),
        ({"slow": 77}, headrace.AbsentError, "77"),
        ({"fast": 77}, headrace.AbsentError, "77"),
        ({"chunk": 0}, headrace.InvalidError, "chunk"),
        ({"groups": 0}, headrace.InvalidError, "0 groups"),
        ({"groups": 4096}, headrace.InvalidError, "nodes with CPUs"),
        ({"engine": "fpga"}, headrace.InvalidError, "any, cpu, dsa"),
        ({"route": "longest"}, headrace.AbsentError, "longest"),
    ],
)
def test_bad_options_are_refused(
    options: query_bench.QueryBenchOptions, change: dict[str, Any], error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        query_bench.bench_query(replace(options, **change))


def test_the_stages_and_the_engine_are_settings(options: query_bench.QueryBenchOptions) -> None:
    document = query_bench.bench_query(replace(options, aggregators=1, engine="cpu", runs=1))
    assert document["answer_ok"] is True
    assert (document["threads"], document["aggregators"], document["groups"]) == (2, 1, 1)


def test_a_size_is_that_of_the_columns(options: query_bench.QueryBenchOptions) -> None:
    scale = query_bench.scale_of("q6", 540_000)
    assert scale == pytest.approx(0.01)
    assert query_bench.bench_query(replace(options, scale=0.01, runs=1, modes=("direct",)))[
        "bytes"
    ] == pytest.approx(540_000, rel=0.02)


def test_a_small_budget_is_a_reason(options: query_bench.QueryBenchOptions) -> None:
    document = query_bench.bench_query(replace(options, budget=1000, runs=1))
    assert "in progress" in find(document, mode="prefetch")["reason"]
    assert runs(document, "direct") == 1


def test_a_file_cut_short_is_a_reason(
    options: query_bench.QueryBenchOptions, tables: Path, tmp_path: Path
) -> None:
    table = shutil.copytree(tables / "sf0.01", tmp_path / "sf0.01")
    small = replace(options, directory=tmp_path)
    bench = query_bench._Bench(small, table, lambda: False)
    with (table / "l_extendedprice.bin").open("r+b") as file:
        file.truncate(5000)
    bench.run()
    document = bench.document()
    for mode in ("resident", "direct", "mmap", "prefetch", "floor"):
        assert "l_extendedprice.bin" in find(document, mode=mode)["reason"]
    assert runs(document, "duckdb") == 3


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
    assert query_bench.answers_equal(OURS, ORACLE)


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
    assert not query_bench.answers_equal(OURS | {"rows": [row]}, ORACLE)
    assert not query_bench.answers_equal(OURS | {"rows": []}, ORACLE)
    assert not query_bench.answers_equal(OURS | {"rows": OURS["rows"] * 2}, ORACLE)


def test_averages_round_half_away_from_zero() -> None:
    assert str(query_bench.average_of("0.000005", "2")) == "0.000003"
    assert str(query_bench.average_of("-0.000005", "2")) == "-0.000003"
    assert str(query_bench.average_of("2.00", "3")) == "0.666667"


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
    slow, fast = query_bench._choose_nodes(machine, query_bench.QueryBenchOptions(**change))
    assert (slow.id, fast.id) == expected


def test_a_node_without_memory_is_not_chosen() -> None:
    nodes = [dict(node) for node in NODES["nodes"]]  # type: ignore[attr-defined]
    nodes[1]["kind"] = "dram"
    nodes[0] |= {"capacity_bytes": 0, "cpus": [0]}
    machine = headrace.Machine.from_json(json.dumps(NODES | {"nodes": nodes}))
    slow, fast = query_bench._choose_nodes(machine, query_bench.QueryBenchOptions())
    assert (slow.id, fast.id) == (1000, 8)


def test_a_peer_that_dies_keeps_the_other_results(
    options: query_bench.QueryBenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_bench, "timed_query", _dies)
    document = query_bench.bench_query(replace(options, runs=2, modes=("prefetch", "duckdb")))
    peer = find(document, mode="duckdb")
    assert peer["code"] == "io" and peer["reason"].startswith("DuckDB ended by SIGSEGV")
    assert runs(document, "prefetch") == 2


def _raises(error: Exception) -> None:
    with tpch.duckdb_connection():
        raise error


def _dies(*_: object) -> None:
    signal.raise_signal(signal.SIGSEGV)
