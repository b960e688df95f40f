# SPDX-License-Identifier: Apache-2.0
"""State and counters of the kernel's tiering, read below a root. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace import Error
from headrace._core import KDAMONDS, STATE_FOLDER, WEIGHTS, format_bytes
from headrace._core import NUMA_BALANCING as BALANCING
from headrace._core import HostFiles as Files
from headrace._tiering import state
from headrace._tiering.plan import AUTOMATIC, DEMOTION, RATE_LIMIT
from headrace._tiering.tiers import Tiers, tiers

#: Counters of /proc/vmstat by group. A name that ends in "_" stands for all counters that begin
#: with it.
COUNTERS = (
    "pgpromote_", "pgdemote_", "numa_hint_", "numa_pages_migrated", "pgmigrate_", "pswpin",
    "pswpout", "zswpin", "zswpout", "zswpwb", "pgmajfault", "workingset_refault_", "thp_fault_",
    "thp_collapse_alloc", "thp_split_", "thp_migration_", "thp_swpout", "thp_swpout_",
)  # fmt: skip

@dataclass(frozen=True)
class Feature:
    """State: `on`, `off`, `absent` from this kernel, or `unknown` to this user. `why`: the
    requirement, if it is absent.
    """

    feature: str
    state: str
    value: str | None
    why: str


#: State, value, why.
_Answer = tuple[str, str | None, str]


def features(files: Files) -> list[Feature]:
    return [Feature(name, *_asked(probe, files)) for name, probe in _PROBES.items()]


def _asked(probe: Callable[[Files], _Answer], files: Files) -> _Answer:
    try:
        return probe(files)
    except Error as error:
        return "unknown", None, str(error)


def _said(files: Files, name: str) -> str:
    """The file's text; None if it cannot be read for any reason."""
    try:
        return files.read(name) or ""
    except Error:
        return ""


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


_BALANCING_MODES = {
    "0": "moves nothing",
    "1": "moves pages to the node of the CPU that uses them",
    "2": "promotes pages from slow tiers",
    "3": "promotes pages from slow tiers, and moves others to the node that uses them",
}


def _balancing(files: Files) -> _Answer:
    mode = files.read(BALANCING)
    if mode is None:
        return "absent", None, "takes CONFIG_NUMA_BALANCING"
    why = _BALANCING_MODES.get(mode, "a mode that headrace does not know")
    here = tiers(files)
    if here.unseen and mode in ("1", "3"):
        why += f"; also out of {here.unseen[0]}, which is faster"
    elif mode in ("2", "3") and not here.slow:
        why += "; this machine has none for the kernel"
    return _on(mode != "0"), mode, why


def _rate_limit(files: Files) -> _Answer:
    limit = files.read(RATE_LIMIT)
    if limit is None:
        return "absent", None, "takes Linux 6.1 and CONFIG_NUMA_BALANCING"
    return _on(files.read(BALANCING) in ("2", "3")), f"{limit} MiB/s", "promoted into a node"


def _demotion(files: Files) -> _Answer:
    now = files.read(DEMOTION)
    if now is None:
        return "absent", None, "takes Linux 5.15 and CONFIG_NUMA"
    why = "reclaim moves pages to a slower tier before swap"
    return _on(now == "1"), now, why if len(tiers(files).all) != 1 else f"{why}; there is none"


def _lru(files: Files) -> _Answer:
    mask = files.read("sys/kernel/mm/lru_gen/enabled")
    if mask is None:
        return "absent", None, "reclaim by generations takes Linux 6.1 and CONFIG_LRU_GEN"
    return _on(int(mask, 16) != 0), mask, "reclaim by generations"


