# SPDX-License-Identifier: Apache-2.0
"""A KV store that another process of the host serves."""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import headrace
from headrace import kvcache
from headrace._core import (
    AbsentError,
    CancelledError,
    DeniedError,
    Error,
    Extent,
    InvalidError,
    IoError,
    KvShared,
    Machine,
    Mover,
    Object,
    TimedOutError,
    UnsupportedError,
)
from headrace._errors import error_of
from headrace._serving import wire

T = TypeVar("T")

#: Most seconds of a request: twice what the server gives a copy.
_ANSWER_SECONDS = 120.0
_ANSWER = wire.timeout(_ANSWER_SECONDS)
#: Connections for copies; more requests at once wait for one.
_MOST_LANES = 8
#: A lost server is looked for again this often.
_AGAIN_SECONDS = 1.0
#: Uses of blocks are reported in messages of this many keys, or this often if there are fewer.
_MOST_USES = 512
_USES_SECONDS = 0.25


class Done(Generic[T]):
    """A copy that has ended, with the methods of kvcache.Load and kvcache.Stored."""

    def __init__(self, outcome: T, loaded: list[bool]) -> None:
        self._outcome = outcome
        self.loaded = loaded

    def done(self) -> bool:
        return True

    def wait(self, timeout: float = 60.0) -> T:
        return self._outcome

    def cancel(self) -> None:
        """Does nothing: the copy has ended."""


class Pinned:
    """Blocks that the server keeps until release(), the end of `with`, or the end of this process.
    `there`: for each requested block, whether it is pinned.
    """

    def __init__(self, session: _Session, number: int, there: list[bool]) -> None:
        self.there = there
        self._session = session
        self._number = number

    def release(self) -> None:
        with suppress(OSError):  # the end of the connection releases them too
            self._session.control.send({"do": "unpin", "pin": self._number})

    def __enter__(self) -> Pinned:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


#: Sockets of this process, which a child of fork() closes: the server sees the end of this one.
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    for each in list(_sockets):
        each.close()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def _in_time() -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise TimeoutError from None


