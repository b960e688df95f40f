# SPDX-License-Identifier: Apache-2.0
"""A profile as tables, one per experiment, optionally with another tool's numbers."""

from __future__ import annotations

from collections import Counter

import headrace
from headrace._cli import output, parse
from headrace._format import busy_host, by_options, plural, traffic_text
from headrace._profile import conventions, promises
from headrace._selection import SIZES


def profile_text(profile: headrace.Profile, convention: str | None = None) -> str:
    """Measured rows by experiment; rows without a value are counted by their reason."""
    profile = parse.in_lines(profile)
    measured = [row for row in profile.rows if row.median is not None]
    parts = [
        _experiment(name, [row for row in measured if row.experiment == name], convention)
        for name in dict.fromkeys(row.experiment for row in measured)
    ]
    if convention is not None:
        parts.append(f"{convention} counts: {conventions.find(convention).counts}\n")
    warning, _ = busy_host(profile.conditions.get("looks_disturbed", "0 of 0"))
    first = [f"{warning}\n"] if warning else []
    return "\n".join([*first, *parts, *_findings(profile), _summary(profile, measured)])


def _findings(profile: headrace.Profile) -> list[str]:
    """Findings from several rows, a table per kind."""
    found: list[tuple[str, tuple[str, ...], int, list[tuple[str, ...]]]] = [
        ("caches, by latency against size",
         ("cpu_node", "memory_node", "step", "from", "to", "latency"), 3,
         [(str(s.cpu_node), str(s.memory_node), s.name, headrace.format_bytes(s.from_size),
           headrace.format_bytes(s.to_size), value(s.latency_ns, "ns"))
          for s in headrace.cache_steps(profile)]),
        ("knees of loaded latency: most bandwidth per latency",
         ("observer", "traffic", "mix", "bandwidth", "latency", "unloaded", "at 1.5x", "at 2x"), 3,
         [(f"{k.cpu_node}>{k.memory_node}", f"{k.traffic_cpu_node}>{k.traffic_memory_node}",
           traffic_text(k.mix, k.threads), value(k.bandwidth, "B/s"),
           value(k.latency_ns, "ns"), value(k.idle_ns, "ns"),
           *("" if rate is None else value(rate, "B/s")
             for rate in (k.bandwidth_at_1_5, k.bandwidth_at_2)))
          for k in headrace.knees(profile)]),
        ("copies as T = a + V / b",
         ("engine", "from", "to", "state", "threads", "a", "b", "median error", "largest"), 4,
         [(f.engine, str(f.from_node), str(f.to_node), f.state, str(f.threads),
           value(f.latency_ns, "ns"), value(f.bandwidth, "B/s"), f"{f.median_error:.0%}",
           f"{f.largest_error:.0%}")
          for f in headrace.copy_fits(profile)]),
        ("which engine copies fastest",
         ("from", "to", "state", "threads", "from size", "engine"), 6,
         [(str(c.from_node), str(c.to_node), c.state, str(c.threads),
           headrace.format_bytes(c.bytes), c.engine) for c in headrace.crossovers(profile)]),
        ("what is promised on a GPU, as a multiple of what the driver alone reaches",
         ("copies", "gpu", "node", "measured", "at least", ""), 3, promises.lines(profile)),
    ]  # fmt: skip
    return [
        f"{title}\n{output.table_text(headings, rows, left=left)}\n"
        for title, headings, left, rows in found
        if rows
    ]


def _summary(profile: headrace.Profile, measured: list[headrace.Row]) -> str:
    count = f"{len(measured)} of {len(profile.rows)} points"
    if profile.published:
        lines = [f"{count} were published with a number; none was measured here"]
    else:
        noisy = sum("noisy" in row.flags for row in measured)
        lines = [f"{count} measured, {noisy} of them noisy"]
        if checks := profile.conditions.get("looks_disturbed"):
            lines[0] += f"; {busy_host(checks)[1]}"
        if over := profile.conditions.get("over_budget"):
            lines.append(f"longer than the budget: {over}")
        if small := sum("not_huge" in row.flags for row in measured):
            lines.append(f"{small} of them not all in huge pages (huge_part says how much)")
        if unsteady := sum("unsteady" in row.flags for row in measured):
            lines.append(f"{unsteady} of them unsteady (drift says by how much)")
        if cached := sum("partly_cached" in row.flags for row in measured):
            lines.append(f"{cached} of them partly in a cache larger than the machine shows")
    if unfit := _without_bend(profile, measured):
        lines.append(
            f"no knee in {plural(unfit, 'curve')} of loaded latency: too noisy, fewer than three "
            "mappings per point, or latency falls as traffic grows"
        )
    reasons: dict[str, int] = {}
    for row in profile.rows:
        if row.median is None:
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
    lines += (f"{count} not measured: {by_options(reason)}" for reason, count in reasons.items())
    return "\n".join(lines) + "\n"


