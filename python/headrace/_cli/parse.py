"""Options that are more than a word or a number."""

from __future__ import annotations

import re

from headrace import InvalidError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])?i?b?)", re.IGNORECASE)
#: C++ counts bytes in 64 bits; half of that is still more than any machine has.
_LARGEST_SIZE = 1 << 63
_COUNT = re.compile("[0-9]{1,4}")


def size(text: str) -> int:
    """ "64KiB", "64k", "1.5 GiB", "4096" as bytes; units are binary."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidError(f"'{text}' is no size; write 4096, 64KiB or 1GiB")
    value = float(match[1]) * _UNITS[(match[2] or "").lower()]
    if value >= _LARGEST_SIZE:
        raise InvalidError(f"'{text}' is more than any machine has; give less")
    return int(value)


def sizes(text: str | None) -> list[int]:
    """A list of sizes, separated by commas; empty for none."""
    found = [size(part) for part in (text or "").split(",") if part.strip()]
    if any(value == 0 for value in found):
        raise InvalidError("a copy of 0 bytes has no rate; give sizes above 0")
    return found


def counts(text: str | None) -> list[int]:
    """A list of positive numbers, separated by commas; empty for none."""
    found = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        if not _COUNT.fullmatch(part.strip()) or not 0 < int(part) <= 4096:
            raise InvalidError(f"'{part.strip()}' is no number of threads; write 1 or 1,2,4")
        found.append(int(part))
    return found


def words(text: str | None) -> list[str]:
    """A list of words, separated by commas; empty for none."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]
