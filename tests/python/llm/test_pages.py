# SPDX-License-Identifier: Apache-2.0
"""Pages of an engine's host memory, with copies that take longer than any wait."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import headrace
from headrace import _pages, _plugin


class SlowCopy:
    """A copy that ends after some waits. `error`: what a wait for it raises afterwards."""

    def __init__(self, waits: int, pages: int, error: Exception | None = None) -> None:
        self.left = waits
        self.loaded = [True] * pages
        self.cancelled = False
        self._counts = SimpleNamespace(stored=pages, present=0)
        self._error = error

    def done(self) -> bool:
        return self.left == 0

    def cancel(self) -> None:
        self.cancelled = True

    def wait(self, timeout: float) -> Any:
        if self.left > 0:
            self.left -= 1
            raise headrace.TimedOutError("slow")
        if self._error is not None:
            raise self._error
        return self._counts


class SlowStore:
    def __init__(self, copies: list[SlowCopy]) -> None:
        self.copies = copies
        self._next: Iterator[SlowCopy] = iter(copies)

    def store(self, names: list[bytes], memory: Any) -> SlowCopy:
        return next(self._next)

    load_blocks = store

    def stats(self) -> Any:
        counts = SimpleNamespace(stored=1, refused=0, failed=0)
        return SimpleNamespace(stores=counts, failed=0, last_error_age=None)


def pages_of(store: SlowStore) -> _pages.StoredPages:
    memory: Any = SimpleNamespace(region=None, page_bytes=_pages._PART_BYTES)  # one page in a part
    given: Any = store
    machine: Any = None
    return _pages.StoredPages(given, memory, machine, 2 * _pages._PART_BYTES)


def test_a_store_returns_when_the_memory_is_not_read_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SlowStore([SlowCopy(3, 1), SlowCopy(0, 1)])
    assert pages_of(store)._keep(["a", "b"], [None, None], None) == [True, True]
    assert all(copy.done() for copy in store.copies)
    assert caplog.text.count("still in use") == 3


def test_a_load_is_cancelled_and_returns_when_the_memory_is_not_written_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = headrace.CancelledError("cancelled")
    store = SlowStore([SlowCopy(4, 1, error), SlowCopy(0, 1)])
    store.copies[0].loaded = [False]
    assert pages_of(store)._load(["a", "b"], [None, None], None) == [False, True]
    assert all(copy.done() for copy in store.copies)
    assert [copy.cancelled for copy in store.copies] == [True, False]
    assert caplog.text.count("still in use") == 3


def test_a_store_that_is_closed_meanwhile_keeps_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(store: SlowStore) -> Any:
        raise headrace.CancelledError("the KV store is closed")

    monkeypatch.setattr(SlowStore, "stats", closed)
    assert pages_of(SlowStore([SlowCopy(0, 1)]))._keep(["a"], [None], None) == [True]


def test_a_server_that_is_started_again_counts_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_plugin, "_AGAIN_SECONDS", -1.0)  # each is said
    warner = _plugin.Warner(logging.getLogger("test"))
    for stored, refused in ((9, 5), (9, 5), (1, 2)):
        counts = SimpleNamespace(stored=stored, refused=refused, failed=0)
        stats: Any = SimpleNamespace(stores=counts, failed=0, last_error_age=None)
        warner.not_kept("blocks", stats)
    said = [record.getMessage().partition(", since")[0] for record in caplog.records]
    assert said == ["5 blocks were not kept, and 9 were", "2 blocks were not kept, and 1 were"]
