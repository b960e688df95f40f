# SPDX-License-Identifier: Apache-2.0
"""headrace measure --mpi: all hosts of an allocation at once, one process on each"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import loads
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import exit_codes, fleet, output
from headrace._cli.interrupt import Interrupt
from headrace._cli.measure import Options, check_measured, measure_here
from headrace._profile.fleet import LEAST_SHARE, examine
from headrace._run import mpi
from headrace._run.host import this_host
from headrace._run.plan import Request

#: A host, its profile as JSON, and why that has not all it should.
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
    """Once: other ranks may see other files."""
    if options.resume:
        raise headrace.InvalidError("--resume goes on with one profile; leave it or --mpi out")
    if convention is not None:
        raise headrace.InvalidError("--convention is about one profile; leave it or --mpi out")
    replace(options, out=options.out if rank == 0 else None).check()


def _measure_alone(host: str, options: Options, interrupt: Interrupt) -> _Found:
    """On all CPUs of the host that the job may use: launchers bind ranks to a part of them."""
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
    """A file for each host and one for all; an error of any. Those that keeps_old() says stay."""
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
