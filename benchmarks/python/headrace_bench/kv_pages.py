# SPDX-License-Identifier: Apache-2.0
"""Samples of where a server's memory is during a run: bytes on each node, in swap, in its file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace_bench.two_memories import bytes_by_node, kilobytes

Row = dict[str, Any]

#: Seconds between two samples.
EVERY_SECONDS = 0.25
#: Sampling several nodes makes the kernel walk over all pages. So the pause after a sample is this
#: many times as long as the sample took.
_REST = 50


def look(process: int, node: int, nodes: int, file: Path | None) -> Row:
    """Bytes of a process now. Counts pages only if there are several nodes.

    OSError: the process has ended.
    """
    status = f"/proc/{process}/status"
    memory = bytes_by_node(process) if nodes > 1 else {node: kilobytes(status, "VmRSS") or 0}
    return {
        "memory": {str(each): size for each, size in sorted(memory.items())},
        "swap": kilobytes(status, "VmSwap") or 0,
        "file": 512 * os.stat(file).st_blocks if file is not None else 0,
    }


@contextmanager
def sampled(look_once: Callable[[], Row]) -> Iterator[list[Row]]:
    """Samples of `look_once`, each with the seconds since the beginning, taken by a thread.

    The first is taken at once. The thread ends with the block, or when `look_once` raises OSError.
    """
    samples: list[Row] = []
    over = threading.Event()
    begun = time.monotonic()

    def keep() -> None:
        rest = 0.0
        while not over.wait(rest):
            now = time.monotonic()
            try:
                samples.append({"seconds": round(now - begun, 3), **look_once()})
            except OSError:
                return
            rest = max(EVERY_SECONDS, _REST * (time.monotonic() - now))

    thread = threading.Thread(target=keep, name="headrace-kv-pages", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
