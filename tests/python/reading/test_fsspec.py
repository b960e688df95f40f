# SPDX-License-Identifier: Apache-2.0
"""The file system: right bytes while files change and file systems fail."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from compare_readers import FaultyFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import headrace
import headrace.fsspec
from headrace import serving
from headrace._serving.server import OneStore

BLOCK = 256 << 10


@pytest.fixture(autouse=True)
def small_caches() -> Iterator[None]:
    headrace.fsspec.close()
    headrace.fsspec.configure(budget="8MiB")
    yield
    headrace.fsspec.close()
    headrace.fsspec.configure()


def faulty(data: bytes) -> tuple[FaultyFileSystem, headrace.fsspec.HeadraceFileSystem]:
    below = FaultyFileSystem()
    below.pipe("/data", data)
    return below, headrace.fsspec.HeadraceFileSystem(fs=below)


def test_a_local_file_that_changes_is_read_as_it_is(tmp_path: Path) -> None:
    chance = random.Random(3)
    fs = fsspec.filesystem("headrace")
    path = tmp_path / "file"
    path.write_bytes(chance.randbytes(3_000_000))
    file = fs.open(str(path))
    for number in range(300):
        match number % 10:
            case 3:  # in place, of the same size
                with path.open("r+b") as plain:
                    plain.seek(chance.randrange(path.stat().st_size))
                    plain.write(chance.randbytes(1000))
            case 5:
                with path.open("ab") as plain:
                    plain.write(chance.randbytes(5000))
            case 7:
                os.truncate(path, path.stat().st_size - 3000)
            case 9 if number % 50 == 9:
                other = tmp_path / "other"
                other.write_bytes(chance.randbytes(2_000_000))
                other.rename(path)
                file = fs.open(str(path))
            case 0:
                time.sleep(0.11 if number % 100 == 0 else 0)  # so that it is no longer recent
        data = path.read_bytes()
        at, length = chance.randrange(len(data) + 10), chance.randrange(1_500_000)
        file.seek(at)
        assert file.read(length) == data[at : at + length]
        assert file.size == len(data)
        ranges = sorted(chance.randrange(len(data)) for _ in range(6))
        assert fs.cat_ranges([str(path)] * 3, ranges[::2], ranges[1::2]) == [
            data[start:end] for start, end in zip(ranges[::2], ranges[1::2], strict=True)
        ]
    assert fs.cat_file(str(path), -100, None) == data[-100:]


def test_a_file_that_stays_is_read_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3_000_000))
    time.sleep(0.2)
    with fsspec.open(f"headrace://{path}") as file:
        before = file.read()
        misses = headrace.fsspec.stats()["local"].misses
        file.seek(0)
        assert file.read() == before
        into = bytearray(2000)
        file.seek(len(before) - 1000)
        assert (file.readinto(into), into[:1000]) == (1000, before[-1000:])
    assert fsspec.open(f"headrace://{path}").open().read() == before
    assert headrace.fsspec.stats()["local"].misses == misses


def test_a_faulty_file_system_gives_right_bytes_or_an_error() -> None:
    headrace.fsspec.close()
    headrace.fsspec.configure(budget="1MiB")
    data = random.Random(4).randbytes(12 * BLOCK + 1234)  # more than the budget holds
    below, fs = faulty(data)
    below.faults = 0.2
    failed = [0] * 4

    def work(seed: int) -> None:
        chance = random.Random(seed)
        file = fs.open("/data")
        for _ in range(300):
            at, length = chance.randrange(len(data)), chance.randrange(3 * BLOCK)
            try:
                file.seek(at)
                assert file.read(length) == data[at : at + length]
            except OSError as error:
                failed[seed] += 1
                assert "no answer" in str(error) or "open it again" in str(error)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sum(failed) > 10


def test_a_block_that_many_miss_is_fetched_once() -> None:
    data = os.urandom(4 * BLOCK)
    below, fs = faulty(data)
    below.delay = 0.05
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: fs.open("/data").read(), range(8))) == {data}
    assert below.requests == [(0, 4 * BLOCK)]
    fs.cat_ranges(["/data"] * 2, [5, 2 * BLOCK], [BLOCK, 3 * BLOCK])
    assert len(below.requests) == 1


def test_missing_neighbours_are_one_request_and_ranges_go_together() -> None:
    data = os.urandom(80 * 1024)
    below, fs = faulty(data * 40)
    assert fs.cat_ranges(["/data"] * 2, [0, 6 * BLOCK + 1], [10, 6 * BLOCK + 2]) == [
        data[:10],
        (data * 40)[6 * BLOCK + 1 : 6 * BLOCK + 2],
    ]
    assert below.requests == [(0, BLOCK), (6 * BLOCK, 7 * BLOCK)]
    assert fs.cat_file("/data") == data * 40
    assert below.requests[2:] == [(BLOCK, 6 * BLOCK), (7 * BLOCK, 13 * BLOCK - 128 * 1024)]


def test_a_small_file_takes_little_of_the_budget() -> None:
    below, fs = faulty(b"x" * 5000)
    below.pipe("/more", b"y" * (BLOCK + 1))
    assert fs.cat_file("/data") == b"x" * 5000
    assert headrace.fsspec.stats()["remote"].tiers[0].used == 16 << 10
    assert fs.cat_file("/more") == b"y" * (BLOCK + 1)
    assert headrace.fsspec.stats()["remote"].tiers[0].used == BLOCK + (32 << 10)
    assert fs.cat_file("/more", BLOCK - 1, BLOCK + 1) == b"yy" and len(below.requests) == 2


def test_a_remote_file_that_changes_is_another_one() -> None:
    below, fs = faulty(b"old" * 1000)
    assert fs.cat_file("/data") == b"old" * 1000
    old = fs.open("/data")
    below.pipe("/data", b"newer" * 1000)
    assert fs.cat_file("/data") == b"newer" * 1000
    assert old.read() == b"old" * 1000, "it is still in memory"


def test_a_remote_file_that_is_replaced_while_it_is_fetched_is_an_error() -> None:
    """The new file has the same length. It comes after the version check, or after a fetch."""
    size = 40 * BLOCK
    below, fs = faulty(b"a" * size)
    replaced = threading.Event()
    fetch = below.cat_ranges

    def replace(paths: list[str], starts: list[int], *rest: object, **options: object) -> object:
        if not replaced.is_set():
            replaced.set()
            below.pipe("/data", b"b" * size)
        return fetch(paths, starts, *rest, **options)

    below.cat_ranges = replace  # type: ignore[assignment]
    file = fs.open("/data")
    for _ in range(2):
        with pytest.raises(OSError, match="another file has its name since; open it again"):
            file.read()
    assert fs.open("/data").read() == b"b" * size
    assert fs.cat_file("/data", 5, 10) == b"bbbbb"
    assert below.asked["/data"].count((0, 32 * BLOCK)) == 3, "no wrong bytes are kept"


def test_a_remote_file_whose_time_of_access_changes_is_the_same() -> None:
    """As those of SFTP and SMB, of which fsspec's ukey() has the time of the last read."""

    class Accessed(MemoryFileSystem):
        reads = 0

        def info(self, path: str, **options: object) -> dict[str, object]:
            return {**super().info(path, **options), "time": self.reads}

        def cat_ranges(self, *arguments: Any, **options: Any) -> Any:
            self.reads += 1
            return super().cat_ranges(*arguments, **options)

    below = Accessed(skip_instance_cache=True)
    below.pipe("/folder/data", b"a" * 1000)
    for fs, path in ((below, "/folder/data"), (DirFileSystem("/folder", below), "data")):
        read = headrace.fsspec.HeadraceFileSystem(fs=fs).open(path).read()
        assert read == b"a" * 1000


