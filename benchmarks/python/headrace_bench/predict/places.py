# SPDX-License-Identifier: Apache-2.0
"""Places of objects in words: a kind near each CPU, nodes, or kinds and nodes by weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from headrace import ExhaustedError, InvalidError, UnsupportedError, format_bytes
from headrace_bench.predict.target import KINDS, Place, Share, Target

_NODES = re.compile(r"[0-9]+(-[0-9]+)?")


@cache
def constants(program: str) -> dict[str, Any]:
    """Constants of a program by name: value, basis, source, what they were fitted to."""
    text = files(__package__).joinpath("constants.json").read_text("utf-8")
    return dict(json.loads(text)[program])


def place(target: Target, text: str) -> Place:
    """ "hbm", "8-15", "dram=3,hbm=1": of several nodes each has the same part of an object's bytes,
    a kind means its nearest nodes. InvalidError, AbsentError: no such place there.
    """
    parts: list[tuple[str, float]] = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, equals, weight = word.partition("=")
        if equals and not re.fullmatch(r"[0-9]{1,3}", weight):
            raise InvalidError(f"'{word}': weights are numbers from 0 to 999, as in dram=3,hbm=1")
        parts.append((name, float(weight or 1)))
    total = sum(weight for _, weight in parts)
    if total <= 0:
        raise InvalidError(f"'{text}' is no place; write dram, hbm, 8-15 or dram=3,hbm=1")
    shares = [share for name, weight in parts for share in _shares(target, name, weight / total)]
    return Place(_words(parts), tuple(shares))


def near(kind: str) -> Place:
    """All of an object in the nearest memory of a kind."""
    return Place(KINDS[kind], (Share(1.0, near=kind),))


def mixed(first: str, part: float, second: str, words: str) -> Place:
    """`part` of an object's bytes in one kind, the others in another."""
    shares = (Share(part, near=first), Share(1 - part, near=second))
    return Place(words, tuple(share for share in shares if share.part > 0))


def _words(parts: Sequence[tuple[str, float]]) -> str:
    if len(parts) == 1:
        return KINDS.get(parts[0][0], f"node {parts[0][0]}")
    names = (KINDS.get(name, f"node {name}") for name, _ in parts)
    return ":".join(names) + " " + ":".join(f"{weight:.0f}" for _, weight in parts)


def _shares(target: Target, name: str, part: float) -> list[Share]:
    if name in KINDS:
        target.near(target.cpu_nodes[0], name)  # there is one
        return [Share(part, near=name)]
    if not _NODES.fullmatch(name):
        kinds = ", ".join(target.kinds)
        raise InvalidError(f"no memory '{name}' on {target.name}; there are {kinds} and nodes")
    found = nodes(target, name)
    return [Share(part / len(found), node=node) for node in found]


def nodes(target: Target, text: str) -> list[int]:
    """ "0", "0-3,8": nodes that are there."""
    found: list[int] = []
    for word in text.split(","):
        if not _NODES.fullmatch(word.strip()):
            raise InvalidError(f"'{text}' is no list of nodes; write 0 or 0-3,8")
        first, _, last = word.strip().partition("-")
        found += range(int(first), int(last or first) + 1)
    for node in found:
        if node not in target.nodes:
            there = ", ".join(map(str, target.nodes))
            raise InvalidError(f"no node {node} on {target.name}; there are {there}")
    return found


def room(target: Target, cpu_nodes: Sequence[int], kind: str) -> float | None:
    """Bytes of the memory of a kind near some CPUs; None: unknown."""
    return target.capacity({node for cpu in cpu_nodes for node in target.near(cpu, kind)})


def check_fits(target: Target, size: float, what: str = "the working set") -> None:
    """ExhaustedError: larger than all memory."""
    every = [node for node in target.nodes if target.addressable(node)]
    there = target.capacity(every)
    if there is not None and size > there:
        raise ExhaustedError(
            f"{what} of {format_bytes(int(size))} is larger than all memory of {target.name}, "
            f"{format_bytes(int(there))}; give a smaller size, or --set node:N.capacity=SIZE"
        )


def two_kinds(target: Target, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The settings `fast` and `slow`; by default DDR, else the slowest other kind, is slow.
    UnsupportedError: there is one kind of memory. InvalidError: they are the same.
    """
    fast = settings["fast"] or ("hbm" if "hbm" in target.kinds else target.kinds[0])
    others = [kind for kind in target.kinds if kind != fast]
    if settings["slow"] is None and not others:
        raise UnsupportedError(
            f"{target.name} has one kind of memory, so data have no choice; take --machine "
            "cxl-a1000 or xeon-max"
        )
    slow = str(settings["slow"] or ("dram" if "dram" in others else others[-1]))
    for kind in (fast, slow):
        target.near(target.cpu_nodes[0], kind)  # there is one
    if fast == slow:
        raise InvalidError(f"fast and slow memory are both {KINDS[fast]}; give two kinds")
    return fast, slow


def spilled(target: Target, cpu_nodes: Sequence[int], kind: str, size: float) -> Place:
    """The nearest memory of a kind, and of what does not fit main memory: as first touch places."""
    there = room(target, cpu_nodes, kind)
    others = [other for other in ("dram", "cxl", "hbm") if other in target.kinds and other != kind]
    if there is None or size <= there or not others:
        return near(kind)
    return mixed(kind, there / size, others[0], f"{KINDS[kind]}, then {KINDS[others[0]]}")
