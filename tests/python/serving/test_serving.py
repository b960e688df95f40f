# SPDX-License-Identifier: Apache-2.0
"""One store for several processes: right bytes, and one error when a process ends."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import headrace
from headrace import kvcache, serving
from headrace._serving import server as serving_server
from headrace._serving import wire

SIZE = 4096
BLOCKS = kvcache.opaque("tests", SIZE)
Serve = Callable[..., serving.Server]


def content(key: bytes) -> bytes:
    return random.Random(key).randbytes(SIZE)


def attach(name: str, blocks: kvcache.Geometry = BLOCKS) -> serving.Attached:
    return serving.Attached(name, blocks)


MACHINE = headrace.Machine.discover(storage=[])


class Served:
    """A server in this process."""

    def __init__(self, folder: Path, memory: int = 16, kept: int = 0) -> None:
        self.name = str(folder / "socket")
        tiers: list[Any] = [kvcache.Memory("dram", memory * SIZE)] if memory else []
        if kept:
            tiers.append(kvcache.Folder(folder / "kv", kept * SIZE))
        machine = headrace.Machine.discover(storage=[folder]) if kept else MACHINE
        self.store = serving_server.OneStore(headrace.Mover(machine), tiers)
        self.server = serving.Server(self.name, self.store, machine)

    def close(self) -> None:
        self.server.close()
        self.store.close(60)
        assert not any(thread.is_alive() for thread in self.server._threads)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Served]]:
    monkeypatch.setattr("headrace._serving.client._AGAIN_SECONDS", 0.0)
    started: list[Served] = []

    def start(**sizes: int) -> Served:
        started.append(Served(tmp_path, **sizes))
        return started[-1]

    yield start
    for each in started:
        each.close()


def put(client: serving.Attached, keys: list[bytes]) -> Any:
    return client.store(keys, b"".join(map(content, keys))).wait()


def get(client: serving.Attached, keys: list[bytes]) -> list[bool]:
    """Which blocks came; their bytes are compared."""
    into = bytearray(len(keys) * SIZE)
    there = client.load_blocks(keys, into).loaded
    for number, (key, has) in enumerate(zip(keys, there, strict=True)):
        assert not has or into[number * SIZE : (number + 1) * SIZE] == content(key)
    return there


def named(*numbers: int) -> list[bytes]:
    return [b"block %d" % number for number in numbers]


def child(run: Callable[[], None]) -> int:
    """The exit code of `run` in a child of fork(); 0 if it returns."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(run), 0)[1])


def forked(run: Callable[[], None]) -> int:
    if (pid := os.fork()) == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def test_what_one_process_stores_another_loads(served: Any) -> None:
    name = served().name
    writer = attach(name)
    assert put(writer, named(1, 2)).stored == 2
    assert put(writer, named(2, 3)).present == 1

    def read() -> None:
        reader = attach(name)
        assert reader.contains(named(1, 2, 3, 4)) == [True, True, True, False]
        assert get(reader, named(1, 4, 3)) == [True, False, True]

    assert child(read) == 0


def test_blocks_in_the_folder_come_by_a_request(served: Any) -> None:
    client = attach(served(memory=4, kept=64).name)
    keys = named(*range(40))
    for key in keys:
        assert put(client, [key]).stored == 1
    assert client.contains(keys) == [True] * 40
    assert get(client, keys) == [True] * 40
    client.flush()
    assert client.stats().tiers[1].blocks >= 36


def test_a_store_without_memory_is_served(served: Any) -> None:
    client = attach(served(memory=0, kept=64).name)
    assert put(client, named(1, 2)).stored == 2
    assert get(client, named(1, 2, 3)) == [True, True, False]


