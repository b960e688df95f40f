"""headrace tier run: starts a program and keeps it within a budget of memory."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from headrace._cli import exit_codes, output
from headrace._cli.tier import watch
from headrace._cli.run import not_runnable
from headrace._files import write_whole

#: What follows the program are its own options.
SETTINGS = {"allow_interspersed_args": False}


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="What to run, and its arguments."),
    ],
    budget: watch.Budget,
    source: watch.Source = None,
    guard: watch.Guard = watch.GUARD,
    rate: watch.Rate = watch.RATE,
    decisions: watch.Decisions = 0,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", metavar="FILE", help="Write what was done there, as JSON."),
    ] = None,
) -> int:
    """Run a program with its memory within a budget: the hot in DRAM, the rest in swap.

    \b
    headrace tier run --budget 8GiB -- redis-server redis.conf
    headrace tier run --budget 8GiB --out done.json -- ./db

    It takes root and swap. Whether it can work is tried before the program begins. That process is
    kept within the budget, not others that it starts. Its output is its own, ours goes to stderr;
    its exit code is ours.
    """
    request = watch.Request(
        watch.size_of(budget), source, watch.share_of(guard), watch.size_of(rate)
    )
    path = shutil.which(program[0])
    if path is None:
        return not_runnable(program[0])
    _rehearse(request)
    child = subprocess.Popen([path, *program[1:]])
    try:
        with watch.attached(child.pid, request) as tier:
            done = watch.until_end(tier, ended=lambda: child.poll() is not None)
        if done.interrupted and child.poll() is None:
            child.send_signal(signal.SIGTERM)
    except BaseException:
        child.terminate()
        raise
    finally:
        code = child.wait()
    sys.stderr.write(watch.text(done, decisions))
    if out is not None:
        document = watch.document(child.pid, request, done, decisions)
        write_whole(out, output.json_text(document))
    if done.interrupted:
        return exit_codes.INTERRUPTED
    return 128 - code if code < 0 else code


def _rehearse(request: watch.Request) -> None:
    """On a process that only sleeps, so that no program begins that cannot be tiered."""
    automatic = watch.Request(request.budget, None, request.guard, request.rate)
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        with watch.attached(sleeper.pid, automatic, quiet=True):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()
