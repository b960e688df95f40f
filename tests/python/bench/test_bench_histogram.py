# SPDX-License-Identifier: Apache-2.0
"""headrace bench histogram: its document, its choice of places, what it says of the guide."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace_bench
import numpy
import pytest
from bench_documents import check_commands
from headrace_bench import histogram as bench_histogram
from headrace_bench.runner import check, row_of
from headrace_bench.threads import cache_of, cpus_for

import headrace
from headrace._errors import WrongAnswer

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL = ["bench", "histogram", "--size", "1MiB", "--rounds", "2"]
MAX = headrace.Machine.load("xeon-max")


def test_a_run_is_verified(run: Run, tmp_path: Path) -> None:
    result = run(*SMALL, "--data", "dram", "--bins", "dram", "--json", "--out", "rows.json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "rows.json").read_text())
    assert (document["kind"], document["bins"]) == ("bench histogram", 1 << 20)
    [row] = document["rows"]
    threads = len(document["cpus"])
    place = {"data": "dram", "bins": "dram", "threads": threads, "bytes": 1 << 20}
    assert (row["experiment"], row["parameters"], row["basis"]) == ("histogram", place, "measured")
    assert row["details"]["wrong"] == 0 and row["reason"] == "" and len(row["samples"]) == 2
    assert row["details"]["bytes_per_second"] == pytest.approx(10 * (1 << 20) / row["median"])
    check_commands(document, run, tmp_path)
    assert document["order"] == {"seed": 1, "not_counted": ["0"], "rounds": ["0", "0"]}


def test_on_one_kind_of_memory_it_says_so(run: Run, machine: headrace.Machine) -> None:
    kinds = bench_histogram.fastest_kinds(machine)
    result = run(*SMALL, "--threads", "1")
    assert (result.returncode, result.stderr) == (0, "")
    one = "one kind of memory only" in result.stdout
    assert one == (len(kinds) == 1) and "IT4I's conclusion" in result.stdout
    if one:
        assert "unproven here; it takes dram and hbm; measured were" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--data", "nowhere"], 2, ""),
        (["--threads", "4000"], 2, "4000 threads on"),
        (["--size", "big"], 2, "'big' is no size"),
        (["--size", "1000t", "--data", "dram", "--bins", "dram"], 6, ""),
        (["--out", "nowhere/x.json"], 3, "no directory nowhere"),
    ],
)
def test_nonsense_is_one_line(run: Run, arguments: list[str], code: int, told: str) -> None:
    result = run("bench", "histogram", *arguments, "--json")
    assert result.returncode == code
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


#: The command's most memory in KiB, when all is verified.
MEMORY = """
import resource, sys
from headrace._cli import app
sys.argv = ["headrace", "bench", "histogram", "--threads", "1", "--rounds", "1", "--data", "dram",
            "--bins", "dram", "--json", "--size", sys.argv[1]]
with open("/dev/null", "w") as sys.stdout:
    assert not app.run()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.__stdout__)
"""


def test_verifying_takes_no_memory_that_grows_with_the_data() -> None:
    """It is the data's fourth that the default leaves for it."""

    def most(size: int) -> int:
        command = [sys.executable, "-c", MEMORY, str(size)]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return int(result.stdout) << 10

    small, large = 8 << 20, 104 << 20
    assert most(large) - most(small) < large - small + (48 << 20)


