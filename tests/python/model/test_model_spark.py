# SPDX-License-Identifier: Apache-2.0
"""headrace model spark: curves, the fit of its constants, tables, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Run

from headrace._model import spark
from headrace._model.spark import Constants, Curve, Side

MODEL = ["model", "spark"]


def slower(constants: Constants) -> dict[str, float]:
    rows = spark.model("cxl-a1000", constants)["rows"]
    return {row["config"]: row["slower"] for row in rows}


def test_a_curve_is_the_least_latency_and_lines_between() -> None:
    curve = Curve([(20, 200), (10, 100), (5, 150), (40, 400)])
    assert [curve.latency(b) for b in (0, 5, 10, 15, 20, 30, 40, 99)] == [
        100, 100, 100, 150, 200, 300, 400, 400
    ]  # fmt: skip
    assert curve.most == 40


def test_a_closed_loop_by_hand() -> None:
    flat = Curve([(1e12, 100.0)])
    side = Side(flat, Curve([(64e7, 300.0)]), threads=2, cards=0.5)
    assert side.bandwidth(0, 100) == pytest.approx(2 * 64 / 200e-9)
    assert side.bandwidth(0.1, 100) == pytest.approx(2 * 64 / 220e-9)
    # Half a card gives 320 MB/s, and of two bytes one is there.
    many = Side(side.fast, side.slow, threads=20, cards=0.5)
    assert many.bandwidth(0.5, 100) == pytest.approx(64e7)


def test_the_constants_are_the_fit() -> None:
    found = slower(Constants())
    assert found["3:1"] == pytest.approx(1.4, abs=0.001)
    assert found["Hot-Promote"] == pytest.approx(1.34, abs=0.003)
    for factor in (0.94, 1.06):
        cpu = slower(Constants(cpu_ns=Constants.cpu_ns * factor))
        assert abs(cpu["3:1"] - 1.4) > abs(found["3:1"] - 1.4)
        fresh = slower(Constants(fresh=Constants.fresh * factor))
        assert abs(fresh["Hot-Promote"] - 1.34) > abs(found["Hot-Promote"] - 1.34)


def test_the_order_is_that_of_the_talk() -> None:
    found = slower(Constants())
    order = [found[each] for each in ("MMEM", "Hot-Promote", "3:1", "1:1", "1:3", "ssd-spill")]
    assert order == sorted(order) and len(set(order)) == len(order)


def test_the_rate_of_an_ssd_that_is_as_slow_as_interleaving() -> None:
    document = spark.model("cxl-a1000")
    rate = document["ssd_break_even_bytes_per_second"]
    found = slower(Constants(ssd_bytes_per_second=rate))
    assert found["ssd-spill"] == pytest.approx(found["1:3"])


def test_as_a_document(run: Run, tmp_path: Path) -> None:
    result = run(*MODEL, "--json", "--out", "spark.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (tmp_path / "spark.json").read_text()
    document = json.loads(result.stdout)
    assert document["kind"] == "model spark" and document["basis"] == "modelled"
    assert all(row["basis"] == "modelled" for row in document["rows"])
    bases = [each["basis"] for each in document["constants"]]
    assert bases == ["fitted", "fitted", "assumed", "assumed", "assumed"]
    assert "Nothing here is predicted" in " ".join(run(*MODEL).stdout.split())
    page = run("report", "spark.json", "--html", "page.html")
    assert (page.returncode, page.stderr) == (0, "")
    assert "Spark by the place of its memory" in (tmp_path / "page.html").read_text()
