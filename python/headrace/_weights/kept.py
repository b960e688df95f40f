# SPDX-License-Identifier: Apache-2.0
"""Copies of files of weights in a folder in DRAM, shared by the processes of a host.

The name of a copy holds the file's path and identity. A copy is complete once it has its name. One
process at a time makes or removes copies, under the lock of the folder. A process that maps a copy
holds a shared lock on the copy, and such a copy is not evicted. Only files with names of copies
are touched.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from headrace._core import (
    DeniedError,
    Error,
    ExhaustedError,
    InvalidError,
    IoError,
    TimedOutError,
)
from headrace._errors import error_of
from headrace._format import size
from headrace._weights.files import Opened

_PAGE = 4096
#: Bytes of a checksum; how often a lock that another process has is tried again.
_PART, _PAUSE = 16 << 20, 0.02
_MAKING = ".making"
#: Names of copies, complete ones and those being made.
_OURS = re.compile(r"[0-9a-f]{32}(\.making)?")
#: No copy is kept of a file that changed in the last seconds: with coarse times (FAT has 2 s) the
#: next change may leave its identity the same.
_SETTLED = 2.0
#: Another process's new copy that is damaged too is replaced at most this many times.
_ATTEMPTS = 8
_FULL = (errno.ENOSPC, errno.EDQUOT)


def default_folder() -> str:
    return f"/dev/shm/headrace-{os.geteuid()}"


@dataclass(frozen=True)
class Keep:
    """Where copies of files are kept for other processes and later starts.

    `budget`: most bytes of all copies in the folder, or as "64GiB"; at least the size of the model.
    A new copy evicts the least used ones. `folder`: on a tmpfs (huge pages and the node are options
    of its mount); default: /dev/shm/headrace-UID. Only its owner may write it. `verify`: compare
    copies with their checksums whenever they are mapped; a damaged one is made anew. `wait`: most
    seconds for another process that makes a copy.
    """

    budget: int | str
    folder: str | os.PathLike[str] | None = None
    verify: bool = True
    wait: float = 3600.0

    def __post_init__(self) -> None:
        if not isinstance(self.budget, int | str) or self.limit() <= 0:
            raise InvalidError(f"Keep(): budget is {self.budget!r}; give bytes, or as '64GiB'")
        if not isinstance(self.wait, int | float) or not self.wait >= 0:
            raise InvalidError(f"Keep(): wait is {self.wait!r}; give seconds, at least 0")

    def limit(self) -> int:
        return size(self.budget) if isinstance(self.budget, str) else self.budget


#: Reads all of a file into memory.
Fill = Callable[[Any], None]


def kept(opened: Opened, keep: Keep, fill: Fill) -> mmap.mmap:
    """Maps the file's copy, which is made if it is absent or damaged. Pages that this process
    writes become its own. A file that has just changed is read into memory of this process.

    Errors: ExhaustedError: the budget or the folder's file system has no space for it. DeniedError:
    the folder is not this user's. TimedOutError: another process still makes a copy.
    """
    if _just_changed(opened):
        own = mmap.mmap(-1, opened.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        fill(own)
        return own
    folder = _folder(keep)
    name = _name(opened)
    path = folder / name
    until = time.monotonic() + keep.wait
    for _ in range(_ATTEMPTS):
        found = _mapped(path)  # while it is mapped, no other file has its number
        if found is not None and _is_whole(found, opened, name, keep.verify):
            return found.copy
        with _locked(folder, until):
            if _number(path) == (None if found is None else found.number):
                _make(folder, name, opened, keep, fill)
                found = _mapped(path)
                if found is None or not _is_whole(found, opened, name, verify=False):
                    raise opened.changed()
                return found.copy
        # Another process made or removed the copy meanwhile.
    raise IoError(f"copies in {folder} are damaged or removed by others; give another folder")


def _just_changed(opened: Opened) -> bool:
    now = time.time()
    return any(abs(now - each) < _SETTLED for each in opened.changed_at)


def _folder(keep: Keep) -> Path:
    folder = Path(keep.folder if keep.folder is not None else default_folder())
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Others may put a link into the default folder's parent; a folder given may be a link.
        status = folder.lstat() if keep.folder is None else folder.stat()
    except OSError as error:
        raise error_of(error, f"cannot keep weights in {folder}", choice="another folder") from None
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidError(f"{folder} is no folder to keep weights in; name another")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise DeniedError(
            f"others may write {folder}, so weights are not kept there; name a folder that only "
            "you may write"
        )
    return folder


def _name(opened: Opened) -> str:
    path = os.path.realpath(opened.path)
    words = "\0".join(str(each) for each in (path, *opened.identity))
    return hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()[:32]


@contextmanager
def _locked(folder: Path, until: float) -> Iterator[None]:
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            if time.monotonic() > until:
                raise TimedOutError(
                    f"another process still makes a copy in {folder}; give a larger wait="
                )
            time.sleep(_PAUSE)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # a child of fork() may have the descriptor too
        os.close(file)


def _lengths(opened: Opened) -> tuple[int, int]:
    """Bytes of the data in whole pages, and of the checksums behind it."""
    data = (opened.size + _PAGE - 1) // _PAGE * _PAGE
    return data, 8 * ((data + _PART - 1) // _PART)


class _Found(NamedTuple):
    """A copy, which may be damaged. `number`: its inode."""

    copy: mmap.mmap
    number: int


def _mapped(path: Path) -> _Found | None:
    """Maps the copy and locks it while it is mapped. None: there is no copy, or it is being
    removed.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            status = os.fstat(file)
            if status.st_nlink == 0:
                return None
            os.utime(file)  # the least used leave first
            if status.st_size == 0:
                return _Found(mmap.mmap(-1, 1), status.st_ino)
            # The mapping has its own descriptor, and so the lock.
            copy = mmap.mmap(file, status.st_size, access=mmap.ACCESS_COPY)
            return _Found(copy, status.st_ino)
        finally:
            os.close(file)
    except (FileNotFoundError, BlockingIOError):
        return None
    except OSError as error:
        raise error_of(error, f"cannot map {path}", choice="another folder") from None


