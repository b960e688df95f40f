"""headrace measure"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace import _conventions
from headrace._cli import exit_codes, output, parse, tables
from headrace._cli.interrupt import Interrupt
from headrace._cli.launches import measure_again

#: Of --full: the best of twenty runs of STREAM varied by a quarter over launches on one machine.
_LAUNCHES_OF_ALL = 3


def measure(
    *,
    names: list[str] | None,
    only: str | None,
    budget: str,
    full: bool,
    width: str,
    seed: int,
    launches: int | None,
    directory: Path,
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
    if launches is not None and launches > 1 and resume:
        raise headrace.InvalidError("--resume goes on in one launch; leave --launches out")
    count = launches or (_LAUNCHES_OF_ALL if full and not resume else 1)
    seconds = None if full else parse.duration(budget) / count
    share = parse.share(width)
    if out is not None:
        output.check_writable(out)
    machine = headrace.Machine.discover(storage=[directory])
    with Interrupt() as interrupt, output.ProgressBar("measuring") as bar:
        profile = headrace.measure(
            machine,
            experiments=names or [],
            only=parse.settings(only),
            budget=seconds,
            width=share,
            seed=seed,
            directory=directory,
            known=_known(out, resume, machine),
            stop=interrupt,
            progress=bar,
        )
        found = [profile]
        failed = None
        for launch in range(1, count):
            if out is not None:
                profile.save(out)  # what is done is kept, whatever becomes of the next
            if interrupt.requested:
                break
            bar(launch, count, f"launch {launch + 1} of {count}")
            arguments = [*(names or []), "--seed", str(seed + launch), "--width", width]
            arguments += ["--directory", str(directory), "--launches", "1"]
            arguments += ["--full"] if seconds is None else ["--budget", f"{seconds:.1f}s"]
            arguments += ["--only", only] if only else []
            try:
                found.append(measure_again(arguments, interrupt))
            except headrace.IoError as error:
                failed = None if interrupt.requested else error
                break
            profile = headrace.merge(found)
    if out is not None:
        profile.save(out)
    if json:
        output.print_text(profile.to_json())
    else:
        output.print_text(tables.profile_text(profile, convention))
        if out is not None:
            print(f"\nprofile: {out}")
    if failed is not None:
        raise failed
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
