# SPDX-License-Identifier: Apache-2.0
"""A file system for fsspec that keeps what it reads in memory, and on SSD: for pandas, pyarrow,
DuckDB, Polars, Zarr, Dask.

>>> import fsspec, tempfile
>>> name = tempfile.NamedTemporaryFile(delete=False).name
>>> with open(name, "wb") as file:
...     _ = file.write(b"0123456789")
>>> with fsspec.open(f"headrace://{name}") as file:
...     file.read(4)
b'0123'

`headrace:///path` reads a local file; `headrace::s3://bucket/key` what another file system has. All
file systems of a process share its caches, whose bytes configure() bounds (docs/howto/fsspec.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.chained import ChainedFileSystem
from fsspec.implementations.local import LocalFileSystem

from headrace._core import Prefetch, UnsupportedError
from headrace._reading.caches import Caches
from headrace._reading.file import ReadFile
from headrace._reading.local import LocalFiles, LocalSource
from headrace._reading.remote import RemoteFiles, RemoteSource

__all__ = ["HeadraceFileSystem", "close", "configure", "stats", "url_to_fs"]

_caches = Caches()
_local = LocalFiles(_caches)


def configure(**settings: Any) -> None:
    """Before the first file is opened. `budget`: bytes of local files in memory at most, and as
    many of remote ones (default 1 GiB; a number or "4GiB"). `where`: dram (default), hbm or cxl.
    `folder`: on SSD, where blocks of remote files are kept too, at most `folder_budget` (default
    16 GiB); the next process finds them there. `server`: instead, the name of a `headrace serve`
    that keeps blocks of remote files for all processes. InvalidError: other settings are in use.
    """
    _caches.configure(settings)


def close() -> None:
    """Writes blocks of remote files into the folder, and drops the rest."""
    _caches.close()


def stats() -> dict[str, Any]:
    """Counts of the caches: `local`, a CacheStats, and `remote`, a kvcache.Stats."""
    return {"local": _caches.local.stats(), "remote": _caches.remote.stats()}


class HeadraceFileSystem(ChainedFileSystem):
    """Reads through the caches of this process; all else is done by the file system below, that of
    `target_protocol` with `target_options`, or `fs`. Thread-safe.

    `is_local`: whether that one is the kernel's.
    """

    protocol: ClassVar[str] = "headrace"
    _strip_tokenize_options = ("fo",)

    def __init__(
        self,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fs: Any = None,
        fo: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if fs is not None and target_protocol is not None:
            raise ValueError("fs= and target_protocol= are both given; give one")
        self.fs = fs or fsspec.filesystem(target_protocol or "file", **(target_options or {}))
        # A subclass may decrypt or unpack what it opens.
        self.is_local = type(self.fs) is LocalFileSystem
        self._remote = RemoteFiles(_caches, self.fs, _name(self.fs))
        below = self.fs._strip_protocol
        # An attribute of the instance, because it asks the file system below.
        setattr(self, "_strip_protocol", lambda path: _strip(below, path))  # noqa: B010

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(fsspec.utils.stringify_path(path)).removeprefix("headrace://")

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            return self.fs.open(path, mode, **kwargs)
        if not self.is_local:
            return ReadFile(self, path, RemoteSource(self._remote, self._remote.version(path)))
        return ReadFile(self, path, LocalSource(_local, path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        (found,) = self.cat_ranges([path], [start], [end], on_error="raise")
        return bytes(found)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """All ranges of a file are asked for at once. `max_gap` is not needed."""
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends of different lengths")
        found: list[Any] = [b""] * len(paths)
        of_path: dict[str, list[int]] = {}
        for number, path in enumerate(paths):
            of_path.setdefault(self._strip_protocol(path), []).append(number)
        for path, numbers in of_path.items():
            try:
                ranges = [(starts[number], ends[number]) for number in numbers]
                for number, piece in zip(numbers, self._ranges(path, ranges), strict=True):
                    found[number] = piece
            except Exception as error:
                if on_error != "return":
                    raise
                for number in numbers:
                    found[number] = error
        return found

    def plan(self, path: str, ranges: Sequence[tuple[int, int]]) -> Prefetch | None:
        """Begins to fetch ranges (start, end) of a local file in this order. None: they are empty.
        UnsupportedError: the file is not local.
        """
        if not self.is_local:
            raise UnsupportedError(f"{path} is not a local file; cat_ranges() reads it")
        return _local.plan(self._strip_protocol(path), ranges)

    def _ranges(self, path: str, ranges: Sequence[tuple[Any, Any]]) -> list[bytes]:
        if not self.is_local:
            version = self._remote.version(path)
            inside = [_inside(start, end, version.size) for start, end in ranges]
            return [bytes(piece) for piece in self._remote.read(version, inside)]
        size = int(self.fs.size(path))
        inside = [_inside(start, end, size) for start, end in ranges]
        with ExitStack() as plans:
            if len(inside) > 1 and (plan := self.plan(path, inside)) is not None:
                plans.enter_context(plan)
            return [bytes(_local.view(path, start, end - start)) for start, end in inside]

    # The file system below does the rest.

    def info(self, path: str, **kwargs: Any) -> Any:
        return self.fs.info(self._strip_protocol(path), **kwargs)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return self.fs.ls(self._strip_protocol(path), detail=detail, **kwargs)

    def ukey(self, path: str) -> Any:
        return self.fs.ukey(self._strip_protocol(path))

    def checksum(self, path: str) -> Any:
        return self.fs.checksum(self._strip_protocol(path))

    def created(self, path: str) -> Any:
        return self.fs.created(self._strip_protocol(path))

    def modified(self, path: str) -> Any:
        return self.fs.modified(self._strip_protocol(path))

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.fs.mkdir(self._strip_protocol(path), create_parents=create_parents, **kwargs)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.fs.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.fs.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.fs.rm_file(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        self.fs.rm(self._strip_protocol(path), recursive=recursive, maxdepth=maxdepth)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.fs.cp_file(self._strip_protocol(path1), self._strip_protocol(path2), **kwargs)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.fs.mv(self._strip_protocol(path1), self._strip_protocol(path2), **kwargs)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        self.fs.touch(self._strip_protocol(path), truncate=truncate, **kwargs)

    def invalidate_cache(self, path: str | None = None) -> None:
        self.fs.invalidate_cache(path)

    @property
    def fsid(self) -> str:
        return f"headrace_{_name(self.fs)}"


def url_to_fs(url: str) -> tuple[HeadraceFileSystem, str]:
    """The file system and path of a URL or path, with or without `headrace:` before it."""
    fs, path = fsspec.url_to_fs(url)
    return (fs if isinstance(fs, HeadraceFileSystem) else HeadraceFileSystem(fs=fs)), path


def _strip(below: Any, path: Any) -> Any:
    """The path without our name, as the file system below has it."""
    stripped = HeadraceFileSystem._strip_protocol(path)
    return [below(one) for one in stripped] if isinstance(stripped, list) else below(stripped)


def _name(fs: Any) -> str:
    """The same in every process, and another for other options."""
    return str(fs.to_json(include_password=False))


def _inside(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """As a slice of a file of `size` bytes."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)
