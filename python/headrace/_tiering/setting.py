# SPDX-License-Identifier: Apache-2.0
"""A setting of the kernel: a file, its value, the wanted value, and the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """`before`: the file's value; None if the kernel makes the file after an earlier setting."""

    file: str
    wanted: str
    before: str | None
    why: str

    @property
    def is_change(self) -> bool:
        return self.before != self.wanted
