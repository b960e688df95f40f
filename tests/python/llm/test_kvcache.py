# SPDX-License-Identifier: Apache-2.0
"""headrace bench kvcache: what it measures, what ends it, bad input."""

from __future__ import annotations

import ctypes
import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench_documents import check_rows
from conftest import Headrace
from staged import press_ctrl_c

import headrace
from headrace._cli import app, output
from headrace._errors import WrongAnswer
from headrace._profile.nested import rows_of
from headrace_bench.commands import kvcache as kvcache_command
from headrace_bench.llm import kvcache, layer, prefill, trace
from headrace_bench.llm.stores import HostCopies, Shape, aligned

#: A store of small blocks, and hardly any work.
SMALL = [
    "bench", "kvcache", "--requests", "24", "--block-tokens", "2", "--work", "0.02%", "--rounds",
    "2", "--seed", "5",
]  # fmt: skip

def test_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [{"kind": kind, "bytes_per_second": 1e9} for kind in ("cpu", "ssd")]
    monkeypatch.setattr(layer, "engine_rates", lambda *_: rates)
    told = []
    monkeypatch.setattr(output.ProgressBar, "__call__", lambda _, *step: told.append(step[2]))
    assert app.run([*SMALL, "--data", str(tmp_path), "--json"]) == 0
    first, *served, beside_loads, filling, of_stores = [name for name, _ in itertools.groupby(told)]
    assert first == "preparing" and set(served) == set(prefill.POLICIES)
    assert (beside_loads, filling) == ("layers beside loads", "filling stores")
    assert of_stores == "loads of stores in turn"
    document = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    check_rows(document)
    loads, beside = (rows_of(document, f"kvcache_{name}") for name in ("load", "interference"))
    assert [row["store"] for row in loads] == ["headrace", "asyncio"]
    assert all(row["median"] > 0 and len(row["samples"]) == 2 for row in loads)
    policies = rows_of(document, "kvcache")
    for name in ("headrace", "asyncio"):
        check_measured({r["policy"]: r for r in policies if r["store"] == name})
    assert document["scale"]["requests"] == 24 and document["scale"]["of_block_tokens"] == 512
    assert [row["of"] for row in beside] == ["layer", "loads"]
    assert all(row["median"] > 0 for row in beside)
    assert set(document["control"]["stall_p50_ms"]) == {"headrace", "asyncio"}
    for row in (*policies, *beside, *loads):
        assert set(row["flags"]) <= {"noisy"} and "steal_share" in row
        assert row["others_share"] is None or row["others_share"] >= 0
    capsys.readouterr()
    kvcache_command.print_kvcache(document)
    words = " ".join(capsys.readouterr().out.split())
    terms = [r["inequality"] for r in policies if r["policy"] in ("layerwise", "ahead")]
    assert words.count("% can be overlapped; ") == sum(each is not None for each in terms)
    # Two rounds have no interval, and a row says of how many requests it is.
    assert "range of 2) from ssd" in words and " n stall p50 95 % stall p99 " in words


def check_measured(rows: dict[str, Any]) -> None:
    assert set(rows) == set(prefill.POLICIES)
    for row in rows.values():
        assert row["basis"] == "measured" and row["note"] is None
        assert row["wrong"] == 0 and row["requests"] == 24 and row["unit"] == "ms"
    for policy in ("layerwise", "ahead", "load-first", "demand"):
        row = rows[policy]
        assert 0 < sum(row["hit_rate"].values()) < 0.7 and row["with_cached"] > 0
        assert 0 <= row["hidden_share"] <= 1
        assert 0 < row["median"] <= row["stall_p99_ms"]
        assert len(row["samples"]) == row["with_cached"]
    assert rows["load-first"]["waited_of_alone"] == pytest.approx(1, abs=0.02)
    for policy in ("layerwise", "ahead", "demand"):
        of_alone = rows[policy]["of_alone"]
        assert (rows[policy]["waited_of_alone"] is None) == (of_alone == 0)
        assert of_alone <= rows[policy]["with_cached"]
    assert rows["recompute"]["waited_of_alone"] is None
    assert rows["demand"]["hidden_share"] == pytest.approx(0, abs=0.02)
    assert rows["load-first"]["hidden_share"] == pytest.approx(0, abs=0.02)
    assert rows["recompute"]["roofline_share"] is None
    for row in rows.values():
        terms = row["inequality"]
        assert (terms is None) == (row["policy"] == "recompute" or row["can_hide"] == 0)
        if terms is not None:
            assert terms["layer_ms"] >= terms["layer_load_ms"] > 0 < terms["first_layer_ms"]
            assert row["hidden_share_where_it_can"] <= terms["most_hidden"] + 1e-9


