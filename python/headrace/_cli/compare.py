# SPDX-License-Identifier: Apache-2.0
"""headrace compare"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.options import Json
from headrace._core import format_rate
from headrace._files import read_whole
from headrace._format import listed, plural

#: Conditions that differ between any two profiles.
_ALWAYS_DIFFER = (
    "date", "seed", "seconds", "load_average", "looks_disturbed", "rounds", "stopped",
    "over_budget",
)  # fmt: skip


#: The rate of false alarms: docs/results/2026-11-24-statistics.md.
_ONE_RUN_EACH = (
    "one run of each side does not say what runs differ by, and a row may have changed by chance; "
    "to be sure: headrace compare old*.json -- new*.json, three runs of each or more"
)

#: The shift of an experiment counts if it has at least this number of rows.
_ROWS_OF_A_SHIFT = 5
#: Replaces `--` between the two sides, which the parser would remove. No file has this name.
_BETWEEN = "\1"


def rewritten(arguments: list[str]) -> list[str]:
    return [_BETWEEN if each == "--" else each for each in arguments]


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD... [--] NEW...", help="Measured profiles, each side one or more."
        ),
    ],
    least: Annotated[
        str, typer.Option(metavar="SHARE", help="Smallest change that counts.")
    ] = "5%",
    judged: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Share of the old rows that must be judged; exit code 10 otherwise.",
        ),
    ] = "50%",
    resolution: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Largest detectable change of a row, or of its experiment, for the row to "
            "count as judged.",
        ),
    ] = "20%",
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every row, not only those that changed.")
    ] = False,
) -> int:
    """Compare profiles: show what changed beyond noise.

    Exit code 9: something changed. Exit code 10: the result is inconclusive.

    \b
    headrace compare old.json new.json
    headrace compare old*.json -- new*.json

    The second line compares several runs of each side, which also judges noisy rows.
    """
    share = parse.share(least)
    asked = Asked(parse.share(judged), max(share, parse.share(resolution)))
    sides = _sides(files)
    old, new = (Side.load(side) for side in sides)
    refuse_twice([*sides[0], *sides[1]])
    found = headrace.compare(old.profiles, new.profiles, share)
    blind = not found.changed and asked.is_blind(found)
    if json:
        output.print_json(_document(old, new, found, share, asked))
    else:
        _print(old, new, found, asked, everything)
        if blind:
            output.print_text(asked.why_blind(found))
        output.print_text(summary(found))
        one_run_each = len(old.profiles) == len(new.profiles) == 1
        if one_run_each and not blind and (found.changed or found.inconclusive):
            output.print_text(_ONE_RUN_EACH)
    if blind or found.inconclusive:
        return exit_codes.UNJUDGED
    return exit_codes.CHANGED if found.changed else exit_codes.SUCCESS


def _sides(files: list[Path]) -> tuple[list[Path], list[Path]]:
    words = [str(file) for file in files]
    if words.count(_BETWEEN) == 1:
        at = words.index(_BETWEEN)
        old, new = files[:at], files[at + 1 :]
        if old and new:
            return old, new
    elif len(files) == 2:
        return files[:1], files[1:]
    raise headrace.InvalidError(
        "compare takes two profiles, or the old ones, -- and the new ones: "
        "headrace compare old*.json -- new*.json"
    )


def refuse_twice(files: list[Path], what_once: str = "each run", *, presets: bool = False) -> None:
    """InvalidError: one measurement is given twice, so the difference between runs cannot be
    judged. `presets`: check presets too, which are no runs.
    """
    seen: dict[object, Path] = {}
    for file in files:
        for what in _identities(file) or ([str(file)] if presets else []):
            if what in seen:
                raise headrace.InvalidError(
                    f"{seen[what]} and {file} are the same measurement; give {what_once} once"
                )
            seen[what] = file


def _identities(file: Path) -> list[object]:
    """Values that are equal for two names of one measurement: the file, or its contents."""
    try:
        found = file.stat()
        return [(found.st_dev, found.st_ino), hashlib.sha256(read_whole(file)).digest()]
    except OSError:  # a preset, which is no measurement of ours
        return []


@dataclass(frozen=True)
class Side:
    """The runs of one side."""

    files: list[Path]
    profiles: list[headrace.Profile]

    @classmethod
    def load(cls, files: list[Path]) -> Side:
        profiles = [parse.profile(file) for file in files]
        for file, profile in zip(files, profiles, strict=True):
            if not profile.rows:
                raise headrace.InvalidError(
                    f"{file} holds no rows to compare; give a measured profile"
                )
            if profile.machine.name != profiles[0].machine.name:
                raise headrace.InvalidError(
                    f"{files[0]} and {file} are of two machines; the profiles of a side are runs "
                    "on one (headrace fleet compares machines)"
                )
        return cls(files, profiles)

    @property
    def machine(self) -> str:
        name: str = self.profiles[0].machine.name
        return name

    @property
    def conditions(self) -> dict[str, str]:
        """Conditions of all runs; if they differ, each value once."""
        names = dict.fromkeys(name for profile in self.profiles for name in profile.conditions)
        return {
            name: ", ".join(dict.fromkeys(p.conditions.get(name, "") for p in self.profiles))
            for name in names
        }


@dataclass(frozen=True)
class Asked:
    """How many rows must be judged before "no change" means something."""

    judged: float  # of the rows that have an old value
    resolution: float  # the change that would have been seen in such a row; `least` or more

    def seen(self, found: headrace.Comparison) -> int:
        """Rows in which a change of `resolution` was or would have been seen, alone or as part of
        an experiment."""
        finest = math.log1p(self.resolution)
        fine = {
            (shift.experiment, shift.in_caches) for shift in found.shifts
            if shift.rows >= _ROWS_OF_A_SHIFT and shift.threshold <= finest
        }  # fmt: skip
        return sum(
            row.outcome == "changed"
            or (row.outcome == "same" and (row.threshold <= finest or _group(row) in fine))
            for row in found.rows
        )

    def is_blind(self, found: headrace.Comparison) -> bool:
        """Whether too few rows are judged for "no change" to mean something."""
        seen = self.seen(found)
        return seen == 0 or seen < self.judged * found.expected

    def why_blind(self, found: headrace.Comparison) -> str:
        if all(row.outcome in ("only_old", "only_new", "unmeasured") for row in found.rows):
            return "nothing to compare: no point has a value in both; measure the same points"
        seen = self.seen(found)
        coarse = found.judged - seen
        return (
            f"Inconclusive: {seen} of {plural(found.expected, 'point')} precise enough "
            f"({self.judged * 100:.0f} % needed: --judged)"
            + (f"; {coarse} more would show only changes of over {self.resolution * 100:.0f} % "
               "(--resolution)" if coarse > 0 else "")
            + "; measure several runs of each side in turn, or on a quieter host"
        )  # fmt: skip

    def shown(self, outcome: str, threshold: float) -> str:
        """The outcome for people. It is not "same" if only a large change would be seen."""
        is_coarse = outcome == "same" and threshold > math.log1p(self.resolution)
        return "inconclusive" if is_coarse else outcome.replace("_", " ")


def _group(row: headrace.Difference) -> tuple[str, bool]:
    return row.key.partition(" ")[0], row.in_caches


def _name(shift: headrace.Shift) -> str:
    return f"{shift.experiment} in caches" if shift.in_caches else str(shift.experiment)


def _document(
    old: Side, new: Side, found: headrace.Comparison, least: float, asked: Asked
) -> dict[str, Any]:
    def side(of: Side) -> dict[str, Any]:
        files = [str(file) for file in of.files]
        return {"files": files, "machine": of.machine, "conditions": of.conditions}

    return {
        **output.head("compare"),
        "old": side(old),
        "new": side(new),
        "least": least,
        "changed": found.changed,
        "inconclusive": found.inconclusive,
        "judged": found.judged,
        "expected": found.expected,
        "least_judged": asked.judged,
        "resolution": asked.resolution,
        "seen": asked.seen(found),
        "enough_judged": not asked.is_blind(found),
        "verdicts": dict(sorted(Counter(row.outcome for row in found.rows).items())),
        "rows": [_row_document(row) for row in found.rows],
        "shifts": [{**shift.asdict(), "verdict": _outcome(shift)} for shift in found.shifts],
    }


def _outcome(shift: headrace.Shift) -> str:
    """ The outcome of an experiment. "too_few": beyond the threshold, but too few rows to call it a
    change."""
    if shift.changed:
        return "changed"
    is_beyond = shift.ratio > 0 and abs(math.log(shift.ratio)) > shift.threshold
    return "too_few" if is_beyond else "same"


def _row_document(row: headrace.Difference) -> dict[str, object]:
    """The row's fields for JSON, where the outcome is called the verdict."""
    return {"verdict" if name == "outcome" else name: value for name, value in row.asdict().items()}


