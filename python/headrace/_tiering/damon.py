# SPDX-License-Identifier: Apache-2.0
"""Schemes of DAMON that move pages between nodes, and the settings that start them.

A kdamond watches the physical memory of one node. Linux 6.12 has no list of its actions, so an
action is supported if the kernel accepts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace import AbsentError, InvalidError
from headrace._core import KDAMONDS, format_bytes, format_rate, kdamond_files
from headrace._core import HostFiles as Files
from headrace._tiering.setting import Setting
from headrace._tiering.tiers import Tiers, nearest

COUNT = f"{KDAMONDS}/nr_kdamonds"
#: For each scheme, the intervals of sampling and aggregation in µs. Then the regions: hot from this
#: number of samples with an access, cold from this age in aggregations.
#: docs/design/tier/kernel.md has the reasons.
SCHEMES = {"hot": (20_000, 400_000), "cold": (50_000, 1_000_000)}
_HOT_FROM, _COLD_AGE = 3, 3
_LEAST_REGIONS = 100


def settings(
    files: Files, tiers: Tiers, schemes: Sequence[str], rate: float | None
) -> Iterator[Setting]:
    """The settings that start a kdamond for each node that gives pages away. `rate`: limit of each
    in bytes per second; None if unknown.
    """
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise InvalidError(f"no scheme '{scheme}'; there are hot, cold and hot,cold")
    files.check_damon_free("CONFIG_DAMON_PADDR", "--damon")
    moves = [move for scheme in schemes for move in _moves(files, tiers, scheme)]
    if not moves:
        raise AbsentError("DAMON has nothing to move: all memory is in one tier")
    if rate is None:
        raise InvalidError(
            "DAMON would move without a limit: firmware does not say how fast the slow nodes "
            "write; --rate 1GB/s sets one"
        )
    yield Setting(COUNT, str(len(moves)), "0", "a kdamond for each node that gives pages away")
    for number, (scheme, source, target) in enumerate(moves):
        yield from _kdamond(files, number, scheme, source, target, rate)


def _moves(files: Files, tiers: Tiers, scheme: str) -> Iterator[tuple[str, int, int]]:
    """The moves of a scheme: scheme, source node, target node."""
    for tier in tiers.all:
        for turn, node in enumerate(tier.nodes):
            others = tiers.faster(node) if scheme == "hot" else tiers.slower(node)
            if others:
                yield scheme, node, nearest(files, node, others, turn)


def _kdamond(
    files: Files, number: int, scheme: str, source: int, target: int, rate: float
) -> Iterator[Setting]:
    sample, aggregation = SCHEMES[scheme]
    regions = files.addresses(source)
    if not regions:
        raise AbsentError(f"the kernel does not say where the memory of node {source} is")
    hot = scheme == "hot"
    for name, value in kdamond_files(
        number,
        regions=regions,
        sample=sample / 1e6,
        aggregation=aggregation / 1e6,
        action=f"migrate_{scheme}",
        target=target,
        accesses=(_HOT_FROM, aggregation // sample) if hot else (0, 0),
        least_age=0 if hot else _COLD_AGE,
        bytes_per_second=round(rate),
    ):
        yield Setting(name, value, None, "")
    why = f"moves what is accessed often from node {source} to node {target}"
    if scheme == "cold":
        why = f"moves what is not accessed for 3 s from node {source} to node {target}, room or not"
    largest = sum(end - begin for begin, end in regions) // _LEAST_REGIONS
    why += (
        f"; {format_rate(rate)} at most, judged in regions of up to {format_bytes(largest)} by a "
        "page of each"
    )
    yield Setting(f"{KDAMONDS}/{number}/state", "on", "off", why)
