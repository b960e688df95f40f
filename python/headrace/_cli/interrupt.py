"""Ctrl-C notes a wish to stop, so that what was measured until then is kept; so does SIGTERM, with
which batch systems end what has taken too long.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Within `with Interrupt() as interrupt:` the first signal only makes `interrupt()` true; a
    second Ctrl-C raises KeyboardInterrupt. SIGTERM may come twice: batch systems send it to each
    process of a job, and who ended passes it on. Work asks `interrupt()` between its steps.
    """

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within it a signal raises KeyboardInterrupt: for work of which nothing is kept."""
        ours = [signal.signal(number, signal.default_int_handler) for number in _SIGNALS]
        try:
            yield
        finally:
            _restore(ours)

    def __enter__(self) -> Interrupt:
        self._before = [signal.signal(number, self._note) for number in _SIGNALS]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _restore(self._before)


def _restore(handlers: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        signal.signal(number, handler)
