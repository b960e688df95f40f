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
from itertools import islice
from typing import Any, NamedTuple

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
    """The error of `function(*given, **named)`, whose arguments matched no signature. If there are
    several, the one with the fewest mistakes is meant.
    """
    found = [_mistakes(each[0], given, named) for each in function.__nb_signature__]
    fewest = min(len(each) for each in found)
    told = _together([each[0] for each in found if len(each) == fewest]) if fewest else ""
    kinds = [type(each).__name__ for each in given]
    kinds += [f"{name}: {type(value).__name__}" for name, value in named.items()]
    none = f"it does not take ({', '.join(kinds)})"
    return ArgumentError(f"{_public_name(function)}(): {told or none}")


class _Mistake(NamedTuple):
    text: str
    wanted: str = ""
    hint: str = ""
    near: bool = False  # only a part of the argument is wrong, or its number


def _together(mistakes: list[_Mistake]) -> str:
    """One text for the mistakes in several signatures."""
    chosen = [each for each in mistakes if each.near] or mistakes
    wanted = " | ".join(dict.fromkeys(each.wanted.removeprefix("not ") for each in chosen))
    if any(not each.wanted.startswith("not ") for each in chosen):
        wanted = chosen[0].wanted
    elif wanted:
        wanted = f"not {wanted}"
    return f"{chosen[0].text}{wanted and ', '}{wanted}{chosen[0].hint}"


def _public_name(function: Any) -> str:
    kind, _, name = function.__qualname__.rpartition(".")
    if kind.startswith("Kv"):
        kind = f"kvcache.{kind.removeprefix('Kv')}"
    name = _PUBLIC.get(name, name)
    if name == "__init__":
        return str(kind)
    return f"{kind}.{name}" if kind else str(name)


def _mistakes(signature: str, given: list[Any], named: dict[str, Any]) -> list[_Mistake]:
    parsed = ast.parse(re.sub(r"\\\d+", "...", signature) + ": ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    its = parsed.args
    by_place = [*its.posonlyargs, *its.args]
    kinds = {each.arg: each.annotation for each in (*by_place, *its.kwonlyargs)}
    values = dict(zip(kinds, given, strict=False))
    if len(given) > len(by_place) and its.vararg is None:
        takes = _listed(each.arg for each in by_place)
        return [_Mistake(f"{len(given)} arguments, and it takes {takes}")]
    for name, value in named.items():
        if name not in kinds and its.kwarg is None:
            return [_Mistake(f"no argument is called {name}; there are {_listed(kinds)}")]
        if name in values:
            return [_Mistake(f"{name} is given twice")]
        values[name] = value
    optional = {each.arg for each in by_place[len(by_place) - len(its.defaults) :]}
    optional |= {
        each.arg
        for each, default in zip(its.kwonlyargs, its.kw_defaults, strict=True)
        if default is not None
    }
    missing = [name for name in kinds if name not in values and name not in optional]
    if missing:
        return [_Mistake(f"{_listed(missing)} {'is missing' if len(missing) == 1 else 'miss'}")]
    return _wrong_values(values, kinds)


def _wrong_values(values: dict[str, Any], kinds: dict[str, Any]) -> list[_Mistake]:
    checked = [(name, values[name], kinds[name]) for name in values if kinds.get(name) is not None]
    for looks_at in (_type, _number):
        found = []
        for name, value, kind in checked:
            for path, wrong, wanted in islice(_wrong(kind, value, looks_at), 1):
                text = f"{name}{path} is {_shown(wrong)}"
                near = bool(path) or looks_at is _number
                found.append(_Mistake(text, wanted, _hint(wrong, kind), near))
        if found:
            return found
    refuses = [name for name, value, kind in checked if value is None and not _may_be_none(kind)]
    return [_Mistake(f"{name} is None") for name in refuses[:1]]


def _may_be_none(kind: Any) -> bool:
    return "None" in {_last_word(each) for each in _alternatives(kind)}


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
            if isinstance(value, str) and "PathLike" in map(_last_word, kinds):
                if "\0" in value:
                    yield "", value, "which no path can be"
                return
            kinds = [each for each in kinds if not any(True for _ in _wrong(each, value, _type))]
            if len(kinds) == 1:
                yield from _wrong(kinds[0], value, look)
            return
        found = [list(islice(_wrong(each, value, look), 1)) for each in kinds]
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
        if look is _number and _number("str", value):
            yield "", value, _number("str", value)
    elif head == "Sequence":
        never = isinstance(value, str | bytes | Mapping)
        if never or not (hasattr(value, "__getitem__") and hasattr(value, "__len__")):
            if refused:
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
    """Also looks at text."""
    if word == "str" and isinstance(value, str):
        return "" if value == value.encode(errors="replace").decode() else "which is not UTF-8"
    if word not in ("int", "float") or _type(word, value):
        return ""
    try:
        number = operator.index(value) if word == "int" else float(value)
    except Exception as error:
        return f"which gives no number: {type(error).__name__}"
    if math.isnan(number):
        return "which is not a number"
    if number < 0:
        return "which is below 0"
    # For an id or a count, of 32 bits; a number of 64 bits would have been right.
    return "which is too large" if word == "int" and number >= 1 << 32 else ""


def _hint(value: Any, kind: Any) -> str:
    words = {_last_word(each) for each in _alternatives(kind)}
    if words & {"Object", "Extent"} and _is_array(value):
        return "; headrace.MemoryRange() makes one of an array"
    if hasattr(value, "__next__") and "Sequence" in ast.unparse(kind):
        return "; give a list of its elements"
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
