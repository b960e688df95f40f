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


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("h100", [["PCIe", "GPU memory 2000 with DRAM 0",
                   "63 GB/s each way, 83.4 GB/s both ways at once", "–",
                   "PCIe 5.0 x16; each way: computed from 32 GT/s, 16 lanes, 128/130 (PCI Express "
                   "5.0); both ways: reached by copy engines (1)"]]),
        ("xeon-max", [["UPI", "DRAM 0–3, HBM 8–11 with DRAM 4–7, HBM 12–15", "unknown", "–",
                       "between the sockets, 96 GiB/s crossed it (Fürst 2024, 3.2.3)"],
                      ["8 × mesh", "pairs of DRAM 0–7, HBM 8–15", "unknown", "–",
                       "between neighbouring tiles, those of nodes 0 and 3 lie diagonally (Fürst "
                       "2024, 3.2.3)"]]),
        ("one-node", []),
    ],
)  # fmt: skip
def test_links_are_told_with_their_limits(
    tmp_path: Path, name: str, lines: list[list[str]]
) -> None:
    assert links_of(document_of(name), tmp_path) == lines


def test_links_of_a_profile_too(tmp_path: Path) -> None:
    document = json.loads(headrace.Profile.load("cxl-a1000").to_json())
    upi, *devices = links_of(document, tmp_path)
    assert upi[:4] == ["UPI", "DRAM 0–3 with DRAM 4–7", "unknown", "33 ns"]
    assert [line[:4] for line in devices] == [
        ["CXL", f"CXL memory {node} with DRAM 0–3", "54.7 GB/s both ways at once", "154 ns"]
        for node in (8, 9)
    ]


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
