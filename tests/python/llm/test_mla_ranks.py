# SPDX-License-Identifier: Apache-2.0
"""One store for several processes: which readers are answered, and what they get."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import headrace
from headrace import _ranks, kvcache

SIZE = 4096
KIND = ("format 1", SIZE)
Serve = Callable[[], _ranks.Server]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts the server of a store that has the block "key"."""
    monkeypatch.setattr("headrace._ranks._AGAIN_SECONDS", 0.01)
    machine = headrace.Machine.discover(storage=[tmp_path])
    store = kvcache.Store(
        headrace.Mover(machine),
        kvcache.opaque("ranks", SIZE),
        [kvcache.Folder(tmp_path / "kv", 16 * SIZE)],
    )
    block = numpy.full(SIZE, 7, numpy.uint8)
    store.store([b"key"], headrace.MemoryRange(block, machine=machine)).wait()
    servers: list[_ranks.Server] = []

    def start() -> _ranks.Server:
        servers.append(_ranks.Server(tmp_path, {"kv": store}, {"kv": KIND}, machine))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
        assert not any(thread.is_alive() for thread in server._threads)
    store.close()


def loaded(reader: _ranks.Reader) -> bytes:
    blocks: list[bytes] = []
    reader.load("kv", [b"key"], SIZE, lambda _, page: blocks.append(bytes(page)))
    return b"".join(blocks)


@pytest.mark.parametrize("kind", [("format 2", SIZE), ("format 1", SIZE // 2)])
def test_a_reader_with_other_blocks_is_refused(
    serve: Serve, tmp_path: Path, kind: _ranks.Kind, caplog: pytest.LogCaptureFixture
) -> None:
    serve()
    other = _ranks.Reader(tmp_path, {"kv": kind})
    assert other.contains("kv", [b"key"]) == [False] and loaded(other) == b""
    assert "blocks of kv are ('format 1', 4096) in the store" in caplog.text
    right = _ranks.Reader(tmp_path, {"kv": KIND})
    assert right.contains("kv", [b"key"]) == [True] and loaded(right) == b"\7" * SIZE
    for reader in (other, right):
        reader.close()


def test_a_reader_of_an_unknown_pool_is_refused(serve: Serve, tmp_path: Path) -> None:
    serve()
    reader = _ranks.Reader(tmp_path, {"swa": KIND})
    assert reader.contains("swa", [b"key"]) == [False]
    reader.close()


@pytest.mark.parametrize("hello", [b"m", b"[]", b"{", b'{"kv": 1}'])
def test_other_greetings_do_not_end_the_server(serve: Serve, tmp_path: Path, hello: bytes) -> None:
    serve()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(tmp_path / "readers"))
        socket.send_fds(client, [hello], [client.fileno()])
        assert client.recv(1024) != b"ok"
    reader = _ranks.Reader(tmp_path, {"kv": KIND})
    assert reader.contains("kv", [b"key"]) == [True]
    reader.close()


def test_readers_connect_again_once_there_are_descriptors(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    failures = [errno.EMFILE, errno.ENOMEM, errno.ECONNABORTED]

    def fail_first(self: socket.socket) -> Any:
        if failures:
            raise OSError(failures.pop(), "planted")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", fail_first)
    serve()
    reader = _ranks.Reader(tmp_path, {"kv": KIND})
    monkeypatch.setattr("headrace._ranks._ANSWER_SECONDS", 20.0)
    assert reader.contains("kv", [b"key"]) == [True] and not failures
    reader.close()
