# SPDX-License-Identifier: Apache-2.0
"""The file object: positions of one thread, and of many."""

from __future__ import annotations

import io
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import outcome_of

from headrace._reading.file import ReadFile

DATA = bytes(random.Random(1).randbytes(50_000)).replace(b"\x07", b"\n")


class Memory:
    def size(self) -> int:
        return len(DATA)

    def read(self, at: int, length: int) -> bytes:
        return DATA[at : at + length]

    def readinto(self, at: int, into: memoryview) -> int:
        found = self.read(at, len(into))
        into[: len(found)] = found
        return len(found)


def opened() -> ReadFile:
    return ReadFile(None, "memory", Memory())


def test_one_thread_sees_what_a_file_gives() -> None:
    chance = random.Random(2)
    mine, plain = opened(), io.BytesIO(DATA)
    for _ in range(3000):
        size = chance.choice([-1, 0, 1, 10, 5000, 60_000])
        match chance.randrange(7):
            case 0:
                offset = chance.randrange(60_000)
                assert mine.seek(offset) == plain.seek(offset)
            case 1:
                offset = chance.randrange(-plain.tell(), 1000)
                assert mine.seek(offset, 1) == plain.seek(offset, 1)
            case 2:
                offset = -chance.randrange(50_000)
                assert mine.seek(offset, 2) == plain.seek(offset, 2)
            case 3:
                assert mine.readline(size) == plain.readline(size)
            case 4:
                one, other = bytearray(max(size, 0)), bytearray(max(size, 0))
                assert mine.readinto(one) == plain.readinto(other)
                assert one == other
            case 5:
                assert mine.tell() == plain.tell()
            case 6:
                assert mine.read(size) == plain.read(size)
    assert [*opened()] == [*io.BytesIO(DATA)]
    assert [*io.TextIOWrapper(opened(), "latin-1", newline="\n")] == [  # type: ignore[type-var]
        line.decode("latin-1") for line in io.BytesIO(DATA)
    ]


def test_threads_that_seek_and_read_share_a_file() -> None:
    file = opened()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(2000):
            at = chance.randrange(len(DATA))
            file.seek(at)
            first = file.read(chance.randrange(100))
            assert first == DATA[at : at + len(first)]
            assert file.tell() == at + len(first)
            second = file.read(10)
            assert second == DATA[at + len(first) :][:10]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_one_reader_may_go_from_thread_to_thread() -> None:
    file = opened()
    got = bytearray()
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        first.submit(file.seek, 100).result()
        for number in range(100):
            got += (first, second)[number % 2].submit(file.read, 7).result()
    assert got == DATA[100:800]


def test_threads_that_only_read_get_each_part_once() -> None:
    file = opened()
    parts: list[bytes] = []
    lock = threading.Lock()

    def work(_: int) -> None:
        while part := file.read(13):
            with lock:
                parts.append(part)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    whole = [DATA[at : at + 13] for at in range(0, len(DATA), 13)]
    assert sorted(parts) == sorted(whole)


def test_bad_requests_are_refused() -> None:
    file = opened()
    with pytest.raises(ValueError, match="before the file's start"):
        file.seek(-1)
    with pytest.raises(ValueError, match="whence=7"):
        file.seek(0, 7)
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"")
    file.close()
    for call in (file.read, file.tell, file.readable, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_the_end_of_the_interpreter_waits_for_reads() -> None:
    program = """
        from headrace._reading.file import ReadFile
        begun = threading.Event()
        class Slow:
            def read(self, at, length):
                begun.set()
                time.sleep(0.2)
                print("read")
                return b""
        file = ReadFile(None, "slow", Slow())
        threading.Thread(target=file.read, args=(1,), daemon=True).start()
        begun.wait()
    """
    assert outcome_of(program) == (0, "read\n", "")
