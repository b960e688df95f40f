# SPDX-License-Identifier: Apache-2.0
"""The files of a model, and their headers.

The format: https://github.com/huggingface/safetensors (8 bytes of length, a JSON header, data).
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from headrace import _core
from headrace._core import AbsentError, InvalidError, IoError
from headrace._errors import error_of

#: The format's limit for a header's length, also used for an index.
_LONGEST_HEADER = 100_000_000
_PAGE = 4096
_INDEX = ".safetensors.index.json"


class Shards(NamedTuple):
    """Files of a model; with an index, the file in which each tensor is."""

    paths: list[Path]
    listing: Path | None
    of: dict[str, str]


def shards(path: str | os.PathLike[str]) -> Shards:
    """A file of tensors; the files of an index (NAME.safetensors.index.json); or those of a folder
    with one index, or without one. AbsentError: the folder has none. InvalidError: no index.
    """
    there = Path(path)
    if there.is_dir():
        indices = sorted(there.glob(f"*{_INDEX}"))
        if len(indices) > 1:
            preferred = [each for each in indices if each.name == f"model{_INDEX}"]
            if not preferred:
                raise InvalidError(f"{there} has {len(indices)} indices; name one of them")
            indices = preferred
        if indices:
            return _of_index(indices[0])
        files = sorted(there.glob("*.safetensors"))
        if not files:
            raise AbsentError(f"{there} has no file *.safetensors; name a file or another folder")
        return Shards(files, None, {})
    if there.suffix == ".json":
        return _of_index(there)
    return Shards([there], None, {})


def _of_index(path: Path) -> Shards:
    try:
        if path.stat().st_size > _LONGEST_HEADER:
            raise InvalidError(f"{path} is no index: it has more than {_LONGEST_HEADER} bytes")
        of = json.loads(path.read_bytes())["weight_map"]
        right = isinstance(of, dict) and bool(of)
        right = right and all(type(each) is str and _is_name(each) for each in of.values())
    except OSError as error:
        raise error_of(error, f"cannot read {path}") from None
    except InvalidError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError):
        right = False
    if not right:
        raise InvalidError(
            f"{path} is no index of safetensors files: it needs a weight_map that names files "
            "beside it"
        )
    return Shards([path.parent / each for each in sorted(set(of.values()))], path, of)


def _is_name(name: str) -> bool:
    """Whether the name is that of a file beside the index, not elsewhere."""
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name)


class Opened:
    """A file of tensors. It must stay the same while it is read: check() says so.

    IoError or another Error: it cannot be opened. InvalidError: it is no safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:  # an open of a pipe would wait for its writer
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise error_of(error, f"cannot read {path}", choice="another file") from None
        try:
            status = os.fstat(self.fd)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidError(f"{path} is no regular file; name a file of tensors")
            self.size = status.st_size
            self.identity = _identity(status)
            #: Times of the last change of the data and of the inode, in seconds since 1970.
            self.changed_at = status.st_mtime, status.st_ctime
            length = int.from_bytes(self._read(8, 0), "little")
            if not 2 <= length <= min(_LONGEST_HEADER, self.size - 8):
                raise InvalidError(f"{path} is no safetensors file: its header has {length} bytes")
            #: The beginning of the data, and the page of the byte before it.
            self.data = 8 + length
            self.begin = (self.data - 1) // _PAGE * _PAGE
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        os.close(self.fd)

    def table(self) -> Any:
        """The tensors of the header. InvalidError: it is none."""
        header = self._read(self.data - 8, 8)
        if len(header) < self.data - 8:
            raise self.changed()
        try:
            return _core._TensorTable(  # type: ignore[attr-defined]
                header, self.data, self.size
            )
        except InvalidError as error:
            raise InvalidError(f"{self.path}: {error}") from None

    def check(self) -> None:
        """IoError: the file, or what its name stands for, changed since it was opened."""
        try:
            same = _identity(os.fstat(self.fd)) == self.identity
            same = same and _identity(os.stat(self.path)) == self.identity
        except OSError:
            same = False
        if not same:
            raise self.changed()

    def changed(self) -> IoError:
        return IoError(f"{self.path} was changed while it was read; load it again")

    def _read(self, length: int, offset: int) -> bytes:
        parts = []
        try:
            while length > 0 and (part := os.pread(self.fd, length, offset)):
                parts.append(part)
                length -= len(part)
                offset += len(part)
        except OSError as error:
            raise error_of(error, f"cannot read {self.path}") from None
        return b"".join(parts)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """The time of the last change (ctime) cannot be set back, as that of the data can."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times
