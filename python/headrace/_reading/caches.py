# SPDX-License-Identifier: Apache-2.0
"""The caches of this process, which all file systems of headrace.fsspec share."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from headrace import kvcache
from headrace._core import Cache, InvalidError, Machine, Mover
from headrace._format import size
from headrace._serving.client import Attached

T = TypeVar("T")

#: Remote files are kept in blocks of this size. Neighbouring blocks that are missing are fetched by
#: one request.
REMOTE_BLOCK = 256 << 10
#: Unit of space for these blocks: small files and the ends of files waste half a unit on average.
REMOTE_UNIT = 16 << 10

#: Memory for blocks of local files is allocated in slabs of this size: a process that reads little
#: uses little.
SLAB = 8 << 20


@dataclass(frozen=True)
class Settings:
    """`budget`: bytes of local files, and as many of remote ones, at most. `where`: dram, hbm or
    cxl. `folder`: where blocks of remote files are kept as well, of at most
    `folder_budget` bytes. The next process finds them there. `server`: instead, the name of a
    `headrace serve` that keeps blocks of remote files.
    """

    budget: int = 1 << 30
    where: str = "dram"
    folder: str | None = None
    folder_budget: int = 16 << 30
    server: str | None = None

    @staticmethod
    def parsed(given: dict[str, Any]) -> Settings:
        """InvalidError: an unknown name, or a value that cannot be."""
        known = {name: given[name] for name in Settings.__dataclass_fields__ if name in given}
        if len(known) < len(given):
            unknown = sorted(set(given) - set(known))[0]
            names = ", ".join(Settings.__dataclass_fields__)
            raise InvalidError(f"there is no setting {unknown}; there are {names}")
        for name in ("budget", "folder_budget"):
            if isinstance(known.get(name), str):
                known[name] = size(known[name])
            if not isinstance(known.get(name, 1), int) or known.get(name, 1) <= 0:
                raise InvalidError(f"{name}={known[name]!r}; give bytes, or as '4GiB'")
        if known.get("folder") is not None:
            known["folder"] = os.fspath(known["folder"])
        if known.get("server") and known.get("folder"):
            raise InvalidError("the server has its own folder; leave folder or server out")
        return replace(Settings(), **known)


class Locked(Protocol):
    def unlock(self) -> None:
        """Makes its locks anew, and drops the work of other threads."""


_locked: weakref.WeakSet[Locked] = weakref.WeakSet()


def unlock_in_children(locked: Locked) -> None:
    """Calls unlock() now and in each child of fork(), where no thread would end what another thread
    of the parent does under a lock.
    """
    locked.unlock()
    _locked.add(locked)


def _unlock_all() -> None:
    for locked in _locked:
        locked.unlock()


os.register_at_fork(after_in_child=_unlock_all)


class Caches:
    """Made when first needed, in each process anew: a child of fork() has its own."""

    def __init__(self) -> None:
        self._settings = Settings()
        self._made: dict[str, Any] = {}
        self._pid = os.getpid()
        unlock_in_children(self)

    def unlock(self) -> None:
        self._lock = threading.Lock()

    def configure(self, given: dict[str, Any]) -> None:
        """InvalidError: other settings are in use already."""
        settings = Settings.parsed(given)
        with self._lock:
            if self._here() and settings != self._settings:
                raise InvalidError(
                    "the caches of headrace.fsspec are in use; call configure() before the first "
                    "file is opened, or close() first"
                )
            self._settings = settings

    def close(self) -> None:
        """Writes blocks of the folder, and drops all others."""
        with self._lock:
            made, self._made = (self._made if self._here() else {}), {}
        store = made.get("store")
        if store is not None:
            store.close()

    @property
    def mover(self) -> Mover:
        return self._one("mover", lambda: Mover(Machine.discover(storage=["/"])))

    @property
    def local(self) -> Cache:
        """The cache of local files, which the kernel opens."""
        mover, settings = self.mover, self._settings
        return self._one("cache", lambda: _cache(mover, settings))

    @property
    def remote(self) -> kvcache.Store | Attached:
        """The store of other file systems' files. Error: the server cannot be attached."""
        mover, settings = self.mover, self._settings
        return self._one("store", lambda: _store(mover, settings))

    def _one(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if not self._here():
                self._made, self._pid = {}, os.getpid()
            if name not in self._made:
                self._made[name] = make()
            found: T = self._made[name]
            return found

    def _here(self) -> bool:
        """Whether this process has made its caches."""
        return bool(self._made) and self._pid == os.getpid()


def _cache(mover: Mover, settings: Settings) -> Cache:
    nodes = [node.id for node in mover.machine.nodes if node.kind == settings.where]
    if not nodes:
        kinds = ", ".join(sorted({node.kind for node in mover.machine.nodes}))
        raise InvalidError(f"where={settings.where!r}, and this machine has {kinds}")
    budgets = dict.fromkeys(nodes, settings.budget // len(nodes))
    return Cache(mover, budgets, placement=settings.where, slab=SLAB)


def _store(mover: Mover, settings: Settings) -> kvcache.Store | Attached:
    if settings.server is not None:
        whole = kvcache.opaque("headrace.fsspec", REMOTE_BLOCK)
        return Attached(settings.server, whole, mover=mover)
    tiers: list[kvcache.Memory | kvcache.Folder] = [
        kvcache.Memory(settings.where, settings.budget, touch=False)
    ]
    if settings.folder is not None:
        tiers.append(kvcache.Folder(settings.folder, settings.folder_budget, other="discard"))
    blocks = kvcache.opaque("headrace.fsspec", REMOTE_UNIT, any_size=True)
    return kvcache.Store(mover, blocks, tiers)
