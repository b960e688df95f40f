# SPDX-License-Identifier: Apache-2.0
"""headrace bench dsa: its rows, what they rest on, and what it says where it can say nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_commands
from staged import press_ctrl_c

import headrace
from headrace._bench import dsa_rows
from headrace._bench.runner import row_of
from headrace._profile.documents import Fields

Row = dict[str, Any]
Run = Callable[..., Any]

#: All but `cpu`, which measures cores for real.
MODELLED = ["submission", "threads", "route", "queue", "interference"]
#: What issue 4 asks of every row.
ASKED = {"experiment", "method", "bytes", "threads", "route", "bytes_per_second", "basis"}


@pytest.fixture(scope="module")
def rows() -> list[Fields]:
    machine = headrace.Machine.load("xeon-max")
    found = dsa_rows.modelled(machine, dsa_rows.selections(MODELLED, [4096, 1 << 20, 1 << 30]), 1)
    document = {"rows": [row.asdict() for row in found], "machine": machine.asdict()}
    return dsa_rows.shown(document | {"host": "here"})


def test_every_row_has_a_rate_or_a_reason(rows: list[Row]) -> None:
    assert {row["experiment"] for row in rows} == set(MODELLED)
    for row in rows:
        assert ASKED <= row.keys()
        assert row["basis"] == "modelled" and row["machine"] == "xeon-max"
        assert (row["bytes_per_second"] is None) == bool(row["reason"])
        assert row["bytes_per_second"] is None or row["bytes_per_second"] > 0


def test_nothing_is_faster_than_what_carries_it(rows: list[Row]) -> None:
    for row in rows:
        if row["bytes_per_second"] is not None:
            assert row["bytes_per_second"] <= 31.17e9 * len(row["engines"]) * 1.001
            assert row["bytes_per_second"] <= 96 * dsa_rows.GIB * 1.001


def test_it_follows_the_published_points(rows: list[Row]) -> None:
    """Within what docs/design/dsa-rates.md says of each."""
    for mark in dsa_rows.of(dsa_rows.published(), "submission"):
        for row in dsa_rows.of(rows, "submission"):
            if row["bytes"] == mark["bytes"]:
                assert row["bytes_per_second"] == pytest.approx(mark["bytes_per_second"], rel=0.07)
    rates = {
        (row["route"], row["to_node"]): row["bytes_per_second"]
        for row in dsa_rows.of(rows, "route")
    }
    for mark in dsa_rows.of(dsa_rows.published(), "route"):
        if mark["bytes_per_second"] is not None:
            modelled = rates[mark["route"], mark["to_node"]]
            assert modelled == pytest.approx(mark["bytes_per_second"], rel=0.13)
    assert dsa_rows.smart_less(rows).keys() == {8, 11, 12, 15}


def test_routes_say_what_they_use_and_leave(rows: list[Row]) -> None:
    for row in dsa_rows.of(rows, "route"):
        everything = row["engines"] + row["free_engines"]
        assert sorted(everything) == [f"dsa{i}" for i in range(8)]


def emulated(run: Run, *arguments: str) -> Any:
    result = run("bench", "dsa", *arguments, "--emulated", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_two_runs_give_the_same_rows(run: Run, tmp_path: Path) -> None:
    first, second = (emulated(run, "submission", "route", "queue") for _ in range(2))
    assert first["rows"] == second["rows"]
    assert first["rows"] and first["rests_on"]["level"] == "model"
    check_commands(first, run, tmp_path)


def test_without_its_program_the_model_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsa_rows, "PROGRAM", "headrace-no-such-program")
    with pytest.raises(headrace.AbsentError, match="make install"):
        dsa_rows.modelled(headrace.Machine.load("xeon-max"), [], 1)


def test_errors_of_the_program_keep_their_kind() -> None:
    with pytest.raises(headrace.UnsupportedError, match="^machine h100 has no dsa engine"):
        dsa_rows.modelled(headrace.Machine.load("h100"), [], 1)
    with pytest.raises(headrace.InvalidError, match="no point of dsa"):
        dsa_rows.modelled(headrace.Machine.load("xeon-max"), [{"part": "speed"}], 1)


def test_cores_are_measured_and_named(run: Run, machine: headrace.Machine) -> None:
    document = emulated(run, "cpu", "--sizes", "4KiB,1MiB", "--rounds", "1")
    cores = [row for row in dsa_rows.shown(document) if row["basis"] == "measured"]
    assert [row["bytes"] for row in cores] == [4096, 1 << 20]
    assert {row["machine"] for row in cores} == {machine.name}
    assert {row["basis"] for row in document["rows"]} == {"measured", "modelled"}
    assert [each["cores_of"] for each in document["crossovers"]] == [machine.name] * 2


def test_tables_begin_with_what_they_rest_on(run: Run, tmp_path: Path) -> None:
    result = run("bench", "dsa", "threads", "interference", "--emulated", "--out", "rows.json")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("modelled: no DSA device was used")
    assert lines[2].split() == ["threads", "bytes", "1", "thread", "2", "threads", "12", "threads"]
    assert any(line.startswith("no number: the model has no cores") for line in lines)
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document["kind"] == "bench dsa" and len(document["rows"]) == 6 + 8


def test_without_a_device_it_says_how_to_go_on(run: Run) -> None:
    if any(engine.kind == "dsa" for engine in headrace.Machine.discover().engines):
        pytest.skip("this host has a DSA device")
    result = run("bench", "dsa")
    assert result.returncode == 4 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and "--emulated" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["submision", "--emulated"], 2, "there are submission, threads"),
        (["speed", "--emulated"], 2, "there are submission, threads"),
        (["--sizes", "0", "--emulated"], 2, "0 bytes"),
        (["submission", "--sizes", "3GiB", "--emulated"], 2, "2 GiB"),
        (["--rounds", "0", "--emulated"], 2, "--rounds"),
        (["--out", "nowhere/rows.json", "--emulated"], 3, "no directory"),
    ],
)
def test_bad_requests(run: Run, arguments: list[str], code: int, words: str) -> None:
    result = run("bench", "dsa", *arguments)
    assert result.returncode == code and result.stdout == ""
    assert words in result.stderr and len(result.stderr.splitlines()) == 1


def test_ctrl_c_keeps_the_rows(run: Run, tmp_path: Path) -> None:
    arguments = ["bench", "dsa", "queue", "--emulated", "--json", "--out", "rows.json"]
    result = press_ctrl_c(arguments, tmp_path, 5)
    assert (result.returncode, result.stderr) == (
        130, "headrace: interrupted; results cover the time until then\n",
    )
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document == json.loads(result.stdout)
    assert document["interrupted"] is True and 5 <= len(document["rows"]) < 72


def row(way: str, size: int, rate: float | None, machine: str = "a", to_node: int = 0) -> Fields:
    return Fields({
        "experiment": "cpu", "method": way, "window": 1, "at_once": 1, "threads": 1,
        "route": "one", "bytes": size, "bytes_per_second": rate, "basis": "modelled",
        "machine": machine, "from_node": 0, "to_node": to_node,
    })  # fmt: skip


def test_a_crossover_holds_at_all_larger_sizes() -> None:
    cores = [row("cores", size, 5.0, "b") for size in (1, 2, 4, 8)]
    device = [row("single", size, rate) for size, rate in ((1, 6.0), (2, 4.0), (4, 5.0), (8, 9.0))]
    (found,) = dsa_rows.crossovers([*cores, *device])
    assert (found["bytes"], found["machine"], found["cores_of"]) == (4, "a", "b")
    (never,) = dsa_rows.crossovers([*cores, *device[:2], row("single", 8, 1.0)])
    assert never["bytes"] is None and "core is faster" in never["reason"]
    (alone,) = dsa_rows.crossovers(device)
    assert alone["bytes"] is None and "no size" in alone["reason"]


def test_a_crossover_is_within_a_node() -> None:
    at_home = [row("single", 8, 6.0), row("cores", 8, 9.0)]
    (never,) = dsa_rows.crossovers([*at_home, row("cores", 8, 5.0, to_node=8)])
    assert never["bytes"] is None and "core is faster" in never["reason"]


def test_its_report_has_the_thesis_figures(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    result = run("bench", "dsa", "submission", "route", "--emulated", "--html", "page.html")
    assert (result.returncode, result.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text()
    for words in ("figure 3.2", "figure 3.5", "figure 3.6", "published", "Modelled, not measured"):
        assert words in page
    assert "headrace bench dsa threads" in page, "what was not run says how to run it"


def test_a_document_with_nothing_but_reasons_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    from headrace._report.figures_dsa import dsa_figures

    usual = {
        "method": "single", "bytes": 4096, "threads": 1, "at_once": 1, "window": 1, "from": 0,
        "to": 0, "route": "one", "engines": "", "queue": "", "group_engines": "any",
        "beside": "nothing",
    }  # fmt: skip
    rows = [row_of("dsa", {"part": name, **usual}, "B/s", [], reason="no device")
            for name in MODELLED]  # fmt: skip
    machine = headrace.Machine.load("xeon-max").asdict()
    figures = dsa_figures({"rows": [row.asdict() for row in rows], "machine": machine, "host": "a"})
    assert [bool(figure.missing) for figure in figures] == [True] * 4 + [False]
    assert figures[-1].caption == "No number: no device."
