# SPDX-License-Identifier: Apache-2.0
"""Parses options that are more than a word or a number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from headrace import InvalidError, Machine, Profile
from headrace._errors import unknown
from headrace._format import BIDI, in_one_line
from headrace._format import size as size
from headrace._profile import documents
from headrace._selection import together, value_of

P = TypeVar("P", Machine, Profile)

_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(%?)", re.ASCII)
_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(i?)b/s", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|[smh]?)", re.ASCII | re.IGNORECASE)
_COUNT = re.compile("[0-9]{1,4}")


def sizes(text: str | None) -> list[int]:
    """A list of sizes, separated by commas; empty for none."""
    found = [size(part) for part in (text or "").split(",") if part.strip()]
    if any(value == 0 for value in found):
        raise InvalidError("a copy of 0 bytes has no rate; give sizes above 0")
    return found


def share(text: str) -> float:
    """ "5%", "0.5 %", "0.05" as a share of one."""
    match = _SHARE.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match is not None else -1.0
    if not 0 <= value <= 1:
        raise InvalidError(f"'{text}' is no share; write 5% or 0.05")
    return value


def rate(text: str) -> float:
    """ "40GB/s", "37.5 GiB/s" as bytes per second."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise InvalidError(f"'{text}' is no rate; write 40GB/s or 37.5GiB/s")
    power = ["", "k", "m", "g", "t"].index(match[2].lower())
    value = float(match[1]) * float((1024 if match[3] else 1000) ** power)
    if value <= 0:
        raise InvalidError(f"'{text}' asks for nothing; give more than 0")
    return value


def duration(text: str) -> float:
    """ "60s", "2m", "1.5h", "20ms", "90" as seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidError(f"'{text}' is no time; write 60s, 2m or 1h")
    return float(match[1]) * {"": 1, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}[match[2].lower()]


def settings(text: str | Sequence[str] | None) -> dict[str, int | str | list[int | str]]:
    """A list of NAME=VALUE, separated by commas, or several such lists. A name given twice has both
    values. Values are those of Python's `only`. An empty value, "", selects points without the
    parameter.
    """
    found: list[tuple[str, int | str]] = []
    for part in words(text if text is None or isinstance(text, str) else ",".join(text)):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise InvalidError(
                f"'{part}' sets nothing; write mix=read,threads=2, or placed= for what has none"
            )
        found.append((name, value_of(name, value)))
    return together(found)


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


def chosen(
    given: str | None, there: Sequence[str], what: str, default: list[str]
) -> list[str]:  # fmt: skip
    """The members of `there` that a list names. InvalidError: lists them."""
    names = []
    for word in words(given):
        name = next((each for each in there if each.lower() == word.lower()), None)
        if name is None:
            raise unknown(what, word, there)
        names.append(name)
    return list(dict.fromkeys(names)) or default


#: Characters that move a cursor, colour text or end a line, and are escaped as in JSON.
_ODD = re.compile(
    r"\\[bfnrt]|\\u00[0189]|\\u007f|\\u061c|\\u200[ef]|\\u202[89a-e]|\\u206[6-9]"
    f"|[\x7f-\x9f\u2028\u2029{BIDI}]"
)


def profile(source: str | Path) -> Profile:
    """Loads a measured profile, a benchmark's document or a preset, with texts that are safe to
    print."""
    return in_lines(documents.load(source))


def in_lines(found: P) -> P:
    """The profile or machine, with texts that would control a terminal escaped, since anybody may
    have written the file.
    """
    if not _ODD.search(found.to_json()):
        return found
    made: P = type(found).fromdict(_in_lines(found.asdict()))
    return made


def _in_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {in_one_line(name): _in_lines(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_in_lines(each) for each in value]
    return in_one_line(value) if isinstance(value, str) else value


def machine(source: str) -> Machine:
    """Loads a preset, or a file of `topo --json` or `--xml`; the first character shows which."""
    path = Path(source)
    if path.is_file() and path.stat().st_size > 0:
        with path.open("rb") as file:
            if file.read(64).lstrip().startswith(b"<"):
                return Machine.discover(hwloc_xml=path, storage=[])
    return Machine.load(source)
