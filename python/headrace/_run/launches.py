# SPDX-License-Identifier: Apache-2.0
"""Repeats a measurement in new processes, because the physical place of a process's memory is
random and stays until it ends.
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

#: First asks the kernel to send SIGTERM to the child when this process ends in any way (prctl:
#: PR_SET_PDEATHSIG is 1).
_COMMAND = f"""import ctypes, os
ctypes.CDLL(None).prctl(1, {int(signal.SIGTERM)})
if os.getppid() != int(os.environ["HEADRACE_LAUNCHED_BY"]): raise SystemExit(130)
from headrace._cli import main
main()"""
_LOOK_EVERY_SECONDS = 0.2
#: Seconds that a launch has after Ctrl-C to write its results, which takes a few; then it is
#: killed.
_LAST_SECONDS = 60.0


def measure_again(arguments: Sequence[str], stop: Callable[[], bool]) -> headrace.Profile:
    """Runs `headrace measure` with these arguments in a new process, and returns its profile. When
    `stop` returns true, the process is asked to end; the profile then has the rows so far. IoError:
    it left no profile. Other errors: it could not be started, or its profile could not be read.
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
        # -P: files in the working directory are not imported as modules.
        command = [sys.executable, "-P", "-c", _COMMAND, "measure", *arguments, "--out", str(out)]
        with complaints.open("wb") as stderr:
            # In a process group of its own, so that Ctrl-C reaches it once, from here.
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
    """The exit code; None: the process did not end when asked to."""
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
