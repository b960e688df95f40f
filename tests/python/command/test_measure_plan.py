# SPDX-License-Identifier: Apache-2.0
"""headrace measure --dry-run: the plan of machines that are not here, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Golden, Run

import headrace


@pytest.mark.parametrize(("name", "how"), [
    ("60s", ["--budget", "60s"]), ("5m", ["--budget", "5m"]), ("full", ["--full"]),
])  # fmt: skip
def test_the_plan_of_sixteen_nodes(run: Run, golden: Golden, name: str, how: list[str]) -> None:
    result = run("measure", "--dry-run", "--from", "xeon-max", *how)
    assert (result.returncode, result.stderr) == (0, "")
    golden(f"measure_plan/xeon_max_{name}.txt", result.stdout)


def epyc() -> dict[str, Any]:
    """Two sockets of 12 nodes, 16 CPUs and a cache each: 384 CPUs."""
    cpus = [list(range(16 * node, 16 * node + 16)) for node in range(24)]
    return {
        "schema_version": headrace.SCHEMA_VERSION,
        "name": "epyc-384",
        "nodes": [
            {"id": node, "kind": "dram", "reason": "test", "capacity_bytes": 64 << 30,
             "name": f"node {node}", "cpus": cpus[node], "socket": node // 12}
            for node in range(24)
        ],
        "caches": [{"level": 3, "size_bytes": 32 << 20, "cpus": each} for each in cpus],
        "engines": [],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "how"), [("60s", ["--budget", "60s"]), ("full", ["--full"])])
def test_the_plan_of_384_cpus(
    run: Run, golden: Golden, tmp_path: Path, name: str, how: list[str]
) -> None:
    (tmp_path / "epyc.json").write_text(json.dumps(epyc()))
    result = run("measure", "--dry-run", "--from", "epyc.json", *how)
    assert (result.returncode, result.stderr) == (0, "")
    golden(f"measure_plan/384_cpus_{name}.txt", result.stdout)


def test_the_plan_as_json_counts_what_it_says(run: Run) -> None:
    result = run("measure", "--dry-run", "--from", "xeon-max", "--json")
    plan = json.loads(result.stdout)
    assert plan["machine"] == "xeon-max" and plan["launches"] == 1
    assert sum(point["seconds"] for point in plan["points"]) == pytest.approx(plan["seconds"])
    assert plan["seconds"] <= 60
    for point in plan["points"]:
        assert bool(point["reason"]) == (point["seconds"] == 0)
    alone = [p for p in plan["points"] if p["experiment"] == "latency" and not p["reason"]]
    assert any("cpu_node=1 memory_node=9" in point["stands_for"] for point in alone)
    # The kernel that is quoted on each kind of memory, rather than others of one kind.
    stream = [p["parameters"] for p in plan["points"] if p["experiment"] == "stream"
              and not p["reason"]]  # fmt: skip
    assert {(p["kernel"], p["a"]) for p in stream} >= {("triad", 0), ("triad", 8)}


def test_384_cpus_have_every_experiment_in_a_minute_and_the_whole_matrix_in_two_hours(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "epyc.json").write_text(json.dumps(epyc()))
    minute, whole = (
        json.loads(run("measure", "--dry-run", "--from", "epyc.json", *how, "--json").stdout)
        for how in (["--budget", "60s"], ["--full"])
    )
    assert minute["seconds"] <= 60
    assert whole["launches"] == 6 and whole["seconds"] <= 2 * 3600, "of all launches"
    measured = [point["experiment"] for point in minute["points"] if not point["reason"]]
    for experiment in ("latency", "bandwidth", "loaded", "stream", "copy", "migrate"):
        assert measured.count(experiment) > 3, experiment
    everywhere = {"bytes": 256 << 20, "window": "all", "pages": "huge"}
    matrix = [
        point for point in whole["points"]
        if point["experiment"] == "latency" and everywhere.items() <= point["parameters"].items()
    ]  # fmt: skip
    assert len(matrix) == 24 * 24
    check_curves(whole, {0})


def test_the_whole_of_sixteen_nodes_has_curves_of_many_mixes(run: Run) -> None:
    plan = json.loads(run("measure", "--dry-run", "--from", "xeon-max", "--full", "--json").stdout)
    assert plan["launches"] == 6 and plan["seconds"] <= 2 * 3600
    check_curves(plan, {0, 8})


def check_curves(plan: dict[str, Any], nodes: set[int]) -> None:
    """They are of memory near its CPUs, with plain stores and with others."""
    mixes: dict[int, set[str]] = {}
    for point in plan["points"]:
        near = point["distance"] == "near" and point["experiment"] == "loaded"
        p = point["parameters"]
        if near and not point["reason"] and p["memory_node"] == p["traffic_memory_node"]:
            mixes.setdefault(p["memory_node"], set()).add(p["mix"])
    assert mixes.keys() == nodes
    for names in mixes.values():
        around = {name for name in names if name.startswith("nt_")}
        assert len(around) >= 10 and len(names - around) >= 11


def test_a_plan_of_512_cpus_is_made(run: Run, tmp_path: Path) -> None:
    """32 nodes, each core with caches of its own: which a CPU has was searched for, at each point,
    among all; that took minutes."""
    machine = epyc()
    nodes = machine["nodes"]
    machine["nodes"] = [
        nodes[0] | {"id": n, "cpus": list(range(16 * n, 16 * n + 16)), "socket": n // 16}
        for n in range(32)
    ]
    machine["caches"] = [
        {"level": level, "size_bytes": size, "cpus": list(range(first, first + count))}
        for level, size, count in ((1, 48 << 10, 2), (2, 2 << 20, 2), (3, 32 << 20, 16))
        for first in range(0, 512, count)
    ]
    (tmp_path / "large.json").write_text(json.dumps(machine))
    result = run("measure", "--dry-run", "--from", "large.json")
    assert result.returncode == 0, result.stderr
    assert "dram, near, machine, 256 threads" in result.stdout


def test_this_host_has_a_plan_too(run: Run) -> None:
    result = run("measure", "latency", "--dry-run", "--budget", "20s")
    assert result.returncode == 0 and result.stdout.startswith("experiment")
    refused = run("measure", "--from", "xeon-max")
    assert refused.returncode == 2 and "give --dry-run" in refused.stderr


def test_a_plan_of_nothing_says_why(run: Run) -> None:
    why = "another host's disk and devices are not known; plan it there\n"
    result = run("measure", "gpu", "--dry-run", "--from", "gh200")
    assert result.returncode == 4
    assert result.stdout == f"gh200: 0 points in 0.0 s\n1 of gpu not measured: {why}"
    assert result.stderr == f"headrace: nothing would be measured: {why}"
    as_json = run("measure", "gpu", "--dry-run", "--from", "gh200", "--json")
    assert (as_json.returncode, as_json.stderr) == (4, result.stderr)
    assert [point["reason"] + "\n" for point in json.loads(as_json.stdout)["points"]] == [why]


def test_naming_a_node_asks_for_all_pairs() -> None:
    machine = headrace.Machine.load("xeon-max")
    only = {"pages": "huge", "window": "all"}
    some = headrace.plan_session(machine, experiments=["latency"], only=only, budget=None)
    named = headrace.plan_session(
        machine, experiments=["latency"], only={**only, "cpu_node": 3}, budget=None
    )
    assert not any(point.row.stands_for for point in named)
    assert {point.row.parameters["memory_node"] for point in named} == set(range(16))
    matrix = [p for p in some if p.row.parameters["bytes"] == max(
        q.row.parameters["bytes"] for q in some)]  # fmt: skip
    assert len(matrix) == 8 * 16
