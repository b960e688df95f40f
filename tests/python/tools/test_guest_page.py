# SPDX-License-Identifier: Apache-2.0
"""docs/design/guest.md says what the guests measure, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_names_the_experiments_that_are_measured_in_a_guest() -> None:
    page = (ROOT / "docs" / "design" / "guest.md").read_text()
    paragraph = page.partition("**Measuring on 16 nodes.**")[2].partition("\n\n")[0]
    named = re.search(r"memory and CPUs are measured \(([^)]*)\)", paragraph)
    assert named
    code = (ROOT / "tests" / "guest" / "measure_test.cpp").read_text()
    selections = code.partition("all_selections() {")[2].partition("\n}\n")[0]
    measured = dict.fromkeys(re.findall(r"^ {6}\{\"(\w+)\",", selections, re.MULTILINE))
    assert re.split(r",\s+", named[1]) == list(measured)
    assert "no guest measures" not in " ".join(page.lower().split())