def test_a_wrong_count_is_found(
    machine: headrace.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = headrace_bench.histogram_count

    def one_moved(data: Any, bins: Any, cpus: list[int]) -> float:
        seconds = count(data, bins, cpus)
        numbers = bins.numpy("int64")
        full = int(numpy.flatnonzero(numbers)[0])
        numbers[full] -= 1
        numbers[(full + 1) % len(numbers)] += 1  # the total is as before
        return seconds

    monkeypatch.setattr(headrace_bench, "histogram_count", one_moved)
    options = bench_histogram.Options([("dram", "dram")], cpus_for(machine, 1), 80000, rounds=1)
    runner = bench_histogram.run(machine, options, lambda: False)
    [row] = bench_histogram.rows(runner, options)
    assert row.details["wrong"] == 1
    assert row.words["complaint"] == "2 bins differ from a naive count"
    with pytest.raises(WrongAnswer):
        check({"rows": [row.asdict()], "interrupted": False})


def test_a_stopped_run_keeps_what_it_has(machine: headrace.Machine) -> None:
    looks = iter([False] * 33)
    options = bench_histogram.Options([("dram", "dram")], cpus_for(machine, 1), 8000, rounds=3)
    stop: Callable[[], bool] = lambda: next(looks, True)  # noqa: E731
    [row] = bench_histogram.rows(bench_histogram.run(machine, options, stop), options)
    assert len(row.samples) == 2 and row.words["note"] == "2 of 3 rounds: interrupted"
    [row] = bench_histogram.rows(bench_histogram.run(machine, options, stop), options)
    assert (row.median, row.reason, row.flags) == (None, "interrupted", ["stopped"])


@pytest.mark.parametrize(
    ("data", "bins", "pairs"),
    [
        (None, None, "hbm/hbm hbm/dram dram/hbm dram/dram"),
        ("dram", "hbm", "dram/hbm"),
        ("dram", None, "dram/hbm dram/dram"),
        (None, "8-15", "hbm/8-15 dram/8-15"),
    ],
)
def test_pairs(data: str | None, bins: str | None, pairs: str) -> None:
    found = bench_histogram.chosen(MAX, data, bins, [0])
    assert " ".join("/".join(pair) for pair in found) == pairs


def rows(**seconds: list[float]) -> list[headrace.Row]:
    return [
        row_of("histogram", dict(zip(("data", "bins"), name.split("_"), strict=True)), "s", samples)
        for name, samples in seconds.items()
    ]


#: Samples of both in DRAM, bins in HBM, both in HBM; whether the conclusion holds.
CONCLUSIONS: list[tuple[list[float], list[float], list[float], str, bool | None]] = [
    ([2.4, 2.5], [1.0, 1.1], [1.2, 1.3], "real hardware", True),
    ([2.4, 2.5], [1.0, 1.1], [1.2, 1.3], "guest", None),
    ([1.4, 1.5], [1.0, 1.1], [1.2, 1.3], "real hardware", False),
    ([2.4, 2.5], [1.0, 1.1], [0.8, 0.9], "real hardware", False),
    ([2.4, 2.5], [1.0, 1.2], [1.1, 1.3], "real hardware", None),  # within what rounds differ by
    ([2.4, 2.5], [1.0, 1.1], [], "real hardware", None),
    ([], [], [], "real hardware", None),
]


@pytest.mark.parametrize(("slow", "best", "both", "level", "holds"), CONCLUSIONS)
def test_conclusion(
    slow: list[float], best: list[float], both: list[float], level: str, holds: bool | None
) -> None:
    measured = rows(dram_dram=slow, dram_hbm=best, hbm_hbm=both)
    found = bench_histogram.conclusion(measured, level)
    assert found["holds"] is holds and found["why"]


def test_threads_take_cores_before_their_second_threads() -> None:
    caches = [
        {"level": 1, "size_bytes": 32768, "cpus": [0, 4]},
        {"level": 1, "size_bytes": 32768, "cpus": [1, 5]},
        {"level": 3, "size_bytes": 1 << 20, "cpus": [0, 1, 4, 5]},
    ]
    nodes = [{"id": 0, "kind": "dram", "cpus": [0, 1, 4, 5], "capacity_bytes": 1 << 30}]
    machine = headrace.Machine.from_json(
        json.dumps({"schema_version": 1, "name": "m", "nodes": nodes, "caches": caches})
    )
    cpus = [0, 1, 4, 5]
    assert cpus_for(machine, None, cpus) == [0, 1]
    assert cpus_for(machine, 3, cpus) == [0, 1, 4]
    assert cpus_for(machine, None, [4, 5]) == [4, 5]
    assert cache_of(machine, cpus) == 1 << 20
    assert cache_of(machine, [0, 9]) == (1 << 20) + (32 << 20)
    for count in (0, 5):
        with pytest.raises(headrace.InvalidError):
            cpus_for(machine, count, cpus)
