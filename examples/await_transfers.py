# SPDX-License-Identifier: Apache-2.0
"""Brings blocks of a KV cache from a file to memory while an event loop goes on with other work."""

import asyncio
import os
import tempfile
from pathlib import Path

import headrace

BLOCK = 2 << 20
COUNT = 8


async def fetch(mover: headrace.Mover, to: headrace.Extent, source: headrace.Extent) -> int:
    stats = await mover.copy(to, source)  # no thread waits, the loop watches a descriptor
    return stats.bytes


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kv.bin")
        path.write_bytes(os.urandom(COUNT * BLOCK))
        machine = headrace.Machine.discover(storage=[folder])
        mover = headrace.Mover(machine)
        file = headrace.File.open(machine, path)
        buffer = headrace.allocate(machine, COUNT * BLOCK)
        ticks = 0

        async def other_work() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        background = asyncio.create_task(other_work())
        moved = await asyncio.gather(
            *(
                fetch(mover, buffer.extent(i * BLOCK, BLOCK), file.extent(i * BLOCK, BLOCK))
                for i in range(COUNT)
            )
        )
        background.cancel()
        same = memoryview(buffer) == path.read_bytes()
    print(f"{sum(moved) >> 20} MiB in {COUNT} transfers, {'right' if same else 'WRONG'}")
    print("the loop went on meanwhile" if ticks > 1 else "the loop stood still")


if __name__ == "__main__":
    asyncio.run(main())