class _Connection:
    """One request at a time: its user holds `lock`, or has taken it from the lanes."""

    def __init__(self, name: str, hello: bytes, machine: Machine) -> None:
        """`files`: descriptors of the index and, if there is one, of the store's memory."""
        self.lock = threading.Lock()
        self.files: list[int] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _sockets.add(self._socket)
        try:
            for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, which, _ANSWER)
            with wire.address(wire.socket_of(name)) as address:
                self._socket.connect(address)
            if wire.peer_uid(self._socket) != os.geteuid():
                raise DeniedError(f"another user serves {name}; start a server of your own")
            with _in_time():
                self._socket.send(hello)
                received, self.files, _, _ = socket.recv_fds(self._socket, wire.MESSAGE_BYTES, 3)
            wire.answer(received)
            staging, *self.files = self.files
            try:
                memory = mmap.mmap(staging, 0)
            finally:
                os.close(staging)
            self.staging = kvcache.memory_range(memory, machine)
        except BaseException:
            self.close()
            raise

    def ask(self, what: dict[str, Any], keys: Sequence[bytes] = ()) -> dict[str, Any]:
        with _in_time():
            self.send(what, keys)
            return wire.answer(self._socket.recv(wire.MESSAGE_BYTES))

    def send(self, what: dict[str, Any], keys: Sequence[bytes] = ()) -> None:
        """Waits for space if the server is far behind."""
        self._socket.send(wire.message(what, keys))

    def tell(self, what: dict[str, Any], keys: Sequence[bytes] = ()) -> None:
        """Waits for nothing. The message is lost if the server is far behind."""
        with suppress(BlockingIOError):
            self._socket.sendmsg([wire.message(what, keys)], (), socket.MSG_DONTWAIT)

    def check(self) -> None:
        """ConnectionError: the server has ended."""
        with suppress(BlockingIOError):
            if not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise ConnectionError("the server has ended")

    def close_files(self) -> None:
        while self.files:
            os.close(self.files.pop())

    def close(self) -> None:
        """Calls of other threads end with an error. The descriptor stays until none is left."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __del__(self) -> None:
        self.close_files()
        with suppress(AttributeError):  # no socket could be made
            self._socket.close()


class _Session:
    """The connections to one run of the server."""

    def __init__(self, name: str, geometry: kvcache.Geometry, machine: Machine) -> None:
        self._machine = machine
        self._name = name
        fields = ("model", "revision", "layers", "kv_heads", "head_dim", "element_bytes",
                  "block_tokens", "tensors", "any_size")  # fmt: skip
        blocks = {each: getattr(geometry, each) for each in fields}
        self._hello = wire.message({"headrace": headrace.__version__, "blocks": blocks})
        self.control = _Connection(name, self._hello, machine)
        try:
            index, *memory = self.control.files
            self.shared = KvShared(geometry, memory[0] if memory else None, index)
        except BaseException:
            self.control.close()
            raise
        self.control.close_files()
        self._free: list[_Connection] = []
        self._lanes = threading.Semaphore(_MOST_LANES)
        self._closed = False

    @contextmanager
    def lane(self) -> Iterator[_Connection]:
        """A connection that no other thread uses. It is dropped after an error: its answer may be
        under way, and the server may still use its staging memory.
        """
        if not self._lanes.acquire(timeout=_ANSWER_SECONDS):
            raise TimedOutError(f"all connections to {self._name} are busy; try again")
        try:
            try:
                lane = self._free.pop()
            except IndexError:
                lane = _Connection(self._name, self._hello, self._machine)
                lane.close_files()
            try:
                yield lane
            except BaseException:
                lane.close()
                raise
            self._free.append(lane)
            if self._closed:
                self.close()
        finally:
            self._lanes.release()

    def close(self) -> None:
        self._closed = True
        self.control.close()
        with suppress(IndexError):
            while True:
                self._free.pop().close()


class Attached:
    """Blocks of a store that another process serves. Blocks in its memory are copied without a call
    to that process; others take one. Thread-safe; calls return when their copies have ended.

    Once the server has ended, calls raise IoError. They look for a new one about once a second.
    In a child of fork() they raise UnsupportedError.
    """

    def __init__(
        self,
        name: str,
        geometry: kvcache.Geometry,
        *,
        mover: Mover | None = None,
        lazy: bool = False,
    ) -> None:
        """`name`: of the server, or the path of its socket. `mover`: copies loads of 8 MiB and more
        with all its cores, unless they are in pieces of less than 16 KiB; otherwise the calling
        thread copies. `lazy`: the first call looks for the server, and each call until there is
        one. AbsentError: there is none.
        InvalidError: it has other blocks, or another version. DeniedError: it is another user's.
        """
        self.name = name
        self.geometry = geometry
        self._mover = mover
        self._machine = mover.machine if mover else Machine.discover(storage=[])
        self._pid = os.getpid()
        self._lock = threading.Lock()  # of what follows
        self._session: _Session | None = None
        self._closed = False
        self._next_try = 0.0
        self._pins = 0
        self._uses: list[bytes] = []
        self._next_uses = 0.0
        if not lazy:
            with self._lock:
                self._session = self._connect()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self, timeout: float = 0.0) -> None:
        """Ends the connection at once; blocks stay in the server."""
        with self._lock:
            session, self._session, self._closed = self._session, None, True
        if session is not None and self._pid == os.getpid():
            session.close()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def contains(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of the blocks the store has now, in any tier. Takes no call to the server."""
        with self._in_session() as session:
            return session.shared.contains(list(keys))

    def load_blocks(
        self,
        keys: Sequence[bytes],
        into: Any,
        *,
        layout: kvcache.Layout = "page_first",
        positions: Sequence[int] = (),
        **_: Any,
    ) -> Done[None]:
        """Like kvcache.Store.load_blocks(), into CPU memory; `loaded` of the result tells which
        blocks were loaded. Its other options have no effect.
        """
        keys, at = list(keys), list(positions)
        memory = self._memories(into)
        with self._in_session() as session:
            there = session.shared.read(
                keys, memory, layout=layout, positions=at, mover=self._mover
            )
            missing = [i for i, has in enumerate(there) if not has]
            if missing:
                self._use(session, [key for key, has in zip(keys, there, strict=True) if has])
                known = session.shared.contains([keys[i] for i in missing])
                missing = [i for i, has in zip(missing, known, strict=True) if has]
                for part in self._parts(missing):
                    came = self._get(session, keys, part, memory, layout, at)
                    for i, has in zip(part, came, strict=True):
                        there[i] = has
            else:
                self._use(session, keys)
        return Done(None, there)

    def store(
        self,
        keys: Sequence[bytes],
        source: Any,
        *,
        layout: kvcache.Layout = "page_first",
        positions: Sequence[int] = (),
        **_: Any,
    ) -> Done[Any]:
        """Like kvcache.Store.store(), from CPU memory. wait() of the result gives the counts
        `stored`, `present`, `refused` and `failed`.
        """
        keys, at = list(keys), list(positions)
        memory = self._memories(source)
        total = {"stored": 0, "present": 0, "refused": 0, "failed": 0}
        with self._in_session() as session:
            for part in self._parts(range(len(keys))):
                where, places = _part_of(memory, at, part)
                with session.lane() as lane:
                    session.shared.copy(
                        [True] * len(part), lane.staging, where,
                        to_user=False, layout=layout, positions=places,
                    )  # fmt: skip
                    counts = lane.ask({"do": "put"}, _named(keys, part))
                for each in total:
                    total[each] += int(counts[each])
        return Done(SimpleNamespace(**total), [])

    def pin(self, keys: Sequence[bytes]) -> Pinned:
        """Pins the blocks that are there, so that they are not evicted. InvalidError: more than
        4096 keys.
        """
        if len(keys) > wire.MOST_KEYS:
            raise InvalidError(f"{len(keys)} keys in one pin; give at most {wire.MOST_KEYS}")
        with self._in_session() as session, session.control.lock:
            self._pins += 1
            number = self._pins
            named = _named(keys, range(len(keys)))
            try:
                answer = session.control.ask({"do": "pin", "pin": number}, named)
            except BaseException:  # the answer may still come
                self._drop(session)
                raise
            return Pinned(session, number, _flags(answer))

    def touch(self, keys: Sequence[bytes]) -> None:
        """Counts a use of the blocks, so that they are evicted later."""
        with self._in_session() as session:
            self._use(session, list(keys))

    def remove(self, keys: Sequence[bytes]) -> int:
        """Removes blocks for all processes. Returns the number of those that were there."""
        parts = (range(at, min(at + wire.MOST_KEYS, len(keys)))
                 for at in range(0, len(keys), wire.MOST_KEYS))  # fmt: skip
        return sum(self._ask("remove", _named(keys, part))["removed"] for part in parts)

    def clear(self) -> int:
        """Removes all blocks, for all processes."""
        return int(self._ask("clear")["removed"])

    def flush(self) -> None:
        """Like kvcache.Store.flush(), for at most a minute."""
        self._ask("flush")

    def stats(self) -> Any:
        """The counts of the server's store, with the names of kvcache.Stats."""
        counts = json.dumps(self._ask("stats")["stats"])
        return json.loads(counts, object_hook=lambda fields: SimpleNamespace(**fields))

    def _ask(self, what: str, keys: Sequence[bytes] = ()) -> dict[str, Any]:
        with self._in_session() as session, session.lane() as lane:
            return lane.ask({"do": what}, keys)

    def _get(
        self, session: _Session, keys: list[bytes], part: Sequence[int], memory: list[Any],
        layout: kvcache.Layout, positions: list[int],
    ) -> list[bool]:  # fmt: skip
        """Loads a part of the blocks, by a request."""
        where, places = _part_of(memory, positions, part)
        with session.lane() as lane:
            there = _flags(lane.ask({"do": "get"}, _named(keys, part)))
            session.shared.copy(
                there, lane.staging, where, to_user=True, layout=layout, positions=places
            )
        return there

    def _parts(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Splits blocks into parts that fit into the staging memory and into the keys of a message.
        """
        block = self.geometry.block_bytes
        most = min(max(wire.STAGING_BYTES // block, 1), wire.MOST_KEYS)
        return (numbers[at : at + most] for at in range(0, len(numbers), most))

    def _memories(self, what: Any) -> list[Any]:
        """One memory, or one for each block."""
        each = what if isinstance(what, list | tuple) else [what]
        return [one if isinstance(one, Extent | Object) else
                kvcache.memory_range(one, self._machine) for one in each]  # fmt: skip

    def _use(self, session: _Session, keys: list[bytes]) -> None:
        """Reports uses now and then: the server evicts blocks by them."""
        now = time.monotonic()
        with self._lock:
            self._uses += keys
            if len(self._uses) < _MOST_USES and now < self._next_uses:
                return
            uses, self._uses = self._uses[-wire.MOST_KEYS :], []
            self._next_uses = now + _USES_SECONDS
        session.control.tell({"do": "touch"}, _named(uses, range(len(uses))))

    @contextmanager
    def _in_session(self) -> Iterator[_Session]:
        """The connection to a server that runs. Error: there is none, or it ends meanwhile."""
        if self._pid != os.getpid():
            raise UnsupportedError(f"a child of fork() has no connection to {self.name}; attach it")
        with self._lock:
            if self._closed:
                raise CancelledError(f"the connection to {self.name} is closed; attach again")
            if self._session is None:
                if time.monotonic() < self._next_try:
                    raise self._lost()
                self._session = self._connect()
            session = self._session
        try:
            session.control.check()
            yield session
        except CancelledError:  # the store of the server is closed
            self._drop(session)
            raise self._lost() from None
        except Error:  # some are of OSError too
            raise
        except TimeoutError:
            self._drop(session)
            raise TimedOutError(f"the server {self.name} does not answer; restart it") from None
        except OSError:
            self._drop(session)
            raise self._lost() from None

    def _lost(self) -> IoError:
        return IoError(f"the server {self.name} has ended; start it again: headrace serve")

    def _drop(self, session: _Session) -> None:
        with self._lock:
            if self._session is session:
                self._session = None
                self._next_try = time.monotonic() + _AGAIN_SECONDS
        session.close()

    def _connect(self) -> _Session:
        """Requires: the lock."""
        self._next_try = time.monotonic() + _AGAIN_SECONDS
        try:
            return _Session(self.name, self.geometry, self._machine)
        except Error:  # some are of OSError too
            raise
        except (FileNotFoundError, ConnectionRefusedError):
            raise AbsentError(
                f"no server {self.name}; start one: headrace serve {self.name}"
            ) from None
        except OSError as error:
            raise error_of(error, f"cannot attach to {self.name}", "another name") from None


def _part_of(
    memory: list[Any], positions: list[int], part: Sequence[int]
) -> tuple[list[Any], list[int]]:
    """The memory and the positions of a part of the blocks."""
    if len(memory) > 1:
        return [memory[i] for i in part], []
    return memory, [positions[i] if positions else i for i in part]


def _named(keys: Sequence[bytes], part: Sequence[int]) -> list[bytes]:
    return [kvcache.key(keys[i]) for i in part]


def _flags(answer: dict[str, Any]) -> list[bool]:
    return [each == "1" for each in answer["there"]]
