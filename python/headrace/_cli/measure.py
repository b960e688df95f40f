# SPDX-License-Identifier: Apache-2.0
"""headrace measure"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Annotated, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse, tables
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Convention, Experiments, Json, ListExperiments, Machine
from headrace._doctor.host import Host
from headrace._doctor.settings import settings
from headrace._files import check_writable, is_own_output
from headrace._profile import conventions, plans, promises
from headrace._run.launches import measure_again
from headrace._selection import check_width

_LARGEST_SEED = (1 << 63) - 1
#: With --full: the best of twenty runs of STREAM varied by a quarter over launches on one machine.
#: With fewer than six there is no interval over launches (headrace/statistics.h).
_LAUNCHES_OF_ALL = 6
#: Experiments that read and write a file.
_ON_DISK = {"storage", "interference"}


def command(
    names: Experiments = None,
    only: Annotated[
        Optional[list[str]],
        typer.Option(
            "--only",
            metavar="NAME=VALUE,...",
            help="Points to measure, by parameter: mix=read; a=hbm,b=dram; bytes=16MiB; "
            "placed= for points without it. May be repeated; several values of one name "
            "are alternatives.",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Time for the measurement: 30s, 5m. Each experiment has a share; its most "
            "important points come first.",
        ),
    ] = "60s",
    full: Annotated[
        bool,
        typer.Option("--full", help="Measure all points in six launches, without a time limit."),
    ] = False,
    width: Annotated[
        str,
        typer.Option(
            "--width",
            metavar="SHARE",
            help="Target width of the 95 % interval; 6-18 repetitions per point.",
        ),
    ] = "3%",
    rounds: Annotated[
        Optional[int],
        typer.Option("--rounds", min=1, max=999, help="Fixed number of repetitions per point."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the order of points.")] = 1,
    launches: Annotated[
        Optional[int],
        typer.Option(
            "--launches",
            min=1,
            max=99,
            help="Number of processes, one after the other (default: 1; 6 with --full).",
        ),
    ] = None,
    part_of: Annotated[Optional[int], typer.Option("--part-of", hidden=True)] = None,
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Directory on the disk to measure.")
    ] = Path("."),
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only the points that --out FILE lacks.")
    ] = False,
    mpi: Annotated[
        bool, typer.Option("--mpi", help="Measure and compare the hosts of an MPI job.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its duration; measure nothing.")
    ] = False,
    source: Machine = None,
    list_them: ListExperiments = False,
    convention: Convention = None,
    json: Json = False,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="File for the profile.")
    ] = None,
) -> int:
    """Measure memories, links, copies, disks, DSA and GPUs.

    The result is a profile: `compare`, `report`, `export` and `advise` read it.

    \b
    headrace measure --out profile.json               one minute
    headrace measure --budget 5m --out profile.json   more points, smaller errors
    headrace measure loaded --full --out loaded.json  all points of one experiment
    headrace measure --dry-run                        the plan and its duration
    """
    if list_them:
        _list(json)
        return exit_codes.SUCCESS
    options = Options(
        names=names or [], only=only or [], budget=budget, full=full, width=width, rounds=rounds,
        seed=seed, launches=launches, part_of=part_of, directory=directory, resume=resume, out=out,
    )  # fmt: skip
    if dry_run:
        return _tell_plan(options, source, json)
    if source is not None:
        raise headrace.InvalidError("--from plans for a machine; give --dry-run, or leave it out")
    if mpi:
        from headrace._cli.measure_fleet import measure_fleet

        return measure_fleet(options, convention=convention, json=json)
    return measure(options, convention=convention, json=json)


def _list(json: bool) -> None:
    found = headrace.experiments()
    lines = [
        (each.name, each.description, " ".join(one.name for one in each.parameters))
        for each in found
    ]
    output.print_list(
        "measure", json=json,
        experiments=[
            each.asdict() | {"parameters": [one.asdict() for one in each.parameters]}
            for each in found
        ],
        show=lambda: output.print_table(
            ("experiment", "what it measures", "parameters, for --only"), lines, left=3
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The flags that say what is measured, as they were written."""

    names: list[str]
    only: list[str]
    budget: str
    full: bool
    width: str
    rounds: int | None
    seed: int
    launches: int | None
    part_of: int | None
    directory: Path
    resume: bool
    out: Path | None

    def check(self) -> None:
        """Complains before the work."""
        self.chosen()
        check_width(parse.share(self.width))
        if self.seed > _LARGEST_SEED:
            raise headrace.InvalidError(f"seed {self.seed} has over 63 bits; give a smaller one")
        self.seconds()
        if self.launches is not None and self.launches > 1 and self.resume:
            raise headrace.InvalidError("--resume goes on in one launch; leave --launches out")
        if self.out is not None:
            check_writable(self.out)

    def chosen(self) -> dict[str, int | str | list[int | str]]:
        """The parameters that --only names."""
        return parse.settings(self.only)

    def count(self) -> int:
        return self.launches or (_LAUNCHES_OF_ALL if self.full and not self.resume else 1)

    def together(self) -> int:
        """How many launches there are, of which each is one."""
        return self.part_of or self.count()

    def storage(self) -> list[Path]:
        """Directories that must be on a disk; none where no experiment uses one."""
        uses = not self.names or not _ON_DISK.isdisjoint(self.names)
        return [self.directory] if uses or self.directory.is_dir() else []

    def seconds(self) -> float | None:
        """The budget of one launch; None: without end."""
        return None if self.full else parse.duration(self.budget) / self.count()


