# SPDX-License-Identifier: Apache-2.0
"""The same measurement in processes of their own: where a process's memory lies is luck that it
keeps as long as it lives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import headrace
from headrace._errors import error_of
from headrace._isolated_calls import death

#: First of all the kernel is asked to send it SIGTERM when this process ends, however it does
#: (prctl: PR_SET_PDEATHSIG is 1).
_COMMAND = f"""import ctypes, os
ctypes.CDLL(None).prctl(1, {int(signal.SIGTERM)})
if os.getppid() != int(os.environ["HEADRACE_LAUNCHED_BY"]): raise SystemExit(130)
from headrace._cli import main
main()"""
_LOOK_EVERY_SECONDS = 0.2
#: After Ctrl-C a launch writes what it has within a few seconds; then it is ended.
_LAST_SECONDS = 60.0


def measure_again(arguments: Sequence[str], stop: Callable[[], bool]) -> headrace.Profile:
    """`headrace measure` with these arguments in a new process; its profile. When `stop` says so
    the process is asked to end, and its profile has what it measured until then. IoError: it left
    none. Others: it could not be started, or its profile not be read.
    """
    try:
        return _launch(arguments, stop)
    except headrace.Error:  # of which some are OSErrors too
        raise
    except OSError as error:
        raise error_of(error, "cannot launch the measurement again") from None


def _launch(arguments: Sequence[str], stop: Callable[[], bool]) -> headrace.Profile:
    with tempfile.TemporaryDirectory(prefix="headrace-launch-") as folder:
        out = Path(folder) / "profile.json"
        complaints = Path(folder) / "stderr"
        # -P: nothing of the working directory is taken for a module.
        command = [sys.executable, "-P", "-c", _COMMAND, "measure", *arguments, "--out", str(out)]
        with complaints.open("wb") as stderr:
            # In a group of its own, so that it hears of Ctrl-C once, from here.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                process_group=0, env=os.environ | {"HEADRACE_LAUNCHED_BY": str(os.getpid())},
            )  # fmt: skip
        try:
            code = _wait(process, stop)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if out.exists():
            return headrace.Profile.load(str(out))
        if code is None:
            raise headrace.TimedOutError(
                f"a launch of the measurement did not end within {_LAST_SECONDS:g} s"
            )
        if code < 0:
            raise death("a launch of the measurement", code)
        said = complaints.read_text(errors="replace").strip().splitlines() or [f"status {code}"]
        raise headrace.IoError(f"a launch of the measurement failed: {said[-1]}")


def _wait(process: subprocess.Popen[bytes], stop: Callable[[], bool]) -> int | None:
    """Its exit code; None: it did not end when it was asked to."""
    while not stop():
        try:
            return process.wait(_LOOK_EVERY_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        return None
