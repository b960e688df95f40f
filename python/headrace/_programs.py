# SPDX-License-Identifier: Apache-2.0
"""Runs the installation's benchmark programs. Each run is a process. It answers with one line of
JSON, or with a reason and the exit code of an error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
from headrace._errors import kind_of_exit
from headrace._isolated_calls import death

#: Seconds between two looks at whether somebody wants to stop.
_LOOK = 0.05


def find(name: str) -> str:
    """The program in this installation, otherwise in the PATH."""
    installed = Path(sys.executable).parent / name
    found = str(installed) if installed.exists() else shutil.which(name)
    if found is None:
        raise headrace.AbsentError(f"no {name}; run: make install, in a clone of Headrace")
    return found


def answer(command: list[str], seconds: float, stop: Callable[[], bool]) -> dict[str, Any]:
    """The row that a program prints. Errors: it failed; CancelledError: `stop` returned true."""
    done = ended(command, seconds, stop)
    try:
        row: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise headrace.IoError(f"{Path(command[0]).name} printed no row") from None
    return row


def ended(
    command: list[str], seconds: float, stop: Callable[[], bool]
) -> subprocess.CompletedProcess[str]:
    """Runs a command until it ends with success, for at most `seconds`."""
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise headrace.AbsentError(f"cannot start {name}: {error.strerror or error}") from None
    with process:
        try:
            out, err = _waited(process, name, seconds, stop)
        finally:
            process.kill()
    if process.returncode == 0:
        return subprocess.CompletedProcess(command, 0, out, err)
    if stop():  # Ctrl-C reaches every process of a terminal
        raise headrace.CancelledError(f"{name} was stopped")
    if process.returncode < 0:
        raise death(name, process.returncode)
    reason = last_line(err).removeprefix(f"{name}: ")
    raise kind_of_exit(process.returncode)(reason)


def _waited(
    process: subprocess.Popen[str], name: str, seconds: float, stop: Callable[[], bool]
) -> tuple[str, str]:
    # Looks are counted, not the clock: while this process is paused no time passes.
    for _ in range(max(1, round(seconds / _LOOK))):
        try:
            return process.communicate(timeout=_LOOK)
        except subprocess.TimeoutExpired:
            if stop():
                raise headrace.CancelledError(f"{name} was stopped") from None
    raise headrace.TimedOutError(f"{name} had no answer within {seconds:.0f} s")


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
