# SPDX-License-Identifier: Apache-2.0
"""The command headrace in a guest, where a start of Python takes seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from headrace._cli import app, main, run, where  # noqa: F401  for every fork

#: As a process of its own.
HEADRACE = [sys.executable, "-c", "from headrace._cli import main; main()"]
#: Ranks, their number to follow; Open MPI's own binding left out.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"]


def started(
    arguments: Sequence[str],
    streams: Sequence[IO[str]],
    group: Path | None = None,
    variables: dict[str, str] | None = None,
) -> int:
    """The PID of the command as a fork of this process, which has imported what it needs; with
    these as its first open files; in a cgroup if given."""
    child = os.fork()
    if child == 0:
        if group is not None:
            (group / "cgroup.procs").write_text("0")
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        os.environ.update(variables or {})
        os._exit(ended_with(arguments))
    return child


def headrace(
    *arguments: str, group: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The same command when it has ended."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = started(arguments, (sys.stdin, out, err), group, variables)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def ended_with(arguments: Sequence[str]) -> int:
    sys.argv = ["headrace", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.stdout.flush()
    return 0