def test_reads_of_columns_are_planned_and_not_copied(tmp_path: Path) -> None:
    data = random.Random(6).randbytes(3_000_000)
    path = tmp_path / "file"
    path.write_bytes(data)
    time.sleep(0.2)
    fs = fsspec.filesystem("headrace")
    starts, ends = [10, 300_000, 1_000_001, 2_999_000], [5000, 1_000_000, 1_900_000, 3_000_000]
    expected = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    assert fs.cat_ranges([str(path)] * 4, starts, ends) == expected
    stats = headrace.fsspec.stats()["local"]
    assert stats.misses == 0 and stats.prefetched > 0, "each block was planned"
    assert stats.bytes_used < 1_599_999 + 3 * (64 << 10), "and nothing else was read"
    file = fs.open(str(path))
    file.seek(300_000)
    column = file.read_buffer(700_000)
    assert isinstance(column, memoryview) and column == data[300_000:1_000_000]
    assert headrace.fsspec.stats()["local"].bytes_pinned >= 700_000
    assert file.tell() == 1_000_000
    assert file.read_buffer(1000) == data[1_000_000:1_001_000]
    assert file.seek(0, 2) == len(data) and file.read_buffer(10) == b""


def test_the_next_process_finds_remote_blocks_in_the_folder(tmp_path: Path) -> None:
    data = random.Random(5).randbytes(20 * BLOCK)
    (tmp_path / "data").write_bytes(data)
    program = """
import sys, fsspec, headrace.fsspec
from fsspec.implementations.local import LocalFileSystem
class Slow(fsspec.AbstractFileSystem):
    protocol = "slow"
    def info(self, path, **options):
        return LocalFileSystem().info(path)
    def cat_ranges(self, paths, starts, ends, **options):
        print("asked", file=sys.stderr)
        return [LocalFileSystem().cat_file(*one) for one in zip(paths, starts, ends)]
fsspec.register_implementation("slow", Slow)
headrace.fsspec.configure(budget="2MiB", folder=sys.argv[1], folder_budget="64MiB")
with fsspec.open(f"headrace::slow://{sys.argv[2]}") as file:
    sys.stdout.buffer.write(file.read())
headrace.fsspec.close()
"""
    errors = []
    for _ in range(2):
        arguments = [sys.executable, "-c", program, str(tmp_path / "kept"), str(tmp_path / "data")]
        run = subprocess.run(arguments, capture_output=True, check=True, timeout=60)
        assert run.stdout == data
        errors.append(run.stderr)
    assert b"asked" in errors[0]
    assert errors[1] == b""


