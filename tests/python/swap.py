# SPDX-License-Identifier: Apache-2.0
"""Whether memory can go to swap on this machine, found out without Headrace: a test that skips by
what Headrace says would pass where Headrace always refused.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

NONE = "there is no swap"
_SIZE = 1 << 20
_PAGEOUT = 21
_SWAPPED = 1 << 62
_PTRACE, _NICE = 19, 23


def lacking() -> str | None:
    """Why memory of one's own does not go out; None: it does."""
    if len(Path("/proc/swaps").read_text().splitlines()) < 2:
        return NONE
    pages = mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages[:] = b"x" * _SIZE
    pages.madvise(_PAGEOUT)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(pages)) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        pagemap.seek(begin * 8)
        entries = memoryview(pagemap.read(_SIZE // mmap.PAGESIZE * 8)).cast("Q")
    return None if any(entry & _SWAPPED for entry in entries) else "no page goes out"


def lacking_for_processes() -> str | None:
    """The same for memory of other processes."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    if not (capabilities >> _PTRACE & 1 and capabilities >> _NICE & 1):
        return "CAP_SYS_PTRACE and CAP_SYS_NICE"
    return lacking()
