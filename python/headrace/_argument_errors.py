# SPDX-License-Identifier: Apache-2.0
"""Explains in one line why the extension refused the arguments of a call. Only refused calls come
here."""

from __future__ import annotations

import ast
import math
import operator
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace import _core

#: Functions whose public name differs.
_PUBLIC = {
    "store_object": "store",
    "load_object": "load",
    "load_block_objects": "load_blocks",
}


class ArgumentError(_core.InvalidError, TypeError):
    """An argument of the wrong type, or a number that its type cannot hold."""


ArgumentError.__module__ = "headrace"


def error_of(function: Any, given: list[Any], named: dict[str, Any]) -> ArgumentError:
    """The error of `function(*given, **named)`, whose arguments matched no signature."""
    name = _public_name(function)
    found = ""
    for signature in function.__nb_signature__:
        found = _what_is_wrong(signature[0], given, named)
        if found:
            break
    return ArgumentError(f"{name}(): {found or 'arguments that do not go together'}")


def _public_name(function: Any) -> str:
    kind, _, name = function.__qualname__.rpartition(".")
    if kind.startswith("Kv"):
        kind = f"kvcache.{kind.removeprefix('Kv')}"
    name = _PUBLIC.get(name, name)
    if name == "__init__":
        return str(kind)
    return f"{kind}.{name}" if kind else str(name)


def _what_is_wrong(signature: str, given: list[Any], named: dict[str, Any]) -> str:
    parsed = ast.parse(re.sub(r"\\\d+", "...", signature) + ": ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    its = parsed.args
    by_place = [*its.posonlyargs, *its.args]
    kinds = {each.arg: each.annotation for each in (*by_place, *its.kwonlyargs)}
    values = dict(zip(kinds, given, strict=False))
    if len(given) > len(by_place) and its.vararg is None:
        return f"{len(given)} arguments, and it takes {_listed(each.arg for each in by_place)}"
    for name, value in named.items():
        if name not in kinds and its.kwarg is None:
            return f"no argument is called {name}; there are {_listed(kinds)}"
        if name in values:
            return f"{name} is given twice"
        values[name] = value
    optional = {each.arg for each in by_place[len(by_place) - len(its.defaults) :]}
    optional |= {
        each.arg
        for each, default in zip(its.kwonlyargs, its.kw_defaults, strict=True)
        if default is not None
    }
    missing = [name for name in kinds if name not in values and name not in optional]
    if missing:
        return f"{_listed(missing)} is missing" if len(missing) == 1 else f"{_listed(missing)} miss"
    checked = [(name, values[name], kinds[name]) for name in values if kinds.get(name) is not None]
    for looks_at in (_type, _number):
        for name, value, kind in checked:
            for path, wrong, wanted in _wrong(kind, value, looks_at):
                return f"{name}{path} is {_shown(wrong)}, {wanted}{_hint(wrong, kind)}"
    nothing = [name for name, value, _ in checked if value is None]
    return f"{nothing[0]} is None" if nothing else ""


#: Returns the words for a right value, from a value and the last word of its type; empty if the
#: value may be right.
_Look = Callable[[str, Any], str]
_Wrong = Iterator[tuple[str, Any, str]]


def _wrong(kind: Any, value: Any, look: _Look) -> _Wrong:
    """Finds the part of `value` that does not match `kind`: its place, the part, and the right
    type."""
    if isinstance(kind, ast.BinOp):
        kinds = _alternatives(kind)
        if look is _number:
            kinds = [each for each in kinds if not list(_wrong(each, value, _type))]
            if len(kinds) == 1:
                yield from _wrong(kinds[0], value, look)
            return
        found = [list(_wrong(each, value, look)) for each in kinds]
        if all(found):
            deep = [each[0] for each in found if each[0][0]]
            yield deep[0] if len(deep) == 1 else ("", value, f"not {_written(kind)}")
    elif isinstance(kind, ast.Subscript):
        yield from _wrong_inside(kind, value, look)
    else:
        wanted = look(_last_word(kind), value)
        if wanted:
            yield "", value, wanted


def _wrong_inside(kind: ast.Subscript, value: Any, look: _Look) -> _Wrong:
    head = _last_word(kind.value)
    inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    refused = look is _type and ("", value, f"not {_written(kind)}")
    if head == "Literal":
        if refused and not isinstance(value, str):
            yield refused
    elif head == "Sequence":
        never = isinstance(value, str | bytes | Mapping)
        if never or not isinstance(value, Sequence):
            if refused and (never or not hasattr(value, "__iter__")):
                yield refused
            return
        for number, each in enumerate(value):
            for path, *rest in _wrong(inner[0], each, look):
                yield f"[{number}]{path}", *rest
    elif head == "Mapping":
        if not isinstance(value, Mapping):
            if refused:
                yield refused
            return
        for key, each in value.items():
            for _, *rest in _wrong(inner[0], key, look):
                yield "'s key", *rest
            for path, *rest in _wrong(inner[1], each, look):
                yield f"[{_shown(key)}]{path}", *rest
    elif head == "tuple":
        if not isinstance(value, Sequence) or len(value) != len(inner):
            if refused:
                yield refused
            return
        for number, (its, each) in enumerate(zip(inner, value, strict=True)):
            for path, *rest in _wrong(its, each, look):
                yield f"[{number}]{path}", *rest


def _type(word: str, value: Any) -> str:
    right = True
    if word == "None":
        right = value is None
    elif word == "int":
        right = hasattr(value, "__index__")
    elif word == "float":
        right = hasattr(value, "__float__") or hasattr(value, "__index__")
    elif word in ("str", "bool", "bytes"):
        right = isinstance(value, {"str": str, "bool": bool, "bytes": bytes}[word])
    elif word == "PathLike":
        right = hasattr(value, "__fspath__")
    elif isinstance(getattr(_core, word, None), type):
        right = isinstance(value, getattr(_core, word))
    return "" if right else f"not {word}"


def _number(word: str, value: Any) -> str:
    if word == "float" and isinstance(value, float) and math.isnan(value):
        return "which is not a number"
    if word != "int" or not hasattr(value, "__index__"):
        return ""
    number = operator.index(value)
    if number < 0:
        return "which is below 0"
    # For an id or a count, of 32 bits; a number of 64 bits would have been right.
    return "which is too large" if number >> 32 else ""


def _hint(value: Any, kind: Any) -> str:
    words = {_last_word(each) for each in _alternatives(kind)}
    if words & {"Object", "Extent"} and _is_array(value):
        return "; headrace.MemoryRange() makes one of an array"
    return ""


def _is_array(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    except (BufferError, ValueError):
        pass
    return True


def _alternatives(kind: Any) -> list[Any]:
    if isinstance(kind, ast.BinOp):
        return [*_alternatives(kind.left), *_alternatives(kind.right)]
    return [kind]


def _last_word(kind: Any) -> str:
    return ast.unparse(kind).rpartition(".")[2]


def _written(kind: Any) -> str:
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", ast.unparse(kind))


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str | bytes | int | float | tuple):
        return reprlib.repr(value).replace("\n", " ")
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {_named(kind)}"


def _named(kind: type) -> str:
    return f"{kind.__module__.removesuffix('._core')}.{kind.__qualname__}"


def _listed(names: Any) -> str:
    return ", ".join(name for name in names if name != "self") or "none"
