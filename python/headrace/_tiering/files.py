# SPDX-License-Identifier: Apache-2.0
"""Files of /proc, /sys and /run below a root: the host's own, or one that tests wrote down."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace import DeniedError
from headrace._errors import error_of

#: What the kernel writes in words and takes as digits.
_DIGITS = {"true": "1", "false": "0", "Y": "1", "N": "0"}
#: DAMON's files are busy while somebody reads another of them.
_BUSY_SECONDS = 1.0
#: What says that there is no such file, or not any more; all else says nothing about that.
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV}
T = TypeVar("T")


def _until_free(act: Callable[[], T]) -> T:
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= until:
                raise
        time.sleep(0.01)


class Files:
    """Reads and writes by names such as "proc/swaps". Thread-compatible."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def read(self, name: str) -> str | None:
        """The text, switches as "1" and "0"; None if there is no such file. DeniedError: only root
        may read it. Another Error: nobody knows what it says.
        """
        try:
            text = _until_free(lambda: self._read(name)).strip()
        except PermissionError:
            raise DeniedError(f"only root may read /{name}; use sudo") from None
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise error_of(error, f"cannot read /{name}") from None
        return _DIGITS.get(text, text)

    def _read(self, name: str) -> str:
        return self.path(name).read_text(errors="replace")

    def write(self, name: str, value: str) -> None:
        """Tells the kernel, in one call. An Error with the kernel's reason if it does not take it,
        or takes it and then says something else.
        """
        try:
            _until_free(lambda: self._write(name, value))
        except OSError as error:
            what = f"the kernel does not take {value} in /{name}"
            raise error_of(error, what, "--show, which takes no root") from None

    def _write(self, name: str, value: str) -> None:
        handle = os.open(self.path(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(handle, f"{value}\n".encode())
        finally:
            os.close(handle)

    def writable(self, name: str) -> bool:
        return os.access(self.path(name), os.W_OK)

    def names(self, pattern: str) -> list[str]:
        """What there is by a pattern such as "sys/block/zram*", in order."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))