def _print(
    old: Side, new: Side, found: headrace.Comparison, asked: Asked, everything: bool
) -> None:
    for line in _differing_conditions(old, new):
        output.print_text(line)
    rows = [row for row in found.rows if everything or row.outcome == "changed"]
    if rows:
        cells = [
            (row.key, asked.shown(row.outcome, row.threshold), value_text(row.old_value, row.unit),
             value_text(row.new_value, row.unit), *_change(row.ratio, row.threshold))
            for row in rows
        ]  # fmt: skip
        headings = ("point", "outcome", "old", "new", "change", "detectable")
        output.print_table(headings, cells, left=2)
        output.print_text("")
    shifts = [shift for shift in found.shifts if everything or found.changed]
    if shifts:
        lines = [
            (_name(shift), asked.shown(_outcome(shift), shift.threshold), str(shift.rows),
             *_change(shift.ratio, shift.threshold))
            for shift in shifts
        ]  # fmt: skip
        columns = ("experiment", "outcome", "rows", "median change", "detectable")
        output.print_table(columns, lines, left=2)
        output.print_text("")


def _differing_conditions(before: Side, after: Side) -> list[str]:
    """Conditions that may explain a change, one line each."""
    old, new = ({"machine": side.machine, **side.conditions} for side in (before, after))
    return [
        f"{name}: {old.get(name) or 'not said'} -> {new.get(name) or 'not said'}"
        for name in dict.fromkeys([*old, *new])
        if name not in _ALWAYS_DIFFER and old.get(name) != new.get(name)
    ]


