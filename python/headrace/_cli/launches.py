"""The same measurement in processes of their own: where a process's memory lies is luck that it
keeps as long as it lives.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import headrace
from headrace._cli import exit_codes

_COMMAND = "from headrace._cli import main; main()"
_LOOK_EVERY_SECONDS = 0.2
#: After Ctrl-C a launch writes what it has within a few seconds; then it is ended.
_LAST_SECONDS = 60.0


def measure_again(arguments: Sequence[str], stop: Callable[[], bool]) -> headrace.Profile:
    """`headrace measure` with these arguments in a new process; its profile. When `stop` says so
    the process is asked to end, and its profile has what it measured until then.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-launch-") as folder:
        out = Path(folder) / "profile.json"
        command = [sys.executable, "-c", _COMMAND, "measure", *arguments, "--out", str(out)]
        # In a group of its own, so that it hears of Ctrl-C once, from here.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0
        )
        try:
            code = _wait(process, stop)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code not in (exit_codes.SUCCESS, exit_codes.INTERRUPTED) or not out.exists():
            raise headrace.IoError(f"a launch of the measurement ended with status {code}")
        return headrace.Profile.load(out)


def _wait(process: subprocess.Popen[bytes], stop: Callable[[], bool]) -> int:
    while not stop():
        try:
            return process.wait(_LOOK_EVERY_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        return -1
