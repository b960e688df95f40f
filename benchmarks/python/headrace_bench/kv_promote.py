# SPDX-License-Identifier: Apache-2.0
"""Moves a server's memory while it is measured: `headrace.tier_process` keeps the server within a
budget. It makes a step each quarter of a second, like `headrace tier attach`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import headrace
from headrace._core import HostFiles as Files
from headrace._tiering import switch
from headrace._tiering.plan import Wish

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
        """The totals so far. Raises the error that ended the tiering, if any."""
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
def keeping(
    process: int, budget: int, nodes: tuple[int, int] | None = None
) -> Iterator[Keeper]:
    """Tiers between the fast and the slow node, or without nodes between memory and swap. There is
    no guard, so that the result shows promotion itself and not when it gives up. Errors: those of
    tier_process.
    """
    fast, slow = ([], []) if nodes is None else ([node] for node in nodes)
    keeper = Keeper(headrace.tier_process(process, budget, guard=0.0, fast=fast, slow=slow))
    try:
        yield keeper
    finally:
        keeper.end()


@contextmanager
def table(wish: Wish) -> Iterator[None]:
    """Sets the kernel's table of weights by `headrace tier kernel`, and restores it at the end,
    also after a kill. Errors: those of --on.
    """
    switch.on(Files(), wish)
    try:
        yield
    finally:
        switch.off(Files())
