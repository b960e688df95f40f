# SPDX-License-Identifier: Apache-2.0
"""Files in a directory that only root or the calling user can write. Links are not followed, and
modes do not depend on the umask.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace import InvalidError, TimedOutError
from headrace._core import LARGEST_DOCUMENT

_FOLDER_MODE, _FILE_MODE, _LOCK_MODE = 0o755, 0o644, 0o600
#: Error numbers that mean: a link was not followed.
_A_LINK = {errno.ELOOP, errno.ENOTDIR}


@contextmanager
def opened(path: Path, told: str, *, make: bool = False) -> Iterator[int]:
    """Opens the directory, which messages call `told`. InvalidError: other users may write to it.
    OSError: it cannot be opened.
    """
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
    made = make and _made(path)
    handle = _opened(path, os.O_RDONLY | os.O_DIRECTORY, told)
    try:
        if made:
            os.fchmod(handle, _FOLDER_MODE)
        _check(handle, told, stat.S_ISDIR)
        yield handle
    finally:
        os.close(handle)


def _made(path: Path) -> bool:
    try:
        path.mkdir(_FOLDER_MODE)
    except FileExistsError:
        return False
    return True


def read(folder: int, name: str, told: str) -> bytes:
    """Reads a file. InvalidError: other users may have written it. OSError: it cannot be opened."""
    handle = _opened(name, os.O_RDONLY | os.O_NONBLOCK, told, folder=folder)
    try:
        _check(handle, told, stat.S_ISREG)
        with open(handle, "rb", closefd=False) as file:
            content = file.read(LARGEST_DOCUMENT + 1)
    finally:
        os.close(handle)
    if len(content) > LARGEST_DOCUMENT:
        raise InvalidError(f"{told} is larger than any document of headrace; remove it")
    return content


def replace(folder: int, name: str, content: bytes) -> None:
    """Writes all of the file or nothing; on return it is on the disk. One call at a time. OSError:
    it cannot be written; the old file stays.
    """
    temporary = f".{name}.new"
    _remove(folder, temporary)  # as one that was killed leaves it
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(temporary, flags, _FILE_MODE, dir_fd=folder)
        with open(handle, "wb") as file:
            os.fchmod(handle, _FILE_MODE)
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            _remove(folder, temporary)
        raise
    os.fsync(folder)


def remove(folder: int, name: str) -> None:
    """Removes the file if it exists; on return it is gone from the disk."""
    _remove(folder, name)
    os.fsync(folder)


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def lock(folder: int, name: str, told: str) -> int:
    """Opens a file to lock. Other users cannot open it, since anyone who can may keep it locked."""
    handle = _opened(name, os.O_RDWR | os.O_CREAT, told, folder=folder)
    try:
        _check(handle, told, stat.S_ISREG)
        os.fchmod(handle, _LOCK_MODE)
    except BaseException:
        os.close(handle)
        raise
    return handle


def taken(handle: int) -> bool:
    """Tries to lock it: True if no other process has the lock. The kernel releases the lock of a
    process that dies.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take(handle: int, seconds: float, who: str) -> None:
    """Locks it. TimedOutError: another process, which messages call `who`, held the lock all the
    time."""
    until = time.monotonic() + seconds
    while not taken(handle):
        if time.monotonic() >= until:
            raise TimedOutError(
                f"{who} has been at work for {seconds:g} s; try again when it has ended"
            )
        time.sleep(0.02)


def _opened(path: Path | str, flags: int, told: str, folder: int | None = None) -> int:
    try:
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, _LOCK_MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in _A_LINK:
            raise InvalidError(
                f"{told} is a link or no {'directory' if folder is None else 'file'}, so somebody "
                "else may have made it; look at it, then remove it"
            ) from None
        raise


def _check(handle: int, told: str, is_kind: Callable[[int], bool]) -> None:
    found = os.fstat(handle)
    why = None
    if not is_kind(found.st_mode):
        why = "is of another kind than headrace makes"
    elif found.st_uid not in (0, os.geteuid()):
        why = f"belongs to user {found.st_uid}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if why is not None:
        raise InvalidError(
            f"{told} {why}, so somebody else may have written it; look at it, then remove it"
        )
