# SPDX-License-Identifier: Apache-2.0
"""The memory cgroup that headrace tier run makes for a program, on files made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headrace._core import HostFiles as Files

import headrace
from headrace._tiering import groups

V1, V2 = "sys/fs/cgroup/memory/a/b", "sys/fs/cgroup/a/b"


def host(root: Path, files: dict[str, str]) -> Files:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Files(root)


def test_a_group_is_made_and_goes_and_takes_along_those_left(tmp_path: Path) -> None:
    for own, where, more in (
        ("4:memory:/a/b\n0::/", V1, {}),
        (
            "0::/a/b", "sys/fs/cgroup/a",
            {f"{V2}/memory.max": "max", f"{V2}/cpu.max": "max 100000\n", f"{V2}/cpuset.cpus": "\n"},
        ),
        ("0::/", "sys/fs/cgroup", {}),
    ):
        root = tmp_path / own.replace("/", "_").strip()
        control = f"{where}/cgroup.subtree_control"
        files = host(root, {"proc/self/cgroup": own, control: "cpu memory\n", **more})
        left, lives = (root / where / f"headrace-tier-{n}" for n in (999_999_999, os.getppid()))
        left.mkdir(parents=True)
        lives.mkdir()
        (root / where / f"headrace-tier-{os.getpid()}").mkdir()
        with groups.made(files) as group:
            assert group == root / where / f"headrace-tier-{os.getpid()}" and group.is_dir()
            groups.enter(group)
            assert (group / "cgroup.procs").read_bytes() == b"0"
            (group / "cgroup.procs").unlink()  # the kernel's go with the group
            assert lives.is_dir() and not left.is_dir()
        assert not group.exists()


def test_where_there_can_be_none_it_is_said(tmp_path: Path) -> None:
    for word, files in (
        ("no memory cgroups", {"proc/self/cgroup": "5:cpu:/"}),
        ("there is no", {"proc/self/cgroup": "4:memory:/host/path"}),
        ("no limit of memory", {"proc/self/cgroup": "0::/a/b", f"{V2}/cgroup.procs": ""}),
        ("memory.high is 4096", {"proc/self/cgroup": "0::/a/b", f"{V2}/memory.high": "4096\n"}),
        ("cpu.max is 5000 9", {"proc/self/cgroup": "0::/a/b", f"{V2}/cpu.max": "5000 9\n"}),
        ("cpuset.mems is 0-1", {"proc/self/cgroup": "0::/a/b", f"{V2}/cpuset.mems": "0-1\n"}),
    ):
        at = host(tmp_path / word, files)
        with pytest.raises(headrace.Error, match=word), groups.made(at):
            pass
