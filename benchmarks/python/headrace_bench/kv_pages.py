# SPDX-License-Identifier: Apache-2.0
"""Where a server's memory lies while it is driven: bytes on each node, in swap, in its file."""

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

#: Seconds between two looks.
EVERY_SECONDS = 0.25
#: A look where there are several nodes costs the kernel a walk over all pages: the next one waits
#: so many times as long as the last took.
_REST = 50


def look(process: int, node: int, nodes: int, file: Path | None) -> Row:
    """Of one node the kernel has a count. OSError: the process has ended."""
    status = f"/proc/{process}/status"
    memory = bytes_by_node(process) if nodes > 1 else {node: kilobytes(status, "VmRSS") or 0}
    return {
        "memory": {str(each): size for each, size in sorted(memory.items())},
        "swap": kilobytes(status, "VmSwap") or 0,
        "file": 512 * os.stat(file).st_blocks if file is not None else 0,
    }


@contextmanager
def sampled(once: Callable[[], Row]) -> Iterator[list[Row]]:
    """What `once` tells at the begin and then at each look, with the seconds since the begin: by a
    thread that ends with the block, and with the process it looks at.
    """
    samples: list[Row] = []
    over = threading.Event()
    begun = time.monotonic()

    def keep() -> None:
        rest = 0.0
        while not over.wait(rest):
            now = time.monotonic()
            try:
                samples.append({"seconds": round(now - begun, 3), **once()})
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
