# SPDX-License-Identifier: Apache-2.0
"""bench stream and measure --mpi by real ranks on this host: loopback only, few and small."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest
import small_host
from bench_documents import check_commands
from conftest import Run
from staged import POINT

import headrace
from headrace._cli.measuring import file_of
from headrace._profile.documents import all_fields
from headrace._run import mpi
from headrace._run.plan import Host
from headrace._run.ranks import Rank, launched
from headrace_bench import stream as bench_stream
from headrace_bench.runner import Runner, Variant
from headrace_bench.threads import cache_of

Done = subprocess.CompletedProcess[str]

STREAM = ["bench", "stream", "--size", "4MiB", "--repetitions", "2", "--json"]
HAS_MPI4PY = importlib.util.find_spec("mpi4py") is not None
#: Root, fewer CPUs than ranks, no network, no ssh.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm": "isolated",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # from Open MPI 5 on
}  # fmt: skip


def _open_mpi() -> str | None:
    for name in ("mpirun.openmpi", "mpirun"):
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
        if "Open MPI" in said.stdout:
            return path
    return None


@pytest.fixture
def launcher() -> list[str]:
    """Open MPI's."""
    if not HAS_MPI4PY:
        pytest.skip("no mpi4py: pip install mpi4py; MPI is NOT tested here")
    path = _open_mpi()
    if path is None:
        pytest.skip("no mpirun of Open MPI: apt-get install openmpi-bin; MPI is NOT tested here")
    return [path]


@pytest.fixture
def mpirun(launcher: list[str], command: Path, tmp_path: Path) -> Run:
    """mpirun(2, "bench", "stream"): runs 2 ranks of the command."""

    def run(ranks: int, *arguments: str, program: list[str] | None = None, **env: str) -> Done:
        words = program or [str(command)]
        return subprocess.run(
            [*launcher, "-n", str(ranks), *words, *arguments], env=environment() | env,
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return run


def environment() -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE")}
    return ours | OPEN_MPI | small_host.ENVIRONMENT


def complaints(result: Done) -> list[str]:
    """Headrace's own lines, without the launcher's boxes."""
    lines = (result.stdout + result.stderr).splitlines()
    return [line.strip() for line in lines if line.startswith("headrace: ")]


JOBS: list[tuple[dict[str, str], tuple[int, int]]] = [
    ({}, (1, 0)),
    ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "3", "SLURM_PROCID": "0"}, (8, 3)),
    ({"PMI_SIZE": "4", "PMI_RANK": "1"}, (4, 1)),
    ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, (2, 1)),
    ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}, (1, 0)),  # a script of sbatch
    ({"PMI_SIZE": "four", "PMI_RANK": "1"}, (1, 0)),
]


@pytest.mark.parametrize(("variables", "expected"), JOBS)
def test_launchers_set_size_and_rank(variables: dict[str, str], expected: tuple[int, int]) -> None:
    assert launched(variables) == expected


def test_alone() -> None:
    world = mpi.World()
    world.barrier()
    world.meet()
    assert (world.rank, world.size, world.all(lambda: 7), world.gather(8)) == (0, 1, [7], [8])
    with pytest.raises(headrace.AbsentError, match="^not here$"):
        world.all(lambda: (_ for _ in ()).throw(headrace.AbsentError("not here")))


def test_TotalRow_IsOfTheSlowestRank() -> None:
    ranks = [
        {"a": "dram", "b": "dram", "c": "dram", "threads": 1, "bytes_per_array": 8, "host": host}
        for host in "ab"
    ]
    times = [[(10, 1.0), (10, 4.0)], [(10, 2.0), (10, 2.5)]]
    variants = [Variant({"kernel": "copy"}, results=times), Variant({"kernel": "triad"})]
    found = bench_stream.rows(Runner(variants, 2), ranks)
    assert [(row.parameters["kernel"], row.parameters["rank"]) for row in found] == [
        (kernel, rank) for rank in ("all", 0, 1) for kernel in ("copy", "triad")
    ]  # fmt: skip
    total, of_first, of_second = found[0], found[2], found[4]
    assert total.samples == [5, 8] and total.details["best"] == 8
    assert of_first.samples == [10, 5] and of_second.samples == [2.5, 4]
    assert found[1].median is None and found[1].reason == "interrupted"


MAX = headrace.Machine.load("xeon-max")
SPILLS = [
    ("dram:0-7", 0, "0:1,2,3,4,5,6,7"),
    ("dram:0-7", 3, "3:0,1,2,4,5,6,7"),
    ("dram:3", 3, "3"),
    ("dram:3", 2, "2:3"),
    ("dram:3:hbm:3-4", 3, "3:hbm:4"),
    ("hbm:dram", 7, "15:dram"),
    ("hbm", 7, "15"),
]


