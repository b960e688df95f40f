# SPDX-License-Identifier: Apache-2.0
"""benchmarks/studies/judge_compare.py on made-up runs: it counts false alarms and finds what it
plants."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import profile_documents as documents

ROOT = Path(__file__).resolve().parents[3]


def write_runs(folder: Path, count: int) -> None:
    """Each slower or faster than the others as a whole, by 2 %; every second row noisy."""
    chance = random.Random(1)
    for number in range(1, count + 1):
        document = documents.profile(number)
        document["conditions"]["budget_s"] = "10.0"
        named = [r for r in document["rows"] if r["experiment"] in ("stream", "latency")]
        rows = [row for row in named if row["samples"]][::4]
        level = chance.gauss(1, 0.02)
        for index, row in enumerate(rows):
            row["flags"] = ["noisy"] if index % 2 else []
            row["samples"] = [sample * level for sample in row["samples"]]
            for name in ("median", "mad", "min", "max", "low", "high"):
                row[name] *= level
        (folder / f"run{number:03}.json").write_text(json.dumps(document | {"rows": rows}))


def test_runs_that_are_there_are_compared(tmp_path: Path) -> None:
    write_runs(tmp_path, 11)
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/studies/judge_compare.py"), "--runs", "11",
        "--keep",
         str(tmp_path), "--group", "5"],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    assert lines[0].startswith("11 runs of 10.0 s from ") and "48% of them noisy" in lines[0]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert [line[0] for line in table[2:]] == [
        "neighbours", "5 runs each, in turn", "5 runs each, one after the other",
    ]  # fmt: skip
    head, neighbours, in_turn = table[0], table[2], table[3]
    assert head[1:4] == ["comparisons", "false alarms", "rows judged"]
    assert (neighbours[1], neighbours[3]) == ("10", "52%"), "noisy once is not judged"
    assert (in_turn[1], in_turn[3]) == ("2", "100%"), "noisy in some runs is judged"
    assert in_turn[2].startswith("0 of 2 ") and in_turn[4].startswith("4 of 4 ")
