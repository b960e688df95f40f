#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts how often `headrace compare` is wrong on this host: false alarms, and missed changes.

Measures the same experiments in each run (time: runs x budget). Then it compares profiles with each
other: pairs of neighbouring runs, and groups of several runs. The runs of a group are taken in turn
(old, new, old, new), or one group after the other.

- Nothing changed between the runs. So each change that is found is a false alarm.
- Then a change of a tenth is planted into the new side, in one experiment (all rows) or in one row.
  Each comparison should find it.

Prints a table in Markdown. docs/design/compare.md explains the test.

    .venv/bin/python benchmarks/studies/judge_compare.py --runs 24 --keep DIR latency bandwidth
    .venv/bin/python benchmarks/studies/judge_compare.py --runs 24 --keep DIR --group 3
        compares them again
    .venv/bin/python benchmarks/studies/judge_compare.py --runs 24 --simulate 0.02
        measures nothing

Simulated runs (--simulate SD) have 8 experiments with 12 rows each. SD is the standard deviation of
the shift that a whole run and each of its experiments have together. The median of a row varies
around this shift by Student's t (4 degrees of freedom), scaled by 0.2 to 14 % (typically 2 %). The
three samples of a row vary by the same scale. Half of the rows are noisy.
"""

from __future__ import annotations

import argparse
import copy
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace

Document = dict[str, Any]
#: Factor of a planted change by unit: times get longer, rates (0.9) smaller.
WORSE = {"ns": 1.1, "x": 1.1}
#: Number of rows of each comparison into which a change is planted.
PLANTED_ROWS = 5
COLUMNS = ("comparisons", "false alarms", "rows judged", "found in an experiment", "in one row")


@dataclass
class Counts:
    """Results of the comparisons of one kind."""

    comparisons: int = 0
    alarms: int = 0
    judged: list[float] = field(default_factory=list)
    experiments: list[bool] = field(default_factory=list)
    rows: list[bool] = field(default_factory=list)

    def line(self) -> tuple[str, ...]:
        return (
            str(self.comparisons), _of(self.alarms, self.comparisons),
            f"{statistics.median(self.judged):.0%}",
            _of(sum(self.experiments), len(self.experiments)), _of(sum(self.rows), len(self.rows)),
        )  # fmt: skip


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="headrace-judge-") as folder:
        runs = (
            measured(Path(options.keep or folder), options)
            if options.simulate is None
            else simulated(options.runs, options.simulate, random.Random(1))
        )
    kinds = {"neighbours": pairs(len(runs))} | {
        f"{size} runs each, {order}": groups(len(runs), size, in_turn)
        for size in options.group
        for order, in_turn in (("in turn", True), ("one after the other", False))
    }
    print(f"{describe(runs)}\n\n| | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for name, sides in kinds.items():
        counts = judge(runs, list(sides), random.Random(1))
        if counts.comparisons:
            print(f"| {name} | {' | '.join(counts.line())} |", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", default=["latency", "bandwidth", "stream"])
    parser.add_argument("--runs", type=int, default=24, help="Number of runs (default 24).")
    parser.add_argument("--budget", default="10s", help="Time for one run (default %(default)s).")
    parser.add_argument("--group", type=int, nargs="*", default=[3, 5], help="Runs per side.")
    parser.add_argument("--keep", help="Directory of the profiles; existing runs are reused.")
    parser.add_argument("--simulate", type=float, metavar="SD", help="Compare simulated runs.")
    return parser.parse_args()


def measured(folder: Path, options: argparse.Namespace) -> list[Document]:
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for number in range(1, options.runs + 1):
        file = folder / f"run{number:03}.json"
        if not file.exists():
            print(f"\rrun {number} of {options.runs}", end="", file=sys.stderr, flush=True)
            command = [
                sys.executable, "-c", "from headrace._cli import main; main()", "measure",
                *options.experiments, "--budget", options.budget, "--seed", str(number), "--out",
                str(file),
            ]  # fmt: skip
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                sys.exit(f"run {number} measured nothing; give it a larger --budget")
        runs.append(headrace.Profile.load(file).asdict())
    print(file=sys.stderr)
    return runs


def simulated(count: int, deviation: float, generator: random.Random) -> list[Document]:
    rows = [(f"e{number // 12}", number % 12) for number in range(96)]
    sigmas = [math.exp(generator.gauss(math.log(0.02), 0.8)) for _ in rows]
    runs = []
    for number in range(count):
        machine = generator.gauss(0, deviation * math.sqrt(0.5))
        levels = [machine + generator.gauss(0, deviation * math.sqrt(0.5)) for _ in range(8)]
        run: Document = {
            "schema_version": headrace.SCHEMA_VERSION, "nodes": [], "rows": [],
            "conditions": {"budget_s": "0", "date": f"simulated {number + 1}"},
        }  # fmt: skip
        for (experiment, row), sigma in zip(rows, sigmas, strict=True):
            student = generator.gauss(0, 1) / math.sqrt(generator.gammavariate(2, 0.5))
            middle = levels[int(experiment[1:])] + sigma * student
            samples = [1e9 * math.exp(middle + generator.gauss(0, sigma)) for _ in range(3)]
            run["rows"].append({
                "experiment": experiment, "parameters": {"row": row}, "unit": "B/s",
                "median": statistics.median(samples), "samples": samples,
                "flags": ["noisy"] if generator.random() < 0.5 else [],
            })  # fmt: skip
        runs.append(headrace.Profile.fromdict(run).asdict())
    return runs


def describe(runs: Sequence[Document]) -> str:
    rows = [sum(row["median"] is not None for row in run["rows"]) for run in runs]
    noisy = [sum("noisy" in row["flags"] for row in run["rows"]) for run in runs]
    return (
        f"{len(runs)} runs of {runs[0]['conditions']['budget_s']} s from "
        f"{runs[0]['conditions']['date']} to {runs[-1]['conditions']['date']}, "
        f"{min(rows)} to {max(rows)} rows each, {sum(noisy) / max(1, sum(rows)):.0%} of them noisy."
    )


Sides = tuple[list[int], list[int]]


def pairs(runs: int) -> Iterator[Sides]:
    for first in range(runs - 1):
        yield [first], [first + 1]


def groups(runs: int, size: int, in_turn: bool) -> Iterator[Sides]:
    """All windows of neighbouring runs."""
    for first in range(runs - 2 * size + 1):
        window = list(range(first, first + 2 * size))
        yield (window[::2], window[1::2]) if in_turn else (window[:size], window[size:])


def judge(runs: Sequence[Document], sides: Sequence[Sides], generator: random.Random) -> Counts:
    profiles = [headrace.Profile.fromdict(run) for run in runs]
    counts = Counts()
    for old, new in sides:
        before = [profiles[run] for run in old]
        found = headrace.compare(before, [profiles[run] for run in new])
        counts.comparisons += 1
        counts.alarms += found.changed
        counts.judged.append(found.judged / max(1, found.expected))
        new_runs = [runs[run] for run in new]
        for shift in found.shifts:
            after = [planted(run, experiment=shift.experiment) for run in new_runs]
            counts.experiments.append(sees(before, after, shift.experiment))
        keys = [row.key for row in found.rows if row.old_value and row.new_value]
        for key in generator.sample(keys, min(PLANTED_ROWS, len(keys))):
            after = [planted(run, key=key) for run in new_runs]
            counts.rows.append(sees(before, after, key))
    return counts


def planted(run: Document, experiment: str = "", key: str = "") -> headrace.Profile:
    changed = copy.deepcopy(run)
    for row in changed["rows"]:
        if row["median"] is None:
            continue
        if row["experiment"] == experiment or (key and key_of(row) == key):
            factor = WORSE.get(row["unit"], 0.9)
            row["samples"] = [each * factor for each in row["samples"]]
            for name in ("median", "mad", "min", "max", "low", "high"):
                row[name] *= factor
    return headrace.Profile.fromdict(changed)


def key_of(row: Document) -> str:
    return " ".join([row["experiment"], *(f"{n}={v}" for n, v in row["parameters"].items())])


def sees(before: list[headrace.Profile], after: list[headrace.Profile], what: str) -> bool:
    """Returns whether a comparison finds the planted change in this row or experiment."""
    found = headrace.compare(before, after)
    rows = any(
        row.outcome == "changed" and (row.key == what or row.key.split(" ")[0] == what)
        for row in found.rows
    )
    return rows or any(each.changed and each.experiment == what for each in found.shifts)


if __name__ == "__main__":
    sys.exit(main())
