# SPDX-License-Identifier: Apache-2.0
"""Bit 1 of numa_balancing, which `headrace tier attach` and `run` set for as long as they run
(src/tier/settings/hold.h): all that is said here is of the setting without their bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from headrace._errors import error_of
from headrace._tiering import folder
from headrace._tiering.files import Files

BALANCING = "proc/sys/kernel/numa_balancing"
FOLDER = "run/headrace"
_NOTE = "hint-faults"  # holds something while the bit is theirs; each of them has it locked
_LOCK = "hint-faults.lock"
_ON_ALL_NODES = 1
#: How long one waits for another, which has the lock for no longer than a write takes.
_LOCK_SECONDS = 10.0


def read(files: Files, name: str) -> str | None:
    """As Files.read."""
    if name != BALANCING:
        return files.read(name)
    held = _held(files)
    now = files.read(name)
    # Who takes the bit notes it first, and who gives it back forgets it last.
    if now is None or not now.isdecimal() or not (held or _held(files)):
        return now
    return str(int(now) & ~_ON_ALL_NODES)


def write(files: Files, name: str, value: str) -> None:
    """As Files.write. The bit stays where somebody needs it; one that a killed one left goes."""
    if name != BALANCING:
        files.write(name, value)
        return
    with _alone(files) as note:
        needed = _held(files) and not folder.taken(note)
        files.write(name, str(int(value) | _ON_ALL_NODES) if needed else value)
        if not needed:
            with suppress(OSError):  # whoever comes next finds the bit gone already
                os.ftruncate(note, 0)


def _held(files: Files) -> bool:
    try:
        return files.path(f"{FOLDER}/{_NOTE}").stat().st_size > 0
    except OSError:
        return False


@contextmanager
def _alone(files: Files) -> Iterator[int]:
    """A handle of the note, which nobody else changes meanwhile."""
    try:
        with folder.opened(files.path(FOLDER), f"/{FOLDER}") as at:
            lock, note = _file(at, _LOCK), _file(at, _NOTE)
    except OSError as error:
        raise error_of(error, f"cannot open /{FOLDER}/{_NOTE}", "to do it as root (sudo)") from None
    with lock, note:
        who = f"another headrace tier (/{FOLDER}/{_LOCK})"
        folder.take(lock.fileno(), _LOCK_SECONDS, who)
        yield note.fileno()


def _file(at: int, name: str) -> FileIO:
    """Closed when nobody has it any more, also by a Ctrl-C that comes before its end."""
    return FileIO(folder.lock(at, name, f"/{FOLDER}/{name}"), "r+")
