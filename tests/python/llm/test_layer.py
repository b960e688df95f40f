# SPDX-License-Identifier: Apache-2.0
"""headrace bench layer: what it models and measures, what is left for engines, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench_documents import check_commands
from conftest import Headrace
from headrace_bench.commands.layer import print_layer
from headrace_bench.llm import layer, settings
from staged import press_ctrl_c

import headrace
from headrace import _language_models as models
from headrace._profile.nested import rows_of

LOAD = layer.Load(models.model("llama-3.1-8b"), 2, 8192, "bf16", "bf16")
#: A fast one to measure; on no disk, so that none is measured.
SMALL = [
    "bench", "layer", "--model", "llama-3.2-1b", "--batch", "1", "--context", "64", "--dtype",
    "int8", "--repetitions", "2", "--threads", "1", "--directory", "/proc",
]  # fmt: skip


def test_the_model_in_words(run: Headrace, golden: Callable[[str, str], None]) -> None:
    lines = []
    for arguments in (
        ["--bandwidth", "306GB/s,550GB/s"],
        ["--bandwidth", "306GB/s", "--dtype", "int8", "--target", "2ms"],
        ["--bandwidth", "3TB/s", "--model", "deepseek-v3", "--batch", "1", "--context", "131072"],
    ):
        result = run("bench", "layer", *arguments)
        assert (result.returncode, result.stderr) == (0, ""), result
        lines.append(f"$ headrace bench layer {' '.join(arguments)}\n{result.stdout}")
    golden("bench_layer.txt", "\n".join(lines))


def described(kind: str, cpus: dict[int, list[int]], copy_rates: list[Any]) -> Any:
    """A machine of one engine, of memories with these CPUs, and of a GPU at the first."""
    nodes = [
        SimpleNamespace(id=i, byte_addressable=True, capacity=1 << 34, cpus=own, gpu=None)
        for i, own in cpus.items()
    ]
    nodes.append(SimpleNamespace(
        id=2000, byte_addressable=False, capacity=1 << 34, cpus=[],
        gpu=SimpleNamespace(host=0, emulated=True),
    ))  # fmt: skip
    home = {"ssd": 1000, "gpu": 2000}.get(kind, 0)
    return SimpleNamespace(
        engines=[SimpleNamespace(id=5, name="it", kind=kind, home=home)], nodes=nodes,
        node=lambda number: next(n for n in nodes if n.id == number), copy_rates=copy_rates,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["dsa", "gpu", "migrate"])
def test_who_measures_an_engine_that_is_not_measured_here(
    run: Headrace, kind: str, tmp_path: Path
) -> None:
    machine = described(kind, {0: [0, 1]}, [])
    (row,) = layer.engine_rates(machine, 0, tmp_path, lambda: False)
    assert row["bytes_per_second"] is row["basis"] is row["to_node"] is None
    command = row["reason"].partition("see headrace ")[2].split()
    if command[0] == "measure":
        listed = run("measure", "--list")
        assert f"\n{command[1]} " in f"\n{listed.stdout}", listed
    else:
        assert run(*command, "--help").returncode == 0


def rate(to: int, bandwidth: float, source: str, engine: int = 5) -> Any:
    return SimpleNamespace(
        engine=engine, from_node=0, to_node=to, bandwidth=bandwidth, source=source
    )  # fmt: skip


def row_of(experiment: str, way: tuple[int, int], median: float | None) -> Any:
    return SimpleNamespace(
        experiment=experiment, unit="B/s", parameters={"from": way[0], "to": way[1]},
        median=median, basis="emulated", source="",
    )  # fmt: skip


def test_the_budget_of_an_engine_that_was_measured_before(tmp_path: Path) -> None:
    """The best way into this memory, with who says so; engines that have no copy rates by rows."""
    told = [rate(1, 5e9, "headrace measure gpu, emulated, a day"), rate(1, 4e9, "a book"),
            rate(0, 9e9, "a book"), rate(1, 9e9, "of another", engine=4)]  # fmt: skip
    for source in ("the machine", "a profile"):
        machine = described("dsa", {0: [0], 1: [1]}, told if source == "the machine" else [])
        there = described("dsa", {0: [0], 1: [1]}, told)
        profile: Any = SimpleNamespace(machine=there, rows=[], conditions={"date": "a day"})
        given = None if source == "the machine" else profile
        (row,) = layer.engine_rates(machine, 1, tmp_path, lambda: False, profile=given)
        assert (row["bytes_per_second"], row["from_node"], row["to_node"]) == (5e9, 0, 1)
        assert (row["basis"], row["source"]) == ("emulated", told[0].source)
        assert row["reason"] == ""
        layer.budget(LOAD, 2e-3, LOAD.bytes / 500e9, 500e9, [row])
        assert row["bytes"] == 10_000_000
    profile.rows = [row_of("dsa", (0, 1), 2e9), row_of("dsa", (1, 1), 8e9),
                    row_of("migrate", (0, 1), 7e9), row_of("dsa", (0, 1), None)]  # fmt: skip
    there.copy_rates = []
    (row,) = layer.engine_rates(machine, 1, tmp_path, lambda: False, profile=profile)
    assert (row["bytes_per_second"], row["basis"]) == (2e9, "emulated")
    assert row["source"] == "headrace measure dsa, a day"


@pytest.mark.parametrize(
    ("asked", "cpus", "link", "expected"),
    [
        (0, "0-1", None, (3e9, 0, "this run")),
        (1, "0-1", None, (3e9, 0, "this run: into node 0, the memory nearest to it")),
        (1, "2", None, (3e9, 1, "this run")),
        (0, "1-2", None, (3e9, 0, "this run")),  # no node's: it reads into the first
        (2000, "2", 9e9, (3e9, 2000, "this run: into node 1, at most what is copied from there")),
        (2000, "2", 1e9, (1e9, 2000, "this run: into node 1, at most what is copied from there")),
        (2000, "2", None, (3e9, 1, "this run: into node 1, the memory nearest to it")),
    ],
)
def test_a_disk_names_the_memory_that_it_was_read_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: int, cpus: str, link: float | None,
    expected: tuple[float, int, str],
) -> None:  # fmt: skip
    """A disk is read into the memory nearest to it, whichever node was requested. Bytes for a GPU
    cross its link as well."""
    rows = [SimpleNamespace(median=rate, reason="", cpus=cpus, basis="measured")
            for rate in (None, 2e9, 3e9)]  # fmt: skip
    monkeypatch.setattr(headrace, "measure", lambda *_, **__: SimpleNamespace(rows=rows))
    machine = described("ssd", {0: [0, 1], 1: [2, 3]}, [])
    (row,) = layer.engine_rates(machine, asked, tmp_path, lambda: False, link=link)
    assert (row["bytes_per_second"], row["to_node"], row["source"]) == expected
    assert row["basis"] == ("emulated" if link else "measured")


def test_engines_have_what_the_layer_leaves() -> None:
    engines = [
        {"kind": kind, "bytes_per_second": rate}
        for kind, rate in (("cpu", 10e9), ("ssd", 1e9), ("dsa", 300e9), ("migrate", None))
    ]
    # 503.3 MB at 500 GB/s within 2 ms: 496.7 MB more could be carried.
    layer.budget(LOAD, 2e-3, LOAD.bytes / 500e9, 500e9, engines)
    cores, disk, dsa, pages = (row["bytes"] for row in engines)
    assert cores == pytest.approx(10e9 * (2e-3 - LOAD.bytes / 500e9), rel=1e-6)
    assert disk == 2_000_000
    assert dsa == pytest.approx(500e9 * 2e-3 - LOAD.bytes, rel=1e-6)
    assert pages is None
    # Only the last of these would bring more than that.
    assert [row["memory_limits"] for row in engines] == [False, False, True, False]
    # A layer that takes longer than it may leaves nothing.
    layer.budget(LOAD, 1e-3, LOAD.bytes / 500e9, 500e9, engines)
    assert [row["bytes"] for row in engines] == [0, 0, 0, None]


def test_a_layer_measured(
    run: Headrace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The host as it is: a small one has no memory for copies of 64 MiB.
    result = run(*SMALL, "--json", env={"PYTHONPATH": ""})
    assert (result.returncode, result.stderr) == (0, ""), result
    document = json.loads(result.stdout)
    check_commands(document, run, tmp_path)
    (row,) = rows_of(document, "layer")
    assert document["kind"] == "bench layer" and document["interrupted"] is False
    assert row["basis"] == "measured" and len(row["samples"]) == 2
    assert document["order"]["rounds"] == ["0", "0"]
    assert 0 < row["share_of_peak"] <= 1 and row["first_ms"] > 0
    assert row["floor_ms"] <= row["median"]
    assert sum(row["residency"].values()) * document["settings"]["page_bytes"] >= 60e6
    cores, *disks = document["engines"]
    assert cores["kind"] == "cpu" and cores["bytes"] is not None
    assert all(disk["bytes"] is None and disk["reason"] for disk in disks)
    print_layer(document)
    told = capsys.readouterr().out
    assert "of the measured peak" in told and "left for moving into this memory" in told


def test_ctrl_c_keeps_the_layers(tmp_path: Path) -> None:
    result = press_ctrl_c([*SMALL, "--json"], tmp_path, 2, "layers")
    assert (result.returncode, result.stderr) == (
        130, "headrace: interrupted; results cover the time until then\n",
    )
    document = json.loads(result.stdout)
    assert document["interrupted"] is True
    assert len(document["rows"][0]["samples"]) == 1 and document["engines"] == []


def test_less_memory_than_a_layer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = headrace.Machine.discover(storage=[])
    node = machine.nodes[0].id

    class Free:
        nodes = {node: 10_000_000}
        cgroup = None

    monkeypatch.setattr(headrace, "free_memory", lambda: Free)
    bench = layer.Bench(machine, LOAD, str(node), 1)
    assert bench.size == 8_000_000 // 4096 * 4096 < bench.wanted
    bench.fill()
    bench.load = layer.Load(models.model("llama-3.2-1b"), 1, 64, "int8", "bf16")
    bench.repeat(1, lambda: False)
    assert bench.row()["shrunk"] is True and bench.row()["ms_per_layer"] > 0
    Free.nodes = {node: 1000}
    with pytest.raises(headrace.ExhaustedError, match="no memory is free on"):
        layer.Bench(machine, LOAD, str(node), 1)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--model", "gpt-2"], 2, "no model 'gpt-2'; there are llama-3.2-1b"),
        (["--dtype", "int3"], 2, "no element type 'int3'; there are"),
        (["--kv-dtype", "x"], 2, "no element type 'x'; there are"),
        (["--batch", "0"], 2, ""),
        (["--batch", "1000000", "--context", "100000000"], 2, "a layer would read 363.8 PiB"),
        (["--context", "-1"], 2, ""),
        (["--target", "0"], 2, "a layer in no time"),
        (["--target", "soon"], 2, "'soon' is no time"),
        (["--bandwidth", "fast"], 2, "'fast' is no rate"),
        (["--bandwidth", ","], 2, "no bandwidth given"),
        (
            ["--bandwidth", "1GB/s", "--on", "dram"],
            2,
            "--bandwidth models a memory; leave out --on",
        ),
        (["--on", "hbm"], 3, ""),
        (["--on", "99"], 3, ""),
        (["--directory", "nowhere"], 3, ""),
        (["--profile", "nowhere"], 3, ""),
        (["--bandwidth", "1GB/s", "--profile", "p"], 2, "--bandwidth models a memory; leave out"),
        (["--out", "nowhere/x.json"], 3, "no directory nowhere"),
    ],
)
def test_nonsense_is_one_line(run: Headrace, arguments: list[str], code: int, told: str) -> None:
    result = run("bench", "layer", *arguments)
    assert result.returncode == code, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


def test_settings_where_there_are_none(tmp_path: Path) -> None:
    found = settings.settings(tmp_path)
    assert found["numa_balancing"] is found["transparent_hugepages"] is found["governor"] is None
    folder = tmp_path / "sys/kernel/mm/transparent_hugepage"
    folder.mkdir(parents=True)
    (folder / "enabled").write_text("always [madvise] never\n")
    assert settings.settings(tmp_path)["transparent_hugepages"] == "madvise"