@pytest.mark.parametrize(("place", "rank", "expected"), SPILLS)
def test_a_tile_is_not_spilled_into_twice(place: str, rank: int, expected: str) -> None:
    host = Host.of(MAX, Rank(rank, 8, "LOCAL_RANK"))
    places, cpus = bench_stream.on_tile(MAX, ["hbm", place, place], host)
    assert places == [str(8 + rank), expected, expected]
    assert cpus == set(range(12 * rank, 12 * rank + 12))
    headrace.Placement.parse(MAX, expected).resolve(MAX)


def test_profiles_are_named_by_host() -> None:
    assert file_of(Path("out/p.json"), "n7.site") == Path("out/p.n7.site.json")
    assert file_of(Path("profile"), "n7") == Path("profile.n7")


def test_stream_without_mpi(run: Run, tmp_path: Path) -> None:
    result = run(*STREAM, "--threads", "1", "--out", "rows.json", "--per-rank-tile")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "rows.json").read_text())
    check(document, 1)
    around = json.loads(run(*STREAM, "--threads", "1", "--non-temporal").stdout)
    kernels = [row["parameters"]["kernel"] for row in around["rows"]]
    check_commands(document, run, tmp_path)
    assert kernels == ["nt_copy", "nt_scale", "nt_add", "nt_triad"]
    table = run(*STREAM[:-1]).stdout
    assert table.splitlines()[0].split()[:3] == ["rank", "host", "threads"]


def test_stream_on_a_tile_that_is_in_the_spill_list(run: Run, memory_node: int) -> None:
    result = run(*STREAM, "--per-rank-tile", "--a", str(memory_node), "--b", f"dram:{memory_node}")
    assert (result.returncode, result.stderr) == (0, "")
    [rank] = json.loads(result.stdout)["ranks"]
    assert str(memory_node) in (rank["a"], rank["b"].split(":")[0])


def test_arrays_in_the_caches_are_told(
    run: Run, machine: headrace.Machine, tmp_path: Path
) -> None:
    caches = cache_of(machine, os.sched_getaffinity(0))
    for size, in_cache in ((2 * caches, True), (4 * caches, False)):
        table = run(*STREAM[:-1], "--size", str(size), "--repetitions", "1", "--out", "rows.json")
        [rank] = json.loads((tmp_path / "rows.json").read_text())["ranks"]
        assert (rank["cache_bytes"], rank["in_cache"]) == (caches, in_cache)
        note = "rank 0: arrays below four times the last-level caches"
        told = any(line.startswith(note) for line in table.stdout.splitlines())
        assert told is in_cache


