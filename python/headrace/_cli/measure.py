"""headrace measure"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt


def measure(
    *,
    names: list[str] | None,
    only: str | None,
    budget: str,
    full: bool,
    width: str,
    seed: int,
    resume: bool,
    list_them: bool,
    out: Path | None,
    json: bool,
) -> int:
    if list_them:
        output.print_table(
            ("experiment", "what it measures"),
            ((each.name, each.description) for each in headrace.experiments()),
            left=2,
        )
        return exit_codes.SUCCESS
    seconds = None if full else parse.duration(budget)
    share = parse.share(width)
    if out is not None:
        output.check_writable(out)
    machine = headrace.Machine.discover()
    with Interrupt() as interrupt, output.ProgressBar("measuring") as bar:
        profile = headrace.measure(
            machine,
            experiments=names or [],
            only=parse.settings(only),
            budget=seconds,
            width=share,
            seed=seed,
            known=_known(out, resume, machine),
            stop=interrupt,
            progress=bar,
        )
    if out is not None:
        profile.save(out)
    if json:
        output.print_text(profile.to_json())
    else:
        print_profile(profile)
        if out is not None:
            print(f"\nprofile: {out}")
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _known(out: Path | None, resume: bool, machine: headrace.Machine) -> list[headrace.Row]:
    """The rows of the profile that --resume goes on with."""
    if not resume:
        return []
    if out is None:
        raise headrace.InvalidError("--resume needs the profile to go on with; name it with --out")
    if not out.exists():
        return []
    known = headrace.Profile.load(out)
    if known.machine.name != machine.name:
        raise headrace.InvalidError(
            f"{out} is of machine '{known.machine.name}', not of this one; write another --out"
        )
    return known.rows


def print_profile(profile: headrace.Profile) -> None:
    """A table per experiment; what was not measured is counted by its reason."""
    measured = [row for row in profile.rows if row.median is not None]
    for name in dict.fromkeys(row.experiment for row in measured):
        _print_experiment(name, [row for row in measured if row.experiment == name])
    reasons: dict[str, int] = {}
    for row in profile.rows:
        if row.median is None:
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
    noisy = sum("noisy" in row.flags for row in measured)
    conditions = profile.conditions
    print(
        f"{len(measured)} of {len(profile.rows)} points measured, {noisy} of them in noisy "
        f"moments; {conditions['looks_disturbed']} looks at the machine found it disturbed"
    )
    for reason, count in reasons.items():
        print(f"not measured, {count}: {reason}")


def _print_experiment(name: str, rows: list[headrace.Row]) -> None:
    columns = list(rows[0].parameters)
    # A parameter that is the same in all rows is said once.
    fixed = {c: rows[0].parameters[c] for c in columns if len(rows) > 1 and _same(rows, c)}
    shown = [c for c in columns if c not in fixed]
    print(f"{name}" + "".join(f"  {c} {_parameter(c, v)}" for c, v in fixed.items()))
    output.print_table(
        (*shown, "median", "95 % interval", "mappings", ""),
        (
            (
                *(_parameter(c, row.parameters[c]) for c in shown),
                value(row.median, row.unit),
                f"{value(row.low, row.unit)} to {value(row.high, row.unit)}",
                str(len(row.samples)),
                " ".join(row.flags),
            )
            for row in rows
        ),
        left=len(shown),
    )
    print()


def _same(rows: list[headrace.Row], column: str) -> bool:
    return len({row.parameters.get(column) for row in rows}) == 1


def _parameter(name: str, setting: int | str) -> str:
    if name in ("bytes", "window") and isinstance(setting, int):
        text: str = headrace.format_bytes(setting)
        return text
    return str(setting)


def value(number: float | None, unit: str) -> str:
    """ "142 ns", "24.1 GB/s"."""
    if number is None:
        return "-"
    if unit == "B/s":
        rate: str = headrace.format_rate(number)
        return rate
    return f"{number:.{1 if number < 100 else 0}f} {unit}"
