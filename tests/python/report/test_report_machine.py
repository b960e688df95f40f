# SPDX-License-Identifier: Apache-2.0
"""The report's section of the machine: its links, with their limits and who says them."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

import headrace

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from headrace._report import report  # noqa: E402

HEAD = ["link", "joins", "at most", "adds to an access", "known from"]


def links_of(document: dict[str, Any], folder: Path) -> list[list[str]]:
    """The lines of the table of links; nothing where the page has none."""
    report.build(document, folder / "page.html")
    page = (folder / "page.html").read_text()
    section = page.partition("<h2>The machine</h2>")[2].partition("<h2>")[0]
    for table in re.findall("<table>(.*?)</table>", section, re.DOTALL):
        if [html.unescape(t) for t in re.findall("<th(?: [^>]*)?>(.*?)</th>", table)] == HEAD:
            assert "<details>" not in section[: section.index(table)], "it is not folded away"
            rows = re.findall("<tr[^>]*>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
            return [[html.unescape(t) for t in re.findall("<td[^>]*>(.*?)</td>", row)]
                    for row in rows]  # fmt: skip
    assert "adds to an access" not in section
    return []


def document_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(headrace.Machine.load(name).to_json())
    return found


def test_every_link_is_in_the_table(tmp_path: Path) -> None:
    """Few have a line each; of many those of which the same is known share one."""
    document = document_of("gh200")
    (one, *_) = [link for link in document["links"] if link["kind"] == "c2c"]
    for count in (8, 9, 64):
        document["links"] = [one] * count
        found = links_of(document, tmp_path)
        assert len(found) == (count if count <= 8 else 1)
        assert found[0][0] == ("NVLink-C2C" if count <= 8 else f"{count} × NVLink-C2C")
    evil = "</script><b>&"
    document["links"] = [one | {"reason": evil}]
    ((*_, basis),) = links_of(document, tmp_path)
    assert basis.startswith(evil) and f"{evil};" not in (tmp_path / "page.html").read_text()
