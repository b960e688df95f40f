# SPDX-License-Identifier: Apache-2.0
"""Copies of files of weights in a folder in DRAM, shared by the processes of a host.

A copy is complete once it has its name, which holds what the file was (path, device, number, size,
time of its last change). One process at a time makes a copy, under a lock that ends with it; a
process that maps a copy holds a shared lock on it, so that none that is used is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from headrace._core import DeniedError, Error, ExhaustedError, InvalidError, TimedOutError
from headrace._errors import error_of
from headrace._sizes import size
from headrace._weights.files import Opened

_PAGE = 4096
#: Bytes of a checksum; how often a lock that another process has is tried again.
_PART, _PAUSE = 16 << 20, 0.02
_MAKING = ".making"


def default_folder() -> str:
    return f"/dev/shm/headrace-{os.geteuid()}"


@dataclass(frozen=True)
class Keep:
    """Where copies of files are kept for other processes and later starts.

    `budget`: most bytes of all copies in the folder, or as "64GiB"; the least used leave for new
    ones. `folder`: on a tmpfs (huge pages and the node are options of its mount); default:
    /dev/shm/headrace-UID. Only its owner may write it. `verify`: compare copies with their
    checksums whenever they are mapped; a damaged one is made anew. `wait`: most seconds for another
    process that makes a copy.
    """

    budget: int | str
    folder: str | os.PathLike[str] | None = None
    verify: bool = True
    wait: float = 3600.0

    def limit(self) -> int:
        return size(self.budget) if isinstance(self.budget, str) else self.budget


#: Reads all of a file into memory.
Fill = Callable[[Any], None]


def kept(opened: Opened, keep: Keep, fill: Fill) -> mmap.mmap:
    """The file's copy, which is made if there is none; private to this process when written to.

    Errors: ExhaustedError: the budget or the folder's file system has no space for it. DeniedError:
    the folder is not this user's. TimedOutError: another process still makes a copy.
    """
    folder = _folder(keep)
    name = _name(opened)
    until = time.monotonic() + keep.wait
    copy = _mapped(folder / name, opened, keep.verify)
    if copy is None:
        with _locked(folder, until):
            # Another process may have made it meanwhile.
            copy = _mapped(folder / name, opened, keep.verify)
            if copy is None:
                _make(folder, name, opened, keep, fill)
                copy = _mapped(folder / name, opened, verify=False)
    if copy is None:
        raise opened.changed()
    return copy


def _folder(keep: Keep) -> Path:
    folder = Path(keep.folder if keep.folder is not None else default_folder())
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
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
        os.close(file)


def _lengths(opened: Opened) -> tuple[int, int]:
    """Bytes of the data in whole pages, and of the checksums behind it."""
    data = (opened.size + _PAGE - 1) // _PAGE * _PAGE
    return data, 8 * ((data + _PART - 1) // _PART)


def _mapped(path: Path, opened: Opened, verify: bool) -> mmap.mmap | None:
    """The copy; None: there is none, or it is damaged and removed. It is locked while mapped."""
    data, sums = _lengths(opened)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise error_of(error, f"cannot open {path}", choice="another folder") from None
    try:
        fcntl.flock(file, fcntl.LOCK_SH)  # one that removes it has it for microseconds
        if os.fstat(file).st_nlink == 0 or os.fstat(file).st_size != data + sums:
            return None
        copy = mmap.mmap(file, data + sums, access=mmap.ACCESS_COPY)
        if verify and _sums(copy, data) != bytes(copy[data:]):
            os.unlink(path)
            return None
        os.utime(file)  # the least used leave first
        return copy  # which has a descriptor of its own, and so the lock
    finally:
        os.close(file)


def _make(folder: Path, name: str, opened: Opened, keep: Keep, fill: Fill) -> None:
    data, sums = _lengths(opened)
    with suppress(FileNotFoundError):
        (folder / name).unlink()
    for left in folder.glob(f"*{_MAKING}"):  # by a process that was killed
        left.unlink()
    _make_room(folder, data + sums, keep, opened.path)
    path = folder / f"{name}{_MAKING}"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, data + sums)  # else a full file system ends the process
            copy = mmap.mmap(file, data + sums)
            fill(copy)
            opened.check()
            copy[data:] = _sums(copy, data)
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


def _make_room(folder: Path, needed: int, keep: Keep, wanted: Path) -> None:
    """Removes copies that no process uses, the least used first."""
    copies = sorted(
        ((each.stat(), each) for each in folder.iterdir() if each.name != "lock"),
        key=lambda each: each[0].st_mtime_ns,
    )
    used = sum(status.st_size for status, _ in copies)
    for status, path in copies:
        if used + needed <= keep.limit():
            return
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            used -= status.st_size
        except BlockingIOError:
            pass  # in use
        finally:
            os.close(file)
    if used + needed > keep.limit():
        raise ExhaustedError(
            f"{wanted} needs {needed} bytes of the budget of {keep.limit()} in {folder}, of which "
            f"{used} are in use; give a larger budget, or load it without keep="
        )


def _sums(copy: mmap.mmap, data: int) -> bytes:
    words = numpy.frombuffer(copy, numpy.uint64, data // 8)
    step = _PART // 8
    sums = [words[at : at + step].sum(dtype=numpy.uint64) for at in range(0, len(words), step)]
    return numpy.array(sums, numpy.uint64).tobytes()
