# SPDX-License-Identifier: Apache-2.0
"""Which points are asked for: the command's --only and Python's `only` mean the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

import headrace
from headrace._cli.measuring import Options, _arguments

#: The machine of the plans, which has none of this host.
XEON = "xeon-max"


def planned(run: Run, *arguments: str) -> list[dict[str, Any]]:
    """The parameters of the points of a plan."""
    result = run("measure", "--dry-run", "--from", XEON, "--full", "--json", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return [each["parameters"] for each in json.loads(result.stdout)["points"]]


def test_every_only_counts(run: Run) -> None:
    points = planned(run, "stream", "--only", "kernel=triad", "--only", "threads=12")
    assert points and all((p["kernel"], p["threads"]) == ("triad", 12) for p in points)
    assert points == planned(run, "stream", "--only", "kernel=triad,threads=12")


@pytest.mark.parametrize("only", [
    ["--only", "kernel=triad,kernel=copy"], ["--only", "kernel=triad", "--only", "kernel=copy"],
], ids=len)  # fmt: skip
def test_a_name_that_is_there_twice_takes_both_values(run: Run, only: list[str]) -> None:
    points = planned(run, "stream", *only)
    assert {point["kernel"] for point in points} == {"triad", "copy"}


def test_each_launch_measures_the_same_points() -> None:
    options = Options(
        names=["stream"], only=["kernel=triad", "threads=2"], budget="9s", full=False, width="3%",
        rounds=None, seed=1, launches=2, part_of=None, directory=Path("."), resume=False,
        out=None,
    )  # fmt: skip
    words = _arguments(options, 1)
    assert [words[at + 1] for at, word in enumerate(words) if word == "--only"] == options.only


@pytest.mark.parametrize(
    ("experiment", "text", "only", "found"),
    [
        ("latency", "bytes=64MiB", {"bytes": "64MiB"}, {"bytes": 64 << 20}),
        ("latency", "window=4KiB", {"window": "4 KiB"}, {"window": 4096}),
        ("bandwidth", "mix=W3", {"mix": "W3"}, {"mix": "2:1"}),
        ("loaded", "mix=W4", {"mix": "W4"}, {"mix": "1:2"}),
        ("bandwidth", "mix=nt_triad", {"mix": ["nt_triad"]}, {"mix": "nt_2:1"}),
        ("bandwidth", "threads=2", {"threads": "2"}, {"threads": 2}),
        ("bandwidth", "pattern=random,block=64B", {"pattern": "random", "block": "64B"},
         {"pattern": "random", "block": 64}),
        ("bandwidth", "pattern=random,block=4KiB", {"pattern": "random", "block": "4KiB"},
         {"pattern": "random", "block": 4096}),
    ],
)  # fmt: skip
def test_python_understands_what_the_command_does(
    run: Run, experiment: str, text: str, only: dict[str, Any], found: dict[str, Any]
) -> None:
    points = headrace.plan_session(
        headrace.Machine.load(XEON), experiments=[experiment], only=only, budget=None
    )
    parameters = [point.row.parameters for point in points]
    assert parameters and all(found.items() <= each.items() for each in parameters)
    command = planned(run, experiment, "--only", text)
    assert command and all(found.items() <= each.items() for each in command)


def test_points_without_a_parameter_can_be_selected(run: Run) -> None:
    """The rows of nodes without those of teams; all of experiments that know no such parameter."""
    nodes = planned(run, "bandwidth", "--only", "placed=", "--only", "mix=read")
    assert nodes and all("placed" not in p and p["mix"] == "read" for p in nodes)
    every = planned(run, "bandwidth", "--only", "mix=read")
    teams = [p for p in every if "placed" in p]
    assert teams and nodes == [p for p in every if "placed" not in p and "pattern" not in p]
    either = planned(run, "bandwidth", "--only", "placed=,placed=far,mix=read")
    assert {p.get("placed") for p in either} == {None, "far"}
    machine = headrace.Machine.load(XEON)
    rows = headrace.plan_session(
        machine, experiments=["latency", "loaded"], only={"threads": ""}, budget=None
    )
    assert {each.row.experiment for each in rows} == {"latency", "loaded"}
    result = run("measure", "bandwidth", "--from", XEON, "--dry-run", "--only", "mix=")
    assert result.returncode == 2 and "no point of bandwidth has mix=" in result.stderr


def test_the_machine_of_one_node_can_be_asked_for(run: Run, tmp_path: Path) -> None:
    """The machine is the same as its one node, whose rows are measured by default."""
    machine = {
        "schema_version": headrace.SCHEMA_VERSION, "name": "laptop", "engines": [],
        "nodes": [{"id": 0, "kind": "dram", "reason": "test", "capacity_bytes": 16 << 30,
                   "name": "node 0", "cpus": [0, 1, 2, 3], "socket": 0}],
        "caches": [{"level": 3, "size_bytes": 8 << 20, "cpus": [0, 1, 2, 3]}],
    }  # fmt: skip
    (tmp_path / "laptop.json").write_text(json.dumps(machine))

    def points(*only: str) -> list[dict[str, Any]]:
        result = run("measure", "bandwidth", "stream", "--dry-run", "--from", "laptop.json",
                     "--json", *only)  # fmt: skip
        assert (result.returncode, result.stderr) == (0, "")
        found: list[dict[str, Any]] = json.loads(result.stdout)["points"]
        return found

    asked = points("--only", "on=machine,placed=near")
    assert {p["experiment"] for p in asked if not p["reason"]} == {"bandwidth", "stream"}
    assert all(p["cpus"] == "0-3" and p["parameters"]["on"] == "machine" for p in asked)
    default = points()
    assert not any("on" in p["parameters"] for p in default)
    named = [p for p in default if p["stands_for"]]
    assert named and all(p["stands_for"] == ["on=machine placed=near"] for p in named)
    by_kind = points("--only", "on=machine,memory_node=dram,mix=read")
    assert by_kind == [p for p in asked if p["parameters"].get("mix") == "read"]
    result = run("measure", "bandwidth", "--dry-run", "--from", "laptop.json", "--only",
                 "on=machine,placed=far")  # fmt: skip
    assert result.returncode == 2 and "; placed is near; " in result.stderr


def test_a_directory_that_nothing_uses_may_be_missing(run: Run) -> None:
    for more in (["--dry-run"], ["--only", "bytes=4KiB", "--rounds", "1"]):
        result = run("measure", "latency", "--directory", "/nope", *more)
        assert (result.returncode, result.stderr) == (0, ""), more
    result = run("measure", "latency", "storage", "--directory", "/nope", "--dry-run")
    assert result.returncode == 3 and "/nope" in result.stderr


def test_chosen_points_are_measured_by_any_spelling(machine: headrace.Machine) -> None:
    rows = headrace.measure(
        machine, selections=[("copy", {"bytes": ["4KiB", 64], "threads": "1"})], budget=None,
        rounds=1, repetitions=1, noise_checks=False,
    ).rows  # fmt: skip
    assert {row.parameters["bytes"] for row in rows} == {64, 4096}


@pytest.mark.parametrize("width", [0, -1, math.nan, math.inf])
def test_an_interval_has_a_width(machine: headrace.Machine, width: float) -> None:
    with pytest.raises(headrace.InvalidError, match=f"a width of {width:g}; give a share above 0"):
        headrace.measure(machine, experiments=["latency"], width=width)


def test_the_command_has_the_same_widths(run: Run) -> None:
    for width, told in (("0", "a width of 0; "), ("0%", "a width of 0; "), ("-1", "'-1' is no ")):
        for more in ([], ["--dry-run"]):
            result = run("measure", "latency", "--width", width, *more)
            assert (result.returncode, result.stdout) == (2, "")
            assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("budget", [0, -1, -1.0, math.nan, math.inf])
def test_a_budget_is_above_0(machine: headrace.Machine, budget: float) -> None:
    told = f"a budget of {budget:g} s; it must be above 0"
    with pytest.raises(headrace.InvalidError, match=told):
        headrace.measure(machine, experiments=["latency"], budget=budget)
    with pytest.raises(headrace.InvalidError, match=told):
        headrace.plan_session(machine, budget=budget)


def test_unknown_point_is_refused(machine: headrace.Machine) -> None:
    for wrong in ({"only": 3}, {"only": {"mix": object()}}, {"selections": ["latency"]},
                  {"width": "narrow"}, {"budget": "long"}):  # fmt: skip
        with pytest.raises(headrace.ArgumentError):
            headrace.measure(machine, **wrong)
