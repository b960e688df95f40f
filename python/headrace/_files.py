# SPDX-License-Identifier: Apache-2.0
"""The one way in which this package writes results into files, Profile.save() too. Programs in C++
have rules of their own, which know nothing of sys.stdout (src/core/text/files.h).
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from headrace._core import (
    LARGEST_DOCUMENT,
    AbsentError,
    DeniedError,
    Error,
    ExhaustedError,
    InvalidError,
)
from headrace._errors import error_of

_ANOTHER = "another file"

#: The directory takes no new file, or lets this one not be replaced, being another's and sticky, or
#: the file a mount point (a container's).
_STAYS_IN_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ENOENT}
#: Why a file cannot be given the room for a document before it is written.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def cache_directory() -> Path:
    """Where this user's files are that can be made again."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # not to be used, by the XDG base directory specification
        home = Path(os.environ.get("HOME", ""))
        cache = (home if home.is_absolute() else Path(pwd.getpwuid(os.getuid()).pw_dir)) / ".cache"
    return cache / "headrace"


def read_whole(path: Path) -> bytes:
    """A document of at most LARGEST_DOCUMENT bytes. InvalidError: more, or no regular file, or an
    empty one, as those of /proc are, of which some never end (kmsg).
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InvalidError(f"{path} is no regular file; give the name of one")
    if found.st_size == 0:
        raise InvalidError(f"{path} is empty; give what headrace wrote")
    if found.st_size > LARGEST_DOCUMENT:
        raise InvalidError(f"{path} is larger than any document of headrace; give another file")
    return path.read_bytes()


def write_whole(path: Path, content: str | bytes) -> None:
    """All of the file or nothing: what was there before stays until the new one is complete.

    A temporary beside a regular file takes its name, mode and owner. A link stays, and its target
    is written. What is no regular file (a device, a pipe), and a file whose directory takes no
    other or lets it not be replaced (a mount point), is written to as it is, after it was given
    the room for it. The command's own output is not opened a second time.
    """
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    try:
        _write(Path(path), data)
    except OSError as error:
        raise error_of(error, f"cannot write {path}", _ANOTHER) from None


def _write(path: Path, data: bytes) -> None:
    found = _status(path)
    target = behind_links(path)
    if (stream := _own_stream(path)) is not None:
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    elif found is not None and (_is_special(found) or not _is_named(target, found)):
        _write_in_place(path, data)
    else:
        _replace(target, data, found)


def _is_special(found: os.stat_result) -> bool:
    return not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode)


def _is_named(target: Path, found: os.stat_result) -> bool:
    """Whether the file has that name: one behind /dev/fd may have none any more."""
    at_name = _status(target)
    return at_name is not None and os.path.samestat(at_name, found)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def is_own_output(path: Path) -> bool:
    """Whether it is what this process prints to: a second opening would begin at its start."""
    return _own_stream(path) is not None


def _own_stream(path: Path) -> TextIO | None:
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if os.path.samestat(path.stat(), os.fstat(number)) and stream.fileno() == number:
                return stream
        except (OSError, ValueError):
            pass
    return None


def behind_links(path: Path) -> Path:
    """Where a chain of links ends, whether there is a file yet or not."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _write_in_place(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            file.write(data)
            return
        _make_room(file.fileno(), found.st_size, len(data))
        file.write(data)
        file.flush()
        os.ftruncate(file.fileno(), len(data))


def _make_room(handle: int, size: int, wanted: int) -> None:
    """Before any byte of the old content is changed."""
    try:
        if wanted > size:
            os.posix_fallocate(handle, size, wanted - size)
    except OSError as error:
        os.ftruncate(handle, size)
        if error.errno in _NO_ROOM:
            raise


def _replace(path: Path, data: bytes, old: os.stat_result | None) -> None:
    try:
        _put_in_place(path, data, old)
    except OSError as error:
        if old is None or error.errno not in _STAYS_IN_PLACE:
            raise
        _write_in_place(path, data)


def _put_in_place(path: Path, data: bytes, old: os.stat_result | None) -> None:
    # A name of its own: the file's may be as long as names get.
    handle, name = tempfile.mkstemp(prefix=".headrace-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _dress(handle, old)
            file.write(data)
            file.flush()
            os.fsync(handle)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _dress(handle: int, old: os.stat_result | None) -> None:
    """The mode and owner that a new file gets, or the old one has."""
    if old is None:
        os.fchmod(handle, 0o666 & ~_umask())
        return
    try:
        os.fchown(handle, old.st_uid, old.st_gid)
    except PermissionError:
        pass  # only root gives files away
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(path: Path | None, *read: str | Path | None) -> None:
    """Complains before the work about a file that could not be written after it, or that is one of
    those which the command reads, under whatever name: it would be lost.
    """
    if path is None:
        return
    try:
        _check(path)
        for source in read:
            if source is not None and _is_same_file(path, Path(source)):
                raise InvalidError(
                    f"{path} and {source} are the same file, which would be lost; "
                    "choose another file to write"
                )
    except Error:  # of which some are OSErrors too
        raise
    except OSError as error:
        raise error_of(error, f"cannot write {path}", _ANOTHER) from None


def check_apart(*written: Path | None) -> None:
    """Complains before the work where two outputs of a command are one file, under whatever names:
    the second would replace the first. Nothing is lost in what is no regular file.
    """
    paths = [path for path in written if path is not None]
    for index, one in enumerate(paths):
        for other in paths[:index]:
            special = (found := _status(one)) is not None and _is_special(found)
            same = os.path.realpath(one) == os.path.realpath(other) or _is_same_file(one, other)
            if same and not special:
                raise InvalidError(
                    f"{other} and {one} are the same file for two outputs; name another for one"
                )


def _is_same_file(one: Path, other: Path) -> bool:
    """Through links of both kinds too. What is no regular file loses nothing."""
    try:
        found = one.stat()
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, other.stat())
    except OSError:
        return False


def _check(path: Path) -> None:
    if str(path) == "-":
        raise InvalidError("- names no file; give one, or /dev/stdout")
    found = _status(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise InvalidError(f"{path} is a directory; give a file's name")
    folder = behind_links(path).parent
    if not folder.is_dir():
        raise AbsentError(f"no directory {folder}; make it first")
    if not os.access(folder if found is None else path, os.W_OK):
        raise DeniedError(f"{path} is not writable; choose another file")
    longest = os.pathconf(folder, "PC_NAME_MAX")
    if len(os.fsencode(behind_links(path).name)) > longest:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if found is not None and not stat.S_ISREG(found.st_mode):
        return
    if os.statvfs(folder).f_blocks and shutil.disk_usage(folder).free == 0:
        raise ExhaustedError(f"no space left in {folder}; free space or choose another file")
