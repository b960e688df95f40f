# SPDX-License-Identifier: Apache-2.0
"""The command, interrupted where a test says, or with other answers than it found."""

from __future__ import annotations

import subprocess
from pathlib import Path

from programs import ran

#: The arguments of `headrace measure` for one point, in a tenth of a second.
POINT = [
    "bandwidth", "--only", "mix=read,threads=1", "--rounds", "2", "--width", "100%", "--budget",
    "2s",
]  # fmt: skip

#: A demo that measures one rate and one copy: for tests of what comes after.
SHORT = """
import headrace
from headrace._cli import demo
from headrace_bench.commands import copy as bench_copy
def short_session(machine, directory, **callbacks):
    rate = ("bandwidth", {"mix": "read", "threads": 1})
    return headrace.measure(machine, selections=[rate], directory=directory, rounds=1,
                            repetitions=1, noise_checks=False, **callbacks)
headrace.measure_quickly = short_session
bench_copy.QUICK_SIZES = (4096,)
demo._COPY_ROUNDS = 1
"""

#: The command, with Ctrl-C pressed at a point of an experiment.
PRESS = """
{short}
import os, signal, sys
from headrace._cli import main, output
def press(self, done, total, what=None):
    if done == {point} and (what or "").startswith({what!r}):
        os.kill(os.getpid(), signal.{signal})
output.ProgressBar.__call__ = press
sys.argv = ["headrace", *{arguments}]
main()
"""


def press_ctrl_c(
    arguments: list[str], folder: Path, point: int, what: str = "", signal: str = "SIGINT"
) -> subprocess.CompletedProcess[str]:
    program = PRESS.format(short=SHORT, arguments=arguments, point=point, what=what, signal=signal)
    return ran(program, cwd=folder)
