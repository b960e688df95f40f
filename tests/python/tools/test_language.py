# SPDX-License-Identifier: Apache-2.0
"""The counts of sentences that are hard to read, which may only fall."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import language  # noqa: E402
import tidy  # noqa: E402


@pytest.mark.parametrize(
    ("suffix", "text", "lines"),
    [
        (".cpp", "// What it is\n// Of what\nint a;  // Those of b\n", [1, 3]),
        (".cpp", "// Softly\nint ofs;  // Bytes of a page\n/// By hand\n", [3]),
        (".h", 'const char* a = "// What is this";\n', []),
        (".py", '"""What it is."""\n#: That a\nb = 1  # So it is\n# and on\n', [1, 2, 3]),
        (".py", 'def f():\n    """Who."""\n\n\nx(help="Of the array.")\ny(say="Of it")\n', [2, 5]),
        (".pyi", 'class A:\n    """What it does."""\n', [2]),
        (".md", "# What it does\nOf the text nothing counts.\n## Costs\n", [1]),
    ],
)
def test_beginnings_without_a_subject(suffix: str, text: str, lines: list[int]) -> None:
    assert sorted(line for line, _ in language.beginnings(suffix, text)) == lines


@pytest.mark.parametrize(
    ("suffix", "text", "found"),
    [
        (".cpp", "// it is told so\n// many times", [(1, "is told"), (1, "so many")]),
        (".py", 'say("what "\n    "there is, but for")', [(1, "what there is"), (2, "but for")]),
        (".md", "Of others; held against\nsomething. A so-called foreteller of old.", [
            (1, "Of others"), (1, "held against"),
        ]),
        (".h", "// soon manyfold, butter for bread, the had", []),
    ],
)  # fmt: skip
def test_words_that_are_out(suffix: str, text: str, found: list[tuple[int, str]]) -> None:
    assert list(language.words(suffix, text)) == found


def test_a_count_may_only_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = json.loads(tidy.BUDGETS.read_text())
    assert set(allowed["language"]) == set(language.RULES)
    more = allowed | {"language": {rule: n + 1 for rule, n in allowed["language"].items()}}
    assert list(tidy.worse(allowed, more)) == []
    assert [line.partition(":")[0] for line in tidy.worse(more, allowed)] == sorted(language.RULES)
