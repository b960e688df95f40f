"""headrace measure"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace import _conventions
from headrace._cli import exit_codes, output, parse, tables
from headrace._cli.interrupt import Interrupt
from headrace._cli.launches import measure_again

#: Of --full: the best of twenty runs of STREAM varied by a quarter over launches on one machine.
_LAUNCHES_OF_ALL = 3


@dataclass(frozen=True)
class Options:
    """The flags that say what is measured, as they were written."""

    names: list[str]
    only: str | None
    budget: str
    full: bool
    width: str
    seed: int
    launches: int | None
    directory: Path
    resume: bool
    out: Path | None

    def check(self) -> None:
        """Complains before the work."""
        parse.settings(self.only)
        parse.share(self.width)
        self.seconds()
        if self.launches is not None and self.launches > 1 and self.resume:
            raise headrace.InvalidError("--resume goes on in one launch; leave --launches out")
        if self.out is not None:
            output.check_writable(self.out)

    def count(self) -> int:
        return self.launches or (_LAUNCHES_OF_ALL if self.full and not self.resume else 1)

    def seconds(self) -> float | None:
        """Of one launch."""
        return None if self.full else parse.duration(self.budget) / self.count()


def list_experiments() -> int:
    output.print_table(
        ("experiment", "what it measures"),
        ((each.name, each.description) for each in headrace.experiments()),
        left=2,
    )
    return exit_codes.SUCCESS


def measure(options: Options, *, convention: str | None, json: bool) -> int:
    if convention is not None:
        _conventions.find(convention)  # complains before the work
    options.check()
    with Interrupt() as interrupt:
        profile, failed = measure_here(options, interrupt)
    if json:
        output.print_text(profile.to_json())
    else:
        output.print_text(tables.profile_text(profile, convention))
        if options.out is not None:
            print(f"\nprofile: {options.out}")
    if failed is not None:
        raise failed
    if interrupt.requested:
        return exit_codes.INTERRUPTED
    check_measured(profile)
    return exit_codes.SUCCESS


def measure_here(
    options: Options, interrupt: Interrupt
) -> tuple[headrace.Profile, headrace.IoError | None]:
    """This host's profile, written to options.out, and why a launch failed that is not in it."""
    machine = headrace.Machine.discover(storage=[options.directory])
    out, seconds, count = options.out, options.seconds(), options.count()
    with output.ProgressBar("measuring") as bar:
        profile = headrace.measure(
            machine,
            experiments=options.names,
            only=parse.settings(options.only),
            budget=seconds,
            width=parse.share(options.width),
            seed=options.seed,
            directory=options.directory,
            known=_known(out, options.resume, machine),
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
            try:
                found.append(measure_again(_arguments(options, launch), interrupt))
            except headrace.IoError as error:
                failed = None if interrupt.requested else error
                break
            profile = headrace.merge(found)
        if out is not None:
            profile.save(out)
    return profile, failed


def _arguments(options: Options, launch: int) -> list[str]:
    """Of the same measurement in a process of its own."""
    seconds = options.seconds()
    return [
        *options.names, "--seed", str(options.seed + launch), "--width", options.width,
        "--directory", str(options.directory), "--launches", "1",
        *(["--full"] if seconds is None else ["--budget", f"{seconds:.1f}s"]),
        *(["--only", options.only] if options.only else []),
    ]  # fmt: skip


def check_measured(profile: headrace.Profile) -> None:
    """UnsupportedError: there is no number in it."""
    if not any(row.median is not None for row in profile.rows):
        raise headrace.UnsupportedError(f"nothing could be measured: {_main_reason(profile)}")


def _main_reason(profile: headrace.Profile) -> str:
    """Why there is no number; want of time only if there is no other reason."""
    reasons = [row.reason for row in profile.rows]
    late = ("left out", "the budget was over")
    return next((each for each in reasons if not each.startswith(late)), reasons[0])


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