def _without_bend(profile: headrace.Profile, measured: list[headrace.Row]) -> int:
    """The number of curves of loaded latency with enough points for a bend but without one."""
    names = ("cpu_node", "memory_node", "traffic_cpu_node", "traffic_memory_node", "mix", "threads")
    points = Counter(
        tuple(row.parameters.get(name) for name in names)
        for row in measured if row.experiment == "loaded"
    )  # fmt: skip
    return sum(count >= 4 for count in points.values()) - len(headrace.knees(profile))


def _experiment(name: str, rows: list[headrace.Row], convention: str | None) -> str:
    settings = [_settings(row) for row in rows]
    columns = list(dict.fromkeys(name for each in settings for name in each))
    # A parameter that is the same in all rows is printed once.
    fixed = {c: settings[0].get(c) for c in columns if len(rows) > 1 and _same(settings, c)}
    shown = [c for c in columns if c not in fixed]
    head = f"{name}" + "".join(f"  {c} {_parameter(c, v)}" for c, v in fixed.items())
    asked = [] if convention is None else [convention]
    reached = ["bandwidth"] if name == "loaded" else []  # by the traffic
    table = output.table_text(
        (*shown, *reached, "median", "interval", "mappings", *asked, ""),
        (
            (
                *(_parameter(c, each.get(c)) for c in shown),
                *(value(row.details.get(detail), "B/s") for detail in reached),
                value(row.median, row.unit),
                _bounds(row),
                str(len(row.samples)),
                *(_other(row, other) for other in asked),
                " ".join(marks(row)),
            )
            for row, each in zip(rows, settings, strict=True)
        ),
        left=len(shown),
    )  # fmt: skip
    return f"{head}\n{table}\n"


def _bounds(row: headrace.Row) -> str:
    """ "1.3 ns to 1.5 ns, range of 3"; empty for one sample."""
    if not row.samples:
        return str(row.interval)
    if len(row.samples) == 1:
        return "n=1"
    return f"{value(row.low, row.unit)} to {value(row.high, row.unit)}, {row.interval}"


def marks(row: headrace.Row) -> list[str]:
    """Its flags, and a mark if the number is an emulated device's."""
    return [*(["emulated"] if row.basis == "emulated" else []), *row.flags]


def _other(row: headrace.Row, convention: str) -> str:
    tool = conventions.find(convention)
    number = tool.number(row)
    return "-" if number is None else f"{number:.1f} {tool.unit}"


def _settings(row: headrace.Row) -> dict[str, int | str]:
    """Its parameters; for a disk also the CPUs, which are no parameter."""
    asked: dict[str, int | str] = dict(row.parameters)
    return asked | {"cpus": row.cpus} if row.experiment == "storage" and row.cpus else asked


def _same(settings: list[dict[str, int | str]], column: str) -> bool:
    return len({each.get(column) for each in settings}) == 1


def _parameter(name: str, setting: int | str | None) -> str:
    if name in SIZES and isinstance(setting, int):
        text: str = headrace.format_bytes(setting)
        return text
    if name == "mix":
        return conventions.called(setting or "")
    return "" if setting is None else str(setting)


def value(number: float | None, unit: str) -> str:
    """ "142 ns", "24.1 GB/s"."""
    if number is None:
        return "-"
    if unit == "B/s":
        rate: str = headrace.format_rate(number)
        return rate
    if unit == "x":
        return f"{number:.2f} x"
    return f"{number:.{1 if number < 100 else 0}f} {unit}"
