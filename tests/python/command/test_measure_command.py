# SPDX-License-Identifier: Apache-2.0
"""headrace measure: what it prints, keeps and refuses. What the numbers are is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from conftest import Golden, Run
from staged import POINT, press_ctrl_c

import headrace
from headrace._cli import parse
from headrace._run.launches import measure_again

T = TypeVar("T")

SMALL = ["measure", "stream", "--budget", "2s", "--width", "100%", "--out", "p.json"]


def test_list(run: Run, golden: Golden) -> None:
    golden("measure_list.txt", run("measure", "--list").stdout)
    for command, what in (("bench dsa", "experiments"), ("bench cache", "scenarios")):
        document = document_of(run, *command.split(), "--list")
        assert document["kind"] == f"{command} --list"
        assert all(each["name"] for each in document[what])
    listed = {each["name"]: each for each in document_of(run, "measure", "--list")["experiments"]}
    assert [each["name"] for each in listed["split"]["parameters"]][-1] == "threads"


def document_of(run: Run, *arguments: str) -> dict[str, Any]:
    """The JSON document that the command prints."""
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes=16MiB,mix=read", {"bytes": 16 << 20, "mix": "read"}),
        ("bytes=4096", {"bytes": 4096}),
        ("bytes=64 KiB,window=1GiB", {"bytes": 65536, "window": 1 << 30}),  # as tables print them
        ("window=all", {"window": "all"}),
        ("threads=2,mix=2:1", {"threads": 2, "mix": "2:1"}),
        ("kernel=1k", {"kernel": "1k"}),  # no size
        ("block=64B", {"block": 64}),
        ("mix=W5", {"mix": "write"}),
        ("mix=read,threads=1,mix=W5", {"mix": ["read", "write"], "threads": 1}),
        ("threads=2,threads=2", {"threads": 2}),
    ],
)
def test_points_are_asked_for_as_they_are_printed(text: str, found: dict[str, object]) -> None:
    assert parse.settings(text) == found


def test_a_profile_is_a_machine_that_can_be_compared(run: Run, tmp_path: Path) -> None:
    result = run(*SMALL)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "stream" and lines[-1] == "profile: p.json"
    profile = headrace.Profile.load(tmp_path / "p.json")
    assert len(profile.rows) >= 4 and all(row.experiment == "stream" for row in profile.rows)
    kernels = {str(row.parameters["kernel"]) for row in profile.rows}
    measured = {str(row.parameters["kernel"]) for row in profile.rows if row.median is not None}
    plain = {"copy", "scale", "add", "triad"}
    assert kernels == plain | {f"nt_{kernel}" for kernel in plain}
    assert measured, "a slow host leaves some out"
    assert measured <= {word for line in lines for word in line.split()}
    for row in profile.rows:
        assert (row.median is None) == bool(row.reason)
        assert row.median is None or row.low <= row.median <= row.high  # type: ignore[operator]
    assert profile.conditions["budget_s"] == "2.0"
    assert run("topo", "--from", "p.json").returncode == 0
    (tmp_path / "same.json").write_text(json.dumps(json.loads(profile.to_json())))
    same = run("compare", "p.json", "same.json")
    assert same.returncode in (0, 10), "on a busy host all rows are noisy, and none is judged"
    assert "No change beyond noise" in same.stdout or "Inconclusive" in same.stdout


def test_json_is_the_profile(run: Run, tmp_path: Path) -> None:
    result = run("measure", *POINT, "--out", "p.json", "--json")
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "p.json").read_text())
    assert {"schema_version", "nodes", "conditions", "rows"} <= document.keys()


def test_resume_measures_only_what_is_missing(
    run: Run, machine: headrace.Machine, tmp_path: Path
) -> None:
    profile = headrace.measure(
        machine, experiments=["bandwidth"], only={"threads": 1}, rounds=1, repetitions=1,
        noise_checks=False,
    )  # fmt: skip
    resume = ["measure", "bandwidth", "--only", "threads=1", "--budget", "2s", "--width", "100%",
              "--out", "p.json", "--resume"]  # fmt: skip
    path = tmp_path / "p.json"
    document = json.loads(profile.to_json())
    assert len(document["rows"]) > 1
    for row in document["rows"][1:]:
        row |= dict.fromkeys(("median", "mad", "min", "max", "low", "high"), 1.0) | {"samples": [1]}
    document["rows"][0] |= {"median": None, "samples": [], "reason": "stopped"}
    path.write_text(json.dumps(document))
    assert run(*resume).returncode == 0
    rows = {json.dumps(r["parameters"]): r for r in json.loads(path.read_text())["rows"]}
    first = rows.pop(json.dumps(document["rows"][0]["parameters"]))
    assert first["median"] > 1
    assert all(row["median"] == 1 for row in rows.values())
    document["name"] = "elsewhere"
    path.write_text(json.dumps(document))
    other = run(*resume)
    assert other.returncode == 2 and "is of machine 'elsewhere'" in other.stderr
    assert json.loads(path.read_text())["name"] == "elsewhere", "left as it was"


def test_a_signal_keeps_what_was_measured(tmp_path: Path) -> None:
    arguments = ["measure", "stream", "latency", "--budget", "200s", "--out", "p.json"]
    result = press_ctrl_c(arguments, tmp_path, 2, signal="SIGTERM")
    told = "headrace: ended by SIGTERM; results cover the time until then\n"
    assert (result.returncode, result.stderr) == (143, told)
    profile = headrace.Profile.load(tmp_path / "p.json")
    measured = [row for row in profile.rows if row.median is not None]
    assert 0 < len(measured) < len(profile.rows)
    assert profile.conditions["stopped"]
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_from_python(machine: headrace.Machine) -> None:
    assert [e.name for e in headrace.experiments()][:2] == ["latency", "bandwidth"]
    steps: list[tuple[int, int]] = []
    profile = headrace.measure(
        machine,
        experiments=["stream"],
        budget=2,
        rounds=1,
        repetitions=1,
        noise_checks=False,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert steps and steps == sorted(steps)
    quickly: dict[str, Any] = {"rounds": 1, "repetitions": 1, "noise_checks": False}
    again = headrace.measure(
        machine, experiments=["stream"], budget=2, known=profile.rows, **quickly
    )
    measured = {row.key: row.median for row in profile.rows if row.median is not None}
    assert measured.items() <= {row.key: row.median for row in again.rows}.items()
    with pytest.raises(RuntimeError, match="from the callback"):
        headrace.measure(machine, experiments=["stream"], budget=2, stop=_fail, **quickly)


def _fail() -> bool:
    raise RuntimeError("from the callback")


def test_launches_are_measured_in_processes_of_their_own_and_merged(
    run: Run, tmp_path: Path
) -> None:
    result = run(
        "measure", *POINT[:-1], "4s", "--launches", "2", "--out", "p.json",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    profile = headrace.Profile.load(tmp_path / "p.json")
    assert profile.conditions["launches"] == "2" and profile.conditions["budget_s"] == "4"
    for row in profile.rows:
        assert len(row.samples) >= 3 or "few" in row.flags, "a busy machine has time for fewer"
        if row.launches:  # a noisy one is left out beside a quiet one
            assert sum(row.launches) == len(row.samples)
            assert row.interval == "range of 2 launches"
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]
    refused = run("measure", "--launches", "2", "--resume", "--out", "p.json")
    assert refused.returncode == 2 and "leave --launches out" in refused.stderr


def test_a_launch_that_is_stopped_gives_what_it_has() -> None:
    begin = time.monotonic()
    profile = measure_again(["latency", "--budget", "60s"], lambda: time.monotonic() - begin > 3)
    assert time.monotonic() - begin < 40
    assert profile.conditions["stopped"]
    with pytest.raises(headrace.IoError, match="no experiment 'nothing'"):
        measure_again(["nothing"], lambda: False)


#: A process that waits for a launch of a minute.
LAUNCHER = """
from headrace._run.launches import measure_again
measure_again(["latency", "--budget", "60s"], lambda: False)
"""


def test_a_launch_ends_with_whoever_launched_it(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment)
    try:
        mark = f"HEADRACE_LAUNCHED_BY={launcher.pid}\0".encode()
        launch = wait_for(lambda: _pid_with(mark))
        time.sleep(3)  # it measures; ended before, it would not have asked to hear of the end yet
        assert _pid_with(mark) == launch, "it ended by itself"
    finally:
        launcher.kill()
        launcher.wait()
    wait_for(lambda: _pid_with(mark) is None)


def _pid_with(mark: bytes) -> int | None:
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():
                return int(environment.parent.name)
        except OSError:
            continue
    return None


def wait_for(found: Callable[[], T | None]) -> T:
    """Returns the first true result; fails after half the time that the launch would take."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.1)
    raise AssertionError("it did not happen within 30 s")


