# SPDX-License-Identifier: Apache-2.0
"""headrace model dsa: its rows, their basis, and the reason where there is no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run
from programs import ran

import headrace
from headrace._model import dsa
from headrace._profile import dsa_rows

Row = dict[str, Any]

#: All but `cpu`, which measures cores for real.
MODELLED = ["submission", "threads", "route", "queue", "interference"]
#: Fields that every row has.
ASKED = {"experiment", "method", "bytes", "threads", "route", "bytes_per_second", "basis"}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    machine = headrace.Machine.load("xeon-max")
    found = dsa.rows(machine, dsa_rows.selections(MODELLED, [4096, 1 << 20, 1 << 30]))
    document = {"rows": [row.asdict() for row in found], "machine": machine.asdict()}
    return [*dsa_rows.shown(document | {"host": "here"})]


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


def modelled(run: Run, *arguments: str) -> Any:
    result = run("model", "dsa", *arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_two_runs_give_the_same_rows(run: Run) -> None:
    first, second = (modelled(run, "submission", "route", "queue") for _ in range(2))
    assert first["rows"] == second["rows"]
    assert first["rows"] and first["rests_on"]["level"] == "model"


def test_without_its_program_the_model_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsa, "PROGRAM", "headrace-no-such-program")
    with pytest.raises(headrace.AbsentError, match="make install"):
        dsa.rows(headrace.Machine.load("xeon-max"), [])


def test_errors_of_the_program_keep_their_kind() -> None:
    with pytest.raises(headrace.UnsupportedError, match="^machine h100 has no dsa engine"):
        dsa.rows(headrace.Machine.load("h100"), [])
    with pytest.raises(headrace.InvalidError, match="no point of dsa"):
        dsa.rows(headrace.Machine.load("xeon-max"), [{"part": "speed"}])


def test_cores_are_measured_and_named(run: Run, machine: headrace.Machine) -> None:
    document = modelled(run, "cpu", "--sizes", "4KiB,1MiB")
    cores = [row for row in dsa_rows.shown(document) if row["basis"] == "measured"]
    assert [row["bytes"] for row in cores] == [4096, 1 << 20]
    assert {row["machine"] for row in cores} == {machine.name}
    assert {row["basis"] for row in document["rows"]} == {"measured", "modelled"}
    assert [each["cores_of"] for each in document["crossovers"]] == [machine.name] * 2


def test_tables_begin_with_what_they_rest_on(run: Run, tmp_path: Path) -> None:
    result = run("model", "dsa", "threads", "interference", "--out", "rows.json")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Modelled, not measured: no DSA device was used")
    assert lines[3].split() == ["threads", "bytes", "1", "thread", "2", "threads", "12", "threads"]
    assert any(line.startswith("no number: the model has no cores") for line in lines)
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document["kind"] == "model dsa" and len(document["rows"]) == 6 + 8


def test_ctrl_c_ends_it_without_a_document(tmp_path: Path) -> None:
    script = """
import sys
from headrace._cli import interrupt, main
enter = interrupt.Interrupt.__enter__
def pressed(self):
    enter(self)
    self.requested = True
    return self
interrupt.Interrupt.__enter__ = pressed
sys.argv = ["headrace", "model", "dsa", "cpu", "--out", "rows.json"]
main()
"""
    result = ran(script, cwd=tmp_path)
    assert result.returncode == 130 and result.stdout == "" and list(tmp_path.iterdir()) == []


def test_its_report_has_the_thesis_figures(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    assert run("model", "dsa", "submission", "route", "--out", "rows.json").returncode == 0
    result = run("report", "rows.json", "--html", "page.html")
    assert (result.returncode, result.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text()
    for words in ("figure 3.2", "figure 3.5", "figure 3.6", "published", "Modelled, not measured"):
        assert words in page
    assert "run the experiment `threads`" in page.replace("&#96;", "`")


def test_every_constant_is_on_the_page_of_the_model() -> None:
    page = (ROOT / "docs/design/dsa-rates.md").read_text()
    for each in dsa.CONSTANTS:
        known = [f"{each.value:g} {each.unit}"]
        if each.unit == "B/s":
            known = [f"{each.value / 1e9:.{digits}g} GB/s" for digits in (3, 4)]
        assert any(f"| {value}" in page for value in known), each
