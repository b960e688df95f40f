# SPDX-License-Identifier: Apache-2.0
"""The keys of an engine whose blocks are in a store: a folder itself has only their hashes."""

from __future__ import annotations

import bisect
import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from headrace import kvcache

_log = logging.getLogger(__name__)

#: The file is rewritten when its lines exceed the keys by this number and are twice as many.
_SPARE_LINES = 1000


class KeyList:
    """Keys of the blocks of a store, in a file beside its folder. Each stored block has a line with
    its key, as a JSON string. If a line could not be written, as on a full disk, its block is found
    but not listed; nothing else is lost. Not thread-safe.
    """

    def __init__(self, path: Path, store: kvcache.Store) -> None:
        """Reads the file, and keeps the keys of blocks that the store has."""
        self._path = path
        self._store = store
        self._file: IO[bytes] | None = None
        self._lines = 0
        self._snapshot: list[tuple[bytes, str]] = []
        self.keys: dict[bytes, str] = {}  # by names in the store
        found = _read(path)
        names = list(found)
        for name, there in zip(names, store.contains(names), strict=True):
            if there:
                self.keys[name] = found[name]
        self._write_anew()

    def add(self, keys: dict[bytes, str]) -> None:
        """Adds keys, given by their names in the store."""
        self.keys.update(keys)
        self._append(keys.values())
        if self._lines > 2 * len(self.keys) + _SPARE_LINES:
            self._write_anew()

    def pop(self, name: bytes) -> str | None:
        return self.keys.pop(name, None)

    def page(self, after: bytes, most: int) -> list[tuple[bytes, str]]:
        """Keys with names above `after`, in order of names. A key that stays in the store during a
        listing from b"" to the last page is listed once.
        """
        if not after or not self._snapshot:
            self._snapshot = sorted(self.keys.items())
        first = bisect.bisect_right(self._snapshot, after, key=lambda each: each[0])
        return self._snapshot[first : first + most]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _append(self, keys: Iterable[str]) -> None:
        try:
            if self._file is not None:
                self._lines += _write(self._file, keys)
        except OSError as error:  # a torn line is left out when the file is read
            _log.warning("keys are not listed after a restart: %s", error)
            self.close()

    def _write_anew(self) -> None:
        """Replaces the file once its successor is on the disk; without space it stays."""
        self.close()
        draft = self._path.with_suffix(".new")
        try:
            self._file = draft.open("wb", buffering=0)
            _write(self._file, self.keys.values())
            os.fsync(self._file.fileno())
            os.replace(draft, self._path)
        except OSError as error:
            _log.warning("the list of keys is not shortened: %s", error)
            self.close()
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            with suppress(OSError):
                self._file = self._path.open("ab", buffering=0)
                self._file.write(b"\n")  # its last line may be torn
        self._lines = len(self.keys)


def _write(file: IO[bytes], keys: Iterable[str]) -> int:
    """Returns the number of lines. OSError: not all were written."""
    lines = [json.dumps(key) + "\n" for key in keys]
    rest = memoryview("".join(lines).encode())
    while rest:
        rest = rest[file.write(rest) :]
    return len(lines)


def _read(path: Path) -> dict[bytes, str]:
    """Keys by their names, without lines that are torn or damaged."""
    found: dict[bytes, str] = {}
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return found
    for line in lines:
        with suppress(ValueError, RecursionError):
            if isinstance(key := json.loads(line), str):
                found[kvcache.key(key.encode())] = key
    return found