def test_nothing_measured_is_a_failure(run: Run) -> None:
    result = run("measure", "storage", "--directory", "/proc", "--budget", "5s", "--json")
    assert result.returncode == 4
    assert result.stderr.startswith("headrace: nothing could be measured: ")
    assert all(row["reason"] for row in json.loads(result.stdout)["rows"])


def test_devices_that_may_be_software_are_a_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DSA_SYSFS", str(tmp_path))
    result = run("measure", "dsa", "--budget", "5s", "--json")
    assert result.returncode == 4
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["experiment"], row["parameters"], row["samples"]) == ("dsa", {}, [])
    assert "headrace predict copy --by dsa" in row["reason"]


def test_a_disk_is_measured_where_one_says(run: Run, tmp_path: Path) -> None:
    result = run(
        "measure", "storage", "--only", "by=threads,io=buffered,bytes=65536,depth=4", "--budget",
        "40s", "--width", "100%", "--directory", str(tmp_path), "--json",
        env={"PYTHONPATH": ""},  # the host as it is: a small one has no memory to read into
    )  # fmt: skip
    rows = json.loads(result.stdout)["rows"]
    in_memory = all("in memory" in row["reason"] for row in rows)
    assert result.returncode == (4 if in_memory else 0), result.stderr
    assert {row["parameters"]["operation"] for row in rows} == {"read", "write"}
    assert all(row["median"] > 0 for row in rows if not row["reason"])
    assert not list(tmp_path.iterdir()), "the measuring file has no name"
    missing = run("measure", "storage", "--directory", str(tmp_path / "none"))
    assert missing.returncode == 3 and "none" in missing.stderr
