# SPDX-License-Identifier: Apache-2.0
"""Python programs run in a process of their own, for tests of what could end one."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

from forked import FORKS

Done = subprocess.CompletedProcess[str]

BEGIN = """
import faulthandler, gc, os, sys, tempfile, threading, time, warnings, weakref
import numpy
import headrace

# From 3.12 on Python warns of each fork() beside threads, which is what some programs try.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
faulthandler.enable()
machine = headrace.Machine.discover(storage=[tempfile.gettempdir()])
node = next(n.id for n in machine.nodes if n.byte_addressable and n.cpus)
mover = headrace.Mover(machine)

def some_file(size, value=7):
    file = tempfile.NamedTemporaryFile(delete=False)
    file.write(bytes([value]) * size)
    file.close()
    opened = headrace.File.open(machine, file.name)
    os.unlink(file.name)
    return opened

def in_threads(work, count=4):
    failures = []
    def run(i):
        try:
            work(i)
        except BaseException as failure:
            failures.append(repr(failure))
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "hangs"
    assert not failures, failures
"""


def ran(
    program: str, *arguments: str, cwd: Path | str = ".", timeout: float = 300, frees: bool = False
) -> Done:
    """Runs a program (python -c) in a fork of a process that has loaded headrace."""
    return FORKS.run(arguments, cwd, os.environ, timeout, program, frees)


def outcome_of(body: str, *arguments: str, timeout: float = 60) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of BEGIN and `body`."""
    try:
        result = ran(textwrap.dedent(BEGIN) + textwrap.dedent(body), *arguments, timeout=timeout,
                     frees=True)  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        raise AssertionError(f"hangs; so far: {expired.stdout!r} {expired.stderr!r}") from None
    return result.returncode, result.stdout, result.stderr
