# SPDX-License-Identifier: Apache-2.0
"""Answers clients from a KV store, each connection in a thread."""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import headrace
from headrace import kvcache
from headrace._core import DeniedError, Error, InvalidError
from headrace._errors import error_of
from headrace._serving import wire

_log = logging.getLogger(__name__)

#: Most seconds of a load or store of one message, and of a thread that ends.
_COPY_SECONDS = 60.0
#: A connection that was refused for lack of descriptors or threads is accepted this much later.
_AGAIN_SECONDS = 1.0
_BACKLOG = 128


class Server:
    """Thread-safe. Its threads end with close(); the store, and the processes that are clients, are
    not its own.
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[kvcache.Geometry], kvcache.Store],
        machine: headrace.Machine,
    ) -> None:
        """`name`: a word, or the path of a socket. `open_store`: the SharedStore of blocks of this
        geometry, the same one at each call. It raises if the server has none.
        DeniedError: another process serves `name`.
        """
        self._path = path = wire.socket_of(name)
        self._open_store = open_store
        self._machine = machine
        self._lock = threading.Lock()  # of what follows
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = threading.Event()
        self._name = _locked(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            path.unlink(missing_ok=True)  # of a server that was killed
            with wire.address(path) as address:
                self._socket.bind(address)
            path.chmod(0o600)  # nobody can connect before listen()
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            os.close(self._name)
            raise error_of(error, f"cannot serve {path}", "another name") from None
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def clients(self) -> int:
        """Connections now; a process may have several."""
        with self._lock:
            return len(self._connections)

    def close(self) -> None:
        """Disconnects all clients, and waits until no request uses the store."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            connections, threads = list(self._connections), list(self._threads)
        for each in (self._socket, *connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in (self._accepting, *threads):
            thread.join(2 * _COPY_SECONDS)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        os.close(self._name)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._closed.is_set():
                    _log.warning("no client can connect for a while: %s", error)
                    self._closed.wait(_AGAIN_SECONDS)
                continue
            try:
                self._start(connection)
            except RuntimeError as error:  # no more threads
                connection.close()
                _log.warning("a client was refused: %s", error)

    def _start(self, connection: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._lock:
            if self._closed.is_set():
                connection.close()
                return
            self._connections.add(connection)
            self._threads.add(thread)
            try:
                thread.start()
            except RuntimeError:
                self._connections.discard(connection)
                self._threads.discard(thread)
                raise

    def _serve(self, connection: socket.socket) -> None:
        client = None
        try:
            if wire.peer_uid(connection) != os.geteuid():
                raise DeniedError("another user's server; start one of your own")
            client = self._welcome(connection)
            while received := connection.recv(wire.MESSAGE_BYTES):
                if (reply := client.answer(received)) is not None:
                    connection.send(reply)
        except Error as error:
            with suppress(OSError):
                connection.send(wire.refusal(error))
        except (OSError, ValueError, KeyError, TypeError, MemoryError) as error:
            if not self._closed.is_set() and not isinstance(error, ConnectionError):
                _log.warning("a client is disconnected: %s", error)
        finally:
            if client is not None:
                client.release()
            with self._lock:
                self._connections.discard(connection)
                self._threads.discard(threading.current_thread())
            connection.close()

    def _welcome(self, connection: socket.socket) -> _Client:
        """Answers the first message. Error: the client is refused."""
        hello, _ = wire.parsed(connection.recv(wire.MESSAGE_BYTES))
        if hello["headrace"] != headrace.__version__:
            raise InvalidError(
                f"the server runs Headrace {headrace.__version__} and its client "
                f"{hello['headrace']}; run the same version"
            )
        blocks = hello["blocks"]
        store = self._open_store(kvcache.Geometry(blocks.pop("model"), **blocks))
        files = store.shared_files
        if files is None:
            raise InvalidError("the store is no kvcache.SharedStore")
        memory, index = files
        client = _Client(store, self._machine)
        descriptors = [client.descriptor, index] + ([] if memory is None else [memory])
        try:
            socket.send_fds(connection, [wire.message({})], descriptors)
        finally:
            os.close(client.descriptor)
        return client


class _Client:
    """The state of a connection, used by its thread."""

    def __init__(self, store: kvcache.Store, machine: headrace.Machine) -> None:
        self._store = store
        self._block = store.geometry.block_bytes
        size = max(wire.STAGING_BYTES, self._block)
        self.descriptor = os.memfd_create("headrace-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, wire.SEALS)
            self._staging = kvcache.memory_range(mmap.mmap(self.descriptor, size), machine)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._pins: dict[int, kvcache.Match] = {}

    def release(self) -> None:
        for pinned in self._pins.values():
            pinned.release()

    def answer(self, received: bytes) -> bytes | None:
        """None: no answer is wanted. Error: the connection ends."""
        what, keys = wire.parsed(received)
        try:
            found = _REQUESTS[what.pop("do")](self, keys, **what)
        except headrace.TimedOutError:  # a copy may still use the staging memory
            raise
        except Error as error:
            return wire.refusal(error)
        return None if found is None else wire.message(found)

    def _memory(self, keys: list[bytes]) -> headrace.Extent:
        return self._staging.extent(0, len(keys) * self._block)

    def _get(self, keys: list[bytes]) -> dict[str, Any]:
        load = self._store.load_blocks(keys, self._memory(keys))
        with suppress(headrace.IoError):  # of some blocks: `loaded` says which
            load.wait(_COPY_SECONDS)
        return {"there": _flags(load.loaded)}

    def _put(self, keys: list[bytes]) -> dict[str, Any]:
        return self._store.store(keys, self._memory(keys)).wait(_COPY_SECONDS).asdict()

    def _touch(self, keys: list[bytes]) -> None:
        self._store.touch(keys)

    def _pin(self, keys: list[bytes], pin: int) -> dict[str, Any]:
        pinned = self._store.pin(keys)
        self._pins[pin] = pinned
        there = set(pinned.keys)
        return {"there": _flags([key in there for key in keys])}

    def _unpin(self, keys: list[bytes], pin: int) -> None:
        if (pinned := self._pins.pop(pin, None)) is not None:
            pinned.release()

    def _remove(self, keys: list[bytes]) -> dict[str, Any]:
        return {"removed": self._store.remove(keys)}

    def _clear(self, keys: list[bytes]) -> dict[str, Any]:
        return {"removed": self._store.clear()}

    def _flush(self, keys: list[bytes]) -> dict[str, Any]:
        self._store.flush(_COPY_SECONDS)
        return {}

    def _stats(self, keys: list[bytes]) -> dict[str, Any]:
        return {"stats": self._store.stats().asdict()}


_REQUESTS: dict[str, Callable[..., dict[str, Any] | None]] = {
    "get": _Client._get, "put": _Client._put, "touch": _Client._touch, "pin": _Client._pin,
    "unpin": _Client._unpin, "remove": _Client._remove, "clear": _Client._clear,
    "flush": _Client._flush, "stats": _Client._stats,
}  # fmt: skip


def _flags(there: list[bool]) -> str:
    return "".join("1" if each else "0" for each in there)


def _locked(path: Path) -> int:
    """The lock of the name, which a server has until it ends or is killed."""
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise error_of(error, f"cannot serve {path}", "another name") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise DeniedError(f"another process serves {path}; use it, or give another name") from None
    return lock


def one_of(
    stores: Sequence[kvcache.Store],
) -> Callable[[kvcache.Geometry], kvcache.Store]:
    """The store that has the blocks of a client. InvalidError: none has."""

    def find(geometry: kvcache.Geometry) -> kvcache.Store:
        for store in stores:
            if store.geometry == geometry:
                return store
        names = ", ".join(f"{each.geometry.model} {each.geometry.revision}" for each in stores)
        raise InvalidError(
            f"the server has blocks of {names}, not of {geometry.model} {geometry.revision}"
        )

    return find


class OneStore:
    """Opens a store for the blocks of the first client. Thread-safe."""

    def __init__(
        self, mover: headrace.Mover, tiers: list[kvcache.Memory | kvcache.Folder], **options: Any
    ) -> None:
        """`options`: of kvcache.Store."""
        self._mover = mover
        self._tiers = tiers
        self._options = options
        self._lock = threading.Lock()
        self._store: kvcache.Store | None = None

    def __call__(self, geometry: kvcache.Geometry) -> kvcache.Store:
        """Errors: as of kvcache.Store. InvalidError: the store has other blocks."""
        with self._lock:
            if self._store is None:
                self._store = kvcache.SharedStore(
                    self._mover, geometry, self._tiers, **self._options
                )
            ours = self._store.geometry
            if ours != geometry:
                raise InvalidError(
                    f"the server has blocks of {ours.model} {ours.revision} ({ours.block_bytes} "
                    f"bytes), not of {geometry.model} {geometry.revision} "
                    f"({geometry.block_bytes}); start another server for these"
                )
            return self._store

    def close(self, timeout: float) -> None:
        """As kvcache.Store.close()."""
        with self._lock:
            if self._store is not None:
                self._store.close(timeout=timeout)
