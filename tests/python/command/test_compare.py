"""`headrace compare`: what it says of two profiles, and how it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest

from headrace._cli import parse

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Golden = Callable[[str, str], None]


def slower(document: dict[str, Any], experiment: str, factor: float) -> dict[str, Any]:
    for row in document["rows"]:
        if row["experiment"] == experiment and row["median"] is not None:
            row["median"] *= factor
            row["samples"] = [sample * factor for sample in row["samples"]]
    return document


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two measurements of one machine, and a third after a change that slowed stream down."""
    third = slower(documents.profile(3), "stream", 0.85)
    third["conditions"]["version"] = "0.2.0"
    del third["rows"][3]
    for name, document in (
        ("old", documents.profile(1)), ("same", documents.profile(2)), ("slow", third),
    ):  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


def test_nothing_changed(run: Run, golden: Golden, files: Path) -> None:
    result = run("compare", "old.json", "same.json")
    assert (result.returncode, result.stderr) == (0, "")
    golden("compare_same.txt", result.stdout)


def test_something_changed(run: Run, golden: Golden, files: Path) -> None:
    result = run("compare", "old.json", "slow.json")
    assert (result.returncode, result.stderr) == (9, "")
    golden("compare_changed.txt", result.stdout)


def test_all_rows(run: Run, files: Path) -> None:
    result = run("compare", "old.json", "slow.json", "--all")
    lines = result.stdout.splitlines()
    assert result.returncode == 9
    assert sum(" same " in line for line in lines) > 400
    for outcome in ("changed", "noisy", "only old", "unmeasured"):
        assert any(f"  {outcome}" in line for line in lines)


def test_the_least_that_counts(run: Run, files: Path) -> None:
    assert run("compare", "old.json", "slow.json", "--least", "30 %").returncode == 0


def test_the_document(run: Run, files: Path) -> None:
    result = run("compare", "old.json", "slow.json", "--json")
    assert (result.returncode, result.stderr) == (9, "")
    document = json.loads(result.stdout)
    assert list(document)[:2] == ["schema_version", "kind"] and document["kind"] == "compare"
    assert document["changed"] is True and document["least"] == 0.05
    assert document["new"]["conditions"]["version"] == "0.2.0"
    assert sum(document["verdicts"].values()) == len(document["rows"])
    changed = [row for row in document["rows"] if row["verdict"] == "changed"]
    assert changed and all(row["key"].startswith("stream ") for row in changed)
    assert [s["experiment"] for s in document["shifts"] if s["changed"]] == ["stream"]


def test_numbers_beyond_json(run: Run, tmp_path: Path) -> None:
    for name, value in (("a", 1e-308), ("b", 1e308)):
        row = documents.without("tlb", "") | {"unit": "ns", "median": value, "samples": [value]}
        profile = documents.machine() | {"rows": [row]}
        (tmp_path / f"{name}.json").write_text(json.dumps(profile))
    result = run("compare", "a.json", "b.json", "--json")
    assert json.loads(result.stdout)["rows"][0]["ratio"] is None
    assert run("compare", "a.json", "b.json").returncode == result.returncode


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), (" 0.5 % ", 0.005), ("0.05", 0.05), ("0", 0), ("100%", 1)]
)
def test_shares(text: str, share: float) -> None:
    assert parse.share(text) == pytest.approx(share)