def _number(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def _make(folder: Path, name: str, opened: Opened, keep: Keep, fill: Fill) -> None:
    """Makes the copy, in place of a damaged one. The caller has the folder's lock."""
    data, sums = _lengths(opened)
    with suppress(FileNotFoundError):
        (folder / name).unlink()
    for _, left in _copies(folder):
        if left.name.endswith(_MAKING):  # by a process that was killed
            left.unlink(missing_ok=True)
    _make_room(folder, data + sums, keep, opened.path)
    path = folder / f"{name}{_MAKING}"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _allocate(file, data + sums, folder, path)
            copy = mmap.mmap(file, data + sums)
            fill(copy)
            opened.check()
            copy[data:] = _sums(copy, data, name)
            os.fsync(file)  # nothing on tmpfs; elsewhere a power loss would leave zeros
        finally:
            os.close(file)
        path.rename(folder / name)
    except Error:
        raise
    except OSError as error:
        raise error_of(error, f"cannot keep {opened.path} in {folder}", "another folder") from None
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def _allocate(file: int, length: int, folder: Path, making: Path) -> None:
    """Allocates the file's space, since a store to a full file system would end the process. Other
    copies are evicted while there is none.
    """
    others = (path for _, path in _copies(folder) if path != making)
    while True:
        try:
            os.posix_fallocate(file, 0, length)
            return
        except OSError as error:
            if error.errno not in _FULL or not any(_evicted(path) for path in others):
                raise


def _copies(folder: Path) -> list[tuple[os.stat_result, Path]]:
    """Copies in the folder, the least used first."""
    found = []
    for each in folder.iterdir():
        with suppress(FileNotFoundError):
            status = each.lstat()
            if _OURS.fullmatch(each.name) and stat.S_ISREG(status.st_mode):
                found.append((status, each))
    return sorted(found, key=lambda each: each[0].st_mtime_ns)


def _evicted(path: Path) -> bool:
    """Removes the copy unless a process uses it. The caller has the folder's lock."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        fcntl.flock(file, fcntl.LOCK_UN)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(file)


def _make_room(folder: Path, needed: int, keep: Keep, wanted: Path) -> None:
    """Evicts copies until the budget has space for a new one."""
    copies = _copies(folder)
    used = sum(status.st_size for status, _ in copies)
    for status, path in copies:
        if used + needed <= keep.limit():
            return
        if _evicted(path):
            used -= status.st_size
    if used + needed > keep.limit():
        raise ExhaustedError(
            f"{wanted} needs {needed} bytes of the budget of {keep.limit()} in {folder}, of which "
            f"{used} are in use; give a larger budget, or load it without keep="
        )


def _is_whole(found: _Found, opened: Opened, name: str, verify: bool) -> bool:
    data, sums = _lengths(opened)
    if len(found.copy) != data + sums:
        return False
    return not verify or _sums(found.copy, data, name) == bytes(found.copy[data:])


def _sums(copy: mmap.mmap, data: int, name: str) -> bytes:
    """A checksum per part: the sum of its words, plus a number that only this part of this copy
    has. Zeros, or another part, do not have the same one.
    """
    words = numpy.frombuffer(copy, numpy.uint64, data // 8)
    step = _PART // 8
    sums = [words[at : at + step].sum(dtype=numpy.uint64) for at in range(0, len(words), step)]
    seeds = [
        int.from_bytes(hashlib.sha256(f"{name} {part}".encode()).digest()[:8], "little") | 1
        for part in range(len(sums))
    ]
    return (numpy.array(sums, numpy.uint64) + numpy.array(seeds, numpy.uint64)).tobytes()
