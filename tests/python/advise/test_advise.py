# SPDX-License-Identifier: Apache-2.0
"""headrace advise: what it says, in words and as JSON, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import Golden, Run

import headrace

INTERLEAVE = ["advise", "interleave", "--machine", "cxl-a1000"]
ZIPF = ["advise", "capacity", "--zipf", "0.99", "--pages", "1000000"]


def asked(run: Run, *arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, ""), result
    made: dict[str, Any] = json.loads(result.stdout)
    assert list(made)[0] == "schema_version"
    assert made["basis"] == "modelled"
    return made


def test_json_output(run: Run) -> None:
    made = asked(run, *INTERLEAVE, "--threads", "16", "--mix", "read")
    assert {"weights", "share", "demand_flip", "predicted"} <= made.keys()
    assert made["weights"] == {"0": 3, "8": 1}
    assert math.isclose(sum(made["share"].values()), 1)
    # As published curves give it: 85.0 GB/s of 250 lines, 69.3 of DRAM alone.
    assert made["load"]["lines"] == 256
    predicted = made["predicted"]
    assert list(predicted) == [
        "best", "weights", "node_0_only", "node_8_only", "3:1", "1:1", "1:3", "by_bandwidth",
        "equal_latency",
    ]  # fmt: skip
    assert predicted["node_0_only"]["bandwidth"] == pytest.approx(69.3e9, rel=0.02)
    assert predicted["best"]["bandwidth"] == pytest.approx(86e9, rel=0.02)
    assert made["demand_flip"]["bandwidth"] == pytest.approx(0.87 * 69.3e9, rel=0.03)
    assert {node["basis"] for node in made["nodes"]} == {"published"}


def test_orders_are_of_the_same_weights(run: Run) -> None:
    orders = asked(run, *INTERLEAVE, "--threads", "16", "--data-size", "1GiB")["orders"]
    assert orders["numactl"] == "numactl --weighted-interleave=0,8 PROGRAM"
    assert [line.split()[1] for line in orders["sysfs"]] == ["3", "1"]
    assert [line.rpartition("/")[2] for line in orders["sysfs"]] == ["node0", "node8"]
    assert orders["run"] == "headrace run --weights 0=3,8=1 -- PROGRAM"
    machine = headrace.Machine.load("cxl-a1000")
    assert headrace.Placement.parse(machine, "0=3,8=1").nodes == [(0, 3), (8, 1)]
    mbind = orders["mbind"]
    unit = mbind["unit_bytes"]
    assert unit == 1 << 20, "512 runs of 1 GiB"
    assert mbind["turn"] == [
        {"offset": 0, "length": 3 * unit, "node": 0},
        {"offset": 3 * unit, "length": unit, "node": 8},
    ]  # fmt: skip
    assert (mbind["turn_bytes"], mbind["runs"]) == (4 * unit, 512)
    # headrace run takes the line as it stands, on the machine it is for.
    words = orders["run"].replace("PROGRAM", "true").split()[2:]
    planned = run("run", "--from", "cxl-a1000", "--dry-run", *words)
    assert planned.returncode == 0, planned


def test_little_load_stays_on_the_near_memory(run: Run) -> None:
    made = asked(run, *INTERLEAVE, "--threads", "1")
    assert made["weights"] == {"0": 1, "8": 0}
    assert made["orders"]["run"] == "headrace run --prefer 0 -- PROGRAM"
    assert made["orders"]["sysfs"] == []


def test_a_demand_counts_what_the_program_reads_and_writes(run: Run) -> None:
    best = asked(run, *INTERLEAVE, "--demand", "40GB/s", "--mix", "1:1")["predicted"]["best"]
    assert best["bandwidth"] == pytest.approx(40e9)
    assert best["bus"] == pytest.approx(60e9)


def test_a_demand_that_some_spreads_do_not_meet(run: Run) -> None:
    predicted = asked(run, *INTERLEAVE, "--demand", "100GB/s")["predicted"]
    assert predicted["node_0_only"]["latency_ns"] is None
    assert predicted["best"]["latency_ns"] > 0
    assert predicted["weights"]["latency_ns"] > 0


def test_shares_are_limited_by_what_fits(run: Run) -> None:
    free = ["--data-size", "100GiB", "--free", "0=40GiB,8=80GiB", "--threads", "1"]
    made = asked(run, *INTERLEAVE, *free)
    assert made["share"]["0"] == pytest.approx(0.4)
    assert made["weights"] == {"0": 2, "8": 3}
    assert "holds at most 40.0 %" in made["predicted"]["node_0_only"]["reason"]


def measured(
    machine: str, memories: list[tuple[int, float, float]], loads: list[float]
) -> dict[str, Any]:
    """A profile with rows as `measure` makes them, by CPUs of node 0 alone; a memory is a node, its
    idle nanoseconds and its best bytes per second.
    """
    document = headrace.Profile.load(machine).asdict()
    document["rows"] = [
        {
            "experiment": "loaded",
            "parameters": {"cpu_node": 0, "memory_node": node, "traffic_cpu_node": 0,
                           "traffic_memory_node": node, "mix": "read", "delay_ns": number},
            "unit": "ns", "median": idle * (1 + used / (1.02 - used)), "mad": 1.0, "min": idle,
            "max": idle * 60, "samples": [],
            "details": {"bandwidth": best * used}, "flags": [],
        }
        for node, idle, best in memories
        for number, used in enumerate(loads)
    ]  # fmt: skip
    return document


LOADS = [1.0, 0.9, 0.7, 0.3, 0.05]
TWO = [(0, 100.0, 60e9), (8, 250.0, 40e9)]
#: Eight of DRAM, eight of HBM, each a little farther than the one before.
SIXTEEN = [(node, 90.0 + 7 * node, 60e9 if node < 8 else 200e9) for node in range(16)]


def test_a_measured_profile(run: Run, tmp_path: Path) -> None:
    document = measured("cxl-a1000", TWO, LOADS)
    (tmp_path / "p.json").write_text(json.dumps(document))
    made = asked(run, "advise", "interleave", "--profile", "p.json", "--threads", "64")
    assert {node["basis"] for node in made["nodes"]} == {"measured"}
    assert 0.3 < made["share"]["8"] < 0.4, "0.4 is by bandwidth, right only when saturated"


def test_sixteen_memories_fit_a_terminal(run: Run, golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(measured("xeon-max", SIXTEEN, LOADS)))
    result = run("advise", "interleave", "--profile", "p.json", "--demand", "1400GB/s")
    assert (result.returncode, result.stderr) == (0, "")
    typed = ("      headrace", "      numactl")
    lines = [line for line in result.stdout.splitlines() if not line.startswith(typed)]
    assert max(map(len, lines)) <= 100
    golden("advise_16_nodes.txt", result.stdout)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e308, 5e-324])
@pytest.mark.parametrize("field", ["median", "bandwidth"])
def test_rows_beyond_all_measure(run: Run, tmp_path: Path, field: str, value: float) -> None:
    document = measured("cxl-a1000", TWO, LOADS)
    row = document["rows"][0]
    (row if field == "median" else row["details"])[field] = value
    (tmp_path / "p.json").write_text(json.dumps(document))
    result = run("advise", "interleave", "--profile", "p.json", "--threads", "64")
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert result.stderr.startswith("headrace: ") and result.stderr.count("\n") == 1, result


def test_stores_count_as_reads_first(run: Run) -> None:
    """A thread's lines are those that it waits for; what is written back is traffic besides."""
    made = asked(run, *INTERLEAVE, "--threads", "2", "--mix", "write")
    assert made["load"]["lines"] == 32
    best = made["predicted"]["best"]
    assert best["bus"] == pytest.approx(2 * best["bandwidth"])
    assert best["bandwidth"] * best["latency_ns"] / 1e9 == pytest.approx(32 * 64)
    flip = made["demand_flip"]
    assert flip["threads"] == pytest.approx(flip["lines"] / 16)


