# SPDX-License-Identifier: Apache-2.0
"""Damages rows of headrace.vllm on the disk, and compares what its loads report as loaded.

    tools/engines.sh  # once
    .venv/bin/python tests/python/llm/vllm_damage.py --rows 1000000 [--folder DIRECTORY]

In each round most rows are damaged, all are loaded, each that a load reports is compared, and those
that are lost are stored again. Kinds of damage: a flipped bit, zeros, the bytes of another row, a
file cut short, a flipped bit in the list of rows while no engine runs, and, as root, a disk that
answers EIO (a file system in an image that is cut). Exit status 1: a wrong row.
"""

from __future__ import annotations

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import real_vllm

#: Bytes of a row, as of its slot in the folder.
ROW = 4096
KINDS = ("bit", "zeros", "other row", "short file", "list", "EIO")


class Damage:
    """A tier of `rows` rows in a folder, and the rows' content."""

    def __init__(self, folder: Path, rows: int, seed: int) -> None:
        self.random = numpy.random.default_rng(seed)
        self.right = self.random.integers(0, 256, (rows, ROW), numpy.uint8)
        self.right[:, :8] = numpy.arange(rows, dtype="<u8")[:, None].view(numpy.uint8)
        self.memory = numpy.zeros((rows, ROW), numpy.int8)
        self.folder = folder
        self.keys = [number.to_bytes(32, "little") + bytes(4) for number in range(rows)]
        self.injected: collections.Counter[str] = collections.Counter()
        self.lost = self.wrong = self.jobs = 0
        self.tier: Any = None
        self.open()

    def open(self) -> None:
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

        rows = len(self.keys)
        self.tier = SecondaryTierFactory.create_secondary_tier(
            {"type": "HeadraceTier", "module_path": "headrace.vllm", "folder": str(self.folder),
             "budget": (rows + rows // 8) * ROW},
            memoryview(self.memory),  # type: ignore[arg-type]
            real_vllm.spec(),
        )  # fmt: skip

    def run(self, numbers: Any, loads: bool) -> set[bytes]:
        """The keys that were loaded, or are there; rows stand at their numbers."""
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.tiering.base import TransferJob

        self.jobs += 1
        keys = [self.keys[number] for number in numbers]
        job = TransferJob(self.jobs, keys, numpy.asarray(numbers), loads, ReqContext(req_id="r"))
        (self.tier.submit_load if loads else self.tier.submit_store)(job)
        self.tier.drain_jobs()
        (result,) = self.tier.get_finished_jobs()
        return set(keys) if result.success else set(result.successful_keys or ())

    def store(self, numbers: Any) -> None:
        self.memory.view(numpy.uint8)[numbers] = self.right[numbers]
        self.run(numbers, loads=False)

    def compare(self) -> Any:
        """Loads all rows; the numbers of those that are lost."""
        self.memory[:] = 0
        numbers = numpy.arange(len(self.keys))
        good = self.run(numbers, loads=True)
        came = numpy.array([key in good for key in self.keys])
        same = (self.memory.view(numpy.uint8) == self.right).all(axis=1)
        self.wrong += int((came & ~same).sum())
        lost = numpy.flatnonzero(~came)
        self.lost += len(lost)
        return lost

    @contextmanager
    def blocks(self, name: str = "blocks") -> Iterator[Any]:
        """The bytes of a file of the folder, which change with the array."""
        path = self.folder / name
        size = path.stat().st_size
        array = numpy.memmap(path, numpy.uint8, "r+", shape=(size,))
        try:
            yield array
            array.flush()
        finally:
            del array

    def damage(self, share: float) -> None:
        """In all slots that have a row, also those that it left."""
        with self.blocks() as array:
            slots = array[: len(array) // ROW * ROW].reshape(-1, ROW)
            numbers = slots[:, :8].copy().view("<u8")[:, 0]
            known = numbers < len(self.keys)
            known &= (slots[:, 8:64] == self.right[numbers * known, 8:64]).all(axis=1)
            chosen = self.random.random(len(self.keys)) < share
            kinds = self.random.choice(3, len(self.keys), p=(0.7, 0.1, 0.2))
            at = self.random.integers(0, ROW, len(self.keys))
            for slot in numpy.flatnonzero(known):
                number = int(numbers[slot])
                if not chosen[number]:
                    continue
                if kinds[number] == 0:
                    slots[slot, at[number]] ^= 1 << int(at[number]) % 8
                elif kinds[number] == 1:
                    slots[slot] = 0
                else:
                    slots[slot] = self.right[(number + 1) % len(self.keys)]
        damaged = numpy.unique(numbers[known & chosen[numbers * known]])
        for kind in kinds[damaged]:
            self.injected[KINDS[kind]] += 1

    def cut(self) -> None:
        """The last eighth of the file is gone."""
        path = self.folder / "blocks"
        size = path.stat().st_size
        os.truncate(path, size - size // 8 // ROW * ROW)
        self.injected["short file"] += size // 8 // ROW

    def damage_list(self) -> None:
        """A bit of the header of each second slot, while no engine runs."""
        self.tier.shutdown()
        with self.blocks("index") as array:
            header = (len(array) - ROW) // (len(self.keys) + len(self.keys) // 8)
            for first in range(ROW, len(array) - header, 2 * header):
                at = first + int(self.random.integers(header))
                array[at] ^= 1 << int(self.random.integers(8))
                self.injected["list"] += 1
        self.open()

    def round(self, number: int) -> None:
        if number % 8 == 6:
            self.cut()
        elif number % 8 == 7:
            self.damage_list()
        else:
            self.damage(0.75)
        self.store(self.compare())

    def close(self) -> None:
        self.tier.shutdown()


@contextmanager
def image(directory: Path, size: int) -> Iterator[tuple[Path, Path]]:
    """A file system in a file: the file, and where it is mounted. Needs root."""
    file, mounted = directory / "image", directory / "mounted"
    mounted.mkdir()
    with file.open("wb") as made:
        made.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", file], check=True)
    subprocess.run(["mount", "-o", "loop", file, mounted], check=True)
    try:
        yield file, mounted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


def eio(directory: Path, rows: int, seed: int) -> Damage:
    """Reads behind the first half of the rows fail with EIO."""
    size = 4 * rows * ROW + (64 << 20)
    with image(directory, size) as (file, mounted):
        damage = Damage(mounted / "kv", rows, seed)
        damage.store(numpy.arange(rows))
        assert len(damage.compare()) == 0
        os.sync()
        blocks = (mounted / "kv" / "blocks").read_bytes()[: 1 << 20]
        found = file.read_bytes().find(blocks[:ROW])
        os.truncate(file, found + rows * ROW // 2)
        damage.injected["EIO"] += len(damage.compare())
        damage.wrong += int(damage.injected["EIO"] == 0)
        try:
            damage.close()
        except OSError:
            pass
    return damage


def run(folder: Path, wanted: int, rows: int, seed: int) -> Damage:
    """Damages at least `wanted` rows."""
    damage = Damage(folder, rows, seed)
    damage.store(numpy.arange(rows))
    number = 0
    while damage.injected.total() < wanted:
        damage.round(number)
        number += 1
    damage.close()
    return damage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to damage")
    parser.add_argument("--folder", type=Path, help="on the disk to use (default: temporary)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    real_vllm.install()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=given.folder) as directory:
        damages = [run(Path(directory, "kv"), given.rows, 8192, given.seed)]
        if os.geteuid() == 0:
            damages.append(eio(Path(directory), 8192, given.seed))
    total = sum((each.injected for each in damages), collections.Counter())
    lost, wrong = (sum(getattr(each, name) for each in damages) for name in ("lost", "wrong"))
    kinds = ", ".join(f"{total[kind]} {kind}" for kind in KINDS)
    print(f"{total.total()} rows damaged ({kinds}); {lost} lost, {wrong} wrong; "
          f"{time.monotonic() - begin:.0f} s")  # fmt: skip
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
