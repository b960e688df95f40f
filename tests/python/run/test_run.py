# SPDX-License-Identifier: Apache-2.0
"""headrace run as users run it: what the program gets, and what is said when it gets nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run, without_launcher

import headrace

#: Prints a program's policy: mode and first nodes of get_mempolicy(2), by number.
POLICY = """
import ctypes, os
mode, mask = ctypes.c_int(), (ctypes.c_ulong * 64)()
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 239, "aarch64": 236}[os.uname().machine]
assert libc.syscall(number, ctypes.byref(mode), mask, 8 * ctypes.sizeof(mask), None, 0) == 0
print(mode.value, mask[0], sorted(os.sched_getaffinity(0)))
"""
BIND, PREFERRED, INTERLEAVE = 2, 1, 3


def here(run: Run, *flags: str) -> tuple[int, int, list[int]]:
    """Runs a program under these flags; returns its mode, its nodes as bits, and its CPUs."""
    result = run("run", *flags, "--", sys.executable, "-c", POLICY)
    assert (result.returncode, result.stderr) == (0, ""), result
    mode, nodes, cpus = result.stdout.split(" ", 2)
    return int(mode), int(nodes), json.loads(cpus)


def test_the_program_has_the_policy(run: Run, memory_node: int) -> None:
    bit, cpus = 1 << memory_node, sorted(os.sched_getaffinity(0))
    assert here(run, "--on", str(memory_node)) == (BIND, bit, cpus)
    assert here(run, "--prefer", str(memory_node)) == (PREFERRED, bit, cpus)
    assert here(run, "--interleave", str(memory_node)) == (INTERLEAVE, bit, cpus)
    assert here(run, "--weights", f"{memory_node}=3") == (INTERLEAVE, bit, cpus)
    assert here(run, "--cpus", str(cpus[0])) == (0, 0, cpus[:1])
    mode, nodes, _ = here(run, "--on", "dram", "--cpus", f"near:{memory_node}")
    assert mode == BIND and nodes & bit


def test_an_inherited_policy_stays_where_only_cpus_are_asked_for(
    command: Path, memory_node: int
) -> None:
    arguments = [command, "run", "--on", str(memory_node), "--", command, "run", "--cpus", "0"]
    result = subprocess.run(
        [*arguments, "--", sys.executable, "-c", POLICY], capture_output=True, text=True
    )
    if 0 in os.sched_getaffinity(0):
        assert result.stdout.split(" ")[0] == str(BIND), result


def test_a_rank_gets_its_share_of_the_cpus(run: Run) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    found = []
    for rank in ("0", "1"):
        result = run(
            "run", "--tile", "per-rank", "--", sys.executable, "-c", POLICY,
            env=without_launcher({"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}),
        )  # fmt: skip
        assert result.returncode == 0, result
        found += json.loads(result.stdout.split(" ", 2)[2])
    assert set(found) <= set(cpus) and (len(cpus) < 2 or sorted(found) == cpus)


@pytest.mark.parametrize(
    ("launcher", "variable"),
    [
        ("mpirun.openmpi --allow-run-as-root --oversubscribe -np 2", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("mpiexec.hydra -np 2", "MPI_LOCALRANKID"),
    ],
)
def test_under_a_real_launcher(command: Path, launcher: str, variable: str) -> None:
    """The launcher binds each of two ranks to one core by default, or to none."""
    if shutil.which(launcher.split()[0]) is None:
        pytest.skip(f"no {launcher.split()[0]}")
    told = "import os; print(sorted(os.sched_getaffinity(0)))"
    result = subprocess.run(
        [*launcher.split(), command, "run", "-v", "--tile", "per-rank", "--", sys.executable,
         "-c", told],
        capture_output=True, text=True, timeout=120, env=os.environ | without_launcher({}),
    )  # fmt: skip
    assert result.returncode == 0, result
    # The launcher may join lines of two ranks.
    shares = [json.loads(each) for each in re.findall(r"\[[0-9, ]*\]", result.stdout)]
    cpus = sorted(os.sched_getaffinity(0))
    assert len(shares) == 2 and all(set(share) <= set(cpus) for share in shares)
    assert len(cpus) < 2 or sorted(shares[0] + shares[1]) == cpus
    for rank in (0, 1):
        assert f"headrace: rank {rank} of 2 ({variable}) is on the tile of node" in result.stderr


def test_placement_is_reported_on_stderr(run: Run, memory_node: int) -> None:
    result = run("run", "-v", "--on", str(memory_node), "--", "echo", "a b")
    assert (result.returncode, result.stdout) == (0, "a b\n")
    said = f"headrace: numactl --membind {memory_node} -- echo 'a b'"
    assert result.stderr.splitlines()[0] == said
    quiet = run("run", "--on", str(memory_node), "echo", "-v")
    assert (quiet.stdout, quiet.stderr) == ("-v\n", "")


def test_the_exit_code_is_the_programs(run: Run, tmp_path: Path) -> None:
    for code in (0, 1, 77):
        assert run("run", "--on", "dram", "--", "sh", "-c", f"exit {code}").returncode == code
    killed = run("run", "--on", "dram", "--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == -signal.SIGKILL
    (tmp_path / "plain").write_text("exit 5\n")  # no first line: as shells run it
    (tmp_path / "plain").chmod(0o755)
    assert run("run", "--on", "dram", "--", "./plain").returncode == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_program(command: Path, number: signal.Signals) -> None:
    """There is no process in between."""
    process = subprocess.Popen(
        [command, "run", "--on", "dram", "--", "sh", "-c", "echo $$; exec sleep 60"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(number)
    assert process.wait(30) == -number
    process.stdout.close()


def test_a_broken_pipe_ends_the_program_as_ever(command: Path) -> None:
    """Python ignores SIGPIPE; the program must not inherit that."""
    ignored = "grep SigIgn /proc/self/status"
    plain = subprocess.run(["sh", "-c", ignored], capture_output=True, text=True)
    under = subprocess.run(
        [command, "run", "--on", "dram", "--", "sh", "-c", ignored], capture_output=True, text=True
    )
    assert under.stdout == plain.stdout


def test_programs_that_cannot_be_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    (tmp_path / "lost").write_text("#!/no/such/interpreter\n")
    (tmp_path / "lost").chmod(0o755)
    for name, code, told in [
        ("no-such-program", 127, "no such program in PATH"),
        ("./nothing", 127, "no such file"),
        ("./data", 126, "chmod +x ./data"),
        (str(tmp_path), 126, "directory"),
        ("./lost", 126, "interpreter"),
    ]:
        result = run("run", "--on", "dram", "--", name)
        assert (result.returncode, result.stdout) == (code, ""), result
        assert told in result.stderr and result.stderr.count("\n") == 1
        assert result.stderr.startswith(f"headrace: cannot run {name}: ")


def test_request_that_does_not_fit_is_refused_before_the_start(run: Run) -> None:
    needs = ["--needs", "900TiB"]
    result = run("run", "--on", "dram", *needs, "--", "echo", "started")
    assert (result.returncode, result.stdout) == (6, "") and result.stderr.count("\n") == 1
    if headrace.free_memory().cgroup is not None:
        pytest.skip("in a memory cgroup that is limited no policy gives 900 TiB")
    result = run("run", "--prefer", "dram", *needs, "--", "echo", "started")
    assert (result.returncode, result.stdout) == (0, "started\n")
    assert result.stderr.startswith("headrace: warning: 900 TiB needed do not fit: node")


def test_what_ulimit_forbids_does_not_start(command: Path) -> None:
    """Wherever it would be."""
    limited = f"ulimit -v {8 << 20}; exec {command} run --prefer dram --needs"  # KiB
    for needs, code, said in (("1GiB", 0, "started\n"), ("9GiB", 6, "")):
        result = subprocess.run(
            ["sh", "-c", f"{limited} {needs} -- echo started"], capture_output=True, text=True
        )
        assert (result.returncode, result.stdout) == (code, said), result
    assert result.stderr.startswith("headrace: ulimit -v allows 8 GiB, less than the 9 GiB needed")


@pytest.mark.parametrize(("closed", "open_"), [("2>&-", 1), (">&-", 2)])
def test_closed_output_is_no_reason_not_to_run(command: Path, closed: str, open_: int) -> None:
    """The program finds it closed, as its shell left it."""
    program = f"[ -e /proc/self/fd/{3 - open_} ] || echo started >&{open_}; exit 7"
    result = subprocess.run(
        ["sh", "-c", f'{command} run -v --on dram -- sh -c "$1" {closed}', "sh", program],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 7, result
    assert (result.stdout + result.stderr).endswith("started\n")


def test_an_error_that_nobody_hears_still_has_its_code(command: Path) -> None:
    said = ["sh", "-c", f"{command} run --on nonsense -- echo started 2>&-"]
    result = subprocess.run(said, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")


def test_cpus_that_this_process_may_not_use(command: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    bound = f"import os; os.sched_setaffinity(0, {{{cpus[0]}}}); os.execv({str(command)!r}, " \
        f"['headrace', 'run', '--cpus', '{cpus[1]}', '--', 'true'])"  # fmt: skip
    result = subprocess.run([sys.executable, "-c", bound], capture_output=True, text=True)
    assert result.returncode == 5 and f"may run on CPU {cpus[0]} only" in result.stderr


def test_names_that_are_not_utf8(command: Path) -> None:
    result = subprocess.run(
        [os.fsencode(command), b"run", b"-v", b"--on", b"dram", b"--", b"echo", b"\xff"],
        capture_output=True,
    )
    assert (result.returncode, result.stdout) == (0, b"\xff\n"), result


def test_the_example_with_a_program_of_ones_own(command: Path) -> None:
    """It runs once on each kind that is here, the policy strict and the arguments as they were."""
    kinds = {n.kind for n in headrace.Machine.discover(storage=[]).nodes if n.byte_addressable}
    result = subprocess.run(
        [ROOT / "examples" / "run_stream.sh", sys.executable, "-c",
         f"{POLICY}\nimport sys; print(sys.argv[1:])", "a b", ""],
        capture_output=True, text=True, env=os.environ | {"HEADRACE": str(command)},
    )  # fmt: skip
    assert result.returncode == 0, result
    lines = result.stdout.splitlines()
    assert {line.rstrip(":") for line in lines[::3]} == kinds
    assert all(line.startswith(f"{BIND} ") for line in lines[1::3])
    assert lines[2::3] == ["['a b', '']"] * len(kinds)
    assert result.stderr.count("headrace: numactl --membind ") == len(kinds)


def test_the_example_alone(command: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no cc; the program of examples/run_stream.sh is NOT tested")
    result = subprocess.run(
        [ROOT / "examples" / "run_stream.sh"], capture_output=True, text=True,
        env=os.environ | {"HEADRACE": str(command)},
    )  # fmt: skip
    assert result.returncode == 0, result
    kind, triad = result.stdout.splitlines()[:2]
    assert kind in ("dram:", "hbm:", "cxl:") and float(triad.split()[1]) > 0


def test_the_calls_from_python(memory_node: int) -> None:
    free = headrace.free_memory()
    assert free.nodes[memory_node] > 0 and (free.cgroup is None or free.cgroup >= 0)
    headrace.set_process_policy("preferred", [memory_node])
    headrace.set_process_policy("none")
    with pytest.raises(headrace.AbsentError, match="node 777"):
        headrace.set_process_policy("bind", [777])
    with pytest.raises(headrace.InvalidError, match="no policy 'bnd'; there are none, bind"):
        headrace.set_process_policy("bnd", [0])  # type: ignore[arg-type]
