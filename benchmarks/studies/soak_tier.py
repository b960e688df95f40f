#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hours of a redis-server within a budget, every value checked, every process watched.

    sudo .venv/bin/python benchmarks/studies/soak_tier.py --hours 24
        # takes swap, root, redis-server

A server of its own is asked for values whose popularity is skewed, nine reads to a write. What it
answers must be what was written last; at the end every value is read once more. `headrace tier
attach` keeps half of it in DRAM; halfway it is killed by SIGKILL and begins again. A line a minute
goes to stdout. The exit code is 1 when a value was wrong, nothing went out or the budget was not
kept, headrace ended by itself or with another exit code, its memory, files or threads grew, or
kernel.numa_balancing is not what it was; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

BATCH = 64
VALUE_BYTES = 1024
HINT_FAULTS = Path("/proc/sys/kernel/numa_balancing")
#: Bytes by which headrace's memory may grow after the first tenth of the run: its samples, and
#: fragmentation of the heap.
GROWTH = 8 << 20
#: Limit of the server's memory in DRAM, as a factor of its budget. It allows for pages that came
#: back since the last step, and for memory that is not managed (code, stacks, files).
BEYOND = 1.25


class Failed(Exception):
    """The soak found a defect."""


def value_of(key: int, version: int) -> bytes:
    """1 KiB, half of which compresses."""
    random_half = hashlib.shake_128(b"%d:%d" % (key, version)).digest(VALUE_BYTES // 2)
    return random_half + b"%08d" % (key % 10**8) * (VALUE_BYTES // 16)


class Store:
    """A redis-server, and what its values must be."""

    def __init__(self, folder: Path, values: int) -> None:
        path = folder / "socket"
        self.server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "",
             "--appendonly", "no", "--dir", str(folder)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.versions = array("I", bytes(4 * values))
        self.operations = 0
        self._random = random.Random(1)
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(60)
        self._path = path

    def load(self) -> None:
        """Every value once."""
        self._connect()
        self._answers = self._connection.makefile("rb")
        values = len(self.versions)
        for begin in range(0, values, BATCH):
            self._ask([(key, True) for key in range(begin, min(begin + BATCH, values))])

    def some(self, writes: float = 0.1) -> None:
        """A batch of operations, that share of them writes; the k-th most popular key is drawn
        about as often as 1/k.
        """
        values = len(self.versions)
        drawn = []
        for _ in range(BATCH):
            rank = int(values ** self._random.random())
            drawn.append((rank * 2_654_435_761 % values, self._random.random() < writes))
        self._ask(drawn)
        self.operations += BATCH

    def check_all(self) -> None:
        for begin in range(0, len(self.versions), BATCH):
            end = min(begin + BATCH, len(self.versions))
            self._ask([(key, False) for key in range(begin, end)])

    def end(self) -> None:
        self._connection.close()
        self.server.kill()
        self.server.wait()

    def _connect(self) -> None:
        for _ in range(100):
            try:
                return self._connection.connect(str(self._path))
            except OSError:
                time.sleep(0.1)
        raise Failed("redis-server does not answer")

    def _ask(self, asked: list[tuple[int, bool]]) -> None:
        sent, expected = bytearray(), []
        for key, writes in asked:
            if writes:
                self.versions[key] += 1
            value = value_of(key, self.versions[key])
            name = b"%d" % key
            sent += _command(b"SET", name, value) if writes else _command(b"GET", name)
            expected.append(b"+OK\r\n" if writes else b"$%d\r\n%b\r\n" % (len(value), value))
        self._connection.sendall(sent)
        for (key, _), answer in zip(asked, expected, strict=True):
            if self._answers.read(len(answer)) != answer:
                raise Failed(f"value {key} is not what was written last")


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


class Tier:
    """headrace tier attach, and how large it was."""

    def __init__(self, command: str, pid: int, budget: int, log: Path) -> None:
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [command, "tier", "attach", str(pid), "--budget", str(budget),
                 "--source", "hint-faults", "--guard", "0"],
                stdout=out, stderr=out,
            )  # fmt: skip

    def size(self) -> dict[str, int]:
        """Bytes, files, threads."""
        if self.process.poll() is not None:
            raise Failed(f"headrace ended by itself, exit code {self.process.returncode}")
        pid = self.process.pid
        # It opens files for a moment: the least of some looks is what it keeps.
        files = []
        for _ in range(5):
            files.append(len(os.listdir(f"/proc/{pid}/fd")))
            time.sleep(0.05)
        threads = len(os.listdir(f"/proc/{pid}/task"))
        return {"bytes": _status(pid, "VmRSS"), "files": min(files), "threads": threads}

    def end(self) -> None:
        """As Ctrl-C does; it puts back what it set."""
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed("headrace did not end within 60 s of SIGINT") from None
        if code != 130:
            raise Failed(f"headrace ended with exit code {code} after SIGINT, not 130")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise Failed(f"process {pid} has no {name} any more")


def _grown(first: dict[str, int], last: dict[str, int]) -> str:
    if last["bytes"] > first["bytes"] + GROWTH:
        return f"headrace grew from {first['bytes'] >> 20} to {last['bytes'] >> 20} MiB"
    if last["files"] > first["files"] or last["threads"] > first["threads"]:
        return f"headrace's files or threads grew: {first}, then {last}"
    return ""


def soak(arguments: argparse.Namespace, folder: Path) -> None:
    log = folder / "headrace.log"
    store = Store(folder, arguments.values)
    tier = None
    try:
        store.load()
        pid = store.server.pid
        budget = _status(pid, "VmRSS") // 2
        seconds = arguments.hours * 3600
        for half in range(2):
            tier = Tier(arguments.headrace, pid, budget, log)
            _run(store, tier, budget, seconds / 2, half * seconds / 2)
            if half == 0:
                tier.process.kill()
                tier.process.wait()
        tier.end()
        store.check_all()
    finally:
        try:
            if tier is not None and tier.process.poll() is None:
                tier.end()
        finally:
            store.end()
            sys.stderr.write(log.read_text()[-3000:] if log.exists() else "")


def _run(store: Store, tier: Tier, budget: int, seconds: float, before: float) -> None:
    begin = told = time.monotonic()
    first: dict[str, int] | None = None
    pid = store.server.pid
    while (now := time.monotonic()) - begin < seconds:
        store.some()
        if now - told < min(60.0, seconds / 20):
            continue
        told = now
        size, resident, out = tier.size(), _status(pid, "VmRSS"), _status(pid, "VmSwap")
        print(
            f"{before + now - begin:.0f} s: {store.operations} operations; the server has "
            f"{resident >> 20} MiB in DRAM, {out >> 20} out; headrace {size['bytes'] / 2**20:.1f} "
            f"MiB, {size['files']} files, {size['threads']} threads",
            flush=True,
        )
        if now - begin < seconds / 10:
            continue
        first = first or size
        if why := _grown(first, size):
            raise Failed(why)
        if out == 0 or resident > BEYOND * budget:
            raise Failed(f"{resident >> 20} MiB stay in DRAM, where {budget >> 20} are to")


def _setting() -> str:
    return HINT_FAULTS.read_text().strip() if HINT_FAULTS.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--values", type=int, default=400_000, help="of 1 KiB each")
    parser.add_argument("--headrace", default=str(Path(sys.executable).parent / "headrace"))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("soak_tier: it takes root")
    if shutil.which("redis-server") is None:
        sys.exit("soak_tier: there is no redis-server; apt install redis-server")
    if len(Path("/proc/swaps").read_text().splitlines()) < 2:
        sys.exit("soak_tier: there is no swap; docs/howto/tier.md has how to make some")
    setting, code = _setting(), 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            soak(arguments, Path(folder))
        except KeyboardInterrupt:
            print("interrupted")
            code = 130
        except (Failed, OSError) as error:
            print(f"failed: {error}")
            code = 1
    if _setting() != setting:
        print(f"failed: kernel.numa_balancing was {setting} and is {_setting()}")
        code = 1
    if code == 0:
        print("every value was right, the budget was kept, nothing grew, settings are as they were")
    return code


if __name__ == "__main__":
    sys.exit(main())
