# SPDX-License-Identifier: Apache-2.0
"""One store for several processes of a host: the process that opened it answers the others.

A reader connects to a socket in the folder. It sends the kinds of its pools' blocks, as a JSON
object, and the memory (a memfd) that blocks are loaded into. The answer is "ok", or why the reader
is refused: another model, revision or layout would give it wrong blocks.

A request is a JSON line {"pool", "get"} and then keys of 16 bytes. Its answer is a byte for each
key, 1 if the block is there or, with "get", in the memory, in the order of the keys.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import headrace
from headrace import kvcache
from headrace.kvcache import memory_range

_log = logging.getLogger(__name__)

#: Bytes of the memory of a reader, at least one block.
MEMORY_BYTES = 32 << 20
#: Keys of one request: 64 KiB of them, which a socket takes at once.
MOST_KEYS = 4096
#: How long a reader waits for an answer, and between tries to connect.
_ANSWER_SECONDS = 120.0
_AGAIN_SECONDS = 1.0
_LOAD_SECONDS = 60.0
_NAME = "readers"
_MESSAGE_BYTES = 1024 + 16 * MOST_KEYS
_ACCEPTED = b"ok"

#: The format of a pool's blocks, which stands for all that decides their bytes, and their size.
Kind = tuple[str, int]


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """A path of the socket in `folder` that fits into its 107 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)


class Server:
    """Answers readers from `stores`, by the names of pools. Its threads end with close()."""

    def __init__(
        self,
        folder: Path,
        stores: dict[str, kvcache.Store],
        kinds: dict[str, Kind],
        machine: headrace.Machine,
    ) -> None:
        """`stores`, `kinds`: by the names of pools. Requires: this process has the locks of the
        stores' folders, which lie in `folder`.
        """
        self._stores = stores
        self._kinds = kinds
        self._machine = machine
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()  # of _connections, and of setting _closed
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (folder / _NAME).unlink(missing_ok=True)  # of an earlier process
        with _short_path(folder) as path:
            self._socket.bind(path)
        self._socket.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                _log.warning("no reader can connect to the store for a while: %s", error)
                self._closed.wait(_AGAIN_SECONDS)  # descriptors or memory are used up
                continue
            with self._lock:
                if self._closed.is_set():
                    connection.close()
                    return
                self._connections.add(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads = [each for each in self._threads if each.is_alive()] + [thread]
                thread.start()

    def _refusal(self, hello: bytes) -> str:
        """Empty: the reader's blocks are those of the stores."""
        for pool, kind in json.loads(hello).items():
            own = self._kinds.get(pool)
            if own is None or list(own) != kind:
                return f"blocks of {pool} are {own} in the store and {kind} in its reader"
        return ""

    def _serve(self, connection: socket.socket) -> None:
        try:
            hello, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
            if not descriptors:
                return
            try:
                if refusal := self._refusal(hello):
                    connection.send(refusal.encode())
                    return
                memory = mmap.mmap(descriptors[0], 0)
            finally:
                os.close(descriptors[0])
            into = memory_range(memory, self._machine)
            connection.send(_ACCEPTED)
            while message := connection.recv(_MESSAGE_BYTES):
                connection.send(self._answer(message, into))
        except (OSError, ValueError, KeyError, AttributeError, headrace.Error) as error:
            if not self._closed.is_set():
                _log.warning("a reader of the store is disconnected: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, message: bytes, into: headrace.MemoryRange) -> bytes:
        header, _, rest = message.partition(b"\n")
        request = json.loads(header)
        store = self._stores[request["pool"]]
        keys = [rest[i : i + 16] for i in range(0, len(rest), 16)]
        if not request["get"]:
            return bytes(store.contains(keys))
        load = store.load_blocks(keys, into.extent(0, len(keys) * store.geometry.block_bytes))
        with suppress(headrace.IoError):  # of some blocks: `loaded` says which
            load.wait(_LOAD_SECONDS)
        return bytes(load.loaded)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            connections = list(self._connections)
        for each in (self._socket, *connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(_LOAD_SECONDS)


class Reader:
    """Asks the process that has the store; where none answers, no block is there. Thread-safe."""

    def __init__(self, folder: Path, kinds: dict[str, Kind]) -> None:
        """`kinds`: of the blocks of each pool that is asked for."""
        self._folder = folder
        self._hello = json.dumps(kinds).encode()
        self._memory_bytes = max(MEMORY_BYTES, *(size for _, size in kinds.values()))
        self._lock = threading.Lock()  # of what follows: one request at a time
        self._connection: socket.socket | None = None
        self._memory: mmap.mmap | None = None
        self._next_try = 0.0
        self._warned = False

    def contains(self, pool: str, keys: Sequence[bytes]) -> list[bool]:
        there: list[bool] = []
        for first in range(0, len(keys), MOST_KEYS):
            with self._lock:
                there += self._ask(pool, keys[first : first + MOST_KEYS], False)
        return there

    def load(
        self,
        pool: str,
        keys: Sequence[bytes],
        block_bytes: int,
        take: Callable[[int, memoryview], None],
    ) -> list[bool]:
        """Calls `take` with the number of each key whose block is there, and its bytes, which must
        not be used afterwards.
        """
        there: list[bool] = []
        at_once = min(self._memory_bytes // block_bytes, MOST_KEYS)
        for first in range(0, len(keys), at_once):
            with self._lock:
                came = self._ask(pool, keys[first : first + at_once], True)
                for i in (i for i, has in enumerate(came) if has):
                    take(first + i, self._block(i, block_bytes))
            there += came
        return there

    def _block(self, number: int, block_bytes: int) -> memoryview:
        """Requires: the lock, and that an answer says so."""
        assert self._memory is not None
        return memoryview(self._memory)[number * block_bytes : (number + 1) * block_bytes]

    def _ask(self, pool: str, keys: Sequence[bytes], get: bool) -> list[bool]:
        """Requires: the lock."""
        try:
            connection = self._connected()
            if connection is None:
                return [False] * len(keys)
            header = json.dumps({"pool": pool, "get": get}).encode()
            connection.send(b"\n".join((header, b"".join(map(kvcache.key, keys)))))
            answer = connection.recv(MOST_KEYS)
            if len(answer) != len(keys):
                raise ConnectionError("the process that has the store is gone")
        except OSError as error:
            self._disconnect()
            if not self._warned:
                self._warned = True
                _log.warning("no blocks from %s: %s", self._folder, error)
            return [False] * len(keys)
        self._warned = False
        return [each == 1 for each in answer]

    def _connected(self) -> socket.socket | None:
        """None: it was tried a moment ago. Requires: the lock."""
        if self._connection is None:
            now = time.monotonic()
            if now < self._next_try:
                return None
            self._next_try = now + _AGAIN_SECONDS
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                connection.settimeout(_ANSWER_SECONDS)
                with _short_path(self._folder) as path:
                    connection.connect(path)
                descriptor = os.memfd_create("headrace-blocks", os.MFD_CLOEXEC)
                try:
                    os.ftruncate(descriptor, self._memory_bytes)
                    self._memory = mmap.mmap(descriptor, self._memory_bytes)
                    socket.send_fds(connection, [self._hello], [descriptor])
                finally:
                    os.close(descriptor)
                if (answer := connection.recv(_MESSAGE_BYTES)) != _ACCEPTED:
                    raise ConnectionRefusedError(answer.decode(errors="replace") or "no answer")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._memory = None  # a load that ends later writes only to this memory

    def close(self) -> None:
        with self._lock:
            self._disconnect()
