# SPDX-License-Identifier: Apache-2.0
"""Compares the pages of a writable cache over a block device that fails, as a seed chooses.

    .venv/bin/python tests/python/reading/compare_device.py --operations 100000

The device is a loop device (root) over a file in a faulty mount (faulty_mount.py). Its reads and
writes are late, short, torn or fail; in each fourth round all of them fail. Four threads write and
read pages. No read is torn or older than a write that has ended. After each round each write is on
the device. At last the device vanishes below changed pages. Exit status 1: a page is wrong or lost.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from faulty_mount import faulty_mount

import headrace

PAGE, PAGES, BUDGET_PAGES = 4096, 48, 20
THREADS = 4
ROUND = 400  # operations
RATES = (0.02, 0.2, 1.0, 3.0)  # in the last all fail
_GET_FREE, _CONFIGURE, _AUTOCLEAR, _DIRECT_IO = 0x4C82, 0x4C0A, 4, 16


@contextmanager
def loop_device(file: Path) -> Iterator[Path]:
    """OSError: it takes root and loop devices. The kernel frees it when nobody has it open."""
    with open("/dev/loop-control") as control, file.open("r+b") as below:
        path = Path(f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}")
        config = bytearray(304)  # struct loop_config
        struct.pack_into("=II", config, 0, below.fileno(), PAGE)
        struct.pack_into("=I", config, 60, _AUTOCLEAR | _DIRECT_IO)
        device = os.open(path, os.O_RDWR)
        try:
            fcntl.ioctl(device, _CONFIGURE, bytes(config))
            yield path
        finally:
            os.close(device)


class Pages:
    """The last version of each page, and the least that a read may return (as in versioned.h)."""

    def __init__(self, file: headrace.File, cache: headrace.Cache) -> None:
        self.cache = cache
        self.operations = 0
        self.faults = 0
        self.wrong: list[str] = []
        self._file = file
        self._lock = threading.Lock()
        self._begun = [0] * PAGES
        self._least = [0] * PAGES

    def work(self, count: int, seed: int) -> None:
        chance = random.Random(seed)
        with self._lock:
            self.operations += count
        for _ in range(count):
            page = chance.randrange(PAGES)
            try:
                match chance.randrange(40):
                    case 0:
                        self.cache.write_back()
                    case 1:
                        self.cache.sync()
                    case 2:
                        self.cache.invalidate(self._extent(page))
                    case kind if kind < 20:
                        self._write(page)
                    case _:
                        self._read(page)
            except headrace.Error:
                with self._lock:
                    self.faults += 1

    def _extent(self, page: int) -> headrace.Extent:
        return self._file.extent(page * PAGE, PAGE)

    def _version(self, page: int, data: bytes) -> int:
        version: int = struct.unpack_from("=Q", data)[0]
        if data != data[:8] * (PAGE // 8):
            self.wrong.append(f"page {page} has bytes of two versions")
        return version

    def _write(self, page: int) -> None:
        with self.cache.access(self._extent(page), write=True) as block:
            view = block.write()
            if (old := self._version(page, bytes(view))) != self._begun[page]:
                self.wrong.append(f"page {page}: a writer found {old}, not {self._begun[page]}")
            version = self._begun[page] = self._begun[page] + 1
            view[:] = struct.pack("=Q", version) * (PAGE // 8)
            del view
        self._has(page, version)

    def _read(self, page: int) -> None:
        least = self._least[page]
        with self.cache.access(self._extent(page)) as block:
            version = self._version(page, bytes(block.wait()))
        if not least <= version <= self._begun[page]:
            self.wrong.append(f"page {page}: {version} was read after {least}")
        self._has(page, version)

    def _has(self, page: int, version: int) -> None:
        with self._lock:
            self._least[page] = max(self._least[page], version)

    def lost(self, file: Path) -> int:
        """The number of pages of a file that are not of the last version."""
        data = file.read_bytes()
        found = [self._version(page, data[page * PAGE :][:PAGE]) for page in range(PAGES)]
        return sum(each != last for each, last in zip(found, self._begun, strict=True))


def is_refused(pages: Pages) -> bool:
    """Whether sync() is an error, and changed pages stay."""
    try:
        pages.cache.sync()
    except headrace.Error:
        return pages.cache.stats().bytes_dirty > 0
    return False


def compare(folder: Path, operations: int, seed: int) -> tuple[Pages, int] | None:
    """The pages after all rounds, and the number of those that were lost. None: no device."""
    hidden = folder / "data"
    hidden.write_bytes(bytes(PAGES * PAGE))
    lost = 0
    with ExitStack() as devices:
        try:
            mount = devices.enter_context(faulty_mount(folder, seed, sector=512))
            path = devices.enter_context(loop_device(mount.path / "data"))
        except OSError as error:
            print(f"no device: {error}")
            return None
        machine = headrace.Machine.discover(storage=[folder])
        node = next(each.id for each in machine.nodes if each.kind == "dram")
        mover = headrace.Mover(machine)
        cache = headrace.Cache(
            mover, {node: BUDGET_PAGES * PAGE}, slab=PAGE, shards=1, writable=True
        )
        pages = Pages(headrace.File.open(machine, path, writable=True), cache)
        chance = random.Random(seed)
        with ThreadPoolExecutor(THREADS) as pool:
            for number in range(-(-operations // ROUND)):
                mount.set(rate := RATES[number % len(RATES)])
                seeds = [chance.getrandbits(32) for _ in range(THREADS)]
                list(pool.map(pages.work, [ROUND // THREADS] * THREADS, seeds))
                if rate == RATES[-1] and not is_refused(pages):  # it has changed pages by then
                    pages.wrong.append("sync() of a device that fails is no error")
                mount.set(0.0)
                if is_refused(pages):  # a write that had begun before
                    cache.sync()
                lost += pages.lost(hidden)
        pages.work(ROUND, seed)
    # The mount has ended: the device is one without a disk.
    pages.work(ROUND, seed + 1)
    if not is_refused(pages):
        pages.wrong.append("changes of a device that has vanished are not kept")
    return pages, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--operations", type=int, default=2 * len(RATES) * ROUND, help="at least")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compared = compare(Path(folder), options.operations, options.seed)
    if compared is None:
        return 0
    pages, lost = compared
    print(
        f"device: {pages.operations} operations, {pages.faults} faults, "
        f"{len(pages.wrong)} wrong, {lost} lost, seed {options.seed}"
    )
    for each in pages.wrong[:5]:
        print(f"  {each}")
    return int(bool(pages.wrong or lost))


if __name__ == "__main__":
    sys.exit(main())
