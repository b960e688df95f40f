# SPDX-License-Identifier: Apache-2.0
"""Measurements of this host, and of the hosts of an MPI job, with one process on each."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import exit_codes, fleet, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._doctor.host import Host
from headrace._doctor.settings import settings
from headrace._files import check_writable, is_own_output
from headrace._profile import plans
from headrace._profile.fleet import LEAST_SHARE, examine
from headrace._run import mpi
from headrace._run.host import this_host
from headrace._run.launches import measure_again
from headrace._run.plan import Request
from headrace._selection import check_width

_LARGEST_SEED = (1 << 63) - 1
#: Number of launches with --full. On one machine the best of twenty runs of STREAM varied by a
#: quarter between launches. Fewer than six give no interval over launches (headrace/statistics.h).
_LAUNCHES_OF_ALL = 6
#: Experiments that read and write a file.
_ON_DISK = {"storage", "interference"}


@dataclass(frozen=True)
class Options:
    """The flags that choose the measurement, as they were written."""

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
        """Raises before the work if flags are wrong."""
        self.chosen()
        check_width(parse.share(self.width))
        if self.seed > _LARGEST_SEED:
            raise headrace.InvalidError(f"seed {self.seed} has over 63 bits; give a smaller one")
        self.seconds()
        if self.launches is not None and self.launches > 1 and self.resume:
            raise headrace.InvalidError("--resume goes on in one launch; leave --launches out")
        check_writable(self.out)

    def chosen(self) -> dict[str, int | str | list[int | str]]:
        """The parameters that --only names."""
        return parse.settings(self.only)

    def count(self) -> int:
        return self.launches or (_LAUNCHES_OF_ALL if self.full and not self.resume else 1)

    def together(self) -> int:
        """The number of launches that will be merged."""
        return self.part_of or self.count()

    def storage(self) -> list[Path]:
        """Directories that must be on a disk; empty if no experiment uses one."""
        uses = not self.names or not _ON_DISK.isdisjoint(self.names)
        return [self.directory] if uses or self.directory.is_dir() else []

    def seconds(self) -> float | None:
        """The budget of one launch in seconds; None: unlimited."""
        return None if self.full else parse.duration(self.budget) / self.count()


def plan(options: Options, machine: headrace.Machine) -> list[headrace.PlannedPoint]:
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


def measure_here(
    options: Options, interrupt: Interrupt
) -> tuple[headrace.Profile, headrace.Error | None]:
    """This host's profile, and the reason why a launch failed, if one did."""
    machine = headrace.Machine.discover(storage=options.storage())
    out, seconds, count = options.out, options.seconds(), options.count()
    what = "measuring"
    if sys.stderr.isatty():
        what += f" {plans.summary(plan(options, machine), count)}"
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
    """The profile with settings of firmware and CPUs added to its conditions."""
    made = profile.asdict()
    made["conditions"] |= settings(Host(profile.machine, Path()))
    return headrace.Profile.fromdict(made)


def _keep(out: Path, profile: headrace.Profile) -> None:
    """Saves results between two launches, in case the next one fails. Pipes and this process's own
    output get them only at the end.
    """
    if (out.is_file() or not out.exists()) and not is_own_output(out):
        text = profile.to_json()
        if not output.keeps_old(out, loads(text)):
            output.save(out, text)


def _arguments(options: Options, launch: int) -> list[str]:
    """Command-line arguments for the same measurement in a new process."""
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
    """UnsupportedError: the profile has no number."""
    if not _has_values(profile):
        raise headrace.UnsupportedError(f"nothing could be measured: {main_reason(profile.rows)}")


def _has_values(profile: headrace.Profile) -> bool:
    return any(row.median is not None for row in profile.rows)


def main_reason(rows: list[headrace.Row]) -> str:
    """The main reason why there is no number. Lack of time counts only if there is no other reason.
    """
    others = [row for row in rows if "left_out" not in row.flags]
    return (others or rows)[0].reason