def _change(ratio: float | None, threshold: float) -> tuple[str, str]:
    """The change, and the smallest change that counts, as percentages from logarithms."""
    if ratio is None:
        return "", ""
    if threshold == 0:  # not judged
        return f"{(ratio - 1) * 100:+.1f} %", ""
    try:
        share = math.expm1(threshold)
    except OverflowError:  # of numbers as far apart as there are
        share = math.inf
    return f"{(ratio - 1) * 100:+.1f} %", f"{share * 100:.1f} %"


def value_text(value: float | None, unit: str) -> str:
    """The value with its unit; empty for None."""
    if value is None:
        return ""
    return format_rate(value) if unit == "B/s" else f"{value:.4g} {unit}".rstrip()


def summary(found: headrace.Comparison) -> str:
    """The comparison in one line of plain words."""
    counts = Counter(row.outcome for row in found.rows)
    judged = plural(counts["same"] + counts["changed"], "row")
    alone = counts["only_old"] + counts["only_new"]
    shifted = [_name(shift) for shift in found.shifts if shift.changed]
    if found.inconclusive:
        text = (
            f"Inconclusive: {plural(counts['inconclusive'], 'row')} changed by more than their "
            "samples vary, but by different amounts, as noise between two runs does; "
            f"no change beyond noise in {judged}"
        )
    elif not found.changed:
        text = f"No change beyond noise in {judged}"
    elif shifted:
        text = f"{counts['changed']} of {judged} changed, and {listed(shifted)} as a whole"
    else:
        text = f"{counts['changed']} of {judged} changed, and no experiment as a whole"
    rest = [
        f"{count} {words}"
        for count, words in (
            (counts["noisy"], "too noisy"),
            (0 if found.inconclusive else counts["inconclusive"], "inconclusive"),
            (counts["too_few"], "in too few runs"),
            (counts["other_pages"], "not all in huge pages on one side"),
            (alone, "in one profile only"),
            (counts["unmeasured"], "not measured"),
        )
        if count
    ]
    if rest and not (found.changed or found.inconclusive or counts["same"]):
        return f"Inconclusive: {', '.join(rest)}"
    return text + (f"; {', '.join(rest)}" if rest else "") + _smallest_detectable(found)


def _smallest_detectable(found: headrace.Comparison) -> str:
    """The median threshold of the judged rows, as a share."""
    thresholds = sorted(row.threshold for row in found.rows if row.outcome in ("same", "changed"))
    if not thresholds:
        return ""
    try:
        middle = math.expm1(thresholds[len(thresholds) // 2])
    except OverflowError:
        return ""
    return f"; smallest detectable change {middle * 100:.1f} % (median of the judged rows)"
