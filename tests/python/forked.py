# SPDX-License-Identifier: Apache-2.0
"""Commands and programs, each in a process of its own that is forked from one that has loaded what
they load. A fork has its own directory, environment, output, signals and end, and costs a tenth of
a start. Tests of a start itself, of limits, terminals or streams start the installed command, and
so do launches of a measurement, which alone look at whether the host is disturbed.

Run as a program this module is the process that is forked.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

#: Modules that commands load, and libraries that some of them load.
LOADED = (
    "headrace._cli.app", "headrace._cli.demo", "headrace._cli.tables", "headrace._cli.report",
    "headrace._cli.measure", "headrace._cli.fleet", "headrace_bench.commands.query",
    "headrace_bench.predict.command",
    "typer.exceptions", "altair", "jinja2", "numpy", "rich.console",
)  # fmt: skip

#: Variables that are read while Python or a library starts: a fork would not see them.
READ_AT_THE_START = (
    "PYTHON", "LC_", "LANG", "LD_", "TERM", "OMP_", "OPENBLAS_", "FORCE_COLOR", "NO_COLOR",
)  # fmt: skip


def clean_environment() -> dict[str, str]:
    """This process's, without what says how headrace behaves."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE", "MEMKIND"))}
    return kept | {"COLUMNS": "80"}


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork behaves as a start would with these variables."""
    ours = clean_environment()
    names = {k for k in ours.keys() | environment.keys() if ours.get(k) != environment.get(k)}
    return not any(name.startswith(READ_AT_THE_START) for name in names)


class Forks:
    """The process that is forked; started by the first call."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None

    def run(
        self, arguments: Sequence[str], cwd: Path | str, environment: Mapping[str, str],
        timeout: float, program: str | None = None, frees: bool = False,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Runs the command, or a program (python -c). It `frees` what it has at its end, as
        after a start, or leaves that to the kernel.
        """
        words = [*map(str, arguments)]
        request = {
            "arguments": words, "cwd": str(cwd), "environment": dict(environment),
            "program": program, "frees": frees,
        }  # fmt: skip
        channel = self._started()
        pipes = [os.pipe() for _ in range(2)]
        message = json.dumps(request).encode()
        socket.send_fds(channel, [len(message).to_bytes(8, "little")], [w for _, w in pipes])
        channel.sendall(message)
        for _, write in pipes:
            os.close(write)
        pid = self._answer()
        try:
            out, error = _read([read for read, _ in pipes], timeout)
        except BaseException as failure:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if isinstance(failure, TimeoutError):
                raise subprocess.TimeoutExpired(words, timeout, *failure.args) from None
            raise
        finally:
            code = self._answer()
        return subprocess.CompletedProcess(words, code, out, error)

    def _started(self) -> socket.socket:
        if self._channel is None:
            self._channel, theirs = socket.socketpair()
            with theirs:
                # The streams of forks are pipes too, which have no position.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()], env=clean_environment(), stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )  # fmt: skip
        return self._channel

    def _answer(self) -> int:
        assert self._channel is not None
        if answer := self._channel.recv(8):
            return int.from_bytes(answer, "little", signed=True)
        raise RuntimeError(f"nothing can be forked: {self._process.communicate()[1].decode()}")

    def end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._process.communicate(timeout=60)


FORKS = Forks()


def _read(pipes: list[int], timeout: float) -> list[str]:
    """All of both, until the last process that has them has ended."""
    until = time.monotonic() + timeout
    found = {pipe: b"" for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        try:
            while selector.get_map():
                ready = selector.select(until - time.monotonic())
                if time.monotonic() > until:
                    raise TimeoutError(*map(_text, found.values()))
                for key, _ in ready:
                    if not (read := os.read(key.fd, 1 << 16)):
                        selector.unregister(key.fd)
                    found[key.fd] += read
        finally:
            for pipe in pipes:
                os.close(pipe)
    return [_text(read) for read in found.values()]


def _text(read: bytes) -> str:
    return read.decode(errors="surrogateescape").replace("\r\n", "\n")


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Forks until nobody asks any more. It returns in the forks."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(channel, 8, 2)
        if not head:
            os._exit(0)
        message = channel.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL)
        if (pid := os.fork()) == 0:
            channel.close()
            for target, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, target)
                os.close(descriptor)
            request: dict[str, Any] = json.loads(message)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        channel.sendall(pid.to_bytes(8, "little", signed=True))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.sendall(code.to_bytes(8, "little", signed=True))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, which end this
    for name in LOADED:
        import_module(name)
    # Looks at whether the host is disturbed take most of the time of a small measurement.
    headrace: Any = import_module("headrace")
    headrace.measure = functools.partial(headrace.measure, noise_checks=False)
    sys.path.append(str(Path(__file__).parent))
    small_host = import_module("small_host")
    sys.path.pop()
    small_host.shrink()
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ.setdefault("PYTHONPATH", small_host.ENVIRONMENT["PYTHONPATH"])  # for launches
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        if request["program"] is None:
            sys.argv = request["arguments"]
            import_module("headrace._cli").main()
        sys.argv = ["-c", *request["arguments"]]
        sys.path.insert(0, "")
        exec(request["program"], vars(sys.modules["__main__"]))
    except SystemExit as end:
        if request["frees"] or not isinstance(end.code, int):
            raise
        _end(end.code)
    if not request["frees"]:
        _end(0)


def _end(code: int) -> NoReturn:
    """As the interpreter does, without clearing its modules, most of the time that it takes."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
