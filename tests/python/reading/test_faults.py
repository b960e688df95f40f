# SPDX-License-Identifier: Apache-2.0
"""Parts of compare_readers.py and compare_device.py, whose long runs are parts of `make soak`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HERE / program, *options], capture_output=True, text=True, timeout=100
    )


def test_answers_under_faults_are_right_or_refused() -> None:
    readers = ["bytes", "scan", "duckdb"]
    done = run("compare_readers.py", "--answers", "30", "--reads", "0", "--readers", *readers)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    line = r"^(\w+), (\w+): \d+ right, 0 wrong, (\d+) refused, \d+ reads$"
    counted = re.findall(line, done.stdout, re.MULTILINE)
    places = ["remote"] if "no local files" in done.stdout else ["local", "remote"]
    expected = [(reader, place) for place in places for reader in readers]
    assert [(reader, place) for reader, place, _ in counted] == expected
    assert sum(int(refused) for _, _, refused in counted) > 0


def test_pages_of_a_device_that_fails_are_right_or_refused() -> None:
    done = run("compare_device.py", "--operations", "1600")
    if "no device" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    (faults,) = re.findall(r"(\d+) faults, 0 wrong, 0 lost", done.stdout)
    assert int(faults) > 100
    assert re.fullmatch(r"headrace: a cache ended, and .* of changes are lost, .*\n", done.stderr)
