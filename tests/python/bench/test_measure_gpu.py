# SPDX-License-Identifier: Apache-2.0
"""headrace measure gpu on a GPU made of software, and where there is none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from headrace._report.profile import profile_parts

Run = Callable[..., "subprocess.CompletedProcess[str]"]



def test_without_a_driver_the_reason_and_the_remedy(run: Run) -> None:
    result = run("measure", "gpu", env={"HEADRACE_LIBCUDA": "/nowhere/libcuda.so.1"})
    assert result.returncode == 4
    assert "HEADRACE_LIBCUDA" in result.stderr and result.stderr.count("\n") == 1


def test_the_machine_says_that_its_gpus_are_emulated(run: Run, fake_cuda: Path) -> None:
    env = {"HEADRACE_LIBCUDA": str(fake_cuda), "HEADRACE_FAKE_CUDA": "devices=2,memory=64M"}
    for command, shown in (("topo", "gpu      64 MiB"), ("doctor", "NVIDIA GPU")):
        result = run(command, env=env)
        rows = [line for line in result.stdout.splitlines() if "Headrace fake GPU" in line]
        assert len(rows) == 2 and all(shown in row for row in rows), result
        assert all(row.endswith("emulated") for row in rows), result.stdout
    machine = json.loads(run("topo", "--json", env=env).stdout)
    gpus = [node for node in machine["nodes"] if node["kind"] == "gpu"]
    assert [node["gpu"]["emulated"] for node in gpus] == [True, True]


def test_every_row_is_emulated_and_exported(run: Run, fake_cuda: Path, tmp_path: Path) -> None:
    env = {"HEADRACE_LIBCUDA": str(fake_cuda), "HEADRACE_FAKE_CUDA": "memory=64M,sms=4"}
    out = tmp_path / "p.json"
    chosen = "bytes=65536,memory=pinned,by=engine,part=copy,direction=to_gpu"
    result = run("measure", "gpu", "--only", chosen, "--budget", "2s", "--width", "100%",
                 "--out", str(out), env=env)  # fmt: skip
    assert result.returncode == 0, result.stderr
    measured = [row for row in json.loads(out.read_text())["rows"] if row["median"] is not None]
    assert measured and all(row["basis"] == "emulated" for row in measured)
    assert result.stdout.count(" emulated") == len(measured)
    parts = profile_parts(json.loads(out.read_text()))
    assert parts["rests_on"]["level"] == "emulation"
    exported = run("export", str(out), "--as", "nvbandwidth").stdout
    head, _, rest = exported.partition("\n\n")
    assert head.startswith("Headrace: ") and "emulated: figures are of a device made of" in head
    size, _, rest = rest.partition("\n")
    assert size == "Buffers of 64 KiB."
    assert rest.startswith("Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU")
