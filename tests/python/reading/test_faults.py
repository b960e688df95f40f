# SPDX-License-Identifier: Apache-2.0
"""A part of compare_readers.py, whose long run is a part of `make soak`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("compare_readers.py")


def test_answers_under_faults_are_right_or_refused() -> None:
    readers = ["bytes", "scan", "duckdb"]
    run = subprocess.run(
        [sys.executable, PROGRAM, "--answers", "30", "--reads", "0", "--readers", *readers],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    line = r"^(\w+), (\w+): \d+ right, 0 wrong, (\d+) refused, \d+ reads$"
    counted = re.findall(line, run.stdout, re.MULTILINE)
    places = ["remote"] if "no local files" in run.stdout else ["local", "remote"]
    expected = [(reader, place) for place in places for reader in readers]
    assert [(reader, place) for reader, place, _ in counted] == expected
    assert sum(int(refused) for _, _, refused in counted) > 0
