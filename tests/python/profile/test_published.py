# SPDX-License-Identifier: Apache-2.0
"""The machines that come with Headrace: whose figures they hold, and what is drawn from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Run

import headrace


def found(preset: str, experiment: str, **parameters: int | str) -> float | None:
    rows = [
        row
        for row in headrace.Profile.load(preset).rows
        if row.experiment == experiment and parameters.items() <= row.parameters.items()
    ]
    assert len(rows) == 1
    return rows[0].median


@pytest.mark.parametrize("preset", headrace.presets())
def test_every_row_names_its_source(preset: str) -> None:
    profile = headrace.Profile.load(preset)
    assert profile.published == bool(profile.rows)
    assert len({row.key for row in profile.rows}) == len(profile.rows)
    for row in profile.rows:
        assert row.source and not row.samples
        assert (row.low, row.high) == (row.median, row.median), "its spread was not published"


def test_measured_rows_have_no_source(measured: headrace.Profile) -> None:
    assert not measured.published


def test_figures_are_quoted_as_published() -> None:
    hbm = {"a": "8-15", "b": "8-15", "c": "8-15"}
    assert found("xeon-max", "stream", kernel="triad", **hbm) == 1065152.4e6
    assert found("xeon-max", "copy", engine="dsa (all)", to=15) == 96 << 30
    assert found("xeon-max", "copy", engine="dsa (all)", to=8) is None, "a picture only"
    assert found("cxl-a1000", "latency", cpu_node=7, memory_node=8) == 485
    assert found("cxl-a1000", "bandwidth", cpu_node=0, memory_node=8, mix="read") == 48e9
    pinned = {"part": "copy", "by": "engine", "memory": "pinned"}
    assert found("h100", "gpu", direction="both", **pinned) == 83.4e9
    assert found("gh200", "gpu", direction="from_gpu", **pinned) == 295.5e9
    read = found("ac922", "gpu", memory="pageable") or 0
    assert read / (1 << 30) == pytest.approx(63.5457)


#: Bytes over the bus per byte that a program reads or writes.
BUS = {"read": 1, "nt_write": 1, "2:1": 4 / 3, "1:1": 3 / 2, "write": 2}


def fit_of(profile: headrace.Profile, row: headrace.Row) -> dict[str, float]:
    p = row.parameters
    text = profile.conditions[f"fit {p['cpu_node']} {p['memory_node']} {p['mix']}"]
    return {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", text)}


def test_fitted_rows_follow_from_the_fit() -> None:
    """The formulas of docs/design/published.md, with the parameters that the preset holds."""
    profile = headrace.Profile.load("cxl-a1000")
    fitted = [row for row in profile.rows if "fitted" in row.flags]
    for row in fitted:
        f, bus = fit_of(profile, row), BUS[str(row.parameters["mix"])]
        if row.experiment == "bandwidth":
            assert row.median == pytest.approx(f["best"] / bus * 1e9, rel=1e-3)
            assert row.details["bus"] == pytest.approx(f["best"] * 1e9, rel=1e-3)
            continue
        delay = int(row.parameters["delay_ns"])
        reached = f["observer"] + (
            (f["best"] - f["observer"]) ** -f["corner"] + (delay / f["burst"]) ** f["corner"]
        ) ** (-1 / f["corner"])
        used = reached / f["best"]
        assert row.details["bus"] == pytest.approx(reached * 1e9, rel=1e-3)
        assert row.details["bandwidth"] == pytest.approx(reached / bus * 1e9, rel=1e-3)
        assert row.median == pytest.approx(
            f["idle"] + f["rise"] * used / (1 - f["bend"] * used), rel=1e-3
        )
    curves = [name for name in profile.conditions if name.startswith("fit ")]
    assert len(curves) == 15 and len(fitted) == 15 * 13 + 9


def test_a_published_machine_can_be_compared(run: Run) -> None:
    same = run("compare", "cxl-a1000", "cxl-a1000")
    assert (same.returncode, same.stderr) == (0, "")
    other = run("compare", "cxl-a1000", "xeon-max")
    assert (other.returncode, other.stderr) == (10, ""), "no point in common: nothing was judged"


def test_the_page_says_that_it_was_published(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    result = run("report", "--machine", "xeon-max")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{tmp_path}/report.html\n", "nobody said where"
    page = (tmp_path / "report.html").read_text()
    assert "Source: published data" in page
    assert "Where the figures come from" in page and "IT4Innovations documentation" in page
