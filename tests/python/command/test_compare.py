# SPDX-License-Identifier: Apache-2.0
"""`headrace compare`: what it says of two profiles, and how it ends."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest
from conftest import Golden, Run

from headrace._cli import parse


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


def test_mixed_change_is_inconclusive(run: Run, tmp_path: Path) -> None:
    """A third of the rows is faster and a third is slower, so exit code 0 would be wrong."""
    old, new = documents.profile(1), documents.profile(1)
    for number, row in enumerate(row for row in new["rows"] if row["samples"]):
        factor = (1.3, 1, 1 / 1.3)[number % 3]
        row["median"] *= factor
        row["samples"] = [sample * factor for sample in row["samples"]]
    new["conditions"]["date"] = "2026-11-27T00:00:00Z"
    (tmp_path / "old.json").write_text(json.dumps(old))
    (tmp_path / "new.json").write_text(json.dumps(new))
    result = run("compare", "old.json", "new.json", "--judged", "0")
    assert (result.returncode, result.stderr) == (10, "")
    assert "Inconclusive: " in result.stdout and "measure several runs" not in result.stdout
    assert "one run of each side does not say" in result.stdout
    document = json.loads(run("compare", "old.json", "new.json", "--json").stdout)
    assert document["inconclusive"] is True and document["changed"] is False
    assert document["verdicts"]["inconclusive"] > 500


def test_all_rows(run: Run, files: Path) -> None:
    result = run("compare", "old.json", "slow.json", "--all")
    lines = result.stdout.splitlines()
    assert result.returncode == 9
    assert sum(" same " in line for line in lines) > 400
    for outcome in ("changed", "noisy", "only old", "unmeasured"):
        assert any(f"  {outcome}" in line for line in lines)


def test_the_least_that_counts(run: Run, files: Path) -> None:
    assert run("compare", "old.json", "slow.json", "--least", "30 %").returncode == 0


def runs(folder: Path, name: str, seeds: range, noisy: float, factor: float = 1) -> list[str]:
    """Profiles of runs, in which a part of the rows is noisy, and stream slower."""
    names = []
    for seed in seeds:
        document = slower(documents.profile(seed), "stream", factor)
        document["rows"] = [row for row in document["rows"] if row["experiment"] in ROWS]
        for number, row in enumerate(row for row in document["rows"] if row["samples"]):
            row["flags"] = ["noisy"] if number % 10 < 10 * noisy else []
        names.append(f"{name}{seed}.json")
        (folder / names[-1]).write_text(json.dumps(document))
    return names


ROWS = ("stream", "bandwidth")


def test_too_little_was_judged(run: Run, tmp_path: Path) -> None:
    """A job that asks for 0 does not pass blind."""
    (old,) = runs(tmp_path, "old", range(1, 2), 0.6)
    (new,) = runs(tmp_path, "new", range(2, 3), 0.6)
    result = run("compare", old, new)
    assert (result.returncode, result.stderr) == (10, "")
    text = " ".join(result.stdout.split())
    assert re.search(r"Inconclusive: \d+ of \d+ points precise enough \(50 % needed", text)
    assert run("compare", old, new, "--judged", "20%").returncode == 0
    document = json.loads(run("compare", old, new, "--json").stdout)
    assert document["enough_judged"] is False and document["least_judged"] == 0.5
    assert 0 < document["judged"] < 0.5 * document["expected"]
    (all_noisy,) = runs(tmp_path, "noisy", range(3, 4), 1)
    assert run("compare", old, all_noisy, "--judged", "0").returncode == 10, "nothing was judged"
    (changed,) = runs(tmp_path, "changed", range(4, 5), 0.6, 0.5)
    assert run("compare", old, changed).returncode == 9, "what was seen is said"


def test_rows_that_would_show_only_large_changes_were_not_judged(run: Run, tmp_path: Path) -> None:
    """If runs differ by a tenth, a loss of a fifth is not detected, and compare says so."""

    def wild(name: str, factor: float) -> list[str]:
        names = []
        for number, off in enumerate((0.9, 1.0, 1.12)):
            document = documents.profile(1)
            rows = [row for row in document["rows"] if row["experiment"] == "stream"][:4]
            document["rows"] = rows
            for row in rows:
                row["flags"] = []
                for value in ("value", "median"):
                    row[value] = row[value] * off * factor if row.get(value) else row.get(value)
                row["samples"] = [each * off * factor for each in row["samples"]]
            names.append(f"{name}{number}.json")
            (tmp_path / names[-1]).write_text(json.dumps(document))
        return names

    sides = [*wild("old", 1), "--", *wild("new", 0.8)]
    result = run("compare", *sides)
    assert result.returncode == 10, result
    assert "4 more would show only changes of over 20 %" in " ".join(result.stdout.split())
    document = json.loads(run("compare", *sides, "--json").stdout)
    assert (document["judged"], document["seen"], document["resolution"]) == (4, 0, 0.2)
    assert run("compare", *sides, "--resolution", "100%").returncode == 0
    assert run("compare", *sides, "--least", "100%").returncode == 0


def test_points_of_which_none_is_in_both(run: Run, tmp_path: Path) -> None:
    for name in ("stream", "latency"):
        document = documents.profile(1)
        document["rows"] = [row for row in document["rows"] if row["experiment"] == name]
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    result = run("compare", "stream.json", "latency.json")
    assert result.returncode == 10 and "no point has a value in both" in result.stdout, result


def test_rows_that_are_gone_were_not_judged(run: Run, tmp_path: Path) -> None:
    (old,) = runs(tmp_path, "old", range(1, 2), 0)
    document = json.loads((tmp_path / old).read_text())
    document["rows"] = document["rows"][:20]
    (tmp_path / "part.json").write_text(json.dumps(document))
    assert run("compare", old, "part.json").returncode == 10
    assert run("compare", "part.json", old).returncode == 0


def test_an_experiment_of_too_few_rows_is_not_the_same(run: Run, tmp_path: Path) -> None:
    for name, document in (
        ("old", documents.profile(1)), ("slow", slower(documents.profile(1), "stream", 0.8))
    ):  # fmt: skip
        streams = [row for row in document["rows"] if row["experiment"] == "stream"]
        others = [row for row in document["rows"] if row["experiment"] != "stream"]
        document["rows"] = streams[:3] + others
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    result = run("compare", "old.json", "slow.json", "--json")
    verdicts = {s["experiment"]: s["verdict"] for s in json.loads(result.stdout)["shifts"]}
    assert verdicts.pop("stream") == "too_few" and set(verdicts.values()) == {"same"}


def test_several_runs_of_each_side(run: Run, tmp_path: Path) -> None:
    """Noisy rows are judged by what runs differ by."""
    old = runs(tmp_path, "old", range(1, 5), 1)
    same = runs(tmp_path, "same", range(5, 9), 1)
    slow = runs(tmp_path, "slow", range(9, 13), 1, 0.9)
    result = run("compare", *old, "--", *same)
    assert (result.returncode, result.stderr) == (0, "")
    assert "No change beyond noise in" in result.stdout and "noisy" not in result.stdout
    result = run("compare", *old, "--", *slow, "--json")
    assert result.returncode == 9
    document = json.loads(result.stdout)
    assert document["new"]["files"] == slow and document["old"]["machine"] == "testbed"
    assert [s["experiment"] for s in document["shifts"] if s["changed"]] == ["stream"]
    assert {(row["old_runs"], row["new_runs"]) for row in document["rows"]} == {(4, 4)}
    assert document["judged"] == document["expected"]
    assert run("compare", *old, "--", slow[0]).returncode in (9, 10)


def test_sides_that_make_no_sense(run: Run, tmp_path: Path) -> None:
    one, two, other = runs(tmp_path, "p", range(1, 4), 0)
    document = json.loads((tmp_path / other).read_text()) | {"name": "elsewhere"}
    (tmp_path / other).write_text(json.dumps(document))
    for arguments, complaint in (
        ([one], "compare takes two profiles"), ([one, two, other], "compare takes two profiles"),
        ([one, two, "--"], "compare takes two"), (["--", one, two], "compare takes two"),
        ([one, "--", two, "--", other], "compare takes two"),
        ([one, other, "--", two], f"{one} and {other} are of two machines"),
    ):  # fmt: skip
        result = run("compare", *arguments)
        assert result.returncode == 2 and complaint in " ".join(result.stderr.split()), arguments


def test_a_measurement_is_given_once(run: Run, tmp_path: Path) -> None:
    """Twice the same file would say that runs differ by nothing."""
    one, two, three = runs(tmp_path, "p", range(1, 4), 0)
    (tmp_path / "copy.json").write_bytes((tmp_path / one).read_bytes())
    (tmp_path / "soft.json").symlink_to(one)
    os.link(tmp_path / one, tmp_path / "hard.json")
    for other in (one, f"./{one}", "copy.json", "soft.json", "hard.json"):
        for arguments in (
            [one, other], [one, other, "--", two, three], [two, three, "--", one, other],
            [one, two, "--", three, other],
        ):  # fmt: skip
            result = run("compare", *arguments)
            told = f"headrace: {one} and {Path(other)} are the same measurement; give each run once"
            assert (result.returncode, result.stdout) == (2, "")
            assert result.stderr == f"{told}\n", arguments


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
