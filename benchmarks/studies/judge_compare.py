#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `headrace compare` is wrong on this host: false alarms, and planted changes it misses.

Measures the same again and again, which takes runs x budget, then compares the profiles with each
other: neighbours, and groups of several runs, taken in turn (old, new, old, new) and one after the
other. Nothing changed, so that each change found is a false alarm; with a tenth planted into the
new side, in all rows of one experiment or in one row, each comparison should find it. Prints a
table in Markdown. docs/design/compare.md says how the test works.

    .venv/bin/python benchmarks/studies/judge_compare.py --runs 24 --keep DIR latency bandwidth
    .venv/bin/python benchmarks/studies/judge_compare.py --runs 24 --keep DIR --group 3
        compares them again
    .venv/bin/python benchmarks/studies/judge_compare.py --runs 24 --simulate 0.02
        measures nothing

Made-up runs (--simulate) are of 8 experiments with 12 rows. Each run is faster or slower as a
whole, and each experiment in it, by so much together; the medians of a row vary around that by
Student's t of 4 degrees of freedom times 0.2 to 14 %, 2 % in the middle, its three samples by as
much; half are noisy.
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
#: What a planted change multiplies: times get longer, rates smaller.
WORSE = {"ns": 1.1, "x": 1.1}
#: Rows and experiments into which a change is planted, of each comparison.
PLANTED_ROWS = 5
COLUMNS = ("comparisons", "false alarms", "rows judged", "found in an experiment", "in one row")


@dataclass
class Counts:
    """What comparisons of one kind found."""

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
        f"{size} runs each, {words}": groups(len(runs), size, in_turn)
        for size in options.group
        for words, in_turn in (("in turn", True), ("one after the other", False))
    }
    print(f"{describe(runs)}\n\n| | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for name, sides in kinds.items():
        counts = judge(runs, list(sides), random.Random(1))
        if counts.comparisons:
            print(f"| {name} | {' | '.join(counts.line())} |", flush=True)
    return 0


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("experiments", nargs="*", default=["latency", "bandwidth", "stream"])
    words.add_argument("--runs", type=int, default=24, help="How often to measure (%(default)s).")
    words.add_argument("--budget", default="10s", help="Of one run (%(default)s).")
    words.add_argument("--group", type=int, nargs="*", default=[3, 5], help="Runs of a side.")
    words.add_argument("--keep", help="A directory for the profiles; those there are not repeated.")
    words.add_argument("--simulate", type=float, metavar="SD", help="Compare made-up runs.")
    return words.parse_args()


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


def simulated(count: int, together: float, chance: random.Random) -> list[Document]:
    rows = [(f"e{number // 12}", number % 12) for number in range(96)]
    sigmas = [math.exp(chance.gauss(math.log(0.02), 0.8)) for _ in rows]
    runs = []
    for number in range(count):
        machine = chance.gauss(0, together * math.sqrt(0.5))
        levels = [machine + chance.gauss(0, together * math.sqrt(0.5)) for _ in range(8)]
        run: Document = {
            "schema_version": headrace.SCHEMA_VERSION, "nodes": [], "rows": [],
            "conditions": {"budget_s": "0", "date": f"simulated {number + 1}"},
        }  # fmt: skip
        for (experiment, row), sigma in zip(rows, sigmas, strict=True):
            student = chance.gauss(0, 1) / math.sqrt(chance.gammavariate(2, 0.5))
            middle = levels[int(experiment[1:])] + sigma * student
            samples = [1e9 * math.exp(middle + chance.gauss(0, sigma)) for _ in range(3)]
            run["rows"].append({
                "experiment": experiment, "parameters": {"row": row}, "unit": "B/s",
                "median": statistics.median(samples), "samples": samples,
                "flags": ["noisy"] if chance.random() < 0.5 else [],
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


def judge(runs: Sequence[Document], sides: Sequence[Sides], chance: random.Random) -> Counts:
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
        for key in chance.sample(keys, min(PLANTED_ROWS, len(keys))):
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
    """Whether what was planted into a row, or into an experiment or any row of it, is found."""
    found = headrace.compare(before, after)
    rows = any(
        row.outcome == "changed" and (row.key == what or row.key.split(" ")[0] == what)
        for row in found.rows
    )
    return rows or any(each.changed and each.experiment == what for each in found.shifts)


if __name__ == "__main__":
    sys.exit(main())
