#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts sentences that are hard to read, for the ratchet in tidy.py. No dependencies.

    tools/language.py                 print every finding, and the number for each rule
    tools/language.py beginnings      only comments, docstrings, help texts and headings that begin
                                      with a word that leaves the subject out
    tools/language.py words           only words with a plainer one (WORDS has it)
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: A sentence with one of these first has no subject yet: its noun is in another sentence.
BEGINNINGS = re.compile(r"(?:What|That|Those|Whose|Who|Of|By|So)\b")
#: Words that are out, and the plainer ones.
WORDS = {
    r"(?:told|tells?) of": "reports, prints, returns",
    r"(?:is|are|was|were) told": "is reported, is printed, learns",
    r"so (?:many|much|long|often)": "at most N, N times",
    "unasked": "by default",
    "but for": "except",
    r"held? against": "compared with",
    "of others": "third-party, another process's",
    r"(?:is|are) had": "there is",
    "what there is": "the list of ...",
    "as said": "(nothing)",
}
#: Between two words, of which the second may be on the next line of a comment or a string.
_GAP = r'(?: | *"? *\n\s*(?://+|#:?|f?")?\s*)'
_WORDS = re.compile(rf"\b(?:{'|'.join(WORDS).replace(' ', _GAP)})\b", re.IGNORECASE)

_CODE = {".cpp", ".h", ".py", ".pyi", ".sh", ".cmake"}
#: These have the words to find them.
_OWN = ("tools/language.py", "tests/python/tools/test_language.py")
_COMMENT = {True: re.compile(r"^\s*//+<?\s?(.*)"), False: re.compile(r"^\s*#:?\s(.*)")}
_TRAILING = {True: re.compile(r"\S\s+//\s(.*)"), False: re.compile(r"\S\s{2,}#\s(.*)")}

#: Line and the text there.
Found = tuple[int, str]


def beginnings(suffix: str, text: str) -> Iterator[Found]:
    """Comments, docstrings, help texts and headings that begin without their subject."""
    for line, words in _first_words(suffix, text):
        if BEGINNINGS.match(words):
            yield line, words.splitlines()[0]


def words(suffix: str, text: str) -> Iterator[Found]:
    """Words that are out, also where a line ends within them."""
    for match in _WORDS.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(re.findall(r"\w+", match[0]))


def _first_words(suffix: str, text: str) -> Iterator[Found]:
    if suffix == ".md":
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.match(r"#+ (.*)", line):
                yield number, match[1]
        return
    yield from _comments(suffix in {".cpp", ".h"}, text)
    if suffix in {".py", ".pyi"}:
        yield from _texts(text)


def _comments(cpp: bool, text: str) -> Iterator[Found]:
    """The first line of each comment; one that goes on begins no new one."""
    before = False
    for number, line in enumerate(text.splitlines(), 1):
        match = _COMMENT[cpp].match(line)
        if match is not None:
            if not before:
                yield number, match[1]
        elif trailing := _TRAILING[cpp].search(line):
            yield number, trailing[1]
        before = match is not None


def _texts(text: str) -> Iterator[Found]:
    """Docstrings, and what `help=` says."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if found := ast.get_docstring(node):
                yield node.body[0].lineno, found
        elif isinstance(node, ast.keyword) and node.arg == "help":
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node.value.lineno, node.value.value


RULES = {"beginnings": beginnings, "words": words}


def findings(rule: str, paths: list[Path]) -> Iterator[tuple[Path, int, str]]:
    for path in paths:
        if path.suffix in _CODE | {".md"} and not path.as_posix().endswith(_OWN):
            for line, what in RULES[rule](path.suffix, path.read_text()):
                yield path, line, what


def counts(paths: list[Path]) -> dict[str, int]:
    """Findings by rule."""
    return {rule: sum(1 for _ in findings(rule, paths)) for rule in RULES}


def main() -> int:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in sorted(listed.stdout.splitlines())]
    for rule in sys.argv[1:] or RULES:
        found = list(findings(rule, [path for path in paths if path.is_file()]))
        for path, line, what in found:
            print(f"{path.relative_to(ROOT)}:{line}: {what}")
        print(f"{rule}: {len(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