def test_weights_that_give_less_than_is_asked_say_so(run: Run, tmp_path: Path) -> None:
    """Thousandths of the second memory's pages are what the first leaves, which no weight is."""
    document = measured("cxl-a1000", [(0, 100.0, 100e9), (8, 200.0, 1e8)], LOADS)
    (tmp_path / "p.json").write_text(json.dumps(document))
    question = ["advise", "interleave", "--profile", "p.json", "--demand", "100.1GB/s"]
    assert asked(run, *question)["weight_loss"] is None
    assert "less than is asked, against the best split" in " ".join(run(*question).stdout.split())


def test_a_histogram_of_pages_and_of_groups_is_the_same(run: Run, tmp_path: Path) -> None:
    (tmp_path / "each.txt").write_text("1\n" * 10 + "70  # the hot one\n10\n10\n")
    (tmp_path / "groups.txt").write_text("10 1\n1 70\n2 10\n")
    for name in ("each.txt", "groups.txt"):
        made = asked(run, "advise", "capacity", "--histogram", name, "--fast", "8KiB")
        assert made["pages"] == 13
        assert made["accesses"] == {
            "share": 0.9, "pages": 3, "bytes": 12288, "share_of_pages": 3 / 13,
        }  # fmt: skip
        assert made["fast"]["accesses"] == pytest.approx(0.8)


