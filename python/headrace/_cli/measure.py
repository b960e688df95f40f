# SPDX-License-Identifier: Apache-2.0
"""headrace measure"""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Annotated, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse, tables
from headrace._cli.interrupt import Interrupt
from headrace._cli.measuring import (
    Options,
    check_measured,
    main_reason,
    measure_fleet,
    measure_here,
    plan,
)
from headrace._cli.options import Convention, Experiments, Json, ListExperiments, Machine
from headrace._profile import conventions, plans, promises


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
        _tell_plan(options, source, json)
        return exit_codes.SUCCESS
    if source is not None:
        raise headrace.InvalidError("--from plans for a machine; give --dry-run, or leave it out")
    if mpi:
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


def _tell_plan(options: Options, source: str | None, json: bool) -> None:
    options.check()
    if source is None:
        machine = headrace.Machine.discover(storage=options.storage())
    else:
        machine = parse.in_lines(parse.machine(source))
    points, count = plan(options, machine), options.count()
    if json:
        output.print_json(plans.document(machine, points, count))
    else:
        told = [f"{machine.name}: {plans.summary(points, count)}", *plans.reasons(points)]
        if lines := plans.lines(machine, points, count):
            told.insert(0, output.table_text(plans.HEADINGS, lines, left=2) + "\n")
        output.print_text("\n".join(told))
    rows = [point.row for point in points]
    if rows and all(row.reason for row in rows):
        raise headrace.UnsupportedError(f"nothing would be measured: {main_reason(rows)}")


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
