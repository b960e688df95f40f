# SPDX-License-Identifier: Apache-2.0
"""A figure of the report: charts, the sentence under them, tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """Rows of text under a head. In a row shorter than the head, the last cell spans the rest.
    `words`: columns of words. `strong`: first cell of the row to emphasize.
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