def _known(out: Path | None, resume: bool, machine: headrace.Machine) -> list[headrace.Row]:
    """The rows of the profile that --resume continues."""
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


#: A host, its profile as JSON, and the reason if the profile is incomplete.
_Found = tuple[str, str | None, str]


def measure_fleet(options: Options, *, convention: str | None, json: bool) -> int:
    with mpi.job() as world, Interrupt() as interrupt:
        world.all(lambda: _check(options, convention, world.rank))
        hosts = world.all(socket.gethostname)
        mine: _Found | None = None
        if hosts.index(hosts[world.rank]) == world.rank:
            mine = _measure_alone(hosts[world.rank], options, interrupt)
        world.meet()
        interrupted = any(world.all(lambda: interrupt.requested))
        found = [each for each in world.gather(mine) if each is not None]
    if world.rank > 0:
        return exit_codes.SUCCESS
    return _tell(found, options.out, json, interrupted)


def _check(options: Options, convention: str | None, rank: int) -> None:
    """Checks on one rank only, since other ranks may see other files."""
    if options.resume:
        raise headrace.InvalidError("--resume goes on with one profile; leave it or --mpi out")
    if convention is not None:
        raise headrace.InvalidError("--convention is about one profile; leave it or --mpi out")
    replace(options, out=options.out if rank == 0 else None).check()


def _measure_alone(host: str, options: Options, interrupt: Interrupt) -> _Found:
    """Measures with all CPUs of the host that the job may use, since launchers bind ranks to a part
    of them."""
    try:
        machine = headrace.Machine.discover(storage=[])
        os.sched_setaffinity(0, this_host(machine, Request(per_rank=True)).cpuset)
        profile, failed = measure_here(replace(options, out=None), interrupt)
        if not interrupt.requested:
            check_measured(profile)
        return host, profile.to_json(), str(failed or "")
    except headrace.Error as error:
        return host, None, str(error)


def file_of(out: Path, host: str) -> Path:
    """p.json of host a -> p.a.json"""
    return out.with_name(f"{out.stem}.{host}{out.suffix}")


def _save(
    document: dict[str, Any],
    texts: Mapping[str, str],
    out: Path,
) -> headrace.Error | None:
    """Saves a file for each host and one for all; returns the first error. Files for which
    keeps_old() is true stay."""
    made = {host: loads(text) for host, text in texts.items()}
    files = {
        path: texts[host]
        for host, profile in made.items()
        if not output.keeps_old(path := file_of(out, host), profile)
    }
    if files or not out.exists():  # else it is of profiles that have all stayed as they were
        files[out] = output.json_text(document)
    errors = [output.save(path, text) for path, text in files.items()]
    return next((error for error in errors if error is not None), None)


def _tell(found: Sequence[_Found], out: Path | None, json: bool, interrupted: bool) -> int:
    texts = {host: text for host, text, _ in found if text is not None}
    profiles = {host: headrace.Profile.from_json(text) for host, text in texts.items()}
    examined = examine(profiles)
    failed = {host: reason for host, _, reason in found if reason}
    document = fleet.document(examined, LEAST_SHARE, failed=failed, interrupted=interrupted)
    lost = None if out is None else _save(document, texts, out)
    if lost is not None:
        output.print_json({**document, "profiles": {h: loads(t) for h, t in texts.items()}})
    elif json:
        output.print_json(document)
    else:
        output.print_text(fleet.text(examined))
        if out is not None:
            output.print_text(f"\nprofiles: {file_of(out, 'HOST')}; fleet: {out}")
    if lost is not None:
        raise lost
    if interrupted:
        return exit_codes.INTERRUPTED
    for host, reason in failed.items():
        raise headrace.IoError(f"{host} was not measured in full: {reason}")
    return exit_codes.CHANGED if examined.differs else exit_codes.SUCCESS
