# SPDX-License-Identifier: Apache-2.0
"""headrace dsa setup: what accel-config would be told."""

from __future__ import annotations

import json
import os
from pathlib import Path

from conftest import Golden, Run

#: A host without devices.
NONE = {"HEADRACE_DSA_SYSFS": "/nowhere"}


def test_the_layout_of_the_thesis(run: Run, golden: Golden) -> None:
    result = run("dsa", "setup", "--show", env=NONE)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("config-engine") == result.stdout.count("enable-device") == 8
    shown = run("dsa", "setup", "--show", "--layout", "1n1d1e1w", env=NONE).stdout.splitlines()
    #: Lines about the devices of this host are left out.
    golden("dsa_setup.txt", "".join(f"{line}\n" for line in shown if " now: " not in line))


def test_show_tells_what_is_there(run: Run, tmp_path: Path) -> None:
    none = run("dsa", "setup", "--show", env={"HEADRACE_DSA_SYSFS": str(tmp_path / "none")}).stdout
    assert none.splitlines()[0].startswith("# this host now: ")
    for name, text in {
        "version": "0x100", "gen_cap": "0x40915f0107", "op_cap": "00000001,003f027d",
        "state": "enabled", "pasid_enabled": "1", "wq0.0/mode": "shared", "wq0.0/size": "16",
        "wq0.0/threshold": "16", "wq0.0/type": "kernel", "wq0.0/state": "enabled",
        "wq0.0/max_transfer_size": "2097152",
    }.items():  # fmt: skip
        file = tmp_path / "dsa0" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    shown = run("dsa", "setup", "--show", env={"HEADRACE_DSA_SYSFS": str(tmp_path)}).stdout
    lines = shown.splitlines()
    assert lines[0] == "# dsa0 now: off, wq0.0: its type is 'kernel', not user"
    assert lines[1] == "# for 1n1d1e1w, shared:"
    #: Still a script: what is not a comment is a command.
    assert all(line.startswith(("#", "accel-config", "chmod")) for line in lines)


#: As a Xeon Max has them: IAA devices take the numbers between.
SEVERAL = {"dsa0": 0, "dsa2": 0, "dsa8": 1, "dsa10": 1, "iax1": 0}


def devices(folder: Path, nodes: dict[str, int] = SEVERAL) -> dict[str, str]:
    for name, node in nodes.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "numa_node").write_text(f"{node}\n")
    return {"HEADRACE_DSA_SYSFS": str(folder)}


def test_devices_have_the_names_of_this_host(run: Run, tmp_path: Path) -> None:
    host = devices(tmp_path)

    def names(*options: str) -> list[str]:
        shown = run("dsa", "setup", "--show", *options, env=host)
        assert shown.returncode == 0
        return [line.split()[-1] for line in shown.stdout.splitlines() if "enable-device" in line]

    assert names() == ["dsa0", "dsa2", "dsa8", "dsa10"]
    assert names("--layout", "2n1d4e2w") == ["dsa0", "dsa8"]
    assert names("--layout", "1n2d1e1w") == ["dsa0", "dsa2"]
    file = json.loads(run("dsa", "setup", "--config", "--layout", "2n1d1e1w", env=host).stdout)
    assert [device["dev"] for device in file] == ["dsa0", "dsa8"]
    group = file[1]["groups"][0]
    assert group["grouped_workqueues"][0]["dev"] == "wq8.0"
    assert group["grouped_engines"][0]["dev"] == "engine8.0"


def test_a_layout_that_this_host_cannot_have(run: Run, tmp_path: Path) -> None:
    host = devices(tmp_path, {"dsa0": 0, "dsa2": 1})
    result = run("dsa", "setup", "--show", "--layout", "8n1d1e1w", env=host)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "this host has dsa0 on node 0, dsa2 on node 1" in result.stderr


def test_a_pipe_in_place_of_a_node_is_no_node(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dsa3").mkdir()
    os.mkfifo(tmp_path / "dsa3" / "numa_node")
    shown = run("dsa", "setup", "--show", env={"HEADRACE_DSA_SYSFS": str(tmp_path)})
    assert "accel-config enable-device dsa3" in shown.stdout


def test_the_file_says_what_the_commands_say(run: Run) -> None:
    options = ("--layout", "2n1d2e4w", "--mode", "dedicated")
    devices = json.loads(run("dsa", "setup", "--config", *options, env=NONE).stdout)
    shown = run("dsa", "setup", "--show", *options, env=NONE).stdout
    assert [device["dev"] for device in devices] == ["dsa0", "dsa1"]
    for device in devices:
        (group,) = device["groups"]
        assert len(group["grouped_engines"]) == 2
        assert sum(queue["size"] for queue in group["grouped_workqueues"]) == 128
        for queue in group["grouped_workqueues"]:
            assert queue["mode"] == "dedicated" and queue["threshold"] == 0
            assert f"{device['dev']}/{queue['dev']} --group-id=0 --mode=dedicated" in shown
    assert "threshold" not in shown
