# SPDX-License-Identifier: Apache-2.0
"""Schemes of DAMON that move pages between nodes: who runs which, and what one is set up by.

A kdamond watches the physical memory of one node. Linux 6.12 has no list of the actions it knows,
so an action is known to be there when the kernel has taken it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace import AbsentError, DeniedError, InvalidError, UnsupportedError
from headrace._format import rate_text, size_text
from headrace._tiering.files import Files
from headrace._tiering.setting import Setting
from headrace._tiering.tiers import Tiers, addresses, nearest

KDAMONDS = "sys/kernel/mm/damon/admin/kdamonds"
COUNT = f"{KDAMONDS}/nr_kdamonds"
#: Who in the kernel runs DAMON for itself where its switch says so, and for nobody else then.
_HOLDERS = tuple(
    f"sys/module/damon_{name}/parameters/enabled" for name in ("stat", "reclaim", "lru_sort")
)
#: By the word for it: sampling and aggregation in µs, and which regions, in samples that saw an
#: access and in aggregations. docs/design/tier/kernel.md says why these.
SCHEMES = {"hot": (20_000, 400_000), "cold": (50_000, 1_000_000)}
_HOT_FROM, _COLD_AGE = 3, 3
_LEAST_REGIONS = 100
_ANY_SIZE, _ANY_AGE = (1 << 64) - 1, (1 << 32) - 1


@dataclass(frozen=True)
class Kdamond:
    """One of the kernel's threads for DAMON, as somebody set it up."""

    number: int
    state: str
    pid: int | None
    operations: tuple[str, ...]
    actions: tuple[str, ...]


def kdamonds(files: Files) -> list[Kdamond] | None:
    """None where the kernel has no DAMON. DeniedError: only root may look."""
    count = files.read(COUNT)
    if count is None:
        return None
    found = []
    for number in range(int(count)):
        base = f"{KDAMONDS}/{number}"
        pid = files.read(f"{base}/pid") or ""
        found.append(
            Kdamond(
                number,
                files.read(f"{base}/state") or "unknown",
                int(pid) if pid.isdecimal() else None,
                _all(files, f"{base}/contexts/*/operations"),
                _all(files, f"{base}/contexts/*/schemes/*/action"),
            )
        )
    return found


def holders(files: Files) -> list[str]:
    """The switches of what in the kernel keeps DAMON for itself. DeniedError: only root may look.
    """
    return [name for name in _HOLDERS if files.read(name) == "1"]


def _all(files: Files, pattern: str) -> tuple[str, ...]:
    return tuple(files.read(name) or "unknown" for name in files.names(pattern))


def settings(
    files: Files, tiers: Tiers, schemes: Sequence[str], rate: float | None
) -> Iterator[Setting]:
    """What starts a kdamond for each node that is to give pages away. `rate`: bytes per second that
    each may move at most; None: nobody knows.
    """
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise InvalidError(f"no scheme '{scheme}'; there are hot, cold and hot,cold")
    here = kdamonds(files)
    if here is None:
        raise UnsupportedError(
            "the kernel has no DAMON, which takes CONFIG_DAMON_SYSFS and CONFIG_DAMON_PADDR; leave "
            "out --damon"
        )
    for holder in holders(files):
        raise DeniedError(
            f"the kernel itself runs DAMON, and for nobody else then (/{holder} is Y); echo N > "
            f"/{holder}, or leave out --damon"
        )
    if here:
        running = sum(each.state == "on" for each in here)
        raise DeniedError(
            f"somebody else has set up DAMON (kdamonds: {len(here)}, running: {running}), which is "
            "left alone; leave out --damon, or have them end it"
        )
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
        yield from _kdamond(files, f"{KDAMONDS}/{number}", scheme, source, target, rate)


def _moves(files: Files, tiers: Tiers, scheme: str) -> Iterator[tuple[str, int, int]]:
    """Scheme, from which node and to which."""
    for tier in tiers.all:
        for turn, node in enumerate(tier.nodes):
            others = tiers.faster(node) if scheme == "hot" else tiers.slower(node)
            if others:
                yield scheme, node, nearest(files, node, others, turn)


def _kdamond(
    files: Files, base: str, scheme: str, source: int, target: int, rate: float
) -> Iterator[Setting]:
    sample, aggregation = SCHEMES[scheme]
    context = f"{base}/contexts/0"
    intervals = f"{context}/monitoring_attrs/intervals"
    regions = addresses(files, source)
    if not regions:
        raise AbsentError(f"the kernel does not say where the memory of node {source} is")
    values: list[tuple[str, int | str]] = [
        (f"{base}/contexts/nr_contexts", 1),
        (f"{context}/operations", "paddr"),
        (f"{intervals}/sample_us", sample),
        (f"{intervals}/aggr_us", aggregation),
        (f"{context}/monitoring_attrs/nr_regions/min", _LEAST_REGIONS),
        (f"{context}/targets/nr_targets", 1),
        (f"{context}/targets/0/regions/nr_regions", len(regions)),
    ]
    for at, (begin, end) in enumerate(regions):
        region = f"{context}/targets/0/regions/{at}"
        values += [(f"{region}/start", begin), (f"{region}/end", end)]
    values.append((f"{context}/schemes/nr_schemes", 1))
    values += _scheme(f"{context}/schemes/0", scheme, target, rate)
    for name, value in values:
        yield Setting(name, str(value), None, "")
    why = f"moves what is accessed often from node {source} to node {target}"
    if scheme == "cold":
        why = f"moves what is not accessed for 3 s from node {source} to node {target}, room or not"
    largest = sum(end - begin for begin, end in regions) // _LEAST_REGIONS
    why += (
        f"; {rate_text(rate)} at most, judged in regions of up to {size_text(largest)} by a page "
        "of each"
    )
    yield Setting(f"{base}/state", "on", "off", why)


def _scheme(base: str, scheme: str, target: int, rate: float) -> list[tuple[str, int | str]]:
    sample, aggregation = SCHEMES[scheme]
    hot = scheme == "hot"
    pattern, quotas = f"{base}/access_pattern", f"{base}/quotas"
    values: list[tuple[str, int | str]] = [
        (f"{base}/action", f"migrate_{scheme}"),
        (f"{base}/target_nid", target),
        (f"{pattern}/sz/max", _ANY_SIZE),
        (f"{pattern}/nr_accesses/min", _HOT_FROM if hot else 0),
        (f"{pattern}/nr_accesses/max", aggregation // sample if hot else 0),
        (f"{pattern}/age/min", 0 if hot else _COLD_AGE),
        (f"{pattern}/age/max", _ANY_AGE),
    ]
    values += [
        (f"{quotas}/bytes", max(1, round(rate))),  # 0 is no quota
        (f"{quotas}/reset_interval_ms", 1000),
        (f"{quotas}/weights/nr_accesses_permil", 1000),
        (f"{quotas}/weights/age_permil", 1000),
    ]
    return values