def _huge(files: Files) -> _Answer:
    text = files.read("sys/kernel/mm/transparent_hugepage/enabled")
    if text is None:
        return "absent", None, "takes CONFIG_TRANSPARENT_HUGEPAGE"
    chosen = _chosen(text)
    size = files.read("sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
    pages = f"pages of {format_bytes(int(size))}" if size else "huge pages"
    return _on(chosen != "never"), chosen, f"{pages} move as one"


def _chosen(text: str) -> str:
    """The word in brackets, in a file that lists all choices."""
    return next((w.strip("[]") for w in text.split() if w.startswith("[")), text)


def _zswap(files: Files) -> _Answer:
    folder = "sys/module/zswap/parameters"
    now = files.read(f"{folder}/enabled")
    if now is None:
        return "absent", None, "takes CONFIG_ZSWAP"
    most, by = files.read(f"{folder}/max_pool_percent"), files.read(f"{folder}/compressor")
    value = f"{by}, {most} % of DRAM at most"
    return _on(now == "1"), value, "compresses pages before they go to a swap device"


def _idle(files: Files) -> _Answer:
    if not files.path("sys/kernel/mm/page_idle/bitmap").exists():
        return "absent", None, "takes CONFIG_IDLE_PAGE_TRACKING"
    return "on", None, "/sys/kernel/mm/page_idle/bitmap"


def _damon(files: Files) -> _Answer:
    found = files.kdamonds()
    holders = files.damon_holders()
    if holders:
        listed = " and ".join(f"/{holder}" for holder in holders)
        return "on", None, f"by the kernel itself, for nobody else then: {listed}"
    if found is None:
        return "absent", None, "takes CONFIG_DAMON_SYSFS"
    running = sum(each.state == "on" for each in found)
    return _on(running > 0), f"kdamonds: {len(found)}, running: {running}", "listed below"


def _interleave(files: Files) -> _Answer:
    for name in files.names(f"{WEIGHTS}/node[0-9]*"):
        files.read(name)  # an Error says why there is none below
    if not (found := files.weights()):
        return "absent", None, "takes Linux 6.9"
    value = ", ".join(f"node {node}: {weight}" for node, weight in found.items())
    uneven = len(set(found.values())) > 1
    chosen = "as somebody set them" if uneven else "all alike"
    if any(files.read(name) == "1" for name in AUTOMATIC):
        chosen = "the kernel's choice"
    return _on(uneven), value, f"for programs that ask for it; {chosen}"


_PROBES: dict[str, Callable[[Files], _Answer]] = {
    "numa_balancing": _balancing,
    "promote rate limit": _rate_limit,
    "demotion": _demotion,
    "weighted interleave": _interleave,
    "MGLRU": _lru,
    "huge pages, transparent": _huge,
    "zswap": _zswap,
    "DAMON": _damon,
    "idle page tracking": _idle,
}


def swaps(files: Files) -> list[dict[str, Any]]:
    """Active swap devices. Data on zram's compression is from its mm_stat."""
    found = []
    for line in _said(files, "proc/swaps").splitlines()[1:]:
        device, kind, size, used, priority = line.split()[:5]
        swap: dict[str, Any] = {
            "device": device, "kind": kind, "size_bytes": int(size) << 10,
            "used_bytes": int(used) << 10, "priority": int(priority),
        }  # fmt: skip
        name = device.rpartition("/")[2]
        if name.startswith("zram"):
            swap |= _zram(files, f"sys/block/{name}")
        found.append(swap)
    return found


def _zram(files: Files, folder: str) -> dict[str, Any]:
    numbers = _said(files, f"{folder}/mm_stat").split()
    original, compressed, memory = (
        (int(number) for number in numbers[:3]) if len(numbers) >= 3 else (None, None, None)
    )
    algorithm = _said(files, f"{folder}/comp_algorithm")
    return {
        "kind": "zram",
        "algorithm": _chosen(algorithm) if algorithm else None,
        "original_bytes": original,
        "compressed_bytes": compressed,
        "memory_bytes": memory,
    }


def kdamonds(files: Files) -> list[dict[str, Any]]:
    """All kdamonds with their owners. A kdamond is Headrace's if `tier kernel --on` or the tier of
    a process recorded it and its settings are unchanged.
    """
    try:
        found = files.kdamonds() or []
        own = _own_kdamonds(files) if found else set()
    except Error:
        return []  # the feature DAMON says why
    return [
        each.asdict() | {"owner": "headrace" if each.number in own else "somebody else"}
        for each in found
    ]


def _own_kdamonds(files: Files) -> set[int]:
    # A tier of a process records its kdamonds (src/host/settings/damon.cpp).
    watched = _said(files, f"{STATE_FOLDER}/damon")
    if watched and watched == _said(files, f"{KDAMONDS}/0/contexts/0/targets/0/pid_target"):
        return {0}
    try:
        noted = state.load(files)
        if noted is None or noted.boot != state.boot_id(files):
            return set()
    except Error:
        return set()
    held: dict[int, bool] = {}
    for each in noted.settings:
        number = each.file.removeprefix(f"{KDAMONDS}/").partition("/")[0]
        if each.file.startswith(KDAMONDS) and number.isdecimal():
            says_so = files.read(each.file) == each.wanted
            held[int(number)] = held.get(int(number), True) and says_so
    return {number for number, says_so in held.items() if says_so}


def switch(files: Files) -> tuple[str, str]:
    """The settings that `headrace tier kernel` has turned on, with a comment."""
    try:
        noted = state.load(files)
        if noted is None or noted.boot != state.boot_id(files):
            return "off", "nothing to put back"
    except Error as error:
        return "unknown", str(error)
    if not noted.settings:
        return "off", "--off left what somebody else had set; --off --force puts it back too"
    if noted.phase != state.ON:
        return "interrupted", "headrace tier kernel --off puts back what it did"
    return "on", "headrace tier kernel --off puts back what was there"


def cgroup(files: Files) -> dict[str, Any]:
    """The lowest memory limit of this process's cgroups, in bytes; None without a limit."""
    group = files.memory_group()
    if group is None:
        return {"path": "/", "limit_bytes": None, "used_bytes": None}
    return {"path": f"/{group.name}", "limit_bytes": group.limit, "used_bytes": group.used}


def counters(files: Files) -> dict[str, int]:
    """The kernel's counters since boot, with its names, in its order."""
    whole = {name for name in COUNTERS if not name.endswith("_")}
    begins = tuple(name for name in COUNTERS if name.endswith("_"))
    found = {}
    for line in _said(files, "proc/vmstat").splitlines():
        name, _, count = line.partition(" ")
        if (name in whole or name.startswith(begins)) and count.isdecimal():
            found[name] = int(count)
    return found


def status(files: Files) -> dict[str, Any]:
    """The whole status, as in the JSON document."""
    word, why = switch(files)
    try:
        here = tiers(files)
    except Error:
        here = Tiers((), frozenset())
    return {
        "tier_kernel": {"state": word, "why": why},
        "features": [asdict(each) for each in features(files)],
        "tiers": [{"tier": each.number, "nodes": list(each.nodes)} for each in here.all],
        "nodes_with_cpus": sorted(here.with_cpus),
        "weights": {str(node): weight for node, weight in files.weights().items()},
        "swaps": swaps(files),
        "kdamonds": kdamonds(files),
        "cgroup": cgroup(files),
        "since_boot": counters(files),
    }


def since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in now.items()}
