# SPDX-License-Identifier: Apache-2.0
"""Signals that stop the command, with the results so far kept: Ctrl-C; SIGTERM, by which batch
systems end a job; SIGHUP, when a terminal closes. A signal that was ignored at the start stays
ignored, such as Ctrl-C in a shell's background job, or SIGHUP under nohup.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from headrace._format import say

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The signals that asked this process to end, in their order.
_asked: list[int] = []
#: Signals for which KeyboardInterrupt was raised outside of any Interrupt.
_raised: list[int] = []
#: Whether work ended without results: by a second Ctrl-C, or because it keeps none.
_lost: list[bool] = []
#: Seconds that a running step has before a thread answers the signal.
_PATIENCE_SECONDS = 0.8


def by_ctrl_c() -> bool:
    """Whether a terminal's user asked to stop, not a batch system."""
    return _asked[:1] in ([], [signal.SIGINT])


def exit_code() -> int:
    """The exit code of a program ended by the first of these signals, as shells report it."""
    return 128 + (signal.SIGINT if by_ctrl_c() else _asked[0])


def words() -> str:
    """The last line of a command ended by a signal: the signal, and what is lost."""
    return _cause() + ("; unsaved results are lost" if _lost else "")


def words_of_results() -> str:
    """The last line of a command that ended by itself after a signal and wrote its results."""
    if _lost or _raised:
        return words()
    return f"{_cause()}; results cover the time until then"


def _cause() -> str:
    return "interrupted" if by_ctrl_c() else f"ended by {signal.Signals(_asked[0]).name}"


def end_with_a_line() -> None:
    """Makes SIGTERM and SIGHUP end the command like Ctrl-C: with a line, and after cleaning up."""
    _lost.clear()
    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _raise)


def was_raised() -> bool:
    """Whether KeyboardInterrupt was raised at any time. An import may swallow the exception, or
    turn it into another error.
    """
    return bool(_raised)


def heard() -> None:
    """Marks KeyboardInterrupt as the normal end of this command."""
    _raised.clear()


def _raise(number: int, frame: FrameType | None) -> None:
    _asked.append(number)
    _raised.append(number)
    raise KeyboardInterrupt


class Interrupt:
    """Within `with Interrupt() as interrupt:` the first signal only makes `interrupt()` true, which
    work checks between its steps. A second Ctrl-C raises KeyboardInterrupt. SIGTERM may come twice,
    since batch systems send it to each process of a job, and launchers pass it on.

    A step in C++ or the kernel may take long, and delays Python's signal handlers. A thread answers
    instead: it prints a line on what is waited for, or ends the process if nothing is kept or at a
    second Ctrl-C.
    """

    def __init__(self) -> None:
        self.requested = False
        self.keeps = False  #: whether there is something from before that is not to be lost
        self._ends_at_once = False
        self._ended = False  # KeyboardInterrupt was raised where nothing is kept
        self._heeded = threading.Event()  # the work knows that it should stop, or has ended
        self._raised = threading.Event()  # KeyboardInterrupt was raised, or the work has ended
        self._presses = 0

    def __call__(self) -> bool:
        if self.requested:
            self._heeded.set()
        return self.requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        _asked.append(number)
        if self.requested and number == signal.SIGINT:
            self._raised.set()
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within it a signal raises KeyboardInterrupt, for work that keeps no results. If a library
        swallowed the exception, as modules in C may do during import, it is raised again at the
        end.
        """
        ours = {number: signal.signal(number, self._end) for number in self._before}
        self._ends_at_once = not self.keeps
        try:
            yield
        finally:
            self._ends_at_once = False
            _restore(ours)
        if self._ended:
            raise KeyboardInterrupt

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ended = True
        _asked.append(number)
        self._heeded.set()
        self._raised.set()
        raise KeyboardInterrupt

    def __enter__(self) -> Interrupt:
        heard = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heard}
        self._heard, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        self._former = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._wakeup: int | None = wakeup
        try:
            threading.Thread(target=self._listen, daemon=True).start()
        except RuntimeError:  # no thread to be had: answers come between two steps only
            self._unplug()
            os.close(self._heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is KeyboardInterrupt:
            _lost.append(True)
        self._unplug()
        _restore(self._before)
        self._heeded.set()
        self._raised.set()

    def _unplug(self) -> None:
        """Stops passing signals to the thread, and so ends it."""
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._former)
            os.close(self._wakeup)
            self._wakeup = None

    def _listen(self) -> None:
        """Runs in a thread, which sees signals at once, whatever the main thread does."""
        while numbers := os.read(self._heard, 16):
            heard = [number for number in numbers if number in _SIGNALS]
            if not heard:
                continue
            self._presses += numbers.count(signal.SIGINT)
            answer = self._raised if self._presses > 1 else self._heeded
            if not answer.wait(_PATIENCE_SECONDS):
                _asked.extend(heard)  # Python has not heard of it yet
                self._answer()
        os.close(self._heard)

    def _answer(self) -> None:
        if self._presses > 1 or self._ends_at_once:
            _lost.append(True)
            _say(words())
            os._exit(exit_code())
        kept = ", with what was measured" if self.keeps else ""
        again = "; Ctrl-C again ends it at once" if by_ctrl_c() else ""
        _say(f"stops after this step{kept}{again}")


def _say(text: str) -> None:
    shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # the cursor, which a bar may have hidden
    say(text, before=shown)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
