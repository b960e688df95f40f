"""headrace run and where on a real kernel with 16 nodes: what a program under them gets.

Run in the guest xeon-max (nodes 0-7 DRAM with CPU 0-7, nodes 8-15 HBM) by in_guest.sh, with the
Python that has Headrace installed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

from forked import HEADRACE, MPIRUN, headrace
from headrace._run.numa_maps import Places, parse

HBM, DRAM = set(range(8, 16)), set(range(8))
MIB = 1 << 20
TABLE = Path("/sys/kernel/mm/mempolicy/weighted_interleave")
#: Touches 16 MiB and writes where all of its memory is into a file of its own in the folder TOLD.
TOLD = Path("/tmp/told")
PROGRAM = f"""
import mmap, os
area = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE)
for at in range(0, 16 << 20, 4096): area[at] = 1
cpus = sorted(os.sched_getaffinity(0))
maps = open("/proc/self/numa_maps").read()
open("{TOLD}/" + str(os.getpid()), "w").write(repr([cpus, maps]))
"""


def places_under(*flags: str, **variables: str) -> tuple[list[int], Places]:
    """The CPUs and pages of PROGRAM."""
    result = headrace("run", *flags, "--", sys.executable, "-S", "-c", PROGRAM, **variables)
    [told] = told_by(result)
    return told


def told_by(result: subprocess.CompletedProcess[str]) -> list[tuple[list[int], Places]]:
    assert result.returncode == 0, result
    found = []
    for file in TOLD.iterdir():
        cpus, maps = ast.literal_eval(file.read_text())
        found.append((cpus, parse(maps.splitlines())))
        file.unlink()
    return found


def own(places: Places) -> dict[int, int]:
    """Bytes by node of all that is not a file's."""
    found: dict[int, int] = {}
    for group in ("anonymous", "heap", "stack"):
        for node, size in places.groups[group].items():
            found[node] = found.get(node, 0) + size
    return found


def run_binds_all_of_a_program() -> None:
    _, places = places_under("--on", "hbm")
    assert set(own(places)) <= HBM and sum(own(places).values()) > 16 * MIB, own(places)
    assert places.groups["stack"] and set(places.groups["stack"]) <= HBM
    cpus, places = places_under("--on", "10", "--cpus", "near:10")
    assert cpus == [2] and set(own(places)) == {10}, (cpus, own(places))


def run_prefers_and_interleaves() -> None:
    _, places = places_under("--prefer", "hbm:dram")
    assert set(own(places)) <= HBM, own(places)
    _, places = places_under("--interleave", "8-15")
    area = places.groups["anonymous"]
    assert all(area[node] >= 2 * MIB for node in HBM), area


def run_weighs_by_the_kernels_table() -> None:
    flags = ["--weights", "0=3,8=1"]
    refused = headrace("run", *flags, "--", "true")
    if not TABLE.exists():
        assert refused.returncode == 4 and "Linux 6.9 can" in refused.stderr, refused
        return
    assert refused.returncode == 5 and f"echo 3 | tee {TABLE}/node0" in refused.stderr, refused
    _, places = places_under(*flags, "--set-system-weights")
    area = places.groups["anonymous"]
    assert 2.8 < area[0] / area[8] < 3.2, area
    assert (TABLE / "node0").read_text().strip() == "3"
    again = headrace("run", "-v", "--dry-run", *flags, "--", "true")  # the table says so already
    assert again.returncode == 0 and "--weighted-interleave 0,8" in again.stderr, again


def each_rank_has_its_tile() -> None:
    tiles = ["--tile", "per-rank", "--on", "hbm"]
    ranks = [*MPIRUN, "8", *HEADRACE, "run", *tiles, "--", sys.executable, "-S", "-c", PROGRAM]
    found = told_by(subprocess.run(ranks, capture_output=True, text=True))
    pairs = sorted((cpus, sorted(own(places))) for cpus, places in found)
    assert pairs == [([tile], [tile + 8]) for tile in range(8)], pairs
    cpus, places = places_under(*tiles, MPI_LOCALRANKID="1", MPI_LOCALNRANKS="2")
    assert cpus == [4, 5, 6, 7] and set(own(places)) <= {12, 13, 14, 15}, (cpus, own(places))


def what_does_not_fit_is_not_started() -> None:
    result = headrace("run", "--on", "8", "--needs", "200MiB", "--", "echo", "started")
    assert (result.returncode, result.stdout) == (6, ""), result
    assert "200 MiB needed do not fit on node 8; free now: node 8 " in result.stderr, result


def a_cpuset_is_respected() -> None:
    group = Path("/sys/fs/cgroup/run")
    group.mkdir()
    (group / "cpuset.mems").write_text("0-11")
    (group / "cpuset.cpus").write_text("0-3")
    for flags, told, code in (
        (["-v", "--dry-run", "--on", "hbm"], "--membind 8-11 -- true", 0),
        (["--on", "12"], "no memory of node 12; this process may have memory of node 0-11", 5),
    ):
        result = headrace("run", *flags, "--", "true", group=group)
        assert result.returncode == code and told in result.stderr, result


def hbm_is_not_promoted_to() -> None:
    before = Path("/proc/sys/kernel/numa_balancing").read_text()
    result = headrace("tier", "kernel", "--on")
    told = "node 8-15 (tier 1) is faster than node 0-7 (tier 4) with the CPUs"
    if not TABLE.exists():  # an older kernel, which puts HBM into DRAM's tier, or has no tiers
        one_tier = Path("/sys/devices/virtual/memory_tiering").exists()
        told = "all memory is in one tier" if one_tier else "no memory tiers"
    assert result.returncode == 4 and told in result.stderr, result
    assert Path("/proc/sys/kernel/numa_balancing").read_text() == before


def where_tells_the_same() -> None:
    process = subprocess.Popen(
        [*HEADRACE, "run", "--on", "8-9", "--", sys.executable, "-S", "-c",
         "x = bytearray(b'x' * (16 << 20)); print(1, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "1\n"
    document = json.loads(headrace("where", "--json", str(process.pid)).stdout)
    nodes = {node["node"]: node for node in document["nodes"]}
    assert set(nodes) == DRAM | HBM and nodes[8]["kind"] == "hbm"
    held = {n for n, node in nodes.items() if node["anonymous_bytes"] + node["heap_bytes"] > 0}
    assert held and held <= {8, 9}, held
    process.communicate("\n", timeout=60)


def check_all() -> None:
    TOLD.mkdir()
    # A huge page more on one of the nodes would hide what the ratio of the others is.
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("never")
    for check in (
        run_binds_all_of_a_program, run_prefers_and_interleaves, run_weighs_by_the_kernels_table,
        each_rank_has_its_tile, what_does_not_fit_is_not_started, where_tells_the_same,
        hbm_is_not_promoted_to, a_cpuset_is_respected,
    ):  # fmt: skip
        begin = time.monotonic()
        check()
        print(f"ok {check.__name__} {time.monotonic() - begin:.0f} s", flush=True)


check_all()
