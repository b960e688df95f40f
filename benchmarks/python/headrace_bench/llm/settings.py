# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel that change what memory traffic costs: written beside each result."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Any


def settings(root: Path = Path("/")) -> dict[str, Any]:
    """None where the kernel has no such file."""
    thp = _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", thp or "")
    balancing = _read(root / "proc/sys/kernel/numa_balancing")
    return {
        "numa_balancing": None if balancing is None else int(balancing),
        "transparent_hugepages": chosen[1] if chosen else None,
        "governor": _read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "page_bytes": mmap.PAGESIZE,
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
