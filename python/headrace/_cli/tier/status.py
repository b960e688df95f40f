# SPDX-License-Identifier: Apache-2.0
"""headrace tier status: settings and counters of the kernel's tiering."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output
from headrace._cli.metrics import Family, Metrics, page
from headrace._cli.options import Json
from headrace._core import HostFiles as Files
from headrace._core import format_bytes
from headrace._run.plan import ranges
from headrace._tiering import status


def command(
    watch: Annotated[
        Optional[float],
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.1,
            max=86400,
            help="Seconds to wait; the counters are those of that time.",
        ),
    ] = None,
    json: Json = False,
    metrics: Metrics = False,
) -> None:
    """Show the kernel's tiering: settings, counters since boot.

    \b
    headrace tier status              settings, tiers, swap, DAMON, counters
    headrace tier status --watch 10   counters of the next ten seconds
    headrace tier status --json       for scripts
    headrace tier status --metrics    for Prometheus
    """
    if metrics and (json or watch is not None):
        raise headrace.InvalidError("--metrics excludes --watch and --json; give one")
    files = Files()
    before = status.counters(files) if watch is not None else None
    if watch is not None:
        time.sleep(watch)
    found = status.status(files)
    if before is not None:
        found["watched"] = {
            "seconds": watch, "counted": status.since(before, found["since_boot"]),
        }  # fmt: skip
    if json:
        machine = headrace.Machine.discover(storage=[])
        output.print_json(output.document("tier_status", machine, **found))
    elif metrics:
        output.print_as_is(metrics_page(found))
    else:
        output.print_text(text(found))


def metrics_page(found: Mapping[str, Any]) -> str:
    """The page for Prometheus; unknown and absent features are left out."""
    on = Family("headrace_tier_feature_on", "gauge", "Whether the kernel does it.")
    for each in found["features"]:
        if each["state"] in ("on", "off"):
            on.add(int(each["state"] == "on"), feature=each["feature"])
    tier = Family("headrace_tier_of_node", "gauge", "The memory tier of a node; lower is faster.")
    for each in found["tiers"]:
        for node in each["nodes"]:
            tier.add(each["tier"], node=node)
    sizes = {
        "size_bytes": "Size of a swap device.",
        "used_bytes": "Used of a swap device.",
        "memory_bytes": "DRAM that a swap device in memory takes.",
    }
    swap = [
        Family(f"headrace_tier_swap_{name}", "gauge", text, "bytes") for name, text in sizes.items()
    ]
    for each in found["swaps"]:
        for name, family in zip(sizes, swap, strict=True):
            family.add(each.get(name), device=each["device"], kind=each["kind"])
    damon = Family("headrace_tier_kdamonds", "gauge", "Kernel threads of DAMON, by state.")
    states = [each["state"] for each in found["kdamonds"]]
    for state in sorted(set(states)):
        damon.add(states.count(state), state=state)
    events = Family("headrace_tier_events", "counter", "Counters of /proc/vmstat since boot.")
    for name, count in found["since_boot"].items():
        events.add(count, event=name)
    return page([on, tier, *swap, damon, events])


def text(found: Mapping[str, Any]) -> str:
    """The text for people; counters that are 0 are only named."""
    kernel = found["tier_kernel"]
    features = [
        [each["feature"], each["state"], each["value"] or "-", each["why"]]
        for each in found["features"]
    ]
    return "\n".join(
        [
            f"headrace tier kernel: {kernel['state']}; {kernel['why']}",
            "",
            output.table_text(["feature", "state", "value", ""], features, left=4),
            "",
            *_tiers(found),
            *_swaps(found["swaps"]),
            *_kdamonds(found),
            _cgroup(found["cgroup"]),
            "",
            *_counters(found["since_boot"], found.get("watched")),
        ]
    )


def _tiers(found: Mapping[str, Any]) -> list[str]:
    tiers, cpus = found["tiers"], set(found["nodes_with_cpus"])
    if not tiers:
        return ["memory tiers: none told (Linux 6.1 tells)"]
    return [
        f"memory tier {each['tier']}: node {ranges(each['nodes'])}"
        + (" (with CPUs)" if cpus.intersection(each["nodes"]) else " (without CPUs)")
        for each in tiers
    ]


def _swaps(swaps: list[dict[str, Any]]) -> list[str]:
    if not swaps:
        return ["swap: none; nothing to page out to"]
    lines = []
    for each in swaps:
        used, size = format_bytes(each["used_bytes"]), format_bytes(each["size_bytes"])
        line = f"swap on {each['device']} ({each['kind']}): {used} of {size} used"
        if each.get("memory_bytes"):
            line += (
                f", held in {format_bytes(each['memory_bytes'])} by {each['algorithm']} "
                f"({each['original_bytes'] / each['memory_bytes']:.1f} : 1)"
            )
        elif each.get("algorithm"):
            line += f", {each['algorithm']}"
        lines.append(line)
    return lines


def _kdamonds(found: Mapping[str, Any]) -> list[str]:
    return [
        f"kdamond {each['number']}: {each['state']}, {'/'.join(each['operations']) or 'empty'}"
        f", {', '.join(each['actions']) or 'no scheme'}; {each['owner']}'s"
        + (f", pid {each['pid']}" if each["pid"] else "")
        for each in found["kdamonds"]
    ]


def _cgroup(cgroup: Mapping[str, Any]) -> str:
    limit, used = cgroup["limit_bytes"], cgroup["used_bytes"]
    what = "no limit of memory" if limit is None else f"at most {format_bytes(limit)} of memory"
    return f"cgroup of this process: {what}" + (f", {format_bytes(used)} used" if used else "")


def _counters(since_boot: Mapping[str, int], watched: Mapping[str, Any] | None) -> list[str]:
    if not since_boot:
        return ["counters: none; the kernel has no /proc/vmstat"]
    headings = ["events", "since boot"]
    if watched is not None:
        headings.append(f"in {watched['seconds']:g} s")
    rows = [
        [name, str(count), *([] if watched is None else [str(watched["counted"][name])])]
        for name, count in since_boot.items()
        if count
    ]
    zero = [name for name, count in since_boot.items() if not count]
    lines = [output.table_text(headings, rows)] if rows else []
    return lines + ([f"0 since boot: {', '.join(zero)}"] if zero else [])
