# SPDX-License-Identifier: Apache-2.0
"""headrace where: the memory of running programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Run

import headrace
from headrace._cli import where

MIB = 1 << 20

has_numa_maps = pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="a kernel without numa_maps"
)


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """With 64 MiB touched."""
    script = "x = bytearray(b'x' * (64 << 20)); print('ready', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait(30)
    process.stdin.close()
    process.stdout.close()


@has_numa_maps
def test_a_running_program(run: Run, program: subprocess.Popen[str]) -> None:
    result = run("where", "--json", str(program.pid))
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document)[:2] == ["schema_version", "kind"] and document["kind"] == "where"
    assert document["pid"] == program.pid and document["command"]
    nodes = document["nodes"]
    assert sum(node["anonymous_bytes"] for node in nodes) >= 64 * MIB
    assert sum(node["file_bytes"] for node in nodes) > 0
    for node in nodes:
        groups = ("anonymous", "heap", "stack", "file")
        assert node["bytes"] == sum(node[f"{group}_bytes"] for group in groups)
        assert node["kind"] in ("dram", "hbm", "cxl", "unknown")
    text = run("where", str(program.pid)).stdout
    heading, columns, *rows = text.splitlines()
    assert heading.startswith(f"process {program.pid} (")
    assert columns.split() == ["node", "kind", "anonymous", "heap", "stack", "file", "total",
                               "share"]  # fmt: skip
    assert len(rows) >= len(nodes) and "\x1b" not in text and "─" not in text


@has_numa_maps
def test_watch_ends_with_the_program(command: Path, program: subprocess.Popen[str]) -> None:
    watching = subprocess.Popen(
        [command, "where", "--watch", str(program.pid)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith(f"process {program.pid}")
    program.kill()  # dead, but not waited for: a zombie
    out, err = watching.communicate(timeout=30)
    assert (watching.returncode, err) == (0, "") and "\x1b" not in out


@has_numa_maps
def test_watch_ends_with_ctrl_c(command: Path, program: subprocess.Popen[str]) -> None:
    watching = subprocess.Popen(
        [command, "where", "--watch", str(program.pid)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    headings = 0
    while headings < 2:
        headings += watching.stdout.readline().startswith("process ")
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=30)
    assert (watching.returncode, err) == (0, "")


def test_no_such_process(run: Run) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(30)
    for arguments in ([str(gone.pid)], ["--watch", str(gone.pid)]):
        result = run("where", *arguments)
        assert (result.returncode, result.stdout) == (3, ""), result
        assert result.stderr == f"headrace: no process {gone.pid}; see ps -e\n"


@has_numa_maps
def test_anothers_process(command: Path) -> None:
    if os.geteuid() != 0 or not all(p.stat().st_mode & 0o001 for p in command.parents):
        pytest.skip("takes root, and a command that other users can reach")
    result = subprocess.run(
        [command, "where", str(os.getpid())], capture_output=True, text=True, cwd="/",
        user=65534, group=65534, extra_groups=[],
    )  # fmt: skip
    assert result.returncode == 5 and result.stderr.count("\n") == 1, result
    assert "another user's" in result.stderr and "sudo" in result.stderr


def test_a_kernel_without_numa_maps(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b) S 1 7 7 0")
    with pytest.raises(headrace.UnsupportedError, match="no /proc/PID/numa_maps"):
        where._look(7, tmp_path)
    (tmp_path / "7" / "stat").write_text("7 (a) S) Z 1 7 7 0")
    with pytest.raises(headrace.AbsentError):
        where._look(7, tmp_path)
    (tmp_path / "7" / "numa_maps").write_text("00400000 default heap N0=2 kernelpagesize_kB=4\n")
    places, huge = where._look(7, tmp_path)
    assert places.groups["heap"] == {0: 8192} and huge is None


@has_numa_maps
def test_a_process_that_ends_meanwhile_is_no_defect(run: Run) -> None:
    for _ in range(5):
        process = subprocess.Popen(["true"])
        result = run("where", str(process.pid))
        assert result.returncode in (0, 3), result
        process.wait(30)
        time.sleep(0.01)
