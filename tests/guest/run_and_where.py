# SPDX-License-Identifier: Apache-2.0
"""headrace run and where on a real kernel with 16 nodes: where a program under them has its memory,
and where threads have their parts of an array.

Run in the guest xeon-max (nodes 0-7 DRAM with CPU 0-7, nodes 8-15 HBM) by in_guest.sh, with the
Python that has Headrace installed.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from forked import HEADRACE, MPIRUN, headrace, started
from headrace_bench.threads import buffer

from headrace import Machine, stream_fill, where
from headrace._run.numa_maps import Places, parse

HBM, DRAM = set(range(8, 16)), set(range(8))
MIB = 1 << 20
#: A huge page for each thread, so that none is shared.
PART = 2 * MIB
TABLE = Path("/sys/kernel/mm/mempolicy/weighted_interleave")
#: Without the packages, which take seconds to find.
PYTHON = [sys.executable, "-I", "-S", "-c"]
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
    result = headrace("run", *flags, "--", *PYTHON, PROGRAM, **variables)
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
    """Places a rank on each socket, by the variables of Open MPI and of Hydra."""
    tiles = ["--tile", "per-rank", "--on", "hbm"]
    for rank in (0, 5):
        count, number = "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"
        cpus, places = places_under(*tiles, **{count: "8", number: f"{rank}"})
        assert cpus == [rank] and set(own(places)) == {rank + 8}, (cpus, own(places))
    cpus, places = places_under(*tiles, MPI_LOCALRANKID="1", MPI_LOCALNRANKS="2")
    assert cpus == [4, 5, 6, 7] and set(own(places)) <= {12, 13, 14, 15}, (cpus, own(places))


def each_of_eight_ranks_has_its_tile() -> None:
    """Places ranks that a real mpirun starts."""
    run = [*HEADRACE, "run", "--tile", "per-rank", "--on", "hbm", "--", *PYTHON, PROGRAM]
    found = told_by(subprocess.run([*MPIRUN, "8", *run], capture_output=True, text=True))
    pairs = sorted((cpus, sorted(own(places))) for cpus, places in found)
    assert pairs == [([tile], [tile + 8]) for tile in range(8)], pairs


def what_does_not_fit_is_not_started() -> None:
    result = headrace("run", "--on", "8", "--needs", "200MiB", "--", "echo", "started")
    assert (result.returncode, result.stdout) == (6, ""), result
    assert "200 MiB needed do not fit: node 8 has " in result.stderr, result


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
    program = "x = bytearray(b'x' * (16 << 20)); print(1, flush=True); input()"
    told, output = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
    given, answer = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
    process = started(["run", "--on", "8-9", "--", *PYTHON, program], (given, output))
    output.close()
    assert told.readline() == "1\n"
    document = json.loads(headrace("where", "--json", str(process)).stdout)
    nodes = {node["node"]: node for node in document["nodes"]}
    assert set(nodes) == DRAM | HBM and nodes[8]["kind"] == "hbm"
    held = {n for n, node in nodes.items() if node["anonymous_bytes"] + node["heap_bytes"] > 0}
    assert held and held <= {8, 9}, held
    answer.write("\n")
    answer.flush()
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def arrays_of_eight_threads_near_them() -> None:
    machine = Machine.discover(storage=[])
    cpus = list(range(8))
    size = 8 * PART
    arrays = [buffer(machine, size, kind, cpus) for kind in ("hbm", "dram", "hbm")]
    stream_fill(*arrays, cpus)
    for array, first in zip(arrays, (8, 0, 8), strict=True):
        for cpu in cpus:
            found = where(memoryview(array)[cpu * PART : (cpu + 1) * PART]).pages
            assert list(found) == [first + cpu], (cpu, found)
    # One that spills: in turn on the nodes of its threads, and not on those of the other socket.
    found = where(buffer(machine, size, "hbm:dram", cpus[:4])).pages
    assert sorted(found) == [8, 9, 10, 11], found


def check_all() -> None:
    TOLD.mkdir()
    arrays_of_eight_threads_near_them()  # in huge pages
    # A huge page more on one of the nodes would hide what the ratio of the others is.
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("never")
    checks = [
        run_binds_all_of_a_program, run_prefers_and_interleaves, run_weighs_by_the_kernels_table,
        each_rank_has_its_tile, what_does_not_fit_is_not_started, where_tells_the_same,
        hbm_is_not_promoted_to, a_cpuset_is_respected,
    ]  # fmt: skip
    if "HEADRACE_GUEST_ALL" in os.environ:
        checks.append(each_of_eight_ranks_has_its_tile)
    for check in checks:
        begin = time.monotonic()
        check()
        print(f"ok {check.__name__} {time.monotonic() - begin:.0f} s", flush=True)


check_all()
