# SPDX-License-Identifier: Apache-2.0
"""Code of the user that the cache calls: sources of bytes, and a log before write-backs."""

from __future__ import annotations

import gc
import random
import sys
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs import outcome_of

import headrace

BUDGET = 4 << 20
PAGE = 4096


@pytest.fixture
def file(machine: headrace.Machine, tmp_path: Path) -> headrace.File:
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    return headrace.File.open(machine, path, writable=True)


def change(cache: headrace.Cache, extent: headrace.Extent, data: bytes) -> None:
    with cache.access(extent, write=True) as block:
        block.write()[: len(data)] = data


def test_log_is_called_before_each_write_back(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    called: list[tuple[int, int, bytes, bytes]] = []

    def log(extent: headrace.Extent, data: bytes) -> None:
        there = file.path.read_bytes()[extent.offset : extent.offset + extent.length]
        called.append((extent.object_id, extent.offset, data, there))

    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True, before_write_back=log)
    for number in (3, 1):
        change(cache, file.extent(number * PAGE, PAGE), b"page%d" % number)
    assert called == []
    cache.sync()
    zeros = bytes(PAGE)
    assert called == [
        (file.id, number * PAGE, b"page%d" % number + zeros[5:], zeros) for number in (3, 1)
    ]
    assert file.path.read_bytes()[PAGE : PAGE + 5] == b"page1"


def test_log_that_cannot_be_called_is_refused(mover: headrace.Mover, memory_node: int) -> None:
    with pytest.raises(headrace.InvalidError, match="in a read-only cache"):
        headrace.Cache(mover, {memory_node: BUDGET}, before_write_back=print)
    with pytest.raises(headrace.InvalidError, match=r"called as f\(extent, bytes\)"):
        headrace.Cache(mover, {memory_node: BUDGET}, writable=True, before_write_back=[])


def test_log_that_raises_keeps_its_block_dirty(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    full = True

    def log(extent: headrace.Extent, data: bytes) -> None:
        if full and extent.offset == 0:
            raise ValueError("no space for the log\nat all")

    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True, before_write_back=log)
    change(cache, file.extent(0, PAGE), b"first")
    change(cache, file.extent(PAGE, PAGE), b"other")
    for call in (cache.write_back, cache.sync):
        with pytest.raises(
            headrace.IoError, match="before_write_back raised ValueError: no space for the log;"
        ):
            call()
    assert file.path.read_bytes()[:PAGE] == bytes(PAGE)
    assert file.path.read_bytes()[PAGE : PAGE + 5] == b"other"
    assert cache.stats().bytes_dirty == PAGE
    cache.flush()
    assert bytes(cache.access(file.extent(0, 5)).wait()) == b"first"
    full = False
    cache.sync()
    assert file.path.read_bytes()[:5] == b"first"