def check(document: dict[str, Any], ranks: int) -> None:
    assert (document["kind"], document["interrupted"]) == ("bench stream", False)
    assert [each["rank"] for each in document["ranks"]] == list(range(ranks))
    rows = all_fields(document)
    assert len(rows) == 4 * (1 + ranks if ranks > 1 else 1)
    for total in rows[:4]:
        assert total["rank"] == "all" and len(total["samples"]) == 2
        own = [r for r in rows if r["kernel"] == total["kernel"] and r["rank"] != "all"]
        assert ranks == 1 or total["bytes"] == sum(r["bytes"] for r in own)
        assert 0 < total["median"] and total["best"] == max(total["samples"])


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--a", "mars"], 2, ""),
        (["--size", "0", "--threads", "1"], 2, "0 bytes for 1 threads"),
        (["--a", "0=1", "--per-rank-tile"], 2, "0=1: no place for ranks; give "
     "--per-rank-tile a kind or nodes"),
        (["--out", "nowhere/x.json"], 3, "no directory nowhere"),
    ],
)
def test_nonsense_is_one_line(run: Run, arguments: list[str], code: int, told: str) -> None:
    result = run(*STREAM[:2], *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("ranks", [2, 4])
def test_stream_by_ranks(mpirun: Run, ranks: int, machine: headrace.Machine) -> None:
    result = mpirun(ranks, *STREAM, "--per-rank-tile")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    check(document, ranks)
    usable = os.sched_getaffinity(0)
    if len(usable) >= ranks and len([n for n in machine.nodes if n.cpus]) == 1:
        cpus = [cpu for each in document["ranks"] for cpu in each["cpus"]]
        assert len(set(cpus)) == len(cpus), "no two ranks share a CPU"
    if ranks == 2:
        assert "\x1b" not in mpirun(2, *STREAM[:-1]).stdout, "Open MPI's terminal is none"


def test_an_error_of_all_is_said_once(mpirun: Run) -> None:
    result = mpirun(2, *STREAM, "--a", "mars")
    assert result.returncode == 2
    [line] = complaints(result)
    assert line.startswith("headrace: rank 0: ")


def test_an_error_of_one_is_everybodys(mpirun: Run, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import headrace\n"
        "from headrace._run import mpi\nfrom headrace._cli import main\n"
        "def work(rank):\n"
        "    if rank == 1: raise headrace.ExhaustedError('full')\n"
        "def topo():\n"
        "    with mpi.job() as world:\n"
        "        world.all(lambda: work(world.rank))\n"
        "import headrace._cli.topo\n"
        "headrace._cli.topo.command = topo\n"
        "import sys; sys.argv = ['headrace', 'topo']; main()\n"
    )
    result = mpirun(3, program=[sys.executable, "job.py"])
    assert (result.returncode, complaints(result)) == (6, ["headrace: rank 1: full"])


def test_a_defect_of_one_ends_all(mpirun: Run, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from headrace._run import mpi\n"
        "with mpi.job() as world:\n"
        "    if world.rank == 1: raise ValueError('boom')\n"
        "    world.barrier()\n"
    )
    result = mpirun(2, program=[sys.executable, "job.py"])
    assert result.returncode != 0
    assert any(line.endswith(": boom") for line in complaints(result))


def test_without_mpi4py_it_says_what_to_install(mpirun: Run, tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ModuleNotFoundError('none', name='mpi4py')\n")
    result = mpirun(2, *STREAM, PYTHONPATH=str(tmp_path))
    told = "headrace: 2 ranks were started, but mpi4py is missing; pip install mpi4py"
    # The launcher may end a slow rank while it is about to say so.
    said = complaints(result)
    assert result.returncode == 3 and told in said, result
    assert set(said) <= {told, "headrace: ended by SIGTERM"}
    assert mpirun(1, *STREAM, PYTHONPATH=str(tmp_path)).returncode == 0


def test_one_rank_of_a_host_measures(mpirun: Run, tmp_path: Path) -> None:
    name = os.uname().nodename
    point = ["stream", "--only", "kernel=triad", "--rounds", "1"]
    result = mpirun(2, "measure", *point, "--mpi", "--out", "p.json")
    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"p.{name}.json", "p.json"}
    profile = headrace.Profile.load(tmp_path / f"p.{name}.json")
    # Not only on the CPUs that the launcher bound the rank to.
    cpus = {cpu for node in profile.machine.nodes for cpu in node.cpus}
    threads = {row.parameters["threads"] for row in profile.rows}
    assert threads == {len(cpus & os.sched_getaffinity(0))}
    document = json.loads((tmp_path / "p.json").read_text())
    assert [h["host"] for h in document["hosts"]] == [name] and document["failed"] == {}
    assert result.stdout.splitlines()[-1] == "profiles: p.HOST.json; fleet: p.json"


def test_a_fleet_of_three_hosts(mpirun: Run, command: Path, tmp_path: Path) -> None:
    """Namespaces of names make this host three."""
    apart = ["unshare", "--uts", "sh", "-c"]
    if subprocess.run([*apart, "hostname n0"], capture_output=True).returncode != 0:
        pytest.skip("unshare --uts is not allowed; measure --mpi on several hosts is NOT tested")
    ranks = f'hostname n$OMPI_COMM_WORLD_RANK; exec {command} "$@"'
    result = mpirun(
        3, "measure", *POINT, "--mpi", "--json", "--out", "p.json",
        program=[*apart, ranks, "sh"],
    )  # fmt: skip
    document = json.loads(result.stdout[: result.stdout.rindex("}") + 1])
    assert result.returncode == (9 if document["differs"] else 0), result.stderr
    assert [h["host"] for h in document["hosts"]] == ["n0", "n1", "n2"]
    assert document["settings"] == [] and document["failed"] == {}
    files = ["p.json", "p.n0.json", "p.n1.json", "p.n2.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files


#: A rank as one of `headrace measure --mpi` on a host of its own, whose measurement is in a file.
MADE_UP = """
import os, socket, sys
import headrace
from headrace._cli import main, measuring
host = "n" + os.environ["OMPI_COMM_WORLD_RANK"]
socket.gethostname = lambda: host
measuring.measure_here = lambda *_: (headrace.Profile.load(host + ".made-up"), None)
sys.argv = ["headrace", "measure", "--mpi", "--out", "p.json", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("slow", [None, 2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_slow_rank_is_named(mpirun: Run, tmp_path: Path, slow: int | None) -> None:
    """Real ranks, exchange and outcome; only the numbers of the hosts are made up."""
    (tmp_path / "job.py").write_text(MADE_UP)
    for rank in range(4):
        profile = documents.host(f"n{rank}", rank)
        if rank == slow:
            documents.scaled(1.3)(profile)
        (tmp_path / f"n{rank}.made-up").write_text(json.dumps(profile))
    result = mpirun(4, program=[sys.executable, "job.py"])
    assert result.returncode == (0 if slow is None else 9), result.stderr
    document = json.loads((tmp_path / "p.json").read_text())
    outcomes = {each["host"]: each["verdict"] for each in document["hosts"]}
    assert outcomes == {f"n{n}": "slow" if n == slow else "same" for n in range(4)}
    assert document["differs"] == (slow is not None) and document["failed"] == {}
    assert {row["host"] for row in document["rows"]} == (set() if slow is None else {f"n{slow}"})
    said = "none is slow" if slow is None else "1 slow"
    assert f"4 hosts: {said}" in result.stdout.splitlines()
    assert headrace.Profile.load(tmp_path / "p.n2.json").rows, "each host's own profile too"


def test_nonsense_with_mpi(mpirun: Run) -> None:
    result = mpirun(2, "measure", "--mpi", "--resume", "--out", "p.json")
    assert result.returncode == 2
    assert complaints(result) == [
        "headrace: rank 0: --resume goes on with one profile; leave it or --mpi out"
    ]
    result = mpirun(1, "measure", "--mpi", "--convention", "stream")
    assert (result.returncode, len(complaints(result))) == (2, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "stream", "--size", "64MiB", "--repetitions", "1000"],
        ["measure", "stream", "latency", "--mpi", "--budget", "60s", "--out", "p.json"],
    ],
)
def test_ctrl_c_ends_all(
    launcher: list[str], command: Path, tmp_path: Path, arguments: list[str]
) -> None:
    process = subprocess.Popen(
        [*launcher, "-n", "2", str(command), *arguments], env=environment(), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    time.sleep(2)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0


def test_mpich_too(command: Path, tmp_path: Path) -> None:
    """Where it is: its mpiexec, and its library by the name that mpi4py's wheel asks for."""
    hydra, library = shutil.which("mpiexec.hydra"), find_library("mpich")
    if not HAS_MPI4PY or hydra is None or library is None:
        pytest.skip("no MPICH (mpiexec.hydra, libmpich): it is NOT tested here")
    (tmp_path / "libmpi.so.12").symlink_to(_path_of(library))
    result = subprocess.run(
        [hydra, "-n", "2", str(command), *STREAM, "--per-rank-tile"],
        env=environment() | {"LD_LIBRARY_PATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    check(json.loads(result.stdout), 2)


def test_a_launcher_of_another_mpi_is_noticed(launcher: list[str], run: Run) -> None:
    hydras = {"PMI_SIZE": "2", "PMI_RANK": "0", "MPI4PY_MPIABI": "openmpi"}
    result = run(*STREAM, env=OPEN_MPI | hydras)
    assert result.returncode == 4
    assert result.stderr.splitlines()[-1].startswith("headrace: the launcher started 2 ranks, but")


def _path_of(library: str) -> str:
    """Path of a library that the linker knows."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    return next(line.split(" => ")[1] for line in listed.splitlines() if f"\t{library} " in line)


def test_a_sweep_of_threads_has_the_same_numbers_on_all_ranks() -> None:
    assert bench_stream.sweep_counts([(12, 24)] * 8) == [1, 2, 4, 8, 12, 24]
    assert bench_stream.sweep_counts([(12, 24), (3, 6)]) == [1, 2, 3, 6]
    assert bench_stream.sweep_counts([(1, 1)]) == [1]


def test_one_process_sweeps_its_threads(run: Run) -> None:
    result = run(*STREAM, "--sweep", "--repetitions", "1")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    rows = all_fields(found)
    counts = list(dict.fromkeys(row["threads"] for row in rows))
    assert counts[0] == 1 and counts == sorted(set(counts)) and len(rows) == 4 * len(counts)
    assert all(row["median"] > 0 and row["rank"] == "all" for row in rows)
    assert found["ranks"][0]["threads"] == counts[-1]
    refused = run(*STREAM, "--sweep", "--threads", "1")
    assert refused.returncode == 2 and "leave out --threads" in refused.stderr
