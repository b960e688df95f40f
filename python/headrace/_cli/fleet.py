# SPDX-License-Identifier: Apache-2.0
"""headrace fleet, and the last page of headrace measure --mpi"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.compare import refuse_twice, value_text
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import listed, plural, say
from headrace._profile.fleet import LEAST_HOSTS, Fleet, Outlier, examine

#: Largest number of rows shown for a host, those with the largest differences; --json has all.
_SHOWN = 5


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="PROFILE...", help="Profile of each host, all measured with the same options."
        ),
    ],
    least: Annotated[
        str, typer.Option(metavar="SHARE", help="Smallest difference that counts.")
    ] = "10%",
    json: Json = False,
    out: Out = None,
) -> int:
    """Show which host is slow or configured differently.

    Exit code 9: a host differs. Exit code 10: the speed of a host could not be judged; that takes
    three hosts with quiet rows.

    \b
    headrace fleet p.*.json
    mpirun --map-by ppr:1:node headrace measure --mpi --out p.json

    The second line measures one profile per host and compares them.
    """
    share = parse.share(least)
    if len(files) < 2:
        raise headrace.InvalidError("a fleet is two hosts or more; give the profile of each")
    check_writable(out, *files)
    refuse_twice(files, "each host", presets=True)
    profiles = _by_host({file: parse.profile(file) for file in files})
    fleet = examine(profiles, share)
    made = document(fleet, share)
    output.deliver(made, out=out, json=json, show=lambda: output.print_text(text(fleet)))
    if fleet.differs:
        return exit_codes.CHANGED
    return exit_codes.UNJUDGED if fleet.inconclusive else exit_codes.SUCCESS


def _by_host(profiles: Mapping[Path, headrace.Profile]) -> dict[str, headrace.Profile]:
    """Profiles by name of the machine, or by file if two machines have one name."""
    for file, profile in profiles.items():
        if not profile.rows:
            raise headrace.InvalidError(f"{file} holds no rows; give a measured profile")
    names = Counter(profile.machine.name for profile in profiles.values())
    for name in (name for name, count in names.items() if count > 1):
        of_one = [str(file) for file, p in profiles.items() if p.machine.name == name]
        say(f"{listed(of_one)} are all of {name}; each counts as a host of its own")
    return {
        p.machine.name if names[p.machine.name] == 1 else str(file): p
        for file, p in profiles.items()
    }


def document(
    fleet: Fleet,
    least: float,
    *,
    failed: Mapping[str, str] | None = None,
    interrupted: bool = False,
) -> dict[str, Any]:
    """`failed`: hosts that were not measured in full, each with the reason."""
    return {
        **output.head("fleet"),
        "least": least,
        "interrupted": interrupted,
        **fleet.asdict(),
        "failed": dict(failed or {}),
    }


def text(fleet: Fleet) -> str:
    """A line per host, then why."""
    hosts = output.table_text(
        ("host", "outcome", "rows judged", "noisy", "slow", "fast", "settings"),
        (
            (h.host, h.outcome, *(str(n) for n in (h.judged, h.noisy, h.slow, h.fast, h.settings)))
            for h in fleet.hosts
        ),
        left=2,
    )
    parts = [hosts]
    if fleet.experiments or fleet.rows:
        lines = [_line(each) for each in (*fleet.experiments, *_farthest(fleet.rows))]
        headings = ("host", "point", "outcome", "here", "usual", "ratio")
        parts.append(output.table_text(headings, lines, left=3))
    parts += [_setting_text(each.name, each.usual, each.hosts) for each in fleet.settings]
    return "\n".join([*parts, _summary(fleet)])


def _farthest(outliers: Sequence[Outlier]) -> list[Outlier]:
    by_host: dict[str, list[Outlier]] = {}
    for each in outliers:
        by_host.setdefault(each.host, []).append(each)
    return [
        each
        for found in by_host.values()
        for each in sorted(found, key=lambda o: -_distance(o.ratio))[:_SHOWN]
    ]


def _distance(ratio: float) -> float:
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _line(each: Outlier) -> tuple[str, ...]:
    what = each.what if each.unit else f"{each.what} as a whole, time"
    return (
        each.host, what, each.outcome, value_text(each.value, each.unit),
        value_text(each.usual, each.unit), f"{each.ratio:.2f} x",
    )  # fmt: skip


def _setting_text(name: str, usual: str | None, hosts: Mapping[str, str]) -> str:
    values: dict[str, list[str]] = {}
    for host, value in hosts.items():
        values.setdefault(value, []).append(host)
    odd = "; ".join(f"{', '.join(who)}: {value}" for value, who in values.items())
    return f"{name}: {odd}" + (f" (most have {usual})" if usual is not None else "")


def _summary(fleet: Fleet) -> str:
    count = plural(len(fleet.hosts), "host")
    if len(fleet.hosts) < LEAST_HOSTS:
        speeds = (
            f"Inconclusive: the speeds of {count} cannot be judged; give {LEAST_HOSTS} or more, or "
            "use headrace compare"
        )
    else:
        words = Counter(h.outcome for h in fleet.hosts)
        odd = [f"{words[word]} {word}" for word in ("slow", "fast", "unknown") if words[word]]
        speeds = f"{count}: {', '.join(odd) or 'none is slow'}"
    differ = len(fleet.settings)
    verb = "differs" if differ == 1 else "differ"
    return f"{speeds}; {plural(differ, 'setting')} {verb}" if differ else speeds
