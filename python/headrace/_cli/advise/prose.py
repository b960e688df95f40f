# SPDX-License-Identifier: Apache-2.0
"""Sentences as lines."""

from __future__ import annotations

from headrace._format import wrap

_WIDTH = 80


def prose(words: str, indent: str = "") -> str:
    """Folded; lines after the first begin with `indent`."""
    kept = words.replace(" %", "\N{NO-BREAK SPACE}%")
    folded = f"\n{indent}".join(wrap(kept, _WIDTH - len(indent)))
    return folded.replace("\N{NO-BREAK SPACE}%", " %")
