# SPDX-License-Identifier: Apache-2.0
"""A figure of the report: charts, the sentence under them, tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """Rows of text under a head. A row that is shorter than the head ends in words that take the
    rest of it; `words` names columns of words, `strong` begins the row to look at.
    """

    head: list[str]
    rows: list[list[str]]
    summary: str = ""  # folded away under it, if given
    words: tuple[str, ...] = ()
    strong: str = ""


@dataclass
class Figure:
    """The contents below one heading of the page, as text; the page makes it HTML."""

    title: str
    caption: str = ""
    charts: list[tuple[str, Any]] = field(default_factory=list)  # (heading, Altair chart)
    tables: list[Table] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)  # ("good", "bad" or "", text)
    missing: str = ""  # instead of all of these