def test_rates_are_of_the_memory_that_loads_go_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of two sockets: not what the other's cores copy, not across the sockets."""
    asked = []

    def rate(_: Any, engine: Any, node: int, *rest: Any) -> Any:
        asked.append((engine.name, node, rest[-1]))
        return layer._Found(engine.rate, node, node, "" if engine.rate else "no permission")

    monkeypatch.setattr(layer, "_rate", rate)
    monkeypatch.setattr(headrace, "where", lambda _: SimpleNamespace(pages={0: 3, 1: 90}))
    engines = [
        SimpleNamespace(name=f"cpu{i}", kind=kind, home=home, rate=rate)
        for i, (kind, home, rate) in enumerate(
            [("cpu", 0, 9e9), ("cpu", 1, 7e9), ("cpu", 1, None), ("dsa", 1, 8e9), ("ssd", 9, 1e9)]
        )
    ]
    nodes = [SimpleNamespace(kind="hbm", byte_addressable=True, cpus=[i]) for i in range(2)]
    away = [{0: 10, 1: 21}, {0: 21, 1: 10}]
    machine = SimpleNamespace(
        engines=engines, nodes=nodes, of_kind=lambda kind: [n for n in nodes if n.kind == kind],
        node=lambda number: SimpleNamespace(distances=away[number]),
    )  # fmt: skip
    options: Any = SimpleNamespace(directory=Path(), device=None)
    any_machine: Any = machine
    make: Any = None
    bench = kvcache.Bench(options, any_machine, make, lambda: False, lambda *_: None)
    bench.arrived = None
    bench.find_rates()
    assert asked == [("cpu1", 1, 1), ("cpu2", 1, 1), ("cpu4", 1, 1)]
    assert bench.rates == {"hbm": 7e9, "ssd": 1e9}


def test_recompute_computes_what_the_tiers_would_hold() -> None:
    scale, again = prefill.Scale(24, 2, (4000, 8000)), []
    bench = SimpleNamespace(
        options=SimpleNamespace(scale=scale), pace=0.0, shape=Shape(1, 4096), places=[aligned(1)],
        source=b"", floor=lambda *_: None, seconds_of_layer=lambda _: 0.0,
        compute=SimpleNamespace(
            layer=lambda tokens, weights=True: 0.0 if weights else again.append(tokens) or 0.0
        ),
    )  # fmt: skip
    requests = trace.conversations(24, seed=5)
    run = kvcache._Run(bench, SimpleNamespace(tiers=["dram", "ssd"]), "recompute")  # type: ignore
    for request in requests:
        run.serve(request)
    found = [len(each) for _, each in prefill.matches(requests, scale.blocks())]
    assert again == [2 * each for each in found if each]
    assert sum(again) < sum(2 * request.known for request in requests)  # the tiers are small


def test_a_block_that_is_not_what_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "engine_rates", lambda *_: [])
    copy = HostCopies.copy

    def torn(self: Any, parts: Any) -> None:
        copy(self, parts)
        ctypes.c_ubyte.from_address(parts[-1][0] + parts[-1][2] - 1).value ^= 1

    monkeypatch.setattr(HostCopies, "copy", torn)
    few = ["--store", "asyncio", "--policies", "demand", "--data", str(tmp_path)]
    with pytest.raises(WrongAnswer, match="blocks were not what was stored"):
        app.run([*SMALL, *few])
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before anything is measured, whichever stores there are."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9999, 9000, 999))
    monkeypatch.setattr(layer, "engine_rates", lambda *_: pytest.fail("too late"))
    with pytest.raises(headrace.ExhaustedError, match=r"^this takes .* in .* and 999 B are free"):
        app.run([*SMALL, "--data", str(tmp_path)])


def test_ctrl_c_keeps_the_policies(tmp_path: Path) -> None:
    few = ["--store", "asyncio", "--policies", "layerwise,ahead", "--seed", "1"]
    result = press_ctrl_c([*SMALL, *few, "--json"], tmp_path, 30, "ahead")
    assert (result.returncode, result.stderr) == (
        130, "headrace: interrupted; results cover the time until then\n",
    )
    document = json.loads(result.stdout)
    assert document["interrupted"] is True and not rows_of(document, "kvcache_load")
    first, second = rows_of(document, "kvcache")
    assert (first["policy"], second["policy"]) == ("layerwise", "ahead")
    assert first["note"] is None and "interrupted" in (second["note"], second["reason"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--model", "gpt-2"], 2, "no model 'gpt-2'; there are"),
        (["--policies", "hope"], 2, "no policy 'hope'; there are layerwise"),
        (["--store", "redis"], 2, "no store 'redis'; there are"),
        (["--work", "0"], 2, "no work stands for nothing"),
        (["--work", "much"], 2, "'much' is no share"),
        (["--block-tokens", "3", "--model", "deepseek-v3"], 2, "a fragment of 3456 bytes"),
        (["--requests", "1"], 2, ""),
        (["--data", "nowhere"], 3, ""),
        (["--requests", "100000"], 6, "this takes"),
        (["--out", "nowhere/x.json"], 3, "no directory nowhere"),
    ],
)
def test_nonsense_is_one_line(run: Headrace, arguments: list[str], code: int, told: str) -> None:
    result = run("bench", "kvcache", *arguments)
    assert result.returncode == code, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1
