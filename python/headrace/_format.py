# SPDX-License-Identifier: Apache-2.0
"""Formats quantities and lists for people, and parses sizes as people write them."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace._core import InvalidError


def time_text(ns: float) -> str:
    """ "88 ns", "4.1 µs", "2.5 ms"."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * factor:  # less than this is 999 of the smaller one
            return f"{ns / factor:.3g} {unit}"
    return f"{ns:.3g} ns"


def elapsed(seconds: float) -> str:
    return time_text(seconds * 1e9)


def percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"


def efficiency(share: float) -> str:
    """The overlap efficiency, at most 100 %. A run below the floor shows only the floor's error,
    since the floor is measured too.
    """
    if share <= 1:
        return percent(share)
    return f"≈ 100 % ({percent(share - 1)} faster than the floor as measured)"


def busy_host(checks: str) -> tuple[str, str]:
    """A warning if every check found the host busy, else "". Then the number of busy checks.
    `checks`: the profile's condition, such as "2 of 25".
    """
    found, _, of = checks.partition(" of ")
    warning = "WARNING: host busy during the whole run; results unreliable"
    return (
        warning if found == of != "0" else "",
        f"host busy at {checks} checks" if found != "0" else f"host quiet at all {of} checks",
    )


def by_options(reason: str) -> str:
    """The reason of a row that the budget left out, with the options of the command."""
    return reason.replace("a larger budget measures it", "use a larger --budget, or --full")


def traffic_text(mix: str, threads: int) -> str:
    """The name of a curve of loaded latency: its mix, and its threads if a number was asked for (0:
    all CPUs of a node)."""
    return f"{mix} × {threads}" if threads else mix


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def rounds_text(document: dict[str, Any]) -> str:
    """The number of rounds of a benchmark's rows: "5 rounds", or "1 to 2 rounds of 5, interrupted".
    """
    if not document.get("interrupted"):
        return plural(document["rounds"], "round")
    counts = [len(row["samples"]) for row in document["rows"] if row.get("samples")]
    least, most = min(counts, default=0), max(counts, default=0)
    text = plural(most, "round") if least == most else f"{least} to {plural(most, 'round')}"
    return f"{text} of {document['rounds']}, interrupted"


def seconds_text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"


def interval_text(row: Mapping[str, Any], text: Callable[[float], str]) -> str:
    """The interval of a row: "0.231 to 0.240, range of 5"; empty for fewer than two samples."""
    if len(row["samples"]) < 2:
        return ""
    return f"{text(row['low'])} to {text(row['high'])}, {row['interval']}"


def intervals_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The meaning of the bounds of rows: "95 % intervals", "ranges"."""
    words = [str(row["interval"]) for row in rows if len(row["samples"]) > 1]
    ranges = sum(each.startswith("range") for each in words)
    return "ranges" if ranges == len(words) else "95 % intervals" + (" or ranges" if ranges else "")


def listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def wrap(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns) or [""]


def prose(words: str, indent: str = "") -> str:
    """Folds the words at 80 columns. Lines after the first begin with `indent`."""
    kept = words.replace(" %", "\N{NO-BREAK SPACE}%")
    folded = f"\n{indent}".join(wrap(kept, 80 - len(indent)))
    return folded.replace("\N{NO-BREAK SPACE}%", " %")


#: Modules whose package has another name.
_PACKAGES = {"vl_convert": "vl-convert-python"}


def installing(modules: list[str]) -> str:
    """The command that installs third-party modules."""
    return f"pip install {' '.join(_PACKAGES.get(name, name) for name in modules)}"


#: Characters that turn the direction of what follows, so that a text reads as another (UAX 9).
BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
#: Escape sequences, except those for colours, and other characters that move a terminal's cursor.
_CONTROLS = re.compile(
    f"\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f{BIDI}]"
)


#: Control characters that move the cursor or colour text, and the ends of lines.
_ALL_CONTROLS = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{BIDI}]")


def in_one_line(text: str) -> str:
    """Text of a file or another program in one line, with its control characters escaped."""
    return _ALL_CONTROLS.sub(_escaped, text)


def say(*lines: str, before: str = "") -> None:
    """Prints lines on stderr with one write, so that other processes' lines do not get between.
    Errors are ignored.
    """
    try:
        sys.stderr.write(before + "".join(f"headrace: {in_one_line(line)}\n" for line in lines))
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is no stderr, or it is closed


def _escaped(match: re.Match[str]) -> str:
    """The character's escape as Python writes it, or as JSON may write it if JSON allows the
    character unescaped."""
    code = ord(match[0])
    return f"\\u{code:04x}" if code >= 0x7F else match[0].encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Escapes characters that would control the terminal; for names from users and programs."""
    return _CONTROLS.sub(_escaped, text)


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])?i?b?)", re.IGNORECASE)
#: C++ counts bytes in 64 bits; half of that range is more than any machine has.
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
