#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of the site to build/site-pages, in the folders of the tree, and runs MkDocs.

Documents keep their relative links. A source file or folder that they link to becomes a page.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headers

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PAGES = BUILD / "site-pages"
HERE = Path(__file__).resolve().parent

_FENCE = re.compile(r"(?ms)(^```.*?^```|`[^`\n]*`)")
_LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
_LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".c": "c", ".py": "python", ".sh": "sh", ".json": "json"}
_SHOWN = {".png", ".svg"}


def tracked(*patterns: str) -> list[Path]:
    """Files of the tree by pattern, relative to its root."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout  # fmt: skip
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]


def write(path: Path, text: str) -> None:
    (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / path).write_text(text)


def document(path: Path) -> None:
    """Copies a document; its links to source files lead to their pages."""

    def linked(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / match[2]))
        page = source(target)
        return f"{match[1]}{os.path.relpath(page, path.parent)}{match[3] or ''}{match[4]}"

    parts = _FENCE.split((ROOT / path).read_text())
    parts[::2] = [_LINK.sub(linked, part) for part in parts[::2]]
    head = "---\nhide: [navigation]\n---\n" if path == Path("README.md") else ""
    write(path, head + listed("".join(parts)))


def listed(text: str) -> str:
    """Python-Markdown wants a blank line before a list, and four columns for what belongs to it."""
    return re.sub(r"(?m)^(?![-*] |\d+\. |\s|\||#|$)(.+)\n(?=[-*] |1\. )", r"\1\n\n", text)


def source(target: Path) -> Path:
    """The page of a linked file or folder."""
    there = ROOT / target
    if there.is_dir():
        if (there / "README.md").exists():
            return target / "README.md"
        if target == Path("include/headrace"):
            return Path("reference/cpp/README.md")
        if target == Path("docs/design"):
            return Path("docs/README.md")
        files = [path for path in tracked(f"{target}/*") if path.parent == target]
        lines = [f"- [{path.name}]({source(path).name})" for path in files]
        write(target / "README.md", "\n".join([f"# {target}", "", *lines]) + "\n")
        return target / "README.md"
    if target.parts[0] == "include":
        return Path("reference/cpp") / target.relative_to("include/headrace").with_suffix(".md")
    if target.suffix == ".md" or not there.exists():
        return target  # MkDocs reports a missing one
    if target.suffix in _SHOWN:
        (PAGES / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(there, PAGES / target)
        return target
    page = target.with_name(target.name + ".md")
    language = _LANGUAGES.get(target.suffix, "text")
    head = "---\nsearch:\n  exclude: true\n---\n"
    write(page, f"{head}# {target.name}\n\n````{language}\n{there.read_text().rstrip()}\n````\n")
    return page


def cpp() -> Iterator[Path]:
    """A page for each public header."""
    paths = tracked("include/*.h")
    names = {path: path.relative_to("include/headrace") for path in paths}
    rows = list[str]()
    for path, name in names.items():
        page = Path("reference/cpp") / name.with_suffix(".md")
        link = {str(to): os.path.relpath(f"reference/cpp/{to.with_suffix('.md')}", page.parent)
                for to in names.values()}  # fmt: skip
        link |= {str(to): os.path.relpath(to, page.parent) for to in tracked("docs/*.md")}
        text = headers.page(str(path.relative_to("include")), (ROOT / path).read_text(), link)
        write(page, text)
        first = re.split(r"(?<=\.)\s|\n\n", text.split("\n", 2)[2])[0].replace("\n", " ")
        rows.append(f"| [{name}]({name.with_suffix('.md')}) | {first} |")
        yield page
    table = "\n".join(["# C++ headers", "", "| header | |", "|---|---|", *rows])
    write(Path("reference/cpp/README.md"), table + "\n")


def grouped() -> dict[str, list[str]]:
    """The public names of the package by the file of the extension that binds them."""
    tree = ast.parse((ROOT / "python/headrace/__init__.py").read_text())
    names = next(ast.literal_eval(node.value) for node in tree.body
                 if ast.unparse(node).startswith("__all__ ="))
    stub = (ROOT / "tests/golden/_core.pyi").read_text()
    order = re.findall(r"(?m)^(?:class |def |(?=\w+:))(\w+)", stub)
    names.sort(key=lambda name: order.index(name) if name in order else 0)
    files = {path.stem: (ROOT / path).read_text() for path in tracked("python/src/*.cpp")}
    files = {**files, "headrace": files.pop("module", "")}
    groups: dict[str, list[str]] = {"headrace": []}
    for name in names:
        bound = [stem for stem, text in files.items() if f'"{name}"' in text]
        stem = "memory" if name in ("allocate", "empty") else min(bound, default="headrace")
        groups.setdefault(stem, []).append(name)
    for path in tracked("python/headrace/[a-z]*.py"):
        if path.parent.name == "headrace":
            groups[path.stem] = [path.stem, *groups.get(path.stem, [])]
    return groups


def fenced(text: str) -> str:
    """Marks examples in docstrings as code."""
    return re.sub(r"(?m)^( *)>>> .*\n(?:\1(?!\"\"\"|```)\S.*\n)*",
                  lambda match: f"{match[1]}```pycon\n{match[0]}{match[1]}```\n", text)  # fmt: skip


def python() -> Iterator[Path]:
    """A page for each group of names."""
    package = BUILD / "site-python" / "headrace"
    shutil.copytree(ROOT / "python/headrace", package, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(ROOT / "tests/golden/_core.pyi", package)
    for path in (*package.rglob("*.py"), package / "_core.pyi"):
        path.write_text(fenced(path.read_text()))
    face = (package / "__init__.py").read_text()
    # A wrapped function is documented where it is bound.
    (package / "__init__.py").write_text(re.sub(r"(?m)^(\w+) = \w+\(\1\)$", "", face))
    for stem, names in grouped().items():
        page = Path("reference/python") / f"{stem}.md"
        doc = ast.get_docstring(ast.parse(face)) if stem == "headrace" else ""
        title = "headrace" if stem == "headrace" else f"headrace: {stem.replace('_', ' ')}"
        shown = [f"::: headrace.{name}\n" for name in names]
        write(page, "\n".join([f"# {title}", "", f"{doc}\n", *shown]))
        yield page


def navigation(pages: dict[str, list[Path]]) -> list[dict[str, Any]]:
    """Tabs. Design pages are in the groups of docs/README.md."""
    design: list[Any] = ["docs/README.md"]
    for line in (ROOT / "docs/README.md").read_text().splitlines():
        if group := re.match(r"\| \*\*(.*)\*\*", line):
            design.append({group[1]: []})
        elif line.startswith("| ") and isinstance(design[-1], dict):
            next(iter(design[-1].values())).extend(
                f"docs/{name}" for name in re.findall(r"\((design/[^)]*)\)", line))  # fmt: skip
    guides = sorted(map(str, tracked("docs/howto/*.md")))
    results = sorted(map(str, tracked("docs/results/*.md")))
    rest = [str(path) for path in tracked("*.md") if path.parts[0] not in ("docs", "README.md")]
    return [
        {"Start": "README.md"},
        {"Guides": sorted(guides, key=lambda name: name != "docs/howto/README.md")},
        {"Python": [str(page) for page in pages["python"]]},
        {"C++": ["reference/cpp/README.md", *(str(page) for page in pages["cpp"])]},
        {"Design": design},
        {"Results": sorted(results, key=lambda name: (name != "docs/results/README.md", name))},
        {"Project": rest},
    ]


def leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(each)


def main() -> int:
    for folder in ("site-pages", "site-python"):
        shutil.rmtree(BUILD / folder, ignore_errors=True)
    for path in tracked("*.md"):
        document(path)
    pages = {"python": list(python()), "cpp": list(cpp())}
    nav = navigation(pages)
    shown = set(leaves(nav))
    unlisted = [name for path in PAGES.rglob("*.md")
                if (name := str(path.relative_to(PAGES))) not in shown]  # fmt: skip
    config = {"INHERIT": str(HERE / "mkdocs.yml"), "docs_dir": str(PAGES), "nav": nav,
              "site_dir": str(BUILD / "site"), "not_in_nav": "\n".join(unlisted)}  # fmt: skip
    (BUILD / "site.yml").write_text(json.dumps(config, indent=1))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run([*command, "-f", BUILD / "site.yml"], capture_output=True, text=True,
                          env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})  # fmt: skip
    if done.returncode != 0:
        print(re.sub(r"(?m)^INFO .*\n", "", done.stderr), file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
