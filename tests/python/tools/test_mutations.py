# SPDX-License-Identifier: Apache-2.0
"""tools/mutate.py: its table fits the tree, and what it says of a test that fails."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import mutate  # noqa: E402
import one_file  # noqa: E402

AREAS = {"cache", "move", "kvcache", "place", "profile", "tier", "measure"}
#: A line of the table has at most 80 columns.
LONGEST_NAME = 54
TABLE = mutate.table()


@pytest.mark.parametrize("mutation", TABLE, ids=lambda mutation: mutation.name)
def test_the_code_of_a_defect_is_in_its_file_once(mutation: mutate.Mutation) -> None:
    assert mutation.applies()
    assert mutation.broken != mutation.code
    assert all((ROOT / file).is_file() for file in mutation.compiled)
    assert mutation.file.endswith(".cpp") or mutation.compiled


def test_each_area_has_defects_and_make_test_plants_some() -> None:
    areas = Counter(mutation.area for mutation in TABLE)
    assert sum(areas.values()) >= 60
    assert all(areas[area] >= 6 for area in AREAS)
    assert 5 <= sum(mutation.quick for mutation in TABLE) <= 8


def test_names_differ_and_fit_a_line() -> None:
    names = [mutation.name for mutation in TABLE]
    assert len(set(names)) == len(names)
    assert [name for name in names if len(name) > LONGEST_NAME] == []


def test_code_that_is_gone_is_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in (mutate, one_file):
        monkeypatch.setattr(place, "ROOT", tmp_path)
    (tmp_path / "code.cpp").write_text("return a + b;\nreturn a + b;\n")
    for code, times in (("a - b", 0), ("a + b", 2)):
        gone = mutate.Mutation("cache", "a name", "code.cpp", code, "0", "*")
        assert (tmp_path / "code.cpp").read_text().count(code) == times
        assert mutate.plant(gone, None, None).word == "STALE"  # type: ignore[arg-type]


def test_the_test_that_fails_is_named() -> None:
    ran = "[ RUN      ] Cache.Holds\n"
    assert mutate.failing(ran + "[  FAILED  ] Cache.Holds (3 ms)\n") == "Cache.Holds"
    assert mutate.failing(ran + "CHECK failed: x\n") == "Cache.Holds: CHECK failed"
    assert mutate.failing(ran + "\nno end within 120 s\n") == "Cache.Holds: no end within 120 s"
    assert mutate.failing("") == "its start"


def test_a_command_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(one_file, "BUILD", tmp_path)
    monkeypatch.setattr(one_file, "BOUND", 0.2)
    commands = one_file.Commands()
    hangs = ["bash", "-c", f"sleep 60 & echo $! >{tmp_path}/child; wait"]
    ended = commands.run(hangs, tmp_path / "log")
    assert ended.status != 0 and "no end within 0.2 s" in ended.said
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    late = time.monotonic() + 20
    while child.exists() and child.read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
        assert time.monotonic() < late
        time.sleep(0.05)
    commands.stop()
    with pytest.raises(InterruptedError):
        commands.run(["true"], tmp_path / "log")


def test_a_name_that_no_defect_has_is_refused() -> None:
    command = [sys.executable, ROOT / "tools" / "mutate.py", "--list", "no such name"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "--list prints their names" in refused.stderr
