# SPDX-License-Identifier: Apache-2.0
"""headrace tier run: starts a program and keeps it within a budget of fast memory."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Optional

import typer

import headrace
from headrace._cli import exit_codes, output
from headrace._cli.run import not_runnable
from headrace._cli.tier import watch
from headrace._files import check_writable, write_whole
from headrace._tiering.files import Files
from headrace._tiering.groups import enter, made
from headrace._words import say

#: What follows the program are its own options.
SETTINGS = {"allow_interspersed_args": False}


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="What to run, and its arguments."),
    ],
    budget: watch.Budget,
    fast: watch.Fast = None,
    slow: watch.Slow = None,
    source: watch.Source = None,
    guard: watch.Guard = watch.GUARD,
    rate: watch.Rate = watch.RATE,
    hold: watch.Hold = None,
    decisions: watch.Decisions = 0,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", metavar="FILE", help="Write what was done there, as JSON."),
    ] = None,
) -> int:
    """Run a program within a budget of fast memory, the hot of it first.

    \b
    headrace tier run --budget 8GiB -- redis-server redis.conf
    headrace tier run --budget 8GiB --out done.json -- ./db
    headrace tier run --budget 8GiB --fast 0 --slow 1 -- ./db
    headrace tier run --budget 8GiB --hold cgroup -- ./db    held by its cgroup, after 2 s

    Slow are the nodes of the kernel's slower memory tiers (CXL; DRAM beside HBM); without any it is
    swap, and takes root. Whether it can work is tried before the program begins. That process is
    kept within the budget, not others that it starts; if tiering fails later, it goes on without.
    Its output is its own, ours goes to stderr; its exit code is ours.
    """
    if out is not None:
        check_writable(out)
    request = watch.request(budget, source, guard, rate, fast, slow, hold)
    path = shutil.which(program[0])
    if path is None:
        return not_runnable(program[0])
    with made(Files()) if request.hold else nullcontext() as group:
        _rehearse(request, group)
        child = _started([path, *program[1:]], group)
        try:
            done = _tiered(child, request)
            if done is not None and done.interrupted and child.poll() is None:
                child.send_signal(signal.SIGTERM)
        except BaseException:
            child.terminate()
            raise
        finally:
            code = child.wait()
    if done is None:
        say("the program has ended before it could be looked at")
        return _code(code)
    sys.stderr.write(watch.text(done, decisions))
    if out is not None:
        document = watch.document(child.pid, request, done, decisions)
        write_whole(out, output.json_text(document))
    if done.interrupted:
        return exit_codes.INTERRUPTED
    return _code(code)


def _code(code: int) -> int:
    return 128 - code if code < 0 else code


def _tiered(child: subprocess.Popen[bytes], request: watch.Request) -> watch.Done | None:
    """None: it was too short."""
    try:
        with watch.attached(child.pid, request) as tier:
            return watch.until_end(tier, request, ended=lambda: child.poll() is not None)
    except headrace.AbsentError:
        if child.poll() is None:
            raise
        return None


def _started(command: list[str], group: Path | None) -> subprocess.Popen[bytes]:
    """In the cgroup from its first instruction on, if there is one."""
    if group is None:
        return subprocess.Popen(command)
    try:
        return subprocess.Popen(command, preexec_fn=lambda: enter(group))
    except subprocess.SubprocessError:
        raise headrace.DeniedError(
            f"no process may enter the cgroup {group}; run this as root, or leave --hold out"
        ) from None


def _rehearse(request: watch.Request, group: Path | None) -> None:
    """On a process that only sleeps, so that no program begins that cannot be tiered."""
    # It has one thread.
    automatic = replace(request, source=None if request.source == "hint-faults" else request.source)
    sleeper = _started(["sleep", "60"], group)
    try:
        with watch.attached(sleeper.pid, automatic, quiet=True):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()
