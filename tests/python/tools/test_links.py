# SPDX-License-Identifier: Apache-2.0
"""Relative links of all documents lead to a file, and to a heading where they name one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def documents() -> list[Path]:
    folders = ("docs", "bench", "tests", "examples")
    return [*ROOT.glob("*.md"), *(path for each in folders for path in (ROOT / each).rglob("*.md"))]


def prose(path: Path) -> str:
    """A document without its code."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path: Path) -> set[str]:
    """Headings as GitHub names them."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
    headings = re.findall(r"(?m)^#+ +(.*)$", text)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def broken(path: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        if not there.exists():
            yield f"{path}: {target}: no such file"
        elif anchor and anchor not in anchors(there):
            yield f"{path}: {target}: no such heading"


def test_links_of_documents_lead_somewhere() -> None:
    paths = documents()
    assert ROOT / "README.md" in paths
    assert [each for path in paths for each in broken(path)] == []


@pytest.mark.parametrize(
    ("index", "folder"),
    [("howto/README.md", "howto"), ("results/README.md", "results"), ("README.md", "design")],
)
def test_every_page_is_in_its_index(index: str, folder: str) -> None:
    path = ROOT / "docs" / index
    linked = {path.parent / each for each in re.findall(r"\]\(([\w./-]+\.md)\)", path.read_text())}
    assert set((ROOT / "docs" / folder).rglob("*.md")) - {path} <= linked


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Here\n[a](#here) [b](#there) [c](none.md) [d](https://x.y) `[e](no.md)`\n")
    assert [each.split(": ")[1] for each in broken(path)] == ["#there", "none.md"]
