# SPDX-License-Identifier: Apache-2.0
"""One Spark: a driver (spark_driver.py) with its JVM, in a process group of their own. The group
ends with the block it was started in; if this process dies, the end of its stdin ends it.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._errors import error_of

_LOOK = 0.05
_START_SECONDS = 300.0
_QUERY_SECONDS = 3600.0
_STOP_SECONDS = 30.0
_END_SECONDS = 10.0


def check_installed() -> None:
    """AbsentError: Spark's packages or Java are missing, with their names."""
    missing = []
    if find_spec("pyspark") is None:
        missing.append(("pyspark", f"{shlex.quote(sys.executable)} -m pip install pyspark"))
    if java() is None:
        missing.append(("java", "sudo apt install default-jre-headless"))
    if missing:
        names, commands = zip(*missing, strict=True)
        raise headrace.AbsentError(
            f"no {' and no '.join(names)}; install: {' && '.join(commands)}"
        )


def java() -> str | None:
    """The path of Java, found in the same way as by Spark."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


@dataclass
class Spark:
    """A running Spark, which answers one request after the other. Errors: io, timed_out; cancelled:
    `stop` returned true."""

    driver: subprocess.Popen[bytes]
    answers: int
    log: Path
    stop: Callable[[], bool]
    version: str = ""
    process: int = 0  #: of the JVM

    def begin(self, master: str, settings: dict[str, str], tables: dict[str, str]) -> None:
        request = {"master": master, "settings": settings, "tables": tables}
        begun = self._asked(request, _START_SECONDS, f"Spark did not start on {master}")
        self.version, self.process = begun["version"], begun["process"]

    def query(self, sql: str, group: str) -> dict[str, Any]:
        return self._asked({"sql": sql, "group": group}, _QUERY_SECONDS, "Spark")

    def end(self) -> None:
        """Ends Spark. After that its log is complete."""
        self._asked({}, _STOP_SECONDS, "Spark did not end")

    def _asked(self, request: dict[str, Any], seconds: float, what: str) -> dict[str, Any]:
        assert self.driver.stdin is not None
        try:
            self.driver.stdin.write(json.dumps(request).encode() + b"\n")
            self.driver.stdin.flush()
            line = self._line(seconds)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise headrace.IoError(f"{what}: {self._logged()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise headrace.IoError(f"{what}: {answer['error']}")
        return answer

    def _logged(self) -> str:
        return programs.last_line(self.log.read_text(errors="replace"))

    def _line(self, seconds: float) -> bytes:
        line = b""
        # Looks are counted instead of seconds, so that no time passes while this process is paused.
        for _ in range(round(seconds / _LOOK)):
            if self.stop():
                raise headrace.CancelledError("Spark was stopped")
            while select.select([self.answers], [], [], 0 if line else _LOOK)[0]:
                part = os.read(self.answers, 1 << 16)
                line += part
                if not part or line.endswith(b"\n"):
                    return line
        raise headrace.TimedOutError(
            f"Spark had no answer within {seconds:.0f} s: {self._logged()}"
        )


@contextmanager
def started(
    launch: list[str], directory: Path, stop: Callable[[], bool]
) -> Iterator[Spark]:
    """Starts a driver that has begun nothing yet. It writes only below a directory, and uses only
    our configuration.
    """
    ours, theirs = os.pipe()
    log = directory / "log"
    command = [*launch, sys.executable, "-P", "-m", "headrace_bench.spark_driver", str(theirs)]
    foreign = ("SPARK_", "PYSPARK_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    environment |= {"TMPDIR": str(directory), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        try:
            with log.open("wb") as output:
                # In a process group of its own, so that Ctrl-C on a terminal reaches only this
                # process.
                driver = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=output, stderr=output,
                    pass_fds=[theirs], process_group=0, cwd=directory, env=environment,
                )  # fmt: skip
        except OSError as error:
            raise error_of(error, "cannot start Spark") from None
        finally:
            os.close(theirs)
        try:
            yield Spark(driver, ours, log, stop)
        finally:
            _end(driver)
    finally:
        os.close(ours)


def _end(driver: subprocess.Popen[bytes]) -> None:
    """Ends the group, and returns when none of its processes writes any more, or after some
    seconds."""
    try:
        os.killpg(driver.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    assert driver.stdin is not None
    try:
        driver.stdin.close()
    except BrokenPipeError:
        pass
    driver.wait()
    for _ in range(round(_END_SECONDS / _LOOK)):
        if not _alive(driver.pid):
            return
        time.sleep(_LOOK)


def _alive(group: int) -> bool:
    """Whether a process of the group still runs. Zombies do not count."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = entry.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(of) == group and state not in "ZX":
            return True
    return False
