"""headrace measure"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace import _conventions
from headrace._cli import exit_codes, output, parse, tables
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
    convention: str | None,
    json: bool,
) -> int:
    if list_them:
        output.print_table(
            ("experiment", "what it measures"),
            ((each.name, each.description) for each in headrace.experiments()),
            left=2,
        )
        return exit_codes.SUCCESS
    if convention is not None:
        _conventions.find(convention)  # complains before the work
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
        output.print_text(tables.profile_text(profile, convention))
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