def test_one_is_the_inverse_of_the_other(run: Run) -> None:
    needed = asked(run, *ZIPF, "--accesses", "80%")["accesses"]
    back = asked(run, *ZIPF, "--fast", str(int(needed["bytes"])))["fast"]["accesses"]
    assert back == pytest.approx(0.8, abs=1e-5)


def test_cost(run: Run) -> None:
    prices = ["--cost-ratio", "1.1", "--discount", "20%"]
    made = asked(run, "advise", "cost", *prices)
    assert made["assumed"] == [
        "dram_speed", "cxl_speed", "capacity_ratio", "instance_gib", "server_gib"
    ]  # fmt: skip
    assert made["servers"]["result"]["servers"] == pytest.approx(0.6729, abs=5e-5)
    assert made["servers"]["result"]["saving"] == pytest.approx(0.2598, abs=5e-5)
    assert len(made["servers"]["sensitivity"]) == 8
    assert made["instances"]["result"]["stranded"] == pytest.approx(0.25)
    assert made["instances"]["table"]["m7a.48xlarge"] == {"vcpus": 192, "gib": 768}
    named = asked(run, "advise", "cost", *prices, "--instance", "m7a.large")
    assert named["instances"] == made["instances"] and "instance_gib" not in named["assumed"]
    assert made["instances"]["result"]["revenue"] == pytest.approx(0.267, abs=5e-4)


def test_cost_says_which_change_leaves_the_model_and_why(run: Run) -> None:
    speeds = ["--dram-speed", "10", "--cxl-speed", "10"]
    rows = asked(run, "advise", "cost", *speeds)["servers"]["sensitivity"]
    assert len(rows) == 6
    without = [each for each in rows if "servers" not in each]
    assert [each["input"] for each in without] == ["dram_speed", "cxl_speed"]
    told = run("advise", "cost", *speeds).stdout
    assert (
        "\nno figures for speed in CXL memory (SSD: 1) 11: CXL memory is no faster than DRAM; "
        "give at most 10, not 11\n"
    ) in told
    assert "no figures for" not in run("advise", "cost").stdout


def test_cost_without_prices_saves_nothing_known(run: Run) -> None:
    made = asked(run, "advise", "cost", "--dram-speed", "9")
    assert made["servers"]["result"]["saving"] is None
    assert made["servers"]["inputs"]["cost_ratio"] is None
    assert made["instances"]["result"]["revenue"] is None
    assert "dram_speed" not in made["assumed"] and "cost_ratio" not in made["assumed"]
    told = run("advise", "cost", "--dram-speed", "9").stdout
    assert "saving unknown: give --cost-ratio" in " ".join(told.split())
    assert "more revenue" not in told
    assert "speed in DRAM (SSD: 1): 9\n" in told
    assert "speed in CXL memory (SSD: 1): 8 (assumed)\n" in told


def test_the_document_is_written_too(run: Run, tmp_path: Path) -> None:
    result = run(*INTERLEAVE, "--out", "advice.json")
    assert result.returncode == 0, result
    made = json.loads((tmp_path / "advice.json").read_text())
    assert made["kind"] == "advise_interleave"
    assert made["load"]["threads"] == 12, "a thread for each CPU of node 0"
    assert result.stdout.startswith("cxl-a1000: 12 threads")