def test_it_goes_to_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    fs = fsspec.filesystem("headrace")
    file = pickle.loads(pickle.dumps(fs.open(str(path))))
    assert file.read() == b"0123456789"
    chained = fsspec.filesystem("headrace", target_protocol="memory")
    assert pickle.loads(pickle.dumps(chained)) == chained
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(fs.cat_file, [str(path)] * 4) == [b"0123456789"] * 4


class UpperFileSystem(LocalFileSystem):
    """Its files are not the kernel's, though its class says so."""

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return io.BytesIO(Path(path).read_bytes().upper())


def test_urls_name_what_is_below(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"local")
    memory = fsspec.filesystem("memory")
    memory.pipe("/there/data", b"memory")
    for url, data in (
        (f"headrace://{path}", b"local"),
        (f"headrace::file://{path}", b"local"),
        ("headrace::memory://there/data", b"memory"),
    ):
        with fsspec.open(url) as file:
            assert file.read() == data
    assert fsspec.open_files(f"headrace://{tmp_path}/*")[0].path == str(path)
    with fsspec.open(f"headrace://{path}", "rt") as file:
        assert file.read() == "local"
    upper = headrace.fsspec.HeadraceFileSystem(fs=UpperFileSystem())
    assert upper.cat_file(str(path)) == upper.open(str(path)).read() == b"LOCAL"


def test_what_it_does_not_read_the_file_system_below_does(tmp_path: Path) -> None:
    fs = fsspec.filesystem("headrace")
    folder = str(tmp_path / "a" / "b")
    fs.makedirs(folder)
    with fs.open(f"{folder}/one", "wb") as file:
        file.write(b"1")
    fs.cp_file(f"{folder}/one", f"{folder}/two")
    fs.mv(f"{folder}/two", f"{folder}/three")
    assert fs.ls(folder, detail=False) == [f"{folder}/one", f"{folder}/three"]
    assert fs.cat(f"{folder}/*") == {f"{folder}/one": b"1", f"{folder}/three": b"1"}
    fs.pipe_file(f"{folder}/one", b"22")
    assert fs.cat_file(f"{folder}/one") == b"22"
    fs.rm(folder, recursive=True)
    assert not fs.exists(folder)


def test_a_file_that_is_replaced_is_not_read_on(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"old" * 1000)
    file = fsspec.open(f"headrace://{path}").open()
    assert file.read(3) == b"old"
    other.write_bytes(b"newer" * 1000)
    other.rename(path)
    for read in (lambda: file.read(3), lambda: file.readinto(bytearray(3))):
        with pytest.raises(OSError, match="another file has its name since; open it again"):
            read()
    assert fsspec.open(f"headrace://{path}").open().read(5) == b"newer"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.read(3)


def test_a_remote_file_that_vanishes_is_one_clear_error() -> None:
    below, fs = faulty(b"x" * 3 * BLOCK)
    file = fs.open("/data")
    assert file.read(1) == b"x"
    below.rm("/data")
    assert file.read(1) == b"x", "it is in the cache"
    file.seek(2 * BLOCK)
    with pytest.raises(FileNotFoundError, match="vanished since it was opened: '/data'"):
        file.read(1)


