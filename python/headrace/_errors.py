# SPDX-License-Identifier: Apache-2.0
"""One table from errno to the exception that says what to do."""

from __future__ import annotations

import errno
import mmap
import resource
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headrace import _core

_BY_ERRNO: dict[int, type[_core.Error]] = {
    errno.ENOENT: _core.AbsentError,
    errno.ENOTDIR: _core.AbsentError,
    errno.ENODEV: _core.AbsentError,
    errno.EACCES: _core.DeniedError,
    errno.EPERM: _core.DeniedError,
    errno.EROFS: _core.DeniedError,
    errno.ENOSPC: _core.ExhaustedError,
    errno.EDQUOT: _core.ExhaustedError,
    errno.EMFILE: _core.ExhaustedError,
    errno.ENFILE: _core.ExhaustedError,
    errno.ENOMEM: _core.ExhaustedError,
    errno.EAGAIN: _core.ExhaustedError,
    errno.EISDIR: _core.InvalidError,
    errno.EINVAL: _core.InvalidError,
    errno.ENAMETOOLONG: _core.InvalidError,
    errno.ENOSYS: _core.UnsupportedError,
    errno.EOPNOTSUPP: _core.UnsupportedError,
    errno.ETIMEDOUT: _core.TimedOutError,
}


def limit_of_threads() -> str:
    """The limit that prevented the start of a thread a moment ago, which Python's error does not
    name. Tries to map a stack, to see whether the address space is full.
    """
    size = threading.stack_size() or resource.getrlimit(resource.RLIMIT_STACK)[0]
    try:
        mmap.mmap(-1, size if size > 0 else 8 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
    except (OSError, MemoryError):
        return "ulimit -v"
    return "ulimit -u"


class WrongAnswer(Exception):
    """A query's answer differs from the peer's, so no number of that run is valid."""


def unknown(what: str, word: str, there: Iterable[str]) -> _core.InvalidError:
    """The error for a word that an option or argument does not take. Like a number out of range, it
    is an invalid request, not something that this machine lacks.
    """
    return _core.InvalidError(f"no {what} '{word}'; there are {', '.join(there)}")


def kind_of(code: str) -> type[_core.Error]:
    """The exception class of an ErrorCode, by its word in documents."""
    return next(kind for kind in _core.Error.__subclasses__() if kind.code == code)


def kind_of_exit(code: int) -> type[_core.Error]:
    """The exception class of an exit code of Headrace's programs; for other codes IoError."""
    kinds = _core.Error.__subclasses__()
    return next((kind for kind in kinds if kind.exit_code == code), _core.IoError)


def error_of(error: OSError, doing: str, choice: str = "another place") -> _core.Error:
    """The exception of Headrace for an OSError. `doing`: the failed operation, if known. `choice`:
    the remedy if a disk failed.
    """
    kind = _BY_ERRNO.get(error.errno or 0, _core.IoError)
    message = f"{doing}: {error.strerror or error}" if doing else str(error.strerror or error)
    if error.errno == errno.EAGAIN and not hasattr(error, "characters_written"):
        message += "; raise ulimit -u"  # no process or thread more; else, a pipe that is full
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message += f"; free space or choose {choice}"
    elif kind is _core.DeniedError:
        message += f"; choose {choice}"
    return kind(message)


@contextmanager
def printing() -> Iterator[None]:
    """Reports an OSError of its body as a failed write to stdout. A BrokenPipeError passes."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise error_of(error, "cannot write") from None


class SaidElsewhere(Exception):
    """Ends this process with `code`, because another process of its job reports the reason."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
