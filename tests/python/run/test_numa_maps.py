# SPDX-License-Identifier: Apache-2.0
"""/proc/PID/numa_maps as kernels write it, and any other text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace._run.numa_maps import GROUPS, parse, transparent_huge

TEXT = """\
00400000 bind:8-15 file=/opt/my\\040app mapped=3 mapmax=2 N0=2 N8=1 kernelpagesize_kB=4
00600000 bind:8-15 file=/opt/heap anon=1 dirty=1 N9=1 kernelpagesize_kB=4
01a00000 bind:8-15 heap anon=33 dirty=33 active=0 N8=30 N9=3 kernelpagesize_kB=4
7f0000000000 bind:8-15 anon=512 dirty=512 N8=512 kernelpagesize_kB=4
7f1000000000 bind:8-15 file=/anon_hugepage\\040(deleted) huge anon=3 dirty=3 N10=3 \
kernelpagesize_kB=2048
7f2000000000 bind:8-15 file=/dev/hugepages/x huge dirty=1 N8=1 kernelpagesize_kB=1048576
7ffc00000000 bind:8-15 stack anon=4 dirty=4 N8=4 kernelpagesize_kB=4
7ffc10000000 default
"""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def test_groups_and_page_sizes() -> None:
    places = parse(TEXT.splitlines())
    assert places.groups == {
        "anonymous": {8: 2 * MIB, 10: 6 * MIB},
        "heap": {8: 120 * KIB, 9: 12 * KIB},
        "stack": {8: 16 * KIB},
        "file": {0: 8 * KIB, 8: 4 * KIB + GIB, 9: 4 * KIB},
    }
    assert places.hugetlb == {8: GIB, 10: 6 * MIB}
    assert places.nodes == [0, 8, 9, 10]
    assert places.total(8) == GIB + 2 * MIB + 140 * KIB


def test_nothing() -> None:
    assert parse([]).nodes == [] and list(parse([]).groups) == list(GROUPS)


WORDS = st.sampled_from(
    ["N0=1", "N0=", "N=1", "N1=x", "N99999=1", "N²=1", "kernelpagesize_kB=4", "heap", "huge",
     "kernelpagesize_kB=", "file=/x", "file=", "stack", "default", "7f00", "\x00", ""]
)  # fmt: skip


@given(st.lists(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=8).map(" ".join))))
def test_any_text(lines: list[str]) -> None:
    places = parse(lines)
    assert all(size >= 0 for group in places.groups.values() for size in group.values())
    assert all(places.hugetlb[node] <= places.total(node) for node in places.hugetlb)


@given(st.text(max_size=200))
def test_any_rollup(text: str) -> None:
    transparent_huge(text)


def test_the_rollup_of_a_kernel() -> None:
    text = "5000-7000 ---p 0 00:00 0 [rollup]\nRss: 4 kB\nAnonHugePages:      4096 kB\nX: 1 kB\n"
    assert transparent_huge(text) == 4 * MIB
    assert transparent_huge("Rss: 4 kB\n") is None
