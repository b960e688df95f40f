# SPDX-License-Identifier: Apache-2.0
"""Reads /proc/PID/numa_maps, the kernel's list of a process's mappings, and adds it up by node.

A line is an address, a policy and words: file=NAME, heap, stack, huge, N8=512 (pages on node 8),
kernelpagesize_kB=4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Kinds of mappings. Those of files include pages that the program changed.
GROUPS = ("anonymous", "heap", "stack", "file")
_ON_NODE = re.compile(r"N([0-9]{1,4})=([0-9]{1,12})", re.ASCII)
_PAGE_SIZE = re.compile(r"kernelpagesize_kB=([0-9]{1,9})", re.ASCII)
#: The name that the kernel gives to anonymous memory in hugetlb pages.
_NAMELESS = "file=/anon_hugepage"


@dataclass
class Places:
    """Bytes by node and group. Bytes in hugetlb pages are included, and are counted separately too.
    """

    groups: dict[str, dict[int, int]] = field(default_factory=lambda: {g: {} for g in GROUPS})
    hugetlb: dict[int, int] = field(default_factory=dict)

    def total(self, node: int) -> int:
        return sum(by_node.get(node, 0) for by_node in self.groups.values())

    @property
    def nodes(self) -> list[int]:
        """Nodes that hold at least one page."""
        return sorted({node for by_node in self.groups.values() for node in by_node})


def parse(lines: Iterable[str]) -> Places:
    """Parses any text; unknown words are skipped."""
    places = Places()
    for line in lines:
        words = line.split()[2:]
        page = next((int(m[1]) for m in map(_PAGE_SIZE.fullmatch, words) if m), 4) << 10
        counted = places.groups[_group(words)]
        for match in filter(None, map(_ON_NODE.fullmatch, words)):
            node, size = int(match[1]), int(match[2]) * page
            counted[node] = counted.get(node, 0) + size
            if "huge" in words:
                places.hugetlb[node] = places.hugetlb.get(node, 0) + size
    return places


def _group(words: list[str]) -> str:
    for word in words:
        if word.startswith("file=") and not word.startswith(_NAMELESS):
            return "file"
        if word in ("heap", "stack"):
            return word
    return "anonymous"


def transparent_huge(smaps_rollup: str) -> int | None:
    """Bytes of the whole process in transparent huge pages; None if the file does not have them."""
    match = re.search(r"^AnonHugePages:\s+([0-9]{1,15}) kB$", smaps_rollup, re.MULTILINE)
    return int(match[1]) << 10 if match else None
