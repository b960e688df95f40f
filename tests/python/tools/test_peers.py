# SPDX-License-Identifier: Apache-2.0
"""benchmarks/peers/peers.py and promises.py on programs that stand in for the peers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def peers() -> Any:
    sys.path.insert(0, str(FOLDER))
    import peers as found

    return found


def quiet(line: str) -> None:
    """Prints nothing."""


OUTPUTS = {
    "likwid-bench": ("load_avx", "MByte/s:\t\t36421.77\nCycles per update:\t1.1\n", 36421.77e6),
    "mbw": ("mbw", "AVG\tMethod: MEMCPY\tElapsed: 0.05\tMiB: 512.00000\tCopy: 9876.500 MiB/s\n",
            9876.5 * (1 << 20)),
    "perf": ("perf", "# function 'default'\n# Copying 256MB bytes ...\n\n      12.340000 GB/sec\n",
             12.34 * (1 << 30)),
    "nanoda": ("nanoda", "size = 256 MiB, avg = 131.25 ns\n", 131.25),
}  # fmt: skip


@pytest.mark.parametrize("tool", OUTPUTS)
def test_output_of_installed_peers_is_read(peers: Any, tool: str) -> None:
    part, output, expected = OUTPUTS[tool]
    peer = next(each for each in peers.peers(2) if part in " ".join(each.command))
    assert peers.parsed(peer, output) == pytest.approx(expected)
    assert peers.parsed(peer, "nothing of the kind") is None


def program(path: Path, text: str) -> Path:
    """A shell script that stands in for one."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_headrace_measures_the_sizes_of_the_peers_in_one_row_each(peers: Any) -> None:
    for machine in (headrace.Machine.discover(storage=[]), headrace.Machine.load("xeon-max")):
        size = peers.cycle_bytes(machine)
        installed = peers.peers(2, frozenset({"avx512f"}), size)
        (nanoda,) = [peer for peer in installed if peer.tool == "nanoda"]
        assert nanoda.command[1:3] == ["-n", f"{size / (1 << 20):g}"]
        for peer in (nanoda, *(p for p in installed if p.experiment == "copy")):
            point = peers.point_of(machine, peer)
            planned = headrace.plan_session(machine, experiments=[peer.experiment], only=point,
                                            budget=None)  # fmt: skip
            (one,) = [each.row for each in planned]
            assert dict(one.parameters) == point, peer.name