def _tell_plan(options: Options, source: str | None, json: bool) -> int:
    options.check()
    if source is None:
        machine = headrace.Machine.discover(storage=options.storage())
    else:
        machine = parse.in_lines(parse.machine(source))
    points, count = _plan(options, machine), options.count()
    if json:
        output.print_json(plans.document(machine, points, count))
    else:
        told = [f"{machine.name}: {plans.summary(points, count)}", *plans.reasons(points)]
        if lines := plans.lines(machine, points, count):
            told.insert(0, output.table_text(plans.HEADINGS, lines, left=2) + "\n")
        output.print_text("\n".join(told))
    rows = [point.row for point in points]
    if rows and all(row.reason for row in rows):
        raise headrace.UnsupportedError(f"nothing would be measured: {_main_reason(rows)}")
    return exit_codes.SUCCESS


def _plan(options: Options, machine: headrace.Machine) -> list[headrace.PlannedPoint]:
    """The points of one launch."""
    points: list[headrace.PlannedPoint] = headrace.plan_session(
        machine,
        experiments=options.names,
        only=options.chosen(),
        budget=options.seconds(),
        directory=options.directory,
        known=_known(options.out, options.resume, machine),
        rounds=options.rounds,
        launches=options.together(),
    )
    return points


def measure(options: Options, *, convention: str | None, json: bool) -> int:
    if convention is not None:
        conventions.find(convention)  # complains before the work
    options.check()
    with Interrupt() as interrupt:
        profile, failed = measure_here(options, interrupt)
    out, text = options.out, promises.document_of(profile)
    kept = out is not None and output.keeps_old(out, loads(text))
    lost = None if out is None or kept else output.save(out, text)
    if json or lost is not None:
        output.print_as_is(text)
    else:
        output.print_text(tables.profile_text(profile, convention))
        if out is not None and not kept:
            output.print_text(f"\nprofile: {out}")
    for error in (lost, failed):
        if error is not None:
            raise error
    if interrupt.requested:
        return exit_codes.INTERRUPTED
    check_measured(profile)
    return exit_codes.SUCCESS


def measure_here(
    options: Options, interrupt: Interrupt
) -> tuple[headrace.Profile, headrace.Error | None]:
    """This host's profile, and why a launch failed that is not in it."""
    machine = headrace.Machine.discover(storage=options.storage())
    out, seconds, count = options.out, options.seconds(), options.count()
    what = "measuring"
    if sys.stderr.isatty():
        what += f" {plans.summary(_plan(options, machine), count)}"
    with output.ProgressBar(what) as bar:
        profile = headrace.measure(
            machine,
            experiments=options.names,
            only=options.chosen(),
            budget=seconds,
            width=parse.share(options.width),
            rounds=options.rounds,
            launches=options.together(),
            seed=options.seed,
            directory=options.directory,
            known=_known(out, options.resume, machine),
            stop=interrupt,
            progress=bar,
        )
        profile = _with_settings(profile)
        found = [profile]
        interrupt.keeps = True
        for launch in range(1, count):
            if out is not None:
                _keep(out, profile)
            if interrupt.requested:
                break
            bar(launch, count, f"launch {launch + 1} of {count}")
            try:
                found.append(measure_again(_arguments(options, launch), interrupt))
            except headrace.Error as error:
                return profile, None if interrupt.requested else error
            profile = headrace.merge(found)
    return profile, None


def _with_settings(profile: headrace.Profile) -> headrace.Profile:
    """The profile, with what firmware and CPUs of this host are set to among its conditions."""
    made = profile.asdict()
    made["conditions"] |= settings(Host(profile.machine, Path()))
    return headrace.Profile.fromdict(made)


def _keep(out: Path, profile: headrace.Profile) -> None:
    """Between two launches: what is done is there, whatever becomes of the next. A pipe, and this
    process's own output, which writing adds to, get the whole at the end only.
    """
    if (out.is_file() or not out.exists()) and not is_own_output(out):
        text = profile.to_json()
        if not output.keeps_old(out, loads(text)):
            output.save(out, text)


def _arguments(options: Options, launch: int) -> list[str]:
    """The arguments of the same measurement in a process of its own."""
    seconds = options.seconds()
    return [
        *options.names, "--seed", str(options.seed + launch), "--width", options.width,
        "--directory", str(options.directory), "--launches", "1",
        "--part-of", str(options.count()),
        *(["--full"] if seconds is None else ["--budget", f"{seconds:.1f}s"]),
        *([] if options.rounds is None else ["--rounds", str(options.rounds)]),
        *(word for each in options.only for word in ("--only", each)),
    ]  # fmt: skip


def check_measured(profile: headrace.Profile) -> None:
    """UnsupportedError: there is no number in it."""
    if not _has_values(profile):
        raise headrace.UnsupportedError(f"nothing could be measured: {_main_reason(profile.rows)}")


def _has_values(profile: headrace.Profile) -> bool:
    return any(row.median is not None for row in profile.rows)


def _main_reason(rows: list[headrace.Row]) -> str:
    """Why there is no number; want of time only if there is no other reason."""
    others = [row for row in rows if "left_out" not in row.flags]
    return (others or rows)[0].reason


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
