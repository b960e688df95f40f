"""Ctrl-C notes a wish to stop, so that what was measured until then is kept."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupt:
    """Within `with Interrupt() as interrupt:` the first Ctrl-C only makes `interrupt()` true; the
    second raises KeyboardInterrupt. Work asks `interrupt()` between its steps.
    """

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within it Ctrl-C raises KeyboardInterrupt: for work of which nothing is kept."""
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, ours)

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