def test_headrace_measures_one_row(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(machine: Any, **given: Any) -> Any:
        asked.append(given)
        return headrace.Profile.fromdict(document)

    monkeypatch.setattr(headrace, "measure", measure)
    machine = headrace.Machine.load("xeon-max")
    document = json.loads(machine.to_json()) | {"conditions": {}, "rows": [
        {"experiment": "latency", "parameters": {}, "unit": "ns", "median": 91.5, "samples": [91.5]}
    ]}  # fmt: skip
    (nanoda,) = [peer for peer in peers.peers(2) if peer.tool == "nanoda"]
    assert peers.measure_ours(machine, nanoda, 7, quiet) == 91.5
    assert asked[0]["only"] == {
        "cpu_node": 0, "memory_node": 0, "bytes": 256 << 20, "window": "all", "pages": "base"
    }  # fmt: skip
    document["rows"][0] |= {"median": None, "samples": [], "reason": "no memory is free"}
    told: list[str] = []
    assert peers.measure_ours(machine, nanoda, 7, told.append) is None
    assert told == ["no number of Headrace: nanoda -n 256 -i 3: no memory is free"]


def mbw_of(peers: Any, path: Path, text: str) -> Any:
    """The peer mbw with a script in its place."""
    (mbw,) = [peer for peer in peers.peers(2) if peer.tool == "mbw"]
    return dataclasses.replace(mbw, command=[str(program(path / "mbw", text))], title="mbw")


SAID = "printf 'AVG\\tMethod: MEMCPY\\tElapsed: 0.05\\tMiB: 512\\tCopy: 9876.500 MiB/s\\n'"


@pytest.mark.parametrize(
    ("end", "why"),
    [("echo 'out of memory' >&2; exit 3", "it ended with status 3: out of memory"),
     ("kill -SEGV $$", "it was killed by SIGSEGV: AVG\tMethod: MEMCPY"),
     ("exit 0", "")],
)  # fmt: skip
def test_output_of_a_failed_program_is_no_number(
    peers: Any, tmp_path: Path, end: str, why: str
) -> None:
    told: list[str] = []
    mbw = mbw_of(peers, tmp_path, f"{SAID}\n{end}")
    number = peers.run_peer(mbw, tell=told.append)
    if not why:
        assert number == pytest.approx(9876.5 * (1 << 20)) and told == []
        return
    (line,) = told
    assert number is None and line.startswith(f"no number: mbw: {why}") and "\n" not in line
    (found,) = peers.compare([mbw], lambda peer, seed: 1e9, 2, 1, quiet)
    assert found.ours == found.theirs == [], "a pair of which one has no number is none"


def test_order_within_a_pair_is_drawn(peers: Any, tmp_path: Path) -> None:
    """Else the caches and pages that one leaves to the other favour always the same."""
    order = tmp_path / "order"
    mbw = mbw_of(peers, tmp_path, f"echo theirs >> {order}\n{SAID}")

    def ours(peer: Any, seed: int) -> float:
        with order.open("a") as file:
            file.write("ours\n")
        return 1e10

    (found,) = peers.compare([mbw], ours, 16, 1, quiet)
    assert len(found.ours) == len(found.theirs) == 16
    words = order.read_text().split()
    firsts = words[::2]
    assert all(set(words[i : i + 2]) == {"ours", "theirs"} for i in range(0, 32, 2))
    assert 4 <= firsts.count("ours") <= 12


def test_wide_loads_are_compared_where_the_cpu_has_them(peers: Any, tmp_path: Path) -> None:
    def kernels(cpuinfo: str) -> list[str]:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        flags = peers.cpu_flags(tmp_path / "cpuinfo")
        return [p.command[2] for p in peers.peers(2, flags) if p.tool == "likwid-bench"]

    usual = ["load_avx", "store_avx", "store_mem_avx", "copy_avx", "copy_mem_avx"]
    assert kernels("processor\t: 0\nflags\t\t: fpu avx2\n") == usual
    assert kernels("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\n") == [
        "load_avx", "load_avx512", *usual[1:]
    ]  # fmt: skip
    assert peers.cpu_flags(tmp_path / "none") == frozenset()
    wide = next(p for p in peers.peers(2, frozenset({"avx512f"})) if "load_avx512" in p.command)
    assert wide.experiment == "bandwidth" and wide.parameters == {"mix": "read", "threads": 2}


@pytest.fixture(scope="module")
def promises(peers: Any) -> Any:
    import promises as found

    return found


def test_the_loop_by_hand_reads_and_writes(peers: Any, promises: Any, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler; apt install gcc")
    program = promises.build_streams(tmp_path, quiet)
    cpu = min(os.sched_getaffinity(0))
    for mix in ("read", "nt_write"):
        for streams in (1, 8):
            peer = promises._by_hand(program, mix, [cpu], streams)
            assert peer.name == f"a loop of {streams} stream{'s' if streams > 1 else ''}"
            small = dataclasses.replace(peer, command=[*peer.command[:3], "8", str(streams)])
            assert peers.run_peer(small) > 0
    on = str(cpu)
    for wrong in (["read", on, "8", "17"], ["read", "", "8", "1"], ["read", on, "0", "1"]):
        done = subprocess.run([program, *wrong], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith("streams: give CPUs, ")


def scripted(*rounds: dict[str, float | None]) -> Any:
    """Gives these, by the seed."""
    return lambda seed: rounds[seed]


def test_what_never_gives_a_number_is_left_out_and_so_is_a_round_that_lacks_one(
    promises: Any,
) -> None:
    once = scripted(
        {"Headrace": 9.0, "likwid": None, "loop": 10.0},
        {"Headrace": None, "likwid": None, "loop": 10.0},
        {"Headrace": 8.0, "likwid": None, "loop": 8.0},
    )
    found = promises.in_rounds(once, 3, 0, quiet)
    assert found.results == {"Headrace": [9.0, 8.0], "loop": [10.0, 8.0]}
    assert found.ratios("Headrace", "loop") == [0.9, 1.0]


@pytest.mark.parametrize(("loaded", "code", "told"), [
    (104.0, 0, "loaded / idle 1.040 (1.030 to 1.050 in 3 rounds), promised within 5 %: holds"),
    (94.0, 1, "does not hold"), (106.0, 1, "does not hold"),
])  # fmt: skip
def test_latency_without_a_load_is_the_idle_one(
    promises: Any, loaded: float, code: int, told: str
) -> None:
    got = {"idle": [100.0] * 3, "loaded": [loaded - 1, loaded, loaded + 1]}
    found, said = promises.verdict_of_latency(promises.Rounds(got))
    assert found == code and told in said
    assert promises.verdict_of_latency(promises.Rounds({}))[0] == promises.NOTHING


def test_bandwidth_is_held_against_the_best_of_the_others_by_its_median(promises: Any) -> None:
    """One round of luck is no best: of the loop 12 was seen, and its median is 8."""
    got = {
        "Headrace": [9.6e9, 9.5e9, 9.7e9], "likwid-bench": [10e9, 10e9, 10e9],
        "a loop of 2 streams": [8e9, 12e9, 8e9],
    }  # fmt: skip
    code, said = promises.verdict_of_bandwidth("read", promises.Rounds(got))
    assert code == promises.HELD and "best of the others likwid-bench 10 GB/s" in said
    assert "Headrace / best 0.960 (0.950 to 0.970 in 3 rounds), promised at least 0.95" in said
    lines = promises.table(promises.Rounds(got)).splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        "likwid-bench", "Headrace", "a loop of 2 streams"
    ]  # fmt: skip
    got["Headrace"] = [9.4e9] * 3
    assert promises.verdict_of_bandwidth("read", promises.Rounds(got))[0] == promises.NOT_HELD
    alone = promises.Rounds({"Headrace": [1.0]})
    assert promises.verdict_of_bandwidth("read", alone)[0] == promises.NOTHING


def test_the_promises_are_measured_on_this_machine(
    peers: Any, promises: Any, machine: headrace.Machine, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every row that a promise needs is measured, whatever its value. No other tool is found."""
    monkeypatch.setattr(peers, "PATH", str(tmp_path))
    told: list[str] = []
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU cannot observe and load at once")
    found = promises.latencies(machine, told.append)(1)
    assert found.keys() == {"idle", "loaded"} and all(found.values()), told
    once = promises.bandwidths(machine, "nt_write", None, told.append)
    assert promises.in_rounds(once, 1, 1, quiet).results.keys() == {"Headrace"}
    assert any("likwid-bench is not installed" in line for line in told)