def test_log_is_called_while_an_exception_goes_up(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    called: list[int] = []

    def log(extent: headrace.Extent, data: bytes) -> None:
        called.append(len(data))

    def changed() -> headrace.Cache:
        cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True, before_write_back=log)
        change(cache, file.extent(0, PAGE), b"kept")
        return cache

    with pytest.raises(ZeroDivisionError):
        print(changed(), 1 // 0)  # the cache goes before anybody catches the error
    assert called == [PAGE]
    assert file.path.read_bytes()[:4] == b"kept"


class Database:
    def __init__(self, mover: headrace.Mover, node: int, logged: list[bytes]) -> None:
        self.records = logged  # the collector clears it before the cache
        self.cache = headrace.Cache(
            mover, {node: BUDGET}, writable=True, before_write_back=self.log
        )

    def log(self, extent: headrace.Extent, data: bytes) -> None:
        if data[:5] == b"wrong":
            raise ValueError("no record of it")
        self.records.append(data[:5])


def test_cache_with_a_log_of_its_owner_is_written_back_and_collected(
    mover: headrace.Mover, memory_node: int, file: headrace.File
) -> None:
    logged: list[bytes] = []
    database = Database(mover, memory_node, logged)
    change(database.cache, file.extent(0, PAGE), b"first")
    gone = weakref.ref(database)
    del database
    gc.collect()
    assert gone() is None
    assert logged == [b"first"]
    assert file.path.read_bytes()[:5] == b"first"


def test_error_of_the_log_of_a_collected_cache_is_told(
    mover: headrace.Mover,
    memory_node: int,
    file: headrace.File,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: told.append(str(each.exc_value)))
    database = Database(mover, memory_node, [])
    change(database.cache, file.extent(0, PAGE), b"wrong")
    del database
    gc.collect()
    assert len(told) == 1
    assert "before_write_back raised ValueError: no record of it" in told[0]
    assert file.path.read_bytes()[:5] == bytes(5)


class Reader:
    """Bytes with faults that a seed chooses."""

    def __init__(self, data: bytes, seed: int = 1, rate: float = 0.0) -> None:
        self.data, self.rate, self.version = data, rate, "v1"
        self.chance = random.Random(seed)
        self.kept: list[memoryview] = []
        self.calls = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read_into(self, offset: int, buffer: memoryview) -> Any:
        self.calls += 1
        found = self.data[offset : offset + len(buffer)]
        kind = self.chance.random() / self.rate if self.rate else 1.0
        self.kept.append(buffer)
        buffer[:] = found
        if kind < 0.2:
            raise TimeoutError("no answer in 5 s")
        if kind < 0.4:
            return len(found) - 1
        if kind < 0.6:
            buffer[0] ^= 0xFF
            return None
        if kind < 0.8:
            return len(found) + 1
        return len(found)


def test_reads_of_a_source_under_faults_are_right_or_refused(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    data = random.Random(2).randbytes(3_000_001)
    reader = Reader(data, rate=0.4)
    source = headrace.UserSource(reader, machine)
    cache = headrace.Cache(mover, {memory_node: 1 << 20})
    assert (source.size, source.writable) == (len(data), False)

    def work(seed: int) -> tuple[int, int]:
        chance = random.Random(seed)
        counts = [0, 0]
        for _ in range(60):
            at = chance.randrange(len(data))
            extent = source.extent(at, min(chance.randrange(1, 500_000), len(data) - at))
            try:
                found = chance.choice((cache.read, cache.view))(extent)
                counts[0] += 1
                assert found == data[at : at + extent.length]
            except headrace.IoError:
                counts[1] += 1
        return counts[0], counts[1]

    with ThreadPoolExecutor(4) as pool:
        right, refused = zip(*pool.map(work, range(4)), strict=True)
    assert sum(right) > 50 and sum(refused) > 10


def test_faults_of_a_source_are_named(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    class Failing(Reader):
        def read_into(self, offset: int, buffer: memoryview) -> Any:
            return self.answer(len(buffer))  # type: ignore[attr-defined]

    reader = Failing(bytes(1000))
    source = headrace.UserSource(reader, machine)
    cache = headrace.Cache(mover, {memory_node: BUDGET})

    def no_answer(length: int) -> int:
        raise TimeoutError("no answer\nin 5 s")

    for answer, message in (
        (no_answer, "raised TimeoutError: no answer"),
        (lambda length: length - 1, "gave 99 of 100 bytes at offset 7"),
        (lambda length: length + 1, "returned 101 for 100 bytes at offset 7; return how many"),
        (lambda length: None, r"read_into\(\) must return the number of bytes"),
        (lambda length: -1, r"read_into\(\) must return the number of bytes"),
    ):
        reader.answer = answer  # type: ignore[attr-defined]
        with pytest.raises(headrace.IoError, match=message):
            cache.access(source.extent(7, 100)).wait()
    reader.answer = lambda length: length  # type: ignore[attr-defined]
    assert bytes(cache.access(source.extent(7, 100)).wait()) == bytes(100)


def test_errors_that_utf8_cannot_say_are_errors(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int, file: headrace.File
) -> None:
    def fail(*arguments: object) -> Any:
        raise ValueError("path \udc80")

    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True, before_write_back=fail)
    change(cache, file.extent(0, PAGE), b"x")
    with pytest.raises(headrace.IoError, match=r"raised ValueError: path \\udc80"):
        cache.sync()
    cache.discard(file)
    reader: Any = Reader(bytes(PAGE))
    reader.version = "\udc80"
    source = headrace.UserSource(reader, machine)
    assert cache.read(source.extent(0, 3)) == bytes(3)
    reader.read_into = fail
    with pytest.raises(headrace.IoError, match=r"raised ValueError: path \\udc80"):
        cache.read(headrace.UserSource(reader, machine))


class Chunks:
    """A source of chunks, which remembers what it was asked for."""

    size, chunk = 1_000_000, 300_000

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self.asked.append((offset, len(buffer)))
        for at in range(len(buffer)):
            buffer[at] = (offset + at) % 251
        return len(buffer)


def test_chunk_of_a_source_is_read_once(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    cache = headrace.Cache(mover, {memory_node: BUDGET}, shards=1)
    chunks = Chunks()
    source = headrace.UserSource(chunks, machine)
    for at in (310_000, 590_000, 420_000, 999_990, 900_000):
        found = cache.read(source.extent(at, 10))
        assert found == bytes((at + i) % 251 for i in range(10))
    assert chunks.asked == [(300_000, 300_000), (900_000, 100_000)]


@pytest.mark.parametrize("chunk", [0, -1, 1 << 64, "big", None, 1.5])
def test_chunk_that_is_no_number_of_bytes_is_refused(machine: headrace.Machine, chunk: Any) -> None:
    chunks = Chunks()
    chunks.chunk = chunk
    with pytest.raises(headrace.InvalidError, match="chunk of a source"):
        headrace.UserSource(chunks, machine)


def test_source_that_changes_is_an_error_and_what_was_read_stays(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    reader = Reader(b"old" * 100_000)
    source = headrace.UserSource(reader, machine)
    cache = headrace.Cache(mover, {memory_node: BUDGET})
    assert cache.read(source.extent(0, 3)) == b"old"
    reader.data, reader.version = b"new" * 100_000, "v2"
    assert cache.read(source.extent(0, 3)) == b"old"
    with pytest.raises(headrace.IoError, match="changed from version v1 to v2; make a new one"):
        cache.read(source.extent(200_000, 3))
    assert cache.read(headrace.UserSource(reader, machine).extent(0, 3)) == b"new"


def test_buffer_that_a_source_keeps_is_not_the_cache(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    reader = Reader(b"x" * 10_000)
    cache = headrace.Cache(mover, {memory_node: BUDGET})
    source = headrace.UserSource(reader, machine)
    view = cache.view(source)
    for kept in reader.kept:
        kept[:] = bytes(len(kept))
    assert view == b"x" * 10_000 and cache.read(source) == b"x" * 10_000
    assert reader.calls == 1


def test_source_that_holds_its_cache_is_collected(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    reader: Any = Reader(bytes(1000))
    reader.source = headrace.UserSource(reader, machine)
    gone = weakref.ref(reader)
    cache = headrace.Cache(mover, {memory_node: BUDGET})
    cache.read(reader.source)
    del reader
    gc.collect()
    assert gone() is not None, "the cache has its copies"
    del cache
    gc.collect()
    assert gone() is None


def test_bad_source_is_refused(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    for lacks in (object(), types.SimpleNamespace(size=1)):
        with pytest.raises(headrace.InvalidError, match="needs `size` and `read_into"):
            headrace.UserSource(lacks, machine)
    for size in (-1, 1.5, None, 1 << 63, (1 << 64) - 1):
        huge: Any = type("Huge", (), {"size": size, "read_into": None})()
        with pytest.raises(headrace.InvalidError, match="its number of bytes, below 2"):
            headrace.UserSource(huge, machine)
    broken: Any = Reader(b"")
    with pytest.raises(headrace.UnsupportedError, match="no storage node"):
        headrace.UserSource(broken, headrace.Machine.discover(storage=[]))
    cache = headrace.Cache(mover, {memory_node: BUDGET}, writable=True)
    with pytest.raises(headrace.DeniedError, match="read-only"):
        cache.access(headrace.UserSource(Reader(bytes(PAGE)), machine), write=True).write()


def test_threads_wait_for_a_source_without_the_gil(
    mover: headrace.Mover, machine: headrace.Machine, memory_node: int
) -> None:
    go = threading.Event()

    class Slow(Reader):
        def read_into(self, offset: int, buffer: memoryview) -> Any:
            go.wait(60)
            return super().read_into(offset, buffer)

    source = headrace.UserSource(Slow(b"x" * 1000), machine)
    cache = headrace.Cache(mover, {memory_node: BUDGET})
    block = cache.access(source)
    with pytest.raises(headrace.TimedOutError):
        block.wait(timeout=0.01)
    go.set()
    assert bytes(block.wait()) == b"x" * 1000


ENDING = """
class Slow:
    size = 1 << 30
    def read_into(self, offset, buffer):
        time.sleep(0.01)
        return len(buffer)
source = headrace.UserSource(Slow(), machine)
cache = headrace.Cache(mover, {node: 8 << 20})
def forever():
    for at in iter(range(1 << 30).__iter__().__next__, -1):
        cache.access(source.extent(at * 4096, 4096))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
"""


def test_interpreter_ends_while_sources_are_read() -> None:
    assert outcome_of(ENDING) == (0, "", "")


STUCK = """
import types
class Stuck:
    size = 1 << 20
    def read_into(self, offset, buffer):
        threading.Event().wait()
class StuckVersion:
    size, asked = 1 << 20, 0
    def read_into(self, offset, buffer):
        return len(buffer)
    @property
    def version(self):
        StuckVersion.asked += 1
        time.sleep(11 if StuckVersion.asked > 1 else 0)  # ends after the interpreter's wait
        return ""
class Last:
    def __del__(self, sleep=time.sleep):
        sleep(3)  # so that it ends while the interpreter does
sys.modules["kept"] = kept = types.ModuleType("kept")
kept.last = Last()
kept.cache = headrace.Cache(mover, {node: 8 << 20}, writable=True)
with kept.cache.access(file.extent(0, 4096), write=True) as block:
    block.write()[:1] = b"x"
for reader in (Stuck(), StuckVersion()):
    kept.cache.access(headrace.UserSource(reader, machine).extent(0, 4096))
while StuckVersion.asked < 2:
    time.sleep(0.01)
del kept, Last
"""


def test_interpreter_ends_although_a_source_never_answers(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(bytes(PAGE))
    opened = f"file = headrace.File.open(machine, {str(path)!r}, writable=True)\n"
    lost = "4 KiB of changes are lost: a source does not answer"
    assert outcome_of(opened + STUCK) == (0, "", f"headrace: a cache could not end, and {lost}\n")


COLLECTED = """
class Cycle:
    pass
class Collecting:
    size = 1 << 20
    def read_into(self, offset, buffer):
        go.wait(30)
        gc.collect()
        ended.set()
        return len(buffer)
go, ended = threading.Event(), threading.Event()
cycle = Cycle()
cycle.itself = cycle
cycle.cache = headrace.Cache(mover, {node: 8 << 20})
cycle.cache.access(headrace.UserSource(Collecting(), machine).extent(0, 4096)).release()
gc.disable()
del cycle
go.set()
assert ended.wait(30), "the reader waits for itself"
"""


def test_cache_that_is_collected_by_its_reader_does_not_wait_for_it() -> None:
    assert outcome_of(COLLECTED) == (0, "", "")
    by_mover = COLLECTED.replace("del cycle", "del cycle, mover")
    assert outcome_of(by_mover) == (0, "", "")


FORKED = """
class Plain:
    size = 1 << 20
    def read_into(self, offset, buffer):
        buffer[:] = bytes([5]) * len(buffer)
        return len(buffer)
source = headrace.UserSource(Plain(), machine)
cache = headrace.Cache(mover, {node: 8 << 20})
view = cache.view(source.extent(0, 100))
child = os.fork()
if child == 0:
    assert view == bytes([5]) * 100
    try:
        cache.read(source.extent(500_000, 100))
    except headrace.Error:
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert cache.read(source.extent(500_000, 100)) == bytes([5]) * 100
"""


def test_child_of_fork_reads_no_source() -> None:
    assert outcome_of(FORKED) == (0, "", "")
