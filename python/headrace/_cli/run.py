"""headrace run: sets memory policy and CPUs, then becomes the program."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import headrace
from headrace._cli import exit_codes
from headrace._cli import topo as machines
from headrace._ranks import Rank, local_rank
from headrace._run_plan import TABLE, Host, Plan, Request, plan


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
    if source is not None:
        if not dry:
            raise headrace.InvalidError("--from plans for another machine; add --dry-run")
        machine = machines.load(source)
        made = plan(machine, request, Host.of(machine, rank))
    else:
        machine = headrace.Machine.discover(storage=[])
        made = plan(machine, request, this_host(machine, request, rank))
    for warning in made.warnings:
        _say(f"warning: {warning}")
    if dry:
        _tell(made, program, verbose)
        return exit_codes.SUCCESS
    path = shutil.which(program[0])
    if path is None:
        return _not_runnable(program[0])
    _apply(made)
    if verbose:
        _tell(made, program, verbose)
    return _become(path, program)


def _say(*lines: str) -> None:
    """In one write, so that lines of ranks do not get into each other's."""
    try:
        sys.stderr.write("".join(f"headrace: {line}\n" for line in lines))
        sys.stderr.flush()
    except OSError:
        pass  # nobody listens


def _tell(made: Plan, program: Sequence[str], verbose: bool) -> None:
    _say(made.numactl(program), *(made.notes if verbose else ()))


def this_host(machine: headrace.Machine, request: Request, rank: Rank | None = None) -> Host:
    """What this process may have here."""
    cpus = frozenset(os.sched_getaffinity(0))
    free = headrace.free_memory()
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return Host(
        free=free.nodes,
        cpus=cpus,
        cpuset=_cpuset(machine, cpus) if request.per_rank else cpus,
        cgroup=free.cgroup,
        address_space=None if limit == resource.RLIM_INFINITY else limit,
        table=_table(),
        preferred_many=_prefers_many(list(free.nodes)),
        rank=rank,
    )


def _cpuset(machine: headrace.Machine, mask: frozenset[int]) -> frozenset[int]:
    """What the kernel leaves of a mask of all CPUs: those of the cpuset. The mask is kept."""
    try:
        os.sched_setaffinity(0, {cpu for node in machine.nodes for cpu in node.cpus})
        widest = frozenset(os.sched_getaffinity(0))
        os.sched_setaffinity(0, mask)
    except OSError:
        return mask
    return widest


def _table(folder: Path = Path(TABLE)) -> Mapping[int, int] | None:
    """The kernel's weights; None where it has none."""
    try:
        return {int(f.name[4:]): int(f.read_text()) for f in folder.glob("node[0-9]*")} or None
    except (OSError, ValueError):
        return None


def _prefers_many(nodes: list[int]) -> bool:
    """Tried, since distributions carry it back into older kernels; memory policy is kept."""
    import threading

    known = True

    def attempt() -> None:
        nonlocal known
        try:
            headrace.set_process_policy("preferred_many", nodes)
        except headrace.UnsupportedError:
            known = False
        except headrace.Error:
            pass  # said when it is set

    thread = threading.Thread(target=attempt)  # policies belong to threads
    thread.start()
    thread.join()
    return known


def _apply(made: Plan) -> None:
    for node, weight in made.table.items():
        try:
            Path(TABLE, f"node{node}").write_text(str(weight))
        except OSError as error:
            raise headrace.DeniedError(
                f"cannot set the weight of node {node} for the system ({error.strerror}); it takes "
                "root"
            ) from None
    if made.cpus is not None:
        try:
            os.sched_setaffinity(0, made.cpus)
        except OSError as error:
            raise headrace.DeniedError(
                f"cannot run on the CPUs chosen: {error.strerror}; see headrace run --dry-run"
            ) from None
    if made.policy is not None:
        headrace.set_process_policy(made.policy, made.nodes)  # type: ignore[arg-type]


def _become(path: str, program: Sequence[str]) -> int:
    # Python ignores these two; a program expects to begin without.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        _exec(path, program)
    except OSError as error:
        if error.errno == errno.ENOENT:
            why = "the interpreter named in its first line is not there"
        else:
            why = error.strerror or str(error)
        _say(f"cannot run {program[0]}: {why}")
        return exit_codes.CANNOT_RUN


def _exec(path: str, program: Sequence[str]) -> NoReturn:
    try:
        os.execv(path, list(program))
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    os.execv("/bin/sh", ["sh", path, *program[1:]])  # a script without first line, as shells do


def _not_runnable(name: str) -> int:
    if os.path.isdir(name) and "/" in name:
        _say(f"cannot run {name}: it is a directory")
        return exit_codes.CANNOT_RUN
    if os.path.exists(name) and "/" in name:
        _say(f"cannot run {name}: it is not executable (chmod +x {name})")
        return exit_codes.CANNOT_RUN
    place = "no such file" if "/" in name else "no such program in PATH; give its path, ./NAME"
    _say(f"cannot run {name}: {place}")
    return exit_codes.NO_PROGRAM
