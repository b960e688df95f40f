# SPDX-License-Identifier: Apache-2.0
"""How long hits of a served store take beside those of a store of this process, and beside preadv()
of a file in the page cache: rounds of all, one after the other.

    .venv/bin/python benchmarks/studies/served_hits.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import headrace
from headrace import kvcache, serving

ROUNDS, SECONDS = 9, 0.1
#: Bytes of a block, and blocks of a load.
KIB, MIB = 1 << 10, 1 << 20
SHAPES = (
    (16 * KIB, 1), (16 * KIB, 64),
    (256 * KIB, 1), (256 * KIB, 32),
    (2 * MIB, 1), (2 * MIB, 16),
)
MEMORY = 256 << 20


def times(call: Callable[[], None]) -> list[float]:
    """Microseconds of each call, for a while."""
    found = []
    until = time.perf_counter() + SECONDS
    while (begun := time.perf_counter()) < until:
        call()
        found.append((time.perf_counter() - begun) * 1e6)
    return found


def line(what: str, rounds: list[list[float]]) -> str:
    """On a busy host the fastest calls say what a call takes, the others what it waits for."""
    fastest = [min(each) for each in rounds]
    medians = [median(each) for each in rounds]
    return (f"{what:26} fastest {median(fastest):8.1f} us ({min(fastest):.1f} to "
            f"{max(fastest):.1f}), median {median(medians):.1f}")  # fmt: skip


def compare(block: int, count: int, folder: Path) -> None:
    blocks = kvcache.opaque("study", block)
    name = str(folder / f"{block}-{count}")
    command = [sys.executable, "-m", "headrace", "serve", name, "--memory", str(MEMORY)]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE) as server,
        open(f"{name}.data", "w+b", buffering=0) as file,
    ):
        try:
            assert server.stderr is not None and b"serving" in server.stderr.readline()
            machine = headrace.Machine.discover(storage=[])
            mover = headrace.Mover(machine)
            local = kvcache.Store(mover, blocks, [kvcache.Memory("dram", MEMORY)])
            served = serving.Attached(name, blocks)
            moved = serving.Attached(name, blocks, mover=mover)
            keys = [b"%d" % number for number in range(count)]
            data = os.urandom(count * block)
            into = bytearray(count * block)
            memory = headrace.MemoryRange(into)
            parts = [memoryview(into)[at : at + block] for at in range(0, len(into), block)]
            file.write(data)

            def read() -> None:
                for number, part in enumerate(parts):
                    os.preadv(file.fileno(), [part], number * block)

            local.store(keys, data).wait()
            served.store(keys, data).wait()
            calls: dict[str, Callable[[], object]] = {
                "local hit": lambda: local.load_blocks(keys, memory).wait(),
                "served hit": lambda: served.load_blocks(keys, memory),
                "served hit, Mover": lambda: moved.load_blocks(keys, memory),
                "page cache hit": read,
                "local contains": lambda: local.contains(keys),
                "served contains": lambda: served.contains(keys),
                "served pin (a request)": lambda: served.pin(keys).release(),
            }
            found: dict[str, list[list[float]]] = {what: [] for what in calls}
            for _ in range(ROUNDS):
                for what, call in calls.items():
                    into[:] = bytes(len(into))
                    found[what].append(times(lambda call=call: call()))  # type: ignore[misc]
                    assert "hit" not in what or into == data
            print(f"{count} x {block >> 10} KiB")
            for what, rounds in found.items():
                print("  " + line(what, rounds))
            local.close()
            served.close()
            moved.close()
        finally:
            server.kill()


def main() -> None:
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for block, count in SHAPES:
            compare(block, count, Path(folder))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
