"""Python programs run in a process of their own, for tests of what could end one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

BEGIN = """
import gc, os, sys, tempfile, threading, time, weakref
import numpy
import headrace

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


def outcome_of(body: str, *arguments: str, timeout: float = 60) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of BEGIN and `body`."""
    code = textwrap.dedent(BEGIN) + textwrap.dedent(body)
    try:
        result = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as expired:
        raise AssertionError(f"hangs; so far: {expired.stdout!r} {expired.stderr!r}") from None
    return result.returncode, result.stdout, result.stderr