def test_positions_layouts_and_single_memories(served: Any) -> None:
    blocks = kvcache.opaque("parts", SIZE, layers=4)
    client = attach(served().name, blocks)
    keys = named(1, 2, 3)
    pool = numpy.random.default_rng(1).integers(0, 255, (4, 5, SIZE // 4), numpy.uint8)
    wanted = pool.copy()
    assert client.store(keys, pool, layout="layer_first", positions=[4, 0, 2]).wait().stored == 3
    pool[:] = 0
    there = client.load_blocks(keys, pool, layout="layer_first", positions=[4, 0, 2]).loaded
    assert there == [True] * 3 and (pool[:, [4, 0, 2]] == wanted[:, [4, 0, 2]]).all()
    each = [bytearray(SIZE) for _ in keys]
    assert client.load_blocks(keys, each).loaded == [True] * 3
    assert bytes(each[1]) == wanted[:, 0].tobytes()
    with pytest.raises(headrace.InvalidError, match="3 blocks"):
        client.load_blocks(keys, [bytearray(SIZE)] * 2)
    with pytest.raises(headrace.DeniedError, match="read-only"):
        client.load_blocks(named(1), bytes(SIZE))


def test_removed_blocks_are_gone_for_all(served: Any) -> None:
    name = served().name
    one, two = attach(name), attach(name)
    put(one, named(1, 2, 3))
    assert two.remove(named(2, 9)) == 1
    assert one.contains(named(1, 2, 3)) == [True, False, True]
    assert one.clear() == 2 and get(two, named(1, 3)) == [False, False]


def test_pinned_blocks_stay_until_their_process_ends(served: Any) -> None:
    name = served(memory=8).name
    ready, go = os.pipe()

    def hold() -> None:
        client = attach(name)
        put(client, named(0))
        client.pin(named(0, 77))
        os.write(go, b"x")
        time.sleep(60)

    pid = forked(hold)
    os.read(ready, 1)
    client = attach(name)
    for number in range(1, 50):
        put(client, named(number))
    assert client.contains(named(0)) == [True]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    until = time.monotonic() + 60
    number = 100
    while client.contains(named(0)) == [True]:
        put(client, named(number))
        number += 1
        assert time.monotonic() < until
    with client.pin(named(0, number - 1)) as pinned:
        assert pinned.there == [False, True]


def test_a_release_reaches_a_server_that_is_far_behind(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def touch(client: Any, keys: list[bytes]) -> None:
        go.wait(60)

    monkeypatch.setitem(serving_server._REQUESTS, "touch", touch)
    client = attach(served().name)
    put(client, named(1))
    pinned = client.pin(named(1))
    session = client._session
    assert session is not None and client.stats().pinned == SIZE
    with pytest.raises(BlockingIOError):
        while True:  # until no message fits
            message = wire.message({"do": "touch"}, [bytes(16)])
            session.control._socket.sendmsg([message], (), socket.MSG_DONTWAIT)
    released = threading.Thread(target=pinned.release)
    released.start()
    released.join(0.2)
    go.set()
    released.join(60)
    until = time.monotonic() + 60
    while client.stats().pinned:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_pin_of_too_many_blocks_is_refused(served: Any) -> None:
    client = attach(served().name)
    assert client.pin(named(*range(wire.MOST_KEYS))).there == [False] * wire.MOST_KEYS
    with pytest.raises(headrace.InvalidError, match=r"4097 keys in one pin; give at most 4096"):
        client.pin(named(*range(wire.MOST_KEYS + 1)))


def test_uses_of_a_client_keep_blocks(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace._serving.client._USES_SECONDS", 0.0)
    client = attach(served(memory=20).name)
    put(client, named(0))
    for number in range(1, 200):
        get(client, named(0))
        put(client, named(number))
    assert client.contains(named(0)) == [True] and client.contains(named(1)) == [False]


def test_a_second_server_of_a_name_is_refused(served: Any, tmp_path: Path) -> None:
    first = served()
    with pytest.raises(headrace.DeniedError, match=r"another process serves .*socket"):
        Served(tmp_path)
    assert put(attach(first.name), named(1)).stored == 1


def test_a_server_that_was_killed_leaves_the_name(served: Any, tmp_path: Path) -> None:
    def die() -> None:
        Served(tmp_path)
        os.kill(os.getpid(), signal.SIGKILL)

    assert child(die) == -signal.SIGKILL
    assert (tmp_path / "socket").exists()
    assert put(attach(served().name), named(1)).stored == 1


def test_clients_with_other_blocks_or_versions_are_refused(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = served().name
    attach(name)
    with pytest.raises(headrace.InvalidError, match=r"blocks of tests.*start another server"):
        attach(name, kvcache.opaque("others", SIZE))
    with pytest.raises(headrace.AbsentError, match="headrace serve"):
        attach(f"{name}-other")
    monkeypatch.setattr(headrace, "__version__", "0.0.1")
    hello = wire.message({"headrace": "9", "blocks": {}})
    with pytest.raises(headrace.InvalidError, match="run the same version"), connected(name) as end:
        end.send(hello)
        wire.answer(end.recv(4096))


def test_blocks_of_any_size_are_refused(served: Any) -> None:
    name = served().name
    with pytest.raises(headrace.UnsupportedError, match="cannot be shared"):
        attach(name, kvcache.opaque("tests", SIZE, any_size=True))
    attach(name)
    with pytest.raises(headrace.InvalidError, match="start another server"):
        attach(name, kvcache.opaque("tests", SIZE, any_size=True))


def connected(name: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(20)
    end.connect(name)
    return end


def test_processes_of_other_users_are_refused(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = served().name
    assert os.stat(name).st_mode & 0o777 == 0o600
    monkeypatch.setattr("headrace._serving.client.os.geteuid", lambda: 12345)
    with pytest.raises(headrace.DeniedError, match="another user"):
        attach(name)


@pytest.mark.parametrize(
    "sent", [b"x", b"[]\n", b"{", b"{}\n", b'{"headrace": 1}\nabc', b'{"do": "get"}\n']
)
def test_other_messages_do_not_end_the_server(served: Any, sent: bytes) -> None:
    name = served().name
    with connected(name) as end:
        end.send(sent)
        answer = end.recv(4096)
        assert answer == b"" or b'"error"' in answer
    client = attach(name)
    session = client._session
    assert session is not None
    session.control._socket.send(wire.message({"do": "_serve"}))
    assert session.control._socket.recv(4096) == b""
    with pytest.raises(headrace.IoError, match="has ended"):
        client.contains(named(1))
    assert put(client, named(1)).stored == 1  # attached again


def test_a_request_of_too_many_blocks_is_an_error(served: Any) -> None:
    big = kvcache.opaque("big", wire.STAGING_BYTES // 2)
    client = attach(served(memory=16384).name, big)
    session = client._session
    assert session is not None
    for what in ("get", "put"):
        with pytest.raises(headrace.Error, match=r"extent|outside"), session.lane() as lane:
            lane.ask({"do": what}, [bytes(16)] * 3)
    assert client.store(named(1), bytes(big.block_bytes)).wait().stored == 1


def test_a_client_cannot_cut_what_the_server_maps(served: Any) -> None:
    client = attach(served().name)
    with connected(client.name) as end:
        blocks = {name: getattr(BLOCKS, name) for name in
                  ("model", "layers", "kv_heads", "head_dim", "element_bytes", "tensors",
                   "block_tokens", "revision")}  # fmt: skip
        end.send(wire.message({"headrace": headrace.__version__, "blocks": blocks}))
        _, files, _, _ = socket.recv_fds(end, 4096, 3)
    for each in files:
        with pytest.raises(OSError) as caught:
            os.ftruncate(each, 0)
        assert caught.value.errno == errno.EPERM
        os.close(each)


def test_servers_accept_again_once_there_are_descriptors(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._serving.server._AGAIN_SECONDS", 0.01)
    accept = socket.socket.accept
    failures = [errno.EMFILE, errno.ENOMEM, errno.ECONNABORTED]

    def fail_first(self: socket.socket) -> Any:
        if failures:
            raise OSError(failures.pop(), "planted")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", fail_first)
    client = attach(served().name)
    assert put(client, named(1)).stored == 1 and not failures


def test_a_child_of_fork_attaches_for_itself(served: Any) -> None:
    client = attach(served().name)
    put(client, named(1))

    def use() -> None:
        with pytest.raises(headrace.UnsupportedError, match="fork"):
            client.contains(named(1))
        with pytest.raises(headrace.UnsupportedError, match="fork"):
            client.store(named(2), content(b"2"))
        client.close()
        assert get(attach(client.name), named(1)) == [True]

    assert child(use) == 0
    assert get(client, named(1)) == [True]


def test_a_server_that_ends_in_order_is_one_error(served: Any) -> None:
    first = served()
    client = attach(first.name)
    put(client, named(1))
    first.close()
    for call in (client.contains, client.touch, client.pin, lambda keys: get(client, keys)):
        with pytest.raises(headrace.Error, match=r"has ended|no server"):
            call(named(1))
    served()
    assert get(client, named(1)) == [False] and put(client, named(1)).stored == 1
    client.close()
    with pytest.raises(headrace.CancelledError, match="closed"):
        client.contains(named(1))


def test_a_server_that_does_not_answer_is_an_error_in_time(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._serving.client._ANSWER", wire.timeout(0.2))
    client = attach(served().name)
    monkeypatch.setattr(serving_server, "_REQUESTS", {"put": lambda *_: time.sleep(1)})
    with pytest.raises(headrace.TimedOutError, match="does not answer"):
        put(client, named(1))


def test_close_ends_a_request_that_is_under_way(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go, ended = threading.Event(), threading.Event(), threading.Event()

    def pin(client: Any, keys: list[bytes], pin: int) -> dict[str, Any]:
        asked.set()
        go.wait(60)
        return {"there": "0"}

    monkeypatch.setitem(serving_server._REQUESTS, "pin", pin)
    client = attach(served().name)
    session = client._session
    assert session is not None
    number = session.control._socket.fileno()

    def ask() -> None:
        with pytest.raises(headrace.IoError, match="has ended"):
            client.pin(named(1))
        ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(60)
    client.close()
    assert session.control._socket.fileno() == number  # no other file has it meanwhile
    try:
        assert ended.wait(30)
    finally:
        go.set()
        thread.join()


def test_threads_of_a_process_have_connections_of_their_own(served: Any) -> None:
    client = attach(served(memory=4, kept=64).name)
    keys = named(*range(30))
    for key in keys:
        put(client, [key])
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(30):
                some = chance.sample(keys, 5)
                assert get(client, some) == [True] * 5
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors


def test_processes_that_do_anything_read_right_bytes(served: Any) -> None:
    """Several processes on few keys; a process knows what nobody else removes or evicts."""
    name = served(memory=24, kept=200).name

    def work(seed: int) -> None:
        chance = random.Random(seed)
        client = attach(name)
        mine: set[int] = set()  # numbers that only this process removes; none is ever evicted
        for _ in range(120):
            own = [seed * 100 + chance.randrange(20) for _ in range(3)]
            match chance.randrange(6):
                case 0:
                    assert client.remove(named(*own)) == len(mine & set(own))
                    mine -= set(own)
                case 1 | 2:
                    own = list(dict.fromkeys(own))
                    counts = put(client, named(*own))
                    assert counts.failed == 0
                    # One that others read is refused after it was removed.
                    there = client.contains(named(*own))
                    assert there.count(False) <= counts.refused, (counts, there)
                    mine |= {number for number, has in zip(own, there, strict=True) if has}
                case 3:
                    there = client.contains(named(*own))
                    assert there == [number in mine for number in own]
                case 4:
                    assert get(client, named(*own)) == [number in mine for number in own]
                case _:
                    get(client, named(*(chance.randrange(400) for _ in range(3))))

    pids = [forked(lambda seed=seed: work(seed)) for seed in range(4)]  # type: ignore[misc]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4


def test_the_command_keeps_blocks_for_its_next_start(tmp_path: Path) -> None:
    name = str(tmp_path / "socket")
    command = [sys.executable, "-m", "headrace", "serve", name, "--memory", f"{16 * SIZE}",
               "--folder", str(tmp_path / "kv"), "--budget", f"{64 * SIZE}"]  # fmt: skip
    for start in range(2):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None and "serving" in server.stderr.readline()
            client = attach(name)
            assert get(client, named(1, 2)) == [start == 1] * 2
            put(client, named(1, 2))
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        with pytest.raises(headrace.IoError, match="has ended"):
            get(client, named(1))
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kv"], "nowhere to keep blocks"),
        (["kv", "--folder", "/tmp/x"], "belong together"),
        (["kv", "--memory", "many"], "many"),
        (["kv", "--memory", "1GiB", "--on", "nowhere"], "nowhere"),
        (["kv", "--memory", "0"], "0 bytes keep no block"),
        (["kv", "--memory", "1000TiB"], "are free; give less --memory"),
        (["kv", "--folder", "/nowhere/x", "--budget", "1GiB"], "cannot make a folder in /nowhere"),
        (["", "--memory", "1GiB"], "no name of a server"),
    ],
)
def test_bad_words_of_the_command_are_one_line(words: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "serve", *words], capture_output=True, text=True
    )
    assert done.returncode != 0 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_name_is_a_socket_in_a_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert wire.socket_of("kv") == tmp_path / "headrace/kv.socket"
    assert (tmp_path / "headrace").stat().st_mode & 0o777 == 0o700
    (tmp_path / "headrace").chmod(0o777)
    with pytest.raises(headrace.DeniedError, match="others may write"):
        wire.socket_of("kv")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    with pytest.raises(headrace.AbsentError):
        wire.socket_of("kv")
    assert wire.socket_of("./kv") == Path.cwd() / "kv"
