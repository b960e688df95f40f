# SPDX-License-Identifier: Apache-2.0
"""A setting of the kernel: one file, what it says, what it should say, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """`before`: what the file said; None for one that an earlier setting makes the kernel make."""

    file: str
    wanted: str
    before: str | None
    why: str

    @property
    def is_change(self) -> bool:
        return self.before != self.wanted
