# SPDX-License-Identifier: Apache-2.0
"""headrace run: sets memory policy and CPUs, then becomes the program."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NoReturn, Optional

import typer

import headrace
from headrace._cli import exit_codes, options, parse
from headrace._core import HostFiles as Files
from headrace._errors import error_of
from headrace._files import read_whole, write_whole
from headrace._format import say
from headrace._run import oci
from headrace._run.host import this_host
from headrace._run.plan import Host, Plan, Request, plan
from headrace._run.ranks import Rank, local_rank
from headrace._tiering.setting import Setting
from headrace._tiering.switch import set_weights, unset_weights

#: Options after the program are its own.
SETTINGS = {"allow_interspersed_args": False}


def command(
    program: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="PROGRAM", help="Program to run, and its arguments."),
    ] = None,
    on: Annotated[
        Optional[str],
        typer.Option(
            "--on",
            metavar="PLACE",
            help="Memory to allocate from, strictly: the program is killed when it is full.",
        ),
    ] = None,
    prefer: Annotated[
        Optional[str],
        typer.Option(
            "--prefer", metavar="PLACE", help="Memory to allocate from while it has space."
        ),
    ] = None,
    weights: Annotated[
        Optional[str],
        typer.Option("--weights", metavar="PLACE=N,...", help="Pages in turn by these weights."),
    ] = None,
    interleave: Annotated[
        Optional[str],
        typer.Option(
            "--interleave", metavar="PLACE", help="Pages in turn over these nodes, one each."
        ),
    ] = None,
    cpus: Annotated[
        Optional[str],
        typer.Option("--cpus", metavar="near:PLACE|LIST", help="CPUs to run on."),
    ] = None,
    tile: Annotated[
        Optional[Literal["per-rank"]],
        typer.Option(
            "--tile",
            help="Place each MPI rank on its own tile (a node with CPUs) and the memory near it.",
        ),
    ] = None,
    needs: Annotated[
        Optional[str],
        typer.Option(
            "--needs",
            metavar="SIZE",
            help="Memory that must be free: refuse to start otherwise; warn where it would spill.",
        ),
    ] = None,
    set_system_weights: Annotated[
        bool, typer.Option("--set-system-weights", help="Set the kernel's weights too (root).")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print the placement as a numactl line.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the placement as a numactl line; run nothing.")
    ] = False,
    source: Annotated[
        Optional[str],
        typer.Option(
            "--from",
            metavar="FILE|PRESET",
            help="Machine to plan for, with --dry-run: a file of topo --json, or a preset.",
            autocompletion=options.presets,
        ),
    ] = None,
    container: Annotated[
        Optional[Path],
        typer.Option(
            "--oci",
            metavar="FILE",
            help="Container's config.json to write the placement to; runs nothing.",
        ),
    ] = None,
) -> int:
    """Run a program on chosen memories and CPUs.

    PLACE is a kind (dram, hbm, cxl), a property (fastest, lowest_latency, highest_bandwidth,
    largest) or nodes (8-15).

    \b
    headrace run --on hbm -- ./stream            HBM only; killed when it is full
    headrace run --prefer hbm -- ./stream        HBM first, then the nearest
    headrace run --weights dram=3,cxl=1 -- ./db  3 pages on DRAM for 1 on CXL
    headrace run --weights 0=3,8=1 --set-system-weights -- ./db  root: sets them
    headrace run --interleave 0-7 -- ./db        page by page over nodes 0 to 7
    headrace run --cpus near:hbm --on hbm -- ./a     on the CPUs next to the HBM
    headrace run --on hbm --needs 20GiB -- ./a       only if 20 GiB are free
    headrace run -v --on hbm -- ./a                  prints numactl --membind 8-15
    headrace run --on hbm --from xeon-max --dry-run -- ./a     prints the plan
    headrace run --on hbm --oci bundle/config.json   for runc 1.4 or crun 1.24
    mpirun -np 8 headrace run --tile per-rank --prefer hbm -- ./stream_mpi

    The program replaces headrace in the same process: it gets the signals, and its exit code is
    returned. Exit code 127: program not found; 126: not executable. Child processes inherit the
    placement.
    """
    request = Request(
        on=on, prefer=prefer, weights=weights, interleave=interleave, cpus=cpus,
        per_rank=tile is not None, needs=None if needs is None else parse.size(needs),
        set_system_weights=set_system_weights,
    )  # fmt: skip
    if container is not None:
        if program or tile is not None or set_system_weights:
            raise headrace.InvalidError(
                "--oci runs nothing, and takes no PROGRAM, --tile or --set-system-weights"
            )
        return _write_container(container, request, source, dry=dry_run)
    if not program:
        raise headrace.InvalidError("no PROGRAM; give one after --, or --oci FILE")
    return run(request, program, verbose=verbose, dry=dry_run, source=source)


def _planned(request: Request, source: str | None, rank: Rank | None = None) -> Plan:
    """The plan for this machine, or for `source`. Prints warnings."""
    if source is not None:
        machine = parse.in_lines(parse.machine(source))
        made = plan(machine, request, Host.of(machine, rank))
    else:
        machine = headrace.Machine.discover(storage=[])
        made = plan(machine, request, this_host(machine, request, rank))
    for warning in made.warnings:
        say(f"warning: {warning}")
    return made


def _write_container(path: Path, request: Request, source: str | None, *, dry: bool) -> int:
    made = _planned(request, source)
    try:
        text = read_whole(path) if path.exists() else b"{}"
    except OSError as error:
        raise error_of(error, f"cannot read {path}") from None
    try:
        placed = oci.placed(json.loads(text), made)
    except (ValueError, RecursionError) as error:
        raise headrace.InvalidError(f"{path}: {error}") from None
    if not dry:
        write_whole(path, json.dumps(placed, indent="\t") + "\n")
    say(f"{path}{' would get' if dry else ''}: {oci.described(placed)}")
    return exit_codes.SUCCESS


def run(
    request: Request,
    program: Sequence[str],
    *,
    verbose: bool,
    dry: bool,
    source: str | None,
) -> int:
    """Returns only from a dry run, or with the exit code of a program that cannot be run."""
    rank = local_rank(os.environ) if request.per_rank else None
    if source is not None and not dry:
        raise headrace.InvalidError("--from plans for another machine; add --dry-run")
    made = _planned(request, source, rank)
    if dry:
        _tell(made, program, verbose)
        return exit_codes.SUCCESS
    path = shutil.which(program[0])
    if path is None:
        return not_runnable(program[0])
    weights = _apply(made)
    try:
        if verbose:
            _tell(made, program, verbose)
        return _become(path, program)
    finally:  # no program has begun
        if weights:
            say(unset_weights(Files(), weights))


def _tell(made: Plan, program: Sequence[str], verbose: bool) -> None:
    say(made.numactl(program), *(made.notes if verbose else ()))


def _apply(made: Plan, files: Files | None = None) -> list[Setting]:
    """Applies the plan. Returns the settings of the whole system, which are made last; all others
    end with this process.
    """
    if made.cpus is not None:
        try:
            os.sched_setaffinity(0, made.cpus)
        except OSError as error:
            raise headrace.DeniedError(
                f"cannot run on the CPUs chosen: {error.strerror}; see headrace run --dry-run"
            ) from None
    if made.policy is not None:
        headrace.set_process_policy(made.policy, made.nodes)  # type: ignore[arg-type]
    return set_weights(files or Files(), made.table)


def _become(path: str, program: Sequence[str]) -> int:
    # Python ignores these two signals; a program expects their defaults.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        _exec(path, program)
    except OSError as error:
        if error.errno == errno.ENOENT:
            why = "the interpreter named in its first line is not there"
        else:
            why = error.strerror or str(error)
        say(f"cannot run {program[0]}: {why}")
        return exit_codes.CANNOT_RUN


def _exec(path: str, program: Sequence[str]) -> NoReturn:
    try:
        os.execv(path, list(program))
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    os.execv("/bin/sh", ["sh", path, *program[1:]])  # a script without first line, as shells do


def not_runnable(name: str) -> int:
    """Reports why the program cannot run, and returns the exit code for it."""
    if os.path.isdir(name) and "/" in name:
        say(f"cannot run {name}: it is a directory")
        return exit_codes.CANNOT_RUN
    if os.path.exists(name) and "/" in name:
        say(f"cannot run {name}: it is not executable (chmod +x {name})")
        return exit_codes.CANNOT_RUN
    place = "no such file" if "/" in name else "no such program in PATH; give its path, ./NAME"
    say(f"cannot run {name}: {place}")
    return exit_codes.NO_PROGRAM
