# SPDX-License-Identifier: Apache-2.0
"""Profiles and their comparison, as Python sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest

import headrace


def profile(document: dict[str, Any]) -> headrace.Profile:
    return headrace.Profile.from_json(json.dumps(document))


def slower(document: dict[str, Any], factor: float, wanted: str = "") -> dict[str, Any]:
    """The document with the rows of one experiment (all) `factor` as large."""
    for row in document["rows"]:
        if row["median"] is not None and row["experiment"].startswith(wanted):
            row["median"] *= factor
            row["samples"] = [sample * factor for sample in row["samples"]]
    return document


def test_a_row_is_what_the_document_says() -> None:
    document = documents.profile()
    read = profile(document)
    assert len(read.rows) == len(document["rows"]) > 400
    assert (read.machine.name, read.conditions["budget"]) == ("testbed", "quick")
    for row, source in zip(read.rows, document["rows"], strict=True):
        for name in ("experiment", "unit", "median", "samples", "details", "flags", "reason"):
            assert getattr(row, name) == source[name]
        assert list(row.parameters.items()) == list(source["parameters"].items())
    first = read.rows[0]
    assert first.key == "latency cpu_node=0 memory_node=0 bytes=4096 window=all pages=huge"
    assert (first.low, first.high) == (first.min, first.max)
    assert (first.interval, first.launches) == ("range of 5", [])
    assert first.asdict()["parameters"]["pages"] == "huge"
    missing = next(row for row in read.rows if row.reason)
    spread = (missing.median, missing.mad, missing.min, missing.max, missing.low, missing.high)
    assert (*spread, missing.interval) == (None,) * 7


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    read = profile(documents.profile())
    read.save(tmp_path / "p.json")
    again = headrace.Profile.load(tmp_path / "p.json")
    assert again.machine.source == str(tmp_path / "p.json")
    assert [row.asdict() for row in again.rows] == [row.asdict() for row in read.rows]
    assert again.conditions == read.conditions
    assert repr(again) == f"Profile(testbed: {len(read.rows)} rows)"
    assert headrace.Machine.load(str(tmp_path / "p.json")).name == "testbed"


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(headrace.AbsentError, match=r"none\.json"):
        headrace.Profile.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"schema_version": 1, "rows": [{}]}')
    with pytest.raises(headrace.InvalidError, match=r"bad\.json: rows\[0\]\.experiment"):
        headrace.Profile.load(tmp_path / "bad.json")
    with pytest.raises(headrace.Error, match="nowhere"):
        profile(documents.profile()).save(tmp_path / "nowhere" / "p.json")


def test_noise_is_no_change() -> None:
    found = headrace.compare(profile(documents.profile(1)), profile(documents.profile(2)))
    assert not found.changed
    outcomes = [row.outcome for row in found.rows]
    assert outcomes.count("noisy") > 0 and outcomes.count("unmeasured") == 3
    assert {shift.experiment for shift in found.shifts} >= {"latency", "bandwidth", "copy"}


def test_a_slower_row_is_found() -> None:
    after = documents.profile(2)
    wanted = next(row for row in after["rows"] if row["experiment"] == "stream")
    wanted["median"] *= 0.8
    found = headrace.compare(profile(documents.profile(1)), profile(after))
    changed = [row for row in found.rows if row.outcome == "changed"]
    assert found.changed and [row.key.split()[0] for row in changed] == ["stream"]
    assert changed[0].ratio is not None and changed[0].ratio == pytest.approx(0.8, rel=0.05)
    assert not headrace.compare(profile(documents.profile(1)), profile(after), 0.4).changed


def test_a_slower_experiment_is_found_where_no_row_is() -> None:
    before, after = (documents.profile(seed, noise=0.05) for seed in (1, 2))
    found = headrace.compare(profile(before), profile(slower(after, 1.12, "latency")))
    shift = next(shift for shift in found.shifts if shift.experiment == "latency")
    assert found.changed and shift.changed and shift.ratio == pytest.approx(1.12, rel=0.02)


@pytest.mark.parametrize("least", [-0.1, float("nan"), float("inf")])
def test_a_share_that_makes_no_sense(least: float) -> None:
    one = profile(documents.profile())
    with pytest.raises(headrace.InvalidError, match=r"0\.05 is 5 %"):
        headrace.compare(one, one, least)
