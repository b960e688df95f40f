# SPDX-License-Identifier: Apache-2.0
"""headrace tier run: starts a program and keeps it within a budget of fast memory."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Optional

import typer

import headrace
from headrace._cli import exit_codes, output
from headrace._cli.interrupt import Interrupt
from headrace._cli.run import not_runnable
from headrace._cli.tier import watch
from headrace._core import HostFiles as Files
from headrace._files import check_writable, write_whole
from headrace._format import say
from headrace._tiering.groups import enter, made

#: Options after the program are its own.
SETTINGS = {"allow_interspersed_args": False}
#: During exec a process has no memory to tier. The tier is opened again at most 100 times.
_MOST_TRIES = 100
_BETWEEN_TRIES_SECONDS = 0.05


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="Program to run, and its arguments."),
    ],
    budget: watch.Budget,
    fast: watch.Fast = None,
    slow: watch.Slow = None,
    source: watch.Source = None,
    guard: watch.Guard = watch.GUARD,
    rate: watch.Rate = watch.RATE,
    hold: watch.Hold = None,
    user: Annotated[
        Optional[str],
        typer.Option("--user", metavar="NAME", help="User that the program runs as (needs root)."),
    ] = None,
    decisions: watch.Decisions = 0,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", metavar="FILE", help="File for a JSON document of what was done."),
    ] = None,
) -> int:
    """Run a program within a budget of fast memory.

    The hottest pages stay in fast memory.

    \b
    headrace tier run --budget 8GiB -- redis-server redis.conf
    headrace tier run --budget 8GiB --out done.json -- ./db
    headrace tier run --budget 8GiB --fast 0 --slow 1 -- ./db
    headrace tier run --budget 8GiB --hold cgroup -- ./db  limits it after 2 s
    sudo headrace tier run --budget 8GiB --user alice -- ./db

    Slow memory is the nodes of the kernel's slower memory tiers (CXL; DRAM beside HBM). Without
    such nodes it is swap, which needs root. Headrace checks that tiering can work before it starts
    the program. The budget holds for that process, also after an exec, but not for its children.
    If tiering fails later, the program continues without it. The program keeps stdout; Headrace
    prints to stderr and returns the program's exit code.
    """
    check_writable(out)
    request = watch.request(budget, source, guard, rate, fast, slow, hold)
    account = None if user is None else _account(user)
    path = shutil.which(program[0])
    if path is None:
        return not_runnable(program[0])
    with made(Files()) if request.hold else nullcontext() as group:
        _rehearse(request, group, account)
        try:
            child = _started([path, *program[1:]], group, account)
        except OSError as error:
            say(f"cannot run {program[0]}: {error.strerror}")
            return exit_codes.CANNOT_RUN
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
    """Follows the process through exec, which frees all its memory: the returned places and totals
    are those of the last program. None: the program was too short. A signal ends this, also between
    two programs; KeyboardInterrupt is raised if nothing was done yet.
    """
    done: watch.Done | None = None
    failed = 0
    with Interrupt() as interrupt:
        interrupt.keeps = True
        while child.poll() is None and not interrupt():
            try:
                with watch.attached(child.pid, request) as tier:
                    last = watch.until_end(
                        tier, request, pid=child.pid, ended=lambda: child.poll() is not None
                    )
            except headrace.Error as error:
                failed += 1
                passing = isinstance(error, headrace.AbsentError) and failed < _MOST_TRIES
                if _has_memory(child) and not passing:
                    if done is None:
                        raise
                    _note(done, f"{error}; the program goes on, and nothing moves any more")
                    while child.poll() is None and not interrupt():
                        time.sleep(_BETWEEN_TRIES_SECONDS)
            else:
                failed = 0
                last.notes = [*done.notes, *last.notes] if done is not None else last.notes
                done = last
                if done.interrupted or not done.gone:
                    return done
                if child.poll() is None and _has_memory(child):
                    _note(done, "the program has become another (exec); tiering begins anew")
            time.sleep(_BETWEEN_TRIES_SECONDS)
        if interrupt():
            if done is None:
                raise KeyboardInterrupt
            done.interrupted, done.ended = True, "interrupted"
    return done


def _note(done: watch.Done, text: str) -> None:
    done.notes.append(text)
    say(text)


def _has_memory(child: subprocess.Popen[bytes]) -> bool:
    """Whether the process has memory: it has none during exec, and while it ends."""
    try:
        os.readlink(f"/proc/{child.pid}/exe")
    except PermissionError:
        return True  # a program that may not be looked into
    except OSError:
        return False
    return True


def _account(name: str) -> pwd.struct_passwd:
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise headrace.AbsentError(f"there is no user '{name}'; see getent passwd") from None
    if os.geteuid() not in (0, account.pw_uid):
        raise headrace.DeniedError(f"only root may run a program as {name}; use sudo")
    return account


def _started(
    command: list[str], group: Path | None, account: pwd.struct_passwd | None = None
) -> subprocess.Popen[bytes]:
    """Starts the program as that user. If there is a cgroup, the program is in it from its first
    instruction on."""

    def begin() -> None:
        if group is not None:
            enter(group)
        if account is not None and os.geteuid() != account.pw_uid:
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

    if group is None and account is None:
        return subprocess.Popen(command)
    names = ("USER", "LOGNAME", "HOME")
    values = () if account is None else (account.pw_name, account.pw_name, account.pw_dir)
    try:
        return subprocess.Popen(
            command, preexec_fn=begin, env=os.environ | dict(zip(names, values, strict=False))
        )
    except subprocess.SubprocessError:
        raise headrace.DeniedError(
            f"no process may enter the cgroup {group}; run this as root, or leave --hold out"
            if group is not None
            else "no process may become that user here; leave --user out"
        ) from None


def _rehearse(
    request: watch.Request, group: Path | None, account: pwd.struct_passwd | None
) -> None:
    """Tries tiering on a process that only sleeps, so that no program is started that cannot be
    tiered."""
    sleeper = _started(["sleep", "60"], group, account)
    try:
        with watch.attached(sleeper.pid, request, quiet=True):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()
