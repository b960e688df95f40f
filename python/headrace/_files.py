# SPDX-License-Identifier: Apache-2.0
"""Writes results into files: all of this package, Profile.save() too, does it here. Programs in C++
have their own rules, without sys.stdout (src/core/text/files.h).
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

#: The directory takes no new file, or this file cannot be replaced: the directory is sticky and
#: another user's, or the file is a mount point (in a container).
_STAYS_IN_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ENOENT}
#: Errors when there is no space for a document.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def cache_directory() -> Path:
    """The folder of this user's cache: files that can be made again."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # not to be used, by the XDG base directory specification
        home = Path(os.environ.get("HOME", ""))
        cache = (home if home.is_absolute() else Path(pwd.getpwuid(os.getuid()).pw_dir)) / ".cache"
    return cache / "headrace"


def read_whole(path: Path) -> bytes:
    """Reads a document of at most LARGEST_DOCUMENT bytes. InvalidError: it is larger, empty or no
    regular file. Files of /proc count as empty; some of them never end (kmsg).
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
    """Writes all of the file or nothing: the old contents stay until the new file is complete.

    A temporary file beside a regular file takes its name, mode and owner. For a link, the target is
    written. Other files are written in place, after their space is allocated: devices, pipes, mount
    points, and files in a directory that takes no new file. The command's own output is not opened
    a second time.
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
    """Whether the file still has this name: a file behind /dev/fd may have none."""
    at_name = _status(target)
    return at_name is not None and os.path.samestat(at_name, found)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def is_own_output(path: Path) -> bool:
    """Whether this process prints to the file. Opening it again would begin at its start."""
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
    """Allocates space before any byte of the old contents is changed."""
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
    # A short name: the file's name may have the maximum length.
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
    """Sets the mode and owner of the old file, or the defaults of a new one."""
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
    """Raises before the work if a file could not be written after it. Also if the command reads the
    file, under any name: its contents would be lost.
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
    """Raises before the work if two outputs of a command are one regular file, under any names: the
    second would replace the first.
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
    """Whether both are one regular file, also through hard and symbolic links."""
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
