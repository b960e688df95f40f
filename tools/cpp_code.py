# SPDX-License-Identifier: Apache-2.0
"""Functions and classes of clang-formatted C++, as tidy.py measures them. No dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Function:
    """Also of Python. `nesting`: blocks around its innermost statement."""

    path: Path
    line: int
    name: str
    length: int
    parameters: int
    nesting: int


@dataclass
class Class:
    """`functions`: member functions of its own text, without those that the compiler writes."""

    path: Path
    line: int
    name: str
    functions: int
    mutexes: int


_CONTROL = re.compile(
    r"^\s*(namespace|class|struct|enum|union|extern"
    r"|if|else|for|while|switch|do|try|catch|return|case)\b"
)
#: A line that ends in the brace of a block, not of a list of values.
_BLOCK = re.compile(
    r"(?:\)|\b(?:else|do|const|noexcept|mutable|override|try)|\]|:|->\s*[\w:<>*& ]+)\s*\{$")


def functions(path: Path, lines: list[str]) -> Iterator[Function]:
    """Function bodies: from a header that ends in '{' to its '}'."""
    number = 0
    while number < len(lines):
        line = lines[number]
        if not line.rstrip().endswith("{") or line.lstrip().startswith(("//", "#")):
            number += 1
            continue
        start = number
        while start > 0 and (re.search(r"[,(&|]\s*$", lines[start - 1])
                             or re.match(r"\s*(:|->|requires)\s", lines[start])):
            start -= 1
        indent = len(lines[start]) - len(lines[start].lstrip())
        header = " ".join(part.strip() for part in lines[start : number + 1])
        close = re.compile(rf"^ {{{indent}}}\}}")
        if "(" not in header or _CONTROL.match(header) or header.rstrip().endswith("= {"):
            number += 1
            continue
        end = next((i for i in range(number + 1, len(lines)) if close.match(lines[i])), None)
        if end is None:
            number += 1
            continue
        # The body without the header and the closing brace: a reader has to hold it in mind.
        yield Function(path, start + 1, _name(header), end - number - 1, _parameters(header),
                       _nesting(lines[number + 1 : end]))
        number = end + 1


def _name(header: str) -> str:
    if test := re.search(r"\b(?:TEST(?:_F|_P)?|RC_GTEST\w+)\((\w+), (\w+)", header):
        return f"{test[1]}.{test[2]}"
    found = re.search(r"([\w:~]+)\s*\(", header)
    return found[1] if found else "?"


_MACRO = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\s*(?:\([^()]*\))?")
#: The first parentheses, except those of decltype.
_LIST = re.compile(r"operator\(\)\s*\(|(?<!\bdecltype)[\w\]>~]\s*\(")


def _parameters(header: str) -> int:
    """f(int a, std::map<int, int> b) has 2."""
    header = _MACRO.sub("", header)
    found = _LIST.search(header)
    if found is None:
        return 0
    depth, count, text = 0, 0, header[found.end() :]
    for before, character in zip(" " + text, text, strict=False):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and before != "-"):
            if depth == 0:
                break
            depth -= 1
        elif character == "," and depth == 0:
            count += 1
    inside = text[: text.find(")")].strip()
    return count + 1 if inside else 0


def _nesting(body: list[str]) -> int:
    depth = deepest = 0
    open_: list[bool] = []
    for line in map(_without_text, body):
        for at, character in enumerate(line):
            if character == "{":
                open_.append(at == len(line) - 1 and bool(_BLOCK.search(line)))
                depth += open_[-1]
                deepest = max(deepest, depth)
            elif character == "}" and open_:
                depth -= open_.pop()
    return deepest


def _without_text(line: str) -> str:
    """Without strings, characters and a comment."""
    line = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "0", line)
    return line.partition("//")[0].rstrip()


_CLASS = re.compile(
    r"^[ \t]*(?:template\s*<[^;{]*?>\s*)?(?:class|struct)\s+"
    r"(?:\[\[\w+\]\]\s*|(?:[A-Z]+_[A-Z_]+|[A-Z]+\([^)]*\))\s+|alignas\(\d+\)\s*)*"
    r"([\w:]+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{", re.MULTILINE)
_MUTEX = re.compile(r"^(?:mutable\s+)?(?:std::)?(?:array<)?(?:\w+_)?[mM]utex\b[^(]*$")
_FUNCTION = re.compile(r"^[^={]*?(?:\boperator\b\s*\S+?|~?\b\w+)\s*\(")
_NO_FUNCTION = re.compile(r"^(?:using|friend|static_assert|typedef|enum|class|struct|union)\b")


def classes(path: Path, text: str) -> Iterator[Class]:
    text = "\n".join(_without_text(line) if not line.lstrip().startswith("#") else ""
                     for line in text.splitlines())
    for match in _CLASS.finditer(text):
        members = [_MACRO.sub("", member).strip() for member in _members(text, match.end())]
        functions = [each for each in members if _is_function(each)]
        mutexes = [each for each in members if each not in functions and _MUTEX.match(each)]
        yield Class(path, text.count("\n", 0, match.start()) + 1, match[1], len(functions),
                    len(mutexes))


def _is_function(member: str) -> bool:
    if _NO_FUNCTION.match(member) or re.search(r"=\s*(?:default|delete)$", member):
        return False
    return _FUNCTION.match(_without_angles(member)) is not None


def _without_angles(text: str) -> str:
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def _members(text: str, begin: int) -> Iterator[str]:
    """Declarations of the class whose body begins there; bodies and nested classes left out."""
    depth, member = 1, ""
    for character in text[begin:]:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return
            # A body ends here, or the value of a field, which a semicolon follows.
            if depth == 1 and _is_function(_clean(member)):
                yield _clean(member)
                member = ""
        elif depth == 1 and character == ";":
            yield _clean(member)
            member = ""
        elif depth == 1:
            member += character


def _clean(member: str) -> str:
    return re.sub(r"^(?:\s*(?:public|private|protected):)?\s*", "", member).strip()


_DEFINITION = re.compile(
    r"^(?![ \t/#}])[^=;\n]*?\b((?:[A-Z]\w*::)*[A-Z]\w*)::~?\w+\(", re.MULTILINE)


def defined_members(text: str) -> set[str]:
    """Classes of which a file defines member functions outside of the class."""
    return {name.rpartition("::")[2] for name in _DEFINITION.findall(text)}
