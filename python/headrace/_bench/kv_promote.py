"""What keeps a server's memory within a budget while it is measured: `headrace.tier_process`, a
step each quarter of a second, as `headrace tier attach` does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import headrace

_STEP_SECONDS = 0.25


class Keeper:
    """A tier that steps in a thread of its own."""

    def __init__(self, tier: headrace.ProcessTier) -> None:
        self._tier = tier
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._keep, name="headrace-kv-tier", daemon=True)
        self._thread.start()

    def totals(self) -> headrace.ProcessTierTotals:
        """So far. What it ended by, if it has."""
        if self._error is not None:
            raise self._error
        return self._tier.totals()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._tier.close()

    def _keep(self) -> None:
        try:
            while not self._over.wait(_STEP_SECONDS):
                self._tier.step()
        except BaseException as error:  # told to whoever measures
            self._error = error


@contextmanager
def keeping(process: int, budget: int) -> Iterator[Keeper]:
    """It has no guard: what is measured is what promotion gives, not when it gives up. Errors: as
    tier_process.
    """
    keeper = Keeper(headrace.tier_process(process, budget, guard=0.0))
    try:
        yield keeper
    finally:
        keeper.end()
