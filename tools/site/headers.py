# SPDX-License-Identifier: Apache-2.0
"""A C++ header as a page of Markdown, in its order: comments as prose, declarations as code.

A paragraph is a comment and the declarations up to the next blank line or comment. Every paragraph
of a header is on its page, except private members, includes and forward declarations.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SKIPPED = re.compile(
    r"#include |#pragma once|namespace .*\{$|\}  // namespace|(class|struct) \w+;$"
    r'|extern "C" \{$|\}$'
)
_TYPE = re.compile(
    r"(?:class|struct|enum class|enum)(?: \[\[\w+\]\]| alignas\(\d+\))? (\w+)[^;()]*\{"
)
_NAMES = [
    _TYPE,
    re.compile(r"(?:using|concept) (\w+) ="),
    re.compile(r"#define (\w+)"),
    re.compile(r"(operator *(?:\(\)|[^\s\w(]+|\"\"_\w+|bool|co_await))\("),
    re.compile(r"(?<![\w:<])(~?[A-Za-z]\w*)\((?!\()"),
    re.compile(r"(\w+)(?: = |\{|;|\[)"),
]
#: Names in prose: with ::, with parentheses, with an underscore, or in camel case.
_WORD = re.compile(
    r"(?<![\w./`])(?:\w+(?:[.:~]+\w+)*\(\)|\w+(?:::\w+)+(?:\([^()]*\)|<[^<>]*>)?"
    r"|[A-Z]\w*<[^<>]*>|[a-z]\w*_\w*|k[A-Z]\w+)(?![\w/`])"
)
_LINKED = re.compile(r"(?<![\w/])(?:headrace/)?((?:\w+/)*\w+\.h|docs/[\w/.-]+\.md)\b(?!\()")


@dataclass
class Paragraph:
    comment: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

    def name(self) -> str:
        """The name of its first declaration; empty if it has none."""
        text = re.sub(r"\s+//.*", "", "\n".join(self.code))
        text = re.sub(r" *template <.*>\n| *requires.*\n|\[\[\w+\]\] ", "", text)
        text = re.sub(r"(?<!#define )HEADRACE_(C_)?API ", "", text)
        if re.match(r"(typedef )?enum|class|struct", text):
            return "".join(_TYPE.findall(text)[:1]) or text.split()[-1].rstrip(";")
        found = [match for pattern in _NAMES if (match := pattern.search(text))]
        return min(found, key=lambda match: match.start(1))[1] if found else ""


def _comment(line: str) -> str | None:
    match = re.match(r" *//( |$)(.*)", line)
    return match[2] if match else None


def _open(code: list[str]) -> bool:
    """Whether a declaration goes on after these lines."""
    text = "\n".join(re.sub(r"(^|\s)//.*", "", line).rstrip() for line in code)
    if text.lstrip().startswith("#"):
        return text.endswith("\\")
    text = re.sub(r'"(\\.|[^"\\])*"|\'\\?.\'', "", text)
    if any(text.count(a) != text.count(b) for a, b in ("()", "{}", "[]")):
        return True
    return not text.endswith((";", "}", ",", "public:", "private:", "protected:"))


def _without_body(code: list[str]) -> list[str]:
    """A function as it is declared, if its body has lines of its own."""
    text = "\n".join(code)
    if _TYPE.search(text):
        return code
    head = re.match(r"(?s)(.*?\)[^;{}]*?)\s*(?::[^{}:]*(?:\{\}[^{}:]*)*)?\{\n.*\}$", text)
    return f"{head[1]};".split("\n") if head else code


def paragraphs(lines: list[str]) -> Iterator[Paragraph]:
    now, unfinished = Paragraph(), list[str]()
    for line in lines:
        comment = _comment(line)
        if unfinished or (comment is None and line.strip() and not _SKIPPED.match(line)):
            unfinished.append(line)
            if not _open(unfinished):
                now.code += _without_body(unfinished)
                unfinished = []
        elif now.code and (comment is not None or not line.strip()):
            yield now
            now = Paragraph()
        if not unfinished and comment is not None and not now.code:
            now.comment.append(comment)
        elif not unfinished and not line.strip() and now.comment:
            yield now  # a remark about no declaration
            now = Paragraph()
    if now.code or now.comment:
        yield now


def prose(comment: list[str], link: dict[str, str]) -> str:
    """Markdown of a comment; indented lines are code. `link`: pages of headers and documents."""
    out, indent = list[str](), 0
    code = listed = False
    for line in comment:
        was_blank = not out or not out[-1]
        item = re.match(r"( *)(?:- |\d+\. )", line)
        if not code and re.match(r" {2,}\S", line) and not listed and not item and was_blank:
            out.append("```cpp")
            code, indent = True, len(line) - len(line.lstrip())
        elif code and re.match(r"\S", line):
            while not out[-1]:
                out.pop()
            out += ["```", ""]
            code = False
        if code:
            out.append(line[indent:])
            continue
        if out and out[-1] and ((item and not listed) or re.match(r"(Errors|Requires): ", line)):
            out.append("")
        listed = bool(item) or (listed and line.startswith(" "))
        if not listed and out and re.match(r" *- ", out[-1]) and line:
            out.append("")
        out.append(line)
    text = "\n".join([*out, "```"] if code else out) + "\n"
    return "".join(part if part.startswith("```") else _marked(part, link)
                   for part in re.split(r"(?ms)(^```.*?^```$)", text))  # fmt: skip


def _marked(text: str, link: dict[str, str]) -> str:
    """Names as code, links to pages; characters of Markdown stand for themselves."""

    def linked(match: re.Match[str]) -> str:
        page = link.get(match[1])
        return f"[{match[0]}]({page})" if page else match[0]

    parts = re.split(r"(`[^`]*`)", text)
    for at in range(0, len(parts), 2):
        cut = re.split(f"({_WORD.pattern})", parts[at])
        for even in range(0, len(cut), 2):
            cut[even] = re.sub(r"([*_\[\]])", r"\\\1", html.escape(cut[even], quote=False))
            cut[even] = _LINKED.sub(linked, cut[even].replace("\\_", "_"))
        parts[at] = "".join(f"`{each}`" if odd % 2 else each for odd, each in enumerate(cut))
    return "".join(parts)


def _without_indent(code: list[str]) -> str:
    indent = min((len(each) - len(each.lstrip()) for each in code if each), default=0)
    return "\n".join(each[indent:] for each in code)


def _public(body: list[str], hidden: bool) -> Iterator[str]:
    for line in body:
        if match := re.match(r" (public|private|protected):$", line):
            hidden = match[1] == "private"
        elif not hidden:
            yield line


def _section(each: Paragraph, level: int, link: dict[str, str], within: str = "") -> Iterator[str]:
    name, words = each.name(), prose(each.comment, link)
    head = re.sub(r"template <.*>\n", "", "\n".join(each.code)).lstrip()
    is_class = head.startswith("class ")
    has_lines = len(each.code) > 2 and bool(_TYPE.search(head))
    if name and (level == 2 or "(" in head or has_lines):
        yield f"\n{'#' * level} {within}{html.escape(name)}\n".replace("*", "\\*")
    members = list[Paragraph]()
    if level == 2 and has_lines and head.startswith(("class ", "struct ")):
        members = list(paragraphs([*_public(each.code[1:-1], hidden=is_class)]))
    if (is_class and members) or any(len(member.comment) > 2 for member in members):
        opening = "\n".join(each.code).split("{")[0].strip()
        yield f"{words}\n```cpp\n{opening}\n```\n"
        for member in members:
            yield from _section(member, 3, link, f"{name}::")
    else:
        yield (f"```cpp\n{_without_indent(each.code)}\n```\n" if each.code else "") + f"\n{words}"


def _is_shown(each: Paragraph) -> bool:
    """Whether it is neither a check nor a template's forward declaration."""
    code = "\n".join(each.code)
    return not re.fullmatch(r"(?s)(template <.*>\nclass \w+;|static_assert.*)", code)


def page(path: str, text: str, link: dict[str, str]) -> str:
    """The page of the header `path`, which is included as that."""
    text = re.sub(r"(?s)#ifdef __cplusplus\n.*?\n(?:#else\n(.*?\n))?#endif\n", r"\1", text)
    lines = text.splitlines()[1:]
    end = lines.index("#pragma once")
    opening = [comment for line in lines[:end] if (comment := _comment(line)) is not None]
    out = [f"# {path.removeprefix('headrace/')}\n", prose(opening, link)]
    out.append(f'```cpp\n#include "{path}"\n```\n')
    for each in paragraphs(lines[end:]):
        if _is_shown(each):
            out += _section(each, 2, link)
    return "\n".join(out)
