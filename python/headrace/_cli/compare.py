"""headrace compare"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.options import Json
from headrace._words import listed, plural, rate_text

#: Conditions that differ between any two profiles.
_ALWAYS_DIFFER = ("date", "seed", "seconds", "load_average", "looks_disturbed", "rounds", "stopped")


def command(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A measured profile.")],
    new: Annotated[
        Path, typer.Argument(metavar="NEW", help="The measured profile to compare with it.")
    ],
    least: Annotated[
        str, typer.Option(metavar="SHARE", help="Smaller changes do not count.")
    ] = "5%",
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every row, not only those that changed.")
    ] = False,
) -> int:
    """Show what differs beyond noise between two profiles; exit code 9 if anything does."""
    share = parse.share(least)
    before, after = _load(old), _load(new)
    found = headrace.compare(before, after, share)
    if json:
        output.print_json(_document((old, before), (new, after), found, share))
    else:
        _print(before, after, found, everything)
    return exit_codes.CHANGED if found.changed else exit_codes.SUCCESS


def _load(path: Path) -> headrace.Profile:
    profile = headrace.Profile.load(path)
    if not profile.rows:
        raise headrace.InvalidError(f"{path} holds no rows to compare; give a measured profile")
    return profile


def _document(
    old: tuple[Path, headrace.Profile],
    new: tuple[Path, headrace.Profile],
    found: headrace.Comparison,
    least: float,
) -> dict[str, Any]:
    def side(path: Path, profile: headrace.Profile) -> dict[str, Any]:
        conditions = dict(profile.conditions)
        return {"file": str(path), "machine": profile.machine.name, "conditions": conditions}

    return {
        "schema_version": headrace.SCHEMA_VERSION,
        "kind": "compare",
        "version": headrace.__version__,
        "old": side(*old),
        "new": side(*new),
        "least": least,
        "changed": found.changed,
        "verdicts": dict(sorted(Counter(row.outcome for row in found.rows).items())),
        "rows": [_row_document(row) for row in found.rows],
        "shifts": [shift.asdict() for shift in found.shifts],
    }


def _row_document(row: headrace.Difference) -> dict[str, object]:
    """The row's fields; documents of this schema call its outcome the verdict."""
    return {"verdict" if name == "outcome" else name: value for name, value in row.asdict().items()}


def _print(
    before: headrace.Profile,
    after: headrace.Profile,
    found: headrace.Comparison,
    everything: bool,
) -> None:
    for line in _differing_conditions(before, after):
        output.print_text(line)
    rows = [row for row in found.rows if everything or row.outcome == "changed"]
    if rows:
        cells = [
            (row.key, row.outcome.replace("_", " "), value_text(row.old_value, row.unit),
             value_text(row.new_value, row.unit), *_change(row.ratio, row.threshold))
            for row in rows
        ]  # fmt: skip
        headings = ("point", "outcome", "old", "new", "change", "counts from")
        output.print_table(headings, cells, left=2)
        output.print_text("")
    shifts = [shift for shift in found.shifts if everything or found.changed]
    if shifts:
        lines = [
            (shift.experiment, "changed" if shift.changed else "same", str(shift.rows),
             *_change(shift.ratio, shift.threshold))
            for shift in shifts
        ]  # fmt: skip
        columns = ("experiment", "outcome", "rows", "median change", "counts from")
        output.print_table(columns, lines, left=2)
        output.print_text("")
    output.print_text(summary(found))


def _differing_conditions(before: headrace.Profile, after: headrace.Profile) -> list[str]:
    """What may explain a change, one line each."""
    old, new = ({"machine": p.machine.name, **p.conditions} for p in (before, after))
    return [
        f"{name}: {old.get(name) or 'not said'} -> {new.get(name) or 'not said'}"
        for name in dict.fromkeys([*old, *new])
        if name not in _ALWAYS_DIFFER and old.get(name) != new.get(name)
    ]


def _change(ratio: float | None, threshold: float) -> tuple[str, str]:
    """By how much it changed, and from where on that counts: logarithms as shares upwards."""
    if ratio is None:
        return "", ""
    try:
        share = math.expm1(threshold)
    except OverflowError:  # of numbers as far apart as there are
        share = math.inf
    return f"{(ratio - 1) * 100:+.1f} %", f"± {share * 100:.1f} %"


def value_text(value: float | None, unit: str) -> str:
    """The value with its unit; nothing for None."""
    if value is None:
        return ""
    return rate_text(value) if unit == "B/s" else f"{value:.4g} {unit}".rstrip()


def summary(found: headrace.Comparison) -> str:
    """The comparison in one line of plain words."""
    counts = Counter(row.outcome for row in found.rows)
    judged = plural(counts["same"] + counts["changed"], "row")
    alone = counts["only_old"] + counts["only_new"]
    shifted = [shift.experiment for shift in found.shifts if shift.changed]
    if not found.changed:
        text = f"no change beyond noise in {judged}"
    elif shifted:
        text = f"{counts['changed']} of {judged} changed, and {listed(shifted)} as a whole"
    else:
        text = f"{counts['changed']} of {judged} changed, and no experiment as a whole"
    rest = [
        f"{count} {words}"
        for count, words in (
            (counts["noisy"], "noisy"),
            (alone, "in one alone"),
            (counts["unmeasured"], "without a value"),
        )
        if count
    ]
    return text + (f"; {', '.join(rest)}" if rest else "")