def test_files_that_are_not_regular_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    fs = fsspec.filesystem("headrace")
    for name in (str(tmp_path / "pipe"), "/dev/null"):
        for call in (fs.open, fs.cat_file):
            with pytest.raises(headrace.InvalidError, match="is not a regular file"):
                call(name)
    for call in (fs.open, fs.cat_file):
        with pytest.raises(headrace.InvalidError, match="does not say its size"):
            call("/proc/self/status")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_of_fork_reads_what_a_thread_is_reading() -> None:
    data = os.urandom(4 * BLOCK)
    below, fs = faulty(data)
    file = fs.open("/data")
    below.delay = 0.5
    thread = threading.Thread(target=file.read)  # fetches these blocks, with the file's lock
    thread.start()
    while not below.requests:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        below.delay = 0
        os._exit(0 if file.read() == data else 1)
    end = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    thread.join()


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    fs = fsspec.filesystem("headrace")
    with pytest.raises(FileNotFoundError):
        fs.open(str(tmp_path / "absent"))
    for call in (fs.open, fs.cat_file):
        with pytest.raises(IsADirectoryError):
            call(str(tmp_path))
    with pytest.raises(IsADirectoryError):
        headrace.fsspec.HeadraceFileSystem(target_protocol="memory").open("/")
    (missing,) = fs.cat_ranges([str(tmp_path / "absent")], [0], [1])
    assert isinstance(missing, FileNotFoundError)
    with pytest.raises(ValueError, match="different lengths"):
        fs.cat_ranges(["a"], [0, 1], [1])
    with pytest.raises(ValueError, match="both given"):
        headrace.fsspec.HeadraceFileSystem(target_protocol="memory", fs=fs)
    fs.cat_file(__file__)
    with pytest.raises(headrace.InvalidError, match="before the first file"):
        headrace.fsspec.configure(budget="9MiB")
    for settings, message in (
        ({"bugdet": 1}, "no setting bugdet"),
        ({"budget": 0}, "budget=0"),
        ({"budget": 1.5}, "budget=1.5"),
    ):
        with pytest.raises(headrace.InvalidError, match=message):
            headrace.fsspec.configure(**settings)
    headrace.fsspec.close()
    headrace.fsspec.configure(where="tape")
    with pytest.raises(headrace.InvalidError, match="where='tape', and this machine has dram"):
        fs.cat_file(__file__)


def test_reads_end_with_the_interpreter() -> None:
    """The main thread ends while others read, plan and wait for requests."""
    program = """
import os, sys, time, threading, fsspec, headrace.fsspec
from fsspec.implementations.memory import MemoryFileSystem
class Slow(MemoryFileSystem):
    protocol = "slow"
    def cat_ranges(self, *arguments, **options):
        time.sleep(0.01)
        return super().cat_ranges(*arguments, **options)
headrace.fsspec.configure(budget="1MiB")  # so that most of it is fetched again
local, remote = fsspec.filesystem("headrace"), headrace.fsspec.HeadraceFileSystem(fs=Slow())
remote.fs.pipe("/data", bytes(20 << 20))
def forever(work):
    work()
    threading.Thread(target=lambda: [work() for _ in iter(int, 1)], daemon=True).start()
forever(lambda: local.cat_ranges([sys.argv[1]] * 2, [0, 1000], [500, 3000]))
forever(lambda: remote.cat_file("/data"))
time.sleep(0.1)
"""
    arguments = [sys.executable, "-c", program, __file__]
    for _ in range(2):
        run = subprocess.run(arguments, capture_output=True, timeout=60)
        assert (run.returncode, run.stderr) == (0, b"")


def test_threads_of_all_files_share_the_caches(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_bytes(os.urandom(1_000_000))
    fs, done = fsspec.filesystem("headrace"), threading.Event()

    def work(path: Path) -> None:
        data = path.read_bytes()
        while not done.is_set():
            assert fs.cat_file(str(path), 1000, 900_000) == data[1000:900_000]

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(work, path) for path in paths]
        time.sleep(0.5)
        done.set()
        for one in running:
            one.result()
    assert headrace.fsspec.stats()["local"].bytes_used <= 8 << 20


def test_processes_of_one_server_fetch_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = str(tmp_path / "socket")
    machine = headrace.Machine.discover(storage=[])
    memory = [headrace.kvcache.Memory("dram", "8MiB")]
    store = OneStore(headrace.Mover(machine), memory)
    server = serving.Server(name, store, machine)
    headrace.fsspec.close()
    headrace.fsspec.configure(server=name)
    data = random.Random(4).randbytes(3 * BLOCK + 5)
    below, fs = faulty(data)
    assert fs.cat_file("/data") == data and len(below.requests) == 1
    headrace.fsspec.close()  # as another process
    assert fs.cat_file("/data") == data and len(below.requests) == 1
    server.close()
    assert fs.cat_file("/data") == data and len(below.requests) == 2
    assert fs.cat_file("/data") == data
    assert caplog.text.count("nothing is cached: the server") == 1
    store.close(60)
    with pytest.raises(headrace.InvalidError, match="folder or server"):
        headrace.fsspec.configure(server=name, folder=tmp_path)
