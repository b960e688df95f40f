# SPDX-License-Identifier: Apache-2.0
"""Checks of the document of every benchmark: compare, export and report read its rows."""

from __future__ import annotations

import copy
import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
from headrace._profile import exports
from headrace._profile.documents import load, profile_of


def check_rows(document: dict[str, Any]) -> None:
    """Its rows are those of a profile, and export has a line for each."""
    profile = profile_of(document)
    assert [row.asdict() for row in profile.rows] == document["rows"]
    assert len({row.key for row in profile.rows}) == len(profile.rows), "two rows with one key"
    assert profile.machine.name == document["machine"]["name"]
    assert profile.conditions["date"] == document["date"]
    lines = list(csv.DictReader(exports.as_csv(profile).splitlines()))
    medians = [line["median"] and float(line["median"]) for line in lines]
    assert medians == ["" if row.median is None else row.median for row in profile.rows]
    assert not headrace.compare([profile], [profile]).changed


def slower(document: dict[str, Any], times: float = 3.0) -> dict[str, Any]:
    """The same with larger numbers."""
    made = copy.deepcopy(document)
    for row in made["rows"]:
        for name in ("median", "min", "max", "low", "high", "mad"):
            row[name] = row[name] and times * row[name]
        row["samples"] = [times * each for each in row["samples"]]
    return made


def check_commands(
    document: dict[str, Any], run: Callable[..., subprocess.CompletedProcess[str]], folder: Path
) -> None:
    """`headrace compare` of two documents sees a change, `headrace export` writes the rows, and
    `headrace report` draws them.
    """
    check_rows(document)
    (folder / "a.json").write_text(json.dumps(document))
    (folder / "b.json").write_text(json.dumps(slower(document)))
    same = run("compare", "a.json", "a.json", "--json")
    assert same.returncode == 2 and "the same measurement" in same.stderr
    result = run("compare", "a.json", "b.json", "--all", "--json")
    assert result.returncode in (9, 10), result.stderr
    found = json.loads(result.stdout)
    ratios = {row["key"]: row["ratio"] for row in found["rows"] if row["ratio"] is not None}
    measured = {row.key for row in load(folder / "a.json").rows if row.median}
    assert ratios.keys() == measured and all(abs(each - 3) < 1e-6 for each in ratios.values())
    table = run("export", "a.json", "--as", "csv")
    assert table.returncode == 0 and table.stdout.count("\n") == 1 + len(document["rows"])
    page = run("report", "a.json", "--html", "a.html")
    assert (page.returncode, page.stderr) == (0, "")
    assert document["machine"]["name"] in (folder / "a.html").read_text()
