# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of a client in other threads: headrace.KvJobs for a served store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import headrace
from headrace._serving.client import Attached

#: Number of jobs in progress at once, so that a load does not wait for one long store.
_THREADS = 4
#: Number, which blocks were loaded, how many were loaded or kept, and why not all were.
_Outcome = tuple[int, list[bool], int, str]


class Jobs:
    """Thread-safe."""

    def __init__(self, store: Attached, memory: Any) -> None:
        self._store = store
        self._memory = memory
        self._pool = ThreadPoolExecutor(_THREADS, "headrace-jobs")
        self._lock = threading.Lock()
        self._running: set[Future[None]] = set()
        self._ended: list[_Outcome] = []
        self._stats: Any = None
        self._asking = False

    def store(self, number: int, keys: Sequence[bytes], positions: Any) -> None:
        """Until the job has ended the memory must not change."""
        self._begin(number, list(keys), positions.tolist(), loads=False)

    def load(
        self, number: int, keys: Sequence[bytes], positions: Any, *, part: int, promote: bool
    ) -> None:
        """`part` and `promote` have no effect."""
        self._begin(number, list(keys), positions.tolist(), loads=True)

    def take(self) -> list[_Outcome]:
        """Jobs that have ended since the last call."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def stats(self) -> Any:
        """The server's counts of an earlier call, or None. Waits for nothing: asks for new ones."""
        with self._lock:
            if not self._asking:
                self._asking = True
                self._pool.submit(self._ask)
            return self._stats

    def _ask(self) -> None:
        try:
            counts = self._store.stats()
        except headrace.Error:
            counts = None
        with self._lock:
            self._stats, self._asking = counts, False

    def wait(self, timeout: float) -> None:
        """TimedOutError: some jobs have not ended."""
        with self._lock:
            running = set(self._running)
        if wait(running, timeout).not_done:
            raise headrace.TimedOutError("jobs of the server have not ended")

    def close(self) -> None:
        self._pool.shutdown()

    def _begin(self, number: int, keys: list[bytes], positions: list[int], loads: bool) -> None:
        with self._lock:
            future = self._pool.submit(self._run, number, keys, positions, loads)
            self._running.add(future)
        future.add_done_callback(self._running.discard)

    def _run(self, number: int, keys: list[bytes], positions: list[int], loads: bool) -> None:
        loaded: list[bool] = [False] * len(keys) if loads else []
        there, why = 0, ""
        try:
            if loads:
                loaded = self._store.load_blocks(keys, self._memory, positions=positions).loaded
                there = sum(loaded)
            else:
                counts = self._store.store(keys, self._memory, positions=positions).wait()
                there = counts.stored + counts.present
        except Exception as error:  # whatever it is, the job ends
            why = str(error)
        with self._lock:
            self._ended.append((number, loaded, there, why))
