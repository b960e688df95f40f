# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser: every chart is drawn, nothing complains, nothing sticks out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import profile_documents
import pytest
import report_documents
from browser import Browser, chromium

from headrace._report import report

DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "demo": report_documents.whole,
    "profile": profile_documents.profile,
    "many nodes": profile_documents.large_profile,
}
#: Visible properties of the page once its charts are drawn: the widest element, the charts with
#: marks, and the colours of the paper and of an axis' text.
SEEN = """(async () => {
  const places = [...document.querySelectorAll(".chart")];
  const marks = place => place.querySelectorAll(
    ".mark-line path, .mark-rect path, .mark-symbol path, .mark-rule line").length;
  for (let i = 0; i < 600 && !places.every(marks); ++i) {
    await new Promise(done => setTimeout(done, 50));
  }
  const page = document.documentElement;
  return {
    figures: Object.keys(figures).length,
    drawn: places.filter(marks).length,
    wide: Math.max(page.scrollWidth - page.clientWidth,
      ...places.map(place => place.querySelector("svg").getBoundingClientRect().right
        - page.clientWidth)),
    paper: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.querySelector(".chart svg text")).fill,
  };
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    report.build(DOCUMENTS[request.param](), path)
    return path


@pytest.mark.parametrize(("page", "width", "dark"), [
    ("demo", 1000, True),
    *((name, 360, False) for name in DOCUMENTS),
    *(pytest.param(name, width, dark, marks=pytest.mark.slow)
      for name in DOCUMENTS for width, dark in ((360, True), (1000, False), (1000, True))
      if (name, dark, width) != ("demo", True, 1000)),
], ids=str, indirect=["page"])  # fmt: skip
def test_all_is_drawn(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    seen = browser.evaluate(SEEN)
    assert browser.complaints == []
    assert seen["figures"] == seen["drawn"] > 0
    assert seen["wide"] <= 0
    assert seen["paper"] == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    assert seen["ink"] == ("rgb(230, 234, 238)" if dark else "rgb(27, 33, 41)")


def test_errors_of_a_page_are_seen(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<script>console.error('one'); missing()</script>")
    browser.open(path)
    assert len(browser.complaints) == 2
    assert "one" in browser.complaints[0] and "missing is not defined" in browser.complaints[1]
