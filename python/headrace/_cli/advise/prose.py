"""Sentences as lines."""

from __future__ import annotations

from headrace._words import wrap

_WIDTH = 100


def prose(words: str, indent: str = "") -> str:
    """Folded; lines after the first begin with `indent`."""
    return f"\n{indent}".join(wrap(words, _WIDTH - len(indent)))
