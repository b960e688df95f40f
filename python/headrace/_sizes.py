# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them."""

from __future__ import annotations

import re

from headrace._core import InvalidError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])?i?b?)", re.IGNORECASE)
#: C++ counts bytes in 64 bits; half of that is still more than any machine has.
_LARGEST_SIZE = 1 << 63


def is_size(text: str) -> bool:
    return _SIZE.fullmatch(text.strip()) is not None


def size(text: str) -> int:
    """ "64KiB", "64k", "1.5 GiB", "4096" as bytes; units are binary."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidError(f"'{text}' is no size; write 4096, 64KiB or 1GiB")
    value = float(match[1]) * _UNITS[(match[2] or "").lower()]
    if value >= _LARGEST_SIZE:
        raise InvalidError(f"'{text}' is more than any machine has; give less")
    return int(value)
