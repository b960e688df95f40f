# SPDX-License-Identifier: Apache-2.0
"""Functions and imports of Python, as tidy.py measures them. No dependencies."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from cpp_code import Function

_BLOCKS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match,
    ast.FunctionDef, ast.AsyncFunctionDef,
)  # fmt: skip


def functions(path: Path, text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
            yield Function(path, node.lineno, node.name, length, _parameters(node.args),
                           max(_nesting(each, 0) for each in node.body))


def _parameters(its: ast.arguments) -> int:
    """Without self, and without the options of a command, which typer reads off the signature."""
    options = {ast.unparse(each.annotation) for each in (*its.args, *its.kwonlyargs)
               if each.annotation is not None}
    if any("Annotated[" in each for each in options):
        return 0
    given = [each.arg for each in (*its.posonlyargs, *its.args, *its.kwonlyargs)]
    return len(given) - (given[:1] in (["self"], ["cls"]))


def _nesting(node: ast.AST, depth: int, *, other: bool = False) -> int:
    """`other`: an if that is the elif of another is not deeper than that one."""
    inside = depth + (isinstance(node, _BLOCKS) and not other)
    found = [inside]
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                chained = name == "orelse" and isinstance(child, ast.If) and len(value) == 1
                found.append(_nesting(child, inside, other=chained and isinstance(node, ast.If)))
    return max(found)


def imports(text: str, known: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    """The lines of a module's imports and the modules of `known` that they name. Imports within
    functions and those for a type checker count: they are as hard to follow.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name in known:
                    yield node.lineno, each.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            for each in node.names:
                module = f"{node.module}.{each.name}"
                found = module if module in known else node.module
                if found in known:
                    yield node.lineno, found


def cycles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """One cycle for each set of modules that import each other."""
    done: set[str] = set()
    for start in sorted(edges):
        if start in done:
            continue
        path = _way_back(start, edges)
        if path:
            done.update(path)
            yield path


def _way_back(start: str, edges: Mapping[str, set[str]]) -> list[str]:
    """The shortest way from `start` to itself; empty: there is none."""
    ways, seen = [[start]], {start}
    for way in ways:
        for following in sorted(edges.get(way[-1], ())):
            if following == start:
                return [*way, start]
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return []
