# SPDX-License-Identifier: Apache-2.0
"""Modules of LMCache's wheel for its multi-process mode, without PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wheels

#: The version that headrace.lmcache_mp is tested with.
VERSION = "0.5.6"
WHEEL = wheels.ENGINES / f"lmcache-{VERSION}"


class Bitmap:
    """LMCache's own is in an extension that needs PyTorch."""

    def __init__(self, size: int) -> None:
        self.bits = [False] * size

    def set(self, index: int) -> None:
        self.bits[index] = True

    def test(self, index: int) -> bool:
        return self.bits[index]

    def clear(self, index: int) -> None:
        self.bits[index] = False

    def popcount(self) -> int:
        return sum(self.bits)

    def __len__(self) -> int:
        return len(self.bits)

    def gather(self, all_of_them: Sequence[Any]) -> list[Any]:
        return [each for each, bit in zip(all_of_them, self.bits, strict=True) if bit]


def install(wheel: Path = WHEEL) -> None:
    """Makes `import lmcache.v1.distributed.l2_adapters` work in this process."""
    wheels.stand_in(
        "torch", "cryptography", "prometheus_client", "lmcache.lmcache_native",
        "lmcache.v1.memory_management",
    )  # fmt: skip
    top = wheels.namespace("lmcache", wheel)
    for name in ("device_ops", "torch_dev", "c_ops"):
        setattr(top, name, wheels.StandIn(name))
    top.torch_device_type = "cpu"  # type: ignore[attr-defined]
    wheels.namespace("lmcache.v1", wheel)
    import lmcache.lmcache_native  # type: ignore[import-not-found]

    sys.modules["lmcache.lmcache_native"].Bitmap = Bitmap  # type: ignore[attr-defined]
