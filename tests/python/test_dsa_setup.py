"""headrace dsa setup: what accel-config would be told."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_help(run: Run, golden: Callable[[str, str], None]) -> None:
    golden("help_dsa_setup.txt", run("dsa", "setup", "--help").stdout)


def test_the_layout_of_the_thesis(run: Run, golden: Callable[[str, str], None]) -> None:
    result = run("dsa", "setup", "--show")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("config-engine") == result.stdout.count("enable-device") == 8
    golden("dsa_setup.txt", run("dsa", "setup", "--show", "--layout", "1n1d1e1w").stdout)


def test_the_file_says_what_the_commands_say(run: Run) -> None:
    options = ("--layout", "2n1d2e4w", "--mode", "dedicated")
    devices = json.loads(run("dsa", "setup", "--config", *options).stdout)
    shown = run("dsa", "setup", "--show", *options).stdout
    assert [device["dev"] for device in devices] == ["dsa0", "dsa1"]
    for device in devices:
        (group,) = device["groups"]
        assert len(group["grouped_engines"]) == 2
        assert sum(queue["size"] for queue in group["grouped_workqueues"]) == 128
        for queue in group["grouped_workqueues"]:
            assert queue["mode"] == "dedicated" and queue["threshold"] == 0
            assert f"{device['dev']}/{queue['dev']} --group-id=0 --mode=dedicated" in shown
    assert "threshold" not in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--layout", "8x"], "no layout"),
        (["--layout", "8n1d5e1w"], "4 engines"),
        (["--mode", "both"], "no mode"),
    ],
)
def test_bad_input(run: Run, arguments: list[str], told: str) -> None:
    result = run("dsa", "setup", "--show", *arguments)
    assert result.returncode == 2 and told in result.stderr and result.stderr.count("\n") == 1
    assert run("dsa", "setup").returncode == 2
