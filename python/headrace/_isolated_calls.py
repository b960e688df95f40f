# SPDX-License-Identifier: Apache-2.0
"""Runs third-party libraries in a process of their own. A crash, abort or panic ends only that
process; the caller gets an error of one sentence and keeps its results.

    with Child("DuckDB") as child:
        rows = child.call(query, path)

Functions must be a module's, and pickle must know their arguments and results. Single-thread.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from headrace import _core
from headrace._errors import error_of, kind_of

T = TypeVar("T")
#: Seconds between two checks for a request to stop.
_LOOK = 0.05
#: Signals that end programs which run out of memory.
_WITHOUT_MEMORY = (signal.SIGABRT, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP)


class Child:
    """A process that calls functions until it is closed; `who` names it in errors."""

    def __init__(self, who: str) -> None:
        self._who = who
        try:
            self._pipe, theirs = multiprocessing.Pipe()
        except OSError as error:
            raise _not_started(who, error) from None
        try:
            # The output of a dying library, such as its stack, is of no use to a user.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace._isolated_calls", str(theirs.fileno())],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            self._pipe.close()
            raise _not_started(who, error) from None
        finally:
            theirs.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    def call(
        self,
        function: Callable[..., T],
        *arguments: object,
        seconds: float = 3600.0,
        stop: Callable[[], bool] | None = None,
    ) -> T:
        """Returns function(*arguments), called in the child. Raises its exception, if that is an
        OSError or Headrace's. CancelledError: `stop` returned true. TimedOutError: after `seconds`.
        """
        try:
            self._pipe.send((function, arguments))
            # Looks are counted instead of seconds, so that no time passes while this process is
            # paused.
            for _ in range(max(1, round(seconds / _LOOK))):
                if self._pipe.poll(_LOOK):
                    answer: T = self._answer(*self._pipe.recv())
                    return answer
                if stop is not None and stop():
                    raise _core.CancelledError(f"{self._who} was stopped")
        except (EOFError, ConnectionError):
            if stop is not None and stop():
                raise _core.CancelledError(f"{self._who} was stopped") from None
            raise death(self._who, self._process.wait()) from None
        raise _core.TimedOutError(f"{self._who} had no answer within {seconds:g} s")

    def _answer(self, kind: str, *found: Any) -> Any:
        if kind == "value":
            return found[0]
        if kind == "system":
            raise OSError(*found)
        if kind == "other":
            raise _core.IoError(f"{self._who} failed: {found[0]}")
        raise kind_of(kind)(found[0])


def death(who: str, code: int) -> _core.Error:
    """The error for a process that ended with this code, negative for a signal."""
    if code == -signal.SIGKILL:
        return _core.ExhaustedError(
            f"{who} was killed, as the kernel does when memory, or a control group's part of it, "
            "is short; free some, or raise the limit"
        )
    how = f"by {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and -code in _WITHOUT_MEMORY:
        return _core.ExhaustedError(
            f"{who} ended {how} where ulimit -v allows {limit / 1e9:.1f} GB of address space; "
            "raise it or do without"
        )
    return _core.IoError(f"{who} ended {how}; headrace doctor says what is amiss here")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time signals only the first and the last have names
        return f"signal {number}"


def _not_started(who: str, error: OSError) -> _core.Error:
    return error_of(error, f"cannot start {who}", "higher limits (ulimit -a)")


def call(who: str, function: Callable[..., T], *arguments: object, seconds: float = 3600.0) -> T:
    """One call in a process of its own."""
    with Child(who) as child:
        return child.call(function, *arguments, seconds=seconds)


def _serve(pipe: Connection) -> None:
    """Serves calls until the pipe is closed."""
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(_called(function, arguments))


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return "value", function(*arguments)
    except _core.Error as error:
        return error.code, str(error)
    except OSError as error:
        return "system", error.errno, error.strerror or str(error)
    except BaseException as error:  # a panic of a library in Rust is no Exception
        return "other", (str(error).splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    # Ctrl-C reaches every process of a terminal; the caller decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(Connection(int(sys.argv[1])))
